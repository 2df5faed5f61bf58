package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn"
)

// verification is one call of [Mirror.Verify].
type verification struct {
	flow     *flow
	topics   []string
	listed   int // findings of a kind
	held     int // runs of the map, by a worker
	progress func(VerifyProgress)

	// Set by freeze, constant afterwards.
	src, dst           *kgo.Client
	sourceID, targetID string // cluster ids
	chain              transform.Chain
	shards             []verifyShard
	reports            []*VerifyPartition
	suspended          string

	keys atomic.Int64 // held by all pairs

	mu          sync.Mutex
	done, total int64
}

// verifyShard is one partition of ledger and map.
type verifyShard struct {
	ledger txn.Ledger
	pairs  map[txn.SourcePartition]*verifyPair
	// mapStart and mapEnd bound the map.
	mapStart, mapEnd int64
}

// open makes clients of its own: the flow may be running.
func (v *verification) open() (err error) {
	f := v.flow
	if !f.hasTarget() {
		return f.refuse("its target is no Kafka cluster, and has no ledger to verify by", "compare the output by hand")
	}
	if v.src, err = f.client(f.def.From, "source-admin"); err != nil {
		return err
	}
	if v.dst, err = f.client(f.def.To, "target-admin"); err != nil {
		v.src.Close()
	}
	return err
}

func (v *verification) close() {
	v.src.Close()
	v.dst.Close()
}

// freeze reads the ledger, and with it fixes what is compared. The order of the
// looks matters while the flow runs: what the ledger says is copied stands below
// the target's end and the map's end, since those are asked for later; and the
// map's end, asked for last, has a run for every copy that was readable on the
// target before.
func (v *verification) freeze(ctx context.Context) error {
	ledger, offsets := txn.LedgerTopic(v.flow.def.Name), txn.MapTopic(v.flow.def.Name)
	var own kadm.TopicDetails
	err := v.insist(ctx, func(ctx context.Context) (err error) {
		if v.sourceID, err = clusterID(ctx, v.src, v.flow.def.From); err != nil {
			return err
		}
		if v.targetID, err = clusterID(ctx, v.dst, v.flow.def.To); err != nil {
			return err
		}
		own, err = listTopics(ctx, v.dst, ledger, offsets)
		return err
	})
	if err != nil {
		return err
	}
	if v.flow.def.Provenance && v.sourceID != v.targetID {
		v.chain = transform.Chain{transform.Provenance(v.sourceID, v.targetID)}
	}
	if err := v.readLedger(ctx, own[ledger], ledger); err != nil {
		return err
	}
	if d := own[offsets]; len(d.Partitions) != len(v.shards) {
		return v.flow.refuse(fmt.Sprintf("the map topic %s has %d partitions, and the ledger %d: %v", offsets, len(d.Partitions), len(v.shards), d.Err),
			"without the map, copies can't be told from other records")
	}
	var from, to kadm.TopicDetails
	if err := v.insist(ctx, func(ctx context.Context) (err error) { from, to, err = v.list(ctx); return err }); err != nil {
		return err
	}
	if err := v.pair(from, to); err != nil {
		return err
	}
	return v.insist(ctx, func(ctx context.Context) error { return v.bound(ctx, offsets) })
}

// insist repeats do for a while when a cluster's answer is one that passes.
func (v *verification) insist(ctx context.Context, do func(context.Context) error) error {
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, askTimeout)
		err := do(once)
		cancel()
		if err == nil || !kerr.IsRetriable(err) || try == 8 {
			return err
		}
		if err := sleep(ctx, backoff(try, 50*time.Millisecond, time.Second)); err != nil {
			return err
		}
	}
}

func clusterID(ctx context.Context, cl *kgo.Client, name string) (string, error) {
	meta, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	if err != nil {
		return "", &hinted{fmt.Errorf("ask %s for its id: %w", name, err), "see bootstrap, tls and sasl of cluster " + name}
	}
	return meta.Cluster, nil
}

// bound asks both sides how far their logs reach, the map last.
func (v *verification) bound(ctx context.Context, offsets string) error {
	src, dst := map[string]bool{}, map[string]bool{}
	for k := range v.shards {
		for _, p := range v.shards[k].pairs {
			src[p.rep.Topic] = true
			if p.lost == "" {
				dst[p.rep.Target] = true
			}
		}
	}
	from, err := boundsOf(ctx, v.src, v.flow.def.From, slices.Collect(maps.Keys(src)))
	if err != nil {
		return err
	}
	to, err := boundsOf(ctx, v.dst, v.flow.def.To, slices.Collect(maps.Keys(dst)))
	if err != nil {
		return err
	}
	policy := []string{"cleanup.policy"}
	fromPolicy, err := topicConfigs(ctx, v.src, slices.Collect(maps.Keys(src)), policy)
	if err != nil {
		return fmt.Errorf("describe configs of %s: %w", v.flow.def.From, err)
	}
	toPolicy, err := topicConfigs(ctx, v.dst, slices.Collect(maps.Keys(dst)), policy)
	if err != nil {
		return fmt.Errorf("describe configs of %s: %w", v.flow.def.To, err)
	}
	mapped, err := boundsOf(ctx, v.dst, v.flow.def.To, []string{offsets})
	if err != nil {
		return err
	}
	v.total = 0
	for k := range v.shards {
		s := &v.shards[k]
		m := mapped[place{offsets, int32(k)}]
		s.mapStart, s.mapEnd = m.start, m.end
		for _, p := range s.pairs {
			at := place{p.rep.Topic, p.rep.Partition}
			p.bound(from[at], to[place{p.rep.Target, p.rep.Partition}], mayCompact(fromPolicy, p.rep.Topic), mayCompact(toPolicy, p.rep.Target))
			p.mapCut = s.mapStart > 0
			v.total += p.high - p.low
		}
	}
	for _, rep := range v.reports {
		if b, ok := from[place{rep.Topic, rep.Partition}]; ok && rep.NotCompared == "" {
			rep.Behind = max(0, b.end-rep.End)
		}
	}
	return nil
}

// mayCompact is true, too, where the policy may not be read: then what a newer
// record of the same key does not account for is missing all the same.
func mayCompact(all map[string]map[string]string, topic string) bool {
	cfg, ok := all[topic]
	return !ok || compacts(cfg["cleanup.policy"])
}

// bounds of a partition's log: where it begins, the last stable offset, the end.
type bounds struct{ start, stable, end int64 }

// boundsOf asks for the bounds of topics: those of the stable offset before
// those of the end.
func boundsOf(ctx context.Context, cl *kgo.Client, cluster string, topics []string) (map[place]bounds, error) {
	out := map[place]bounds{}
	if len(topics) == 0 {
		return out, nil
	}
	adm := kadm.NewClient(cl)
	for _, look := range []struct {
		ask func(context.Context, ...string) (kadm.ListedOffsets, error)
		set func(*bounds, int64)
	}{
		{adm.ListStartOffsets, func(b *bounds, o int64) { b.start = o }},
		{adm.ListCommittedOffsets, func(b *bounds, o int64) { b.stable = o }},
		{adm.ListEndOffsets, func(b *bounds, o int64) { b.end = o }},
	} {
		list, err := look.ask(ctx, topics...)
		if err == nil {
			err = list.Error()
		}
		if err != nil {
			return nil, fmt.Errorf("list offsets of %s: %w", cluster, err)
		}
		list.Each(func(o kadm.ListedOffset) {
			b := out[place{o.Topic, o.Partition}]
			look.set(&b, o.Offset)
			out[place{o.Topic, o.Partition}] = b
		})
	}
	return out, nil
}

// shard streams the map of one shard and has its pairs compare what the runs
// name.
func (v *verification) shard(ctx context.Context, k int32) error {
	s := &v.shards[k]
	if len(s.pairs) == 0 {
		return nil
	}
	each := func(do func(*verifyPair, context.Context) error) error {
		for _, p := range s.pairs {
			if err := do(p, ctx); err != nil {
				return fmt.Errorf("%s[%d]: %w", p.rep.Topic, p.rep.Partition, err)
			}
		}
		return nil
	}
	m := newLogStream(v.dst, place{txn.MapTopic(v.flow.def.Name), k}, s.mapStart)
	for held := 0; ; {
		rec, err := m.next(ctx, s.mapEnd)
		if err != nil {
			return err
		}
		if rec == nil {
			break
		}
		runs, err := txn.DecodeRuns(rec.Value)
		if err != nil {
			return fmt.Errorf("%s[%d] offset %d: %w", m.at.topic, k, rec.Offset, err)
		}
		for _, r := range runs {
			if p := s.pairs[r.Source]; p != nil && p.hold(r) {
				held++
			}
		}
		if held >= v.held {
			held = 0
			if err := each((*verifyPair).take); err != nil {
				return err
			}
		}
	}
	if err := each((*verifyPair).take); err != nil {
		return err
	}
	return each((*verifyPair).finish)
}
