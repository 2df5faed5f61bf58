package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/txn"
)

// readLedger reads every partition of the ledger, and makes sure that it is this
// flow's.
func (v *verification) readLedger(ctx context.Context, topic kadm.TopicDetail, name string) error {
	f := v.flow
	switch {
	case errors.Is(topic.Err, kerr.TopicAuthorizationFailed):
		return f.refuse("not permitted: DESCRIBE of "+name+" on "+f.def.To, "grant READ and DESCRIBE on TOPIC "+name)
	case topic.Err != nil && !errors.Is(topic.Err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s: %w", name, topic.Err)
	case len(topic.Partitions) == 0:
		return f.refuse(fmt.Sprintf("it has no ledger on %s that says which copy is whose (no topic %s, or no right to see it)", f.def.To, name),
			"only an exactly-once flow has one; counting records on both sides would prove nothing")
	}
	v.shards = make([]verifyShard, len(topic.Partitions))
	empty := true
	for k := range v.shards {
		l := &v.shards[k].ledger
		once, cancel := context.WithTimeout(ctx, streamPatience)
		err := l.Read(once, v.dst, name, int32(k))
		cancel()
		if err != nil {
			return f.ledgerProblem(fmt.Errorf("read the ledger: %w", err))
		}
		if s := l.Suspended(); s != nil {
			v.suspended = "the ledger is suspended: " + s.Reason
		}
		of := l.Flow()
		if of == nil {
			continue
		}
		empty = false
		switch {
		case int(of.K) != len(v.shards):
			return f.refuse(fmt.Sprintf("%s has %d partitions and was made with %d", name, len(v.shards), of.K), "the number of shards is fixed")
		case of.SourceCluster != v.sourceID || of.TargetCluster != v.targetID:
			return f.refuse(fmt.Sprintf("%s is the ledger of a flow from cluster id %s to %s, and the clusters are %s and %s", name, of.SourceCluster, of.TargetCluster, v.sourceID, v.targetID),
				"give each flow a name of its own")
		case of.LedgerTopicID != topic.ID:
			return f.refuse(name+" was recreated: what was copied before is not in it", "see mirror ledger")
		}
	}
	if empty {
		return f.refuse(name+" is empty: nothing was copied by it yet", "run the flow first")
	}
	return nil
}

// list returns the topics of both sides that may concern the flow. A topic that
// may not be seen is refused, or it would pass for deleted.
func (v *verification) list(ctx context.Context) (from, to kadm.TopicDetails, err error) {
	if from, err = listTopics(ctx, v.src); err != nil {
		return nil, nil, fmt.Errorf("list topics of %s: %w", v.flow.def.From, err)
	}
	sources, targets := map[string]bool{}, map[string]bool{}
	for name := range from {
		if v.flow.def.Match(name) {
			targets[v.flow.def.TargetTopic(name)] = true
		}
	}
	for k := range v.shards {
		l := &v.shards[k].ledger
		for _, sp := range l.Partitions() {
			if f := l.Mark(sp).Frontier; f != nil {
				sources[f.SourceTopic], targets[f.TargetTopic] = true, true
			}
		}
	}
	more, err := listNamed(ctx, v.src, v.flow.def.From, sources)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(from, more)
	to, err = listNamed(ctx, v.dst, v.flow.def.To, targets)
	return from, to, err
}

func listNamed(ctx context.Context, cl *kgo.Client, cluster string, names map[string]bool) (kadm.TopicDetails, error) {
	if len(names) == 0 {
		return nil, nil
	}
	list, err := listTopics(ctx, cl, slices.Collect(maps.Keys(names))...)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", cluster, err)
	}
	for name, t := range list {
		switch {
		case errors.Is(t.Err, kerr.TopicAuthorizationFailed):
			return nil, &Refusal{Problem: "not permitted: DESCRIBE of " + name + " on " + cluster, Hint: "grant READ and DESCRIBE on TOPIC " + name}
		case t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("topic %s of %s: %w", name, cluster, t.Err)
		}
	}
	return list, nil
}

// pair makes a pair of each source partition that the ledger knows, and a report
// of those that it does not know yet.
func (v *verification) pair(from, to kadm.TopicDetails) error {
	byID := map[[16]byte]kadm.TopicDetail{}
	ids := false
	for _, t := range from {
		if t.Err == nil {
			byID[t.ID] = t
			ids = ids || t.ID != [16]byte{}
		}
	}
	known := map[place]bool{}
	asked := map[string]bool{}
	for k := range v.shards {
		s := &v.shards[k]
		s.pairs = map[txn.SourcePartition]*verifyPair{}
		for _, sp := range s.ledger.Partitions() {
			mark := s.ledger.Mark(sp)
			topic, name := byID[sp.TopicID], sp.String()
			if f := mark.Frontier; f != nil {
				name = f.SourceTopic
				if !ids { // brokers before 2.8
					topic = from[name]
				}
			}
			name = cmp.Or(topic.Topic, name)
			asked[name] = true
			if !v.asks(name) {
				continue
			}
			rep := &VerifyPartition{Topic: name, Partition: sp.Partition, Target: v.flow.def.TargetTopic(name)}
			v.reports = append(v.reports, rep)
			if _, ok := topic.Partitions[sp.Partition]; !ok {
				rep.NotCompared = fmt.Sprintf("the source has no partition %s any more: the topic was deleted or recreated", sp)
				continue
			}
			known[place{name, sp.Partition}] = true
			s.pairs[sp] = v.newPair(rep, topic.ID, &s.ledger, sp, to)
		}
	}
	made := (&catalog{flow: v.flow.def, sameCluster: v.sourceID == v.targetID}).made(from)
	for name, t := range from {
		if !v.flow.def.Match(name) || made[name] || t.Err != nil {
			continue
		}
		asked[name] = true
		for p := range t.Partitions {
			if v.asks(name) && !known[place{name, p}] {
				v.reports = append(v.reports, &VerifyPartition{
					Topic: name, Partition: p, Target: v.flow.def.TargetTopic(name), NotCompared: "nothing of it was copied yet",
				})
			}
		}
	}
	for _, name := range v.topics {
		if !asked[name] {
			return v.flow.refuse("it does not copy a topic "+name, "name a topic of the source")
		}
	}
	return nil
}

func (v *verification) asks(topic string) bool {
	return len(v.topics) == 0 || slices.Contains(v.topics, topic)
}
