package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The listings of kadm fail as a whole when a single topic is not permitted.
// These have the error at the topic.

// listTopics reads the metadata of topics and what may be done with each; of
// all that may be seen when no name is given.
func listTopics(ctx context.Context, cl *kgo.Client, names ...string) (kadm.TopicDetails, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, err
	}
	list := make(kadm.TopicDetails, len(resp.Topics))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		d := kadm.TopicDetail{
			Topic: *t.Topic, ID: t.TopicID, IsInternal: t.IsInternal,
			Partitions:           make(kadm.PartitionDetails, len(t.Partitions)),
			AuthorizedOperations: kadm.DecodeACLOperations(t.AuthorizedOperations),
			Err:                  kerr.ErrorForCode(t.ErrorCode),
		}
		for _, p := range t.Partitions {
			d.Partitions[p.Partition] = kadm.PartitionDetail{
				Topic: *t.Topic, Partition: p.Partition, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch,
				Replicas: p.Replicas, ISR: p.ISR, OfflineReplicas: p.OfflineReplicas, Err: kerr.ErrorForCode(p.ErrorCode),
			}
		}
		list[d.Topic] = d
	}
	return list, nil
}

// topicConfigs reads what somebody set of the given keys, at the topic or at
// its broker. Topics whose configs may not be read are left out.
func topicConfigs(ctx context.Context, cl *kgo.Client, topics, keys []string) (map[string]map[string]string, error) {
	return readConfigs(ctx, cl, topics, keys, false)
}

// readConfigs reads the given keys, with defaults those that nobody set, too.
func readConfigs(ctx context.Context, cl *kgo.Client, topics, keys []string, defaults bool) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	if len(topics) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, t := range topics {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, t, keys
		req.Resources = append(req.Resources, r)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	for _, r := range resp.Resources {
		switch err := withMessage(kerr.ErrorForCode(r.ErrorCode), r.ErrorMessage); {
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.UnknownTopicOrPartition):
			continue
		case err != nil:
			return nil, fmt.Errorf("topic %s: %w", r.ResourceName, err)
		}
		set := map[string]string{}
		for _, c := range r.Configs {
			if c.Value != nil && (defaults || c.Source != kmsg.ConfigSourceDefaultConfig) && slices.Contains(keys, c.Name) {
				set[c.Name] = *c.Value
			}
		}
		out[r.ResourceName] = set
	}
	return out, nil
}
