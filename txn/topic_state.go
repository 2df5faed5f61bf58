package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// notPermitted begins each finding about rights.
const notPermitted = "not permitted: "

// topicState is what metadata says of a topic, and of what may be done with it.
type topicState struct {
	name       string
	id         [16]byte
	err        error
	partitions map[int32]replicas
	ops        []kadm.ACLOperation
}

// replicas of a partition: how many there are, how many of them are in sync, and
// whether one leads.
type replicas struct {
	all, inSync int
	led         bool
}

func (t topicState) hidden() bool { return errors.Is(t.err, kerr.TopicAuthorizationFailed) }

func (t topicState) exists() bool {
	return t.err == nil || !t.hidden() && !errors.Is(t.err, kerr.UnknownTopicOrPartition)
}

func (t topicState) led() bool {
	for _, r := range t.partitions {
		if !r.led {
			return false
		}
	}
	return t.err == nil && len(t.partitions) > 0
}

// lacks returns the names of the operations that are not permitted. A broker
// that says nothing (before 2.3) denies nothing.
func (t topicState) lacks(need ...kmsg.ACLOperation) []string {
	var out []string
	for _, op := range need {
		if len(t.ops) > 0 && !slices.Contains(t.ops, op) && !slices.Contains(t.ops, kmsg.ACLOperationAll) {
			out = append(out, op.String())
		}
	}
	return out
}

func (t topicState) denied(ops ...string) Finding {
	list := strings.Join(ops, ", ")
	return Finding{notPermitted + list + " on topic " + t.name, "grant " + list + " on TOPIC " + t.name}
}

// find asks for both topics by name, with what may be done with each.
func (s LedgerSpec) find(ctx context.Context, cl *kgo.Client) (map[string]topicState, error) {
	out := map[string]topicState{}
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range []string{LedgerTopic(s.Flow), MapTopic(s.Flow)} {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
		out[name] = topicState{name: name, err: kerr.UnknownTopicOrPartition}
	}
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("describe topics %s: %w", strings.Join(slices.Sorted(maps.Keys(out)), ", "), err)
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		st := topicState{
			name: *t.Topic, id: t.TopicID, err: kerr.ErrorForCode(t.ErrorCode), partitions: map[int32]replicas{},
			ops: kadm.DecodeACLOperations(t.AuthorizedOperations),
		}
		for _, p := range t.Partitions {
			st.partitions[p.Partition] = replicas{len(p.Replicas), len(p.ISR), p.Leader >= 0 && p.ErrorCode == 0}
		}
		out[st.name] = st
	}
	return out, nil
}
