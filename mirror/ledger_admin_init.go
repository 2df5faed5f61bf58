package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/txn"
)

// initLedger founds what is empty or lost of a ledger.
func (f *flow) initLedger(ctx context.Context, from LedgerFrom, do bool) (LedgerPlan, error) {
	var plan LedgerPlan
	from = cmp.Or(from, LedgerFromCommitted)
	if from != LedgerFromCommitted && from != LedgerFromEarliest && from != LedgerFromLatest {
		return plan, f.refuse(fmt.Sprintf("a ledger can't begin at %q", from), "use committed, earliest or latest")
	}
	found, err := f.findLedger(ctx)
	if err != nil {
		return plan, err
	}
	switch {
	case found:
	case do:
		if err := f.openLedger(ctx); err != nil {
			return plan, err
		}
	default:
		f.ledger.shards = f.def.Ledger.Shards
		plan.say("topics %s and %s are made at %s, with %d partitions, where they are missing", txn.LedgerTopic(f.def.Name), txn.MapTopic(f.def.Name), f.def.To, f.def.Ledger.Shards)
	}
	ls := make([]*txn.Ledger, f.ledger.shards)
	if found || do {
		if ls, err = f.readLedger(ctx); err != nil {
			return plan, err
		}
	}
	var shards []int
	for k, l := range ls {
		lost, err := f.unfounded(k, l)
		if err != nil {
			return plan, err
		}
		if lost {
			shards = append(shards, k)
		}
	}
	if len(shards) == 0 {
		return plan, nil
	}
	if err := f.idle(ctx); err != nil {
		return plan, err
	}
	if from == LedgerFromCommitted {
		if err := f.gather(ctx, &plan, do); err != nil {
			return plan, err
		}
	}
	if plan.Places, err = f.initPlaces(ctx, from, shards); err != nil {
		return plan, err
	}
	plan.say("shards %s of %s are founded, with the positions below", shardList(shards), txn.LedgerTopic(f.def.Name))
	if !do {
		return plan, nil
	}
	for _, k := range shards {
		err := f.amend(ctx, k, func(_ context.Context, l *txn.Ledger) ([]txn.Entry, error) {
			lost, err := f.unfounded(k, l)
			if err != nil || !lost {
				return nil, err
			}
			generation := int64(1)
			if e := l.Flow(); e != nil {
				generation = e.Generation + 1
			}
			return append([]txn.Entry{f.flowEntry(generation)}, startsOf(plan.Places, k, f.ledger.shards)...), nil
		})
		if err != nil {
			return plan, err
		}
	}
	return plan, nil
}

// unfounded reports whether a shard has nothing that counts: it is empty, or its
// entries were written to a ledger topic that was there before. A nil ledger is
// one whose topic is still to be made.
func (f *flow) unfounded(shard int, l *txn.Ledger) (bool, error) {
	if l == nil || l.Empty() {
		return true, nil
	}
	name := txn.LedgerTopic(f.def.Name)
	switch e := l.Flow(); {
	case e == nil:
		return false, f.refuse(fmt.Sprintf("shard %d of %s has positions and does not say whose", shard, name), "keep a copy of the topic for analysis, delete it, and try again")
	case e.SourceCluster != f.srcCap.ClusterID || e.TargetCluster != f.dstCap.ClusterID:
		return false, f.refuse(fmt.Sprintf("%s belongs to a flow from cluster %s to %s", name, e.SourceCluster, e.TargetCluster), "choose another flow name, or delete the topic, and try again")
	default:
		return e.LedgerTopicID != f.ledger.id, nil
	}
}

// initPlaces are where the partitions of shards begin. How far the flow has got
// before is told by its group at the source, which follows the copies, and by the
// map, which is written along with them.
func (f *flow) initPlaces(ctx context.Context, from LedgerFrom, shards []int) ([]LedgerPlace, error) {
	all, err := f.ledgerSources(ctx)
	if err != nil {
		return nil, err
	}
	group, err := f.groupPositions(ctx, all)
	if err != nil {
		return nil, err
	}
	mapped, err := f.mappedEnds(ctx, all, shards)
	if err != nil {
		return nil, err
	}
	wanted := map[int]bool{}
	for _, k := range shards {
		wanted[k] = true
	}
	var out []LedgerPlace
	for _, p := range all {
		if !wanted[p.src.Shard(f.ledger.shards)] {
			continue
		}
		at, ok := group[place{p.Topic, p.Partition}]
		why := "position of group " + f.settings.GroupID
		if end, has := mapped[p.src]; has && (!ok || end > at) {
			at, ok, why = end, true, "behind the last copy in the offset map"
		}
		if ok {
			p.Reached, p.prior = at, true
		}
		switch {
		case from == LedgerFromLatest:
			p.From, p.Why, p.prior = p.End, "mirror ledger init --at latest", true
		case from == LedgerFromCommitted && ok:
			p.From, p.Why = at, "mirror ledger init: "+why
		case from == LedgerFromCommitted:
			p.From, p.Why = p.Start, "mirror ledger init: nothing tells of an earlier position"
		default:
			p.From, p.Why = p.Start, "mirror ledger init --at earliest"
		}
		out = append(out, p)
	}
	return out, nil
}

// mappedEnds are the source offsets after the last copy into the target topics
// that there are now.
func (f *flow) mappedEnds(ctx context.Context, all []LedgerPlace, shards []int) (map[txn.SourcePartition]int64, error) {
	out := map[txn.SourcePartition]int64{}
	var names []string
	for _, p := range all {
		names = append(names, f.def.TargetTopic(p.Topic))
	}
	have, err := listTopics(ctx, f.dst, append(unique(names), txn.MapTopic(f.def.Name))...)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	offsets := have[txn.MapTopic(f.def.Name)]
	switch err := offsets.Err; {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return out, nil
	case err != nil:
		return nil, fmt.Errorf("look for topic %s: %w", txn.MapTopic(f.def.Name), err)
	}
	for _, k := range shards {
		if k >= len(offsets.Partitions) {
			continue
		}
		by, _, err := f.coverage(ctx, int32(k))
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			if c := by[p.src]; c != nil && c.ends[have[f.def.TargetTopic(p.Topic)].ID] > 0 {
				out[p.src] = c.reached[have[f.def.TargetTopic(p.Topic)].ID]
			}
		}
	}
	return out, nil
}
