package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/onceover-mirror/onceover/txn"
)

// acceptLedger takes the declaration's fingerprint. Whoever copies under another
// one is fenced, reads the flow entry, and stops.
func (f *flow) acceptLedger(ctx context.Context, do bool) (LedgerPlan, error) {
	var plan LedgerPlan
	found, err := f.findLedger(ctx)
	if err != nil {
		return plan, err
	}
	if !found {
		return plan, f.refuse("there is no ledger at "+f.def.To, "a first run with guarantee: exactly-once makes one")
	}
	ls, err := f.readLedger(ctx)
	if err != nil {
		return plan, err
	}
	if err := f.ours(ls); err != nil {
		return plan, err
	}
	head := newest(ls)
	if head == nil {
		return plan, nil
	}
	// A call that ended half-way has given some shards the generation already.
	generation := head.Generation
	if head.Fingerprint != f.def.Fingerprint() {
		generation++
	}
	var shards []int
	for k, l := range ls {
		if e := l.Flow(); e != nil && (e.Fingerprint != f.def.Fingerprint() || e.Generation < generation) {
			shards = append(shards, k)
		}
	}
	if len(shards) == 0 {
		return plan, nil
	}
	plan.say("shards %s of %s take fingerprint %.12s as generation %d, in place of %.12s", shardList(shards), txn.LedgerTopic(f.def.Name), f.def.Fingerprint(), generation, ls[shards[0]].Flow().Fingerprint)
	plan.say("what is copied from now on follows the declaration at hand (rename, provenance); what was copied stays as it is")
	for _, k := range shards {
		for _, p := range f.redirected(ls[k]) {
			plan.say("%s goes on in %s", p.what, p.to)
		}
	}
	plan.say("processes that run with another declaration stop")
	if !do {
		return plan, nil
	}
	for _, k := range shards {
		if err := f.acceptShard(ctx, k, generation); err != nil {
			return plan, err
		}
	}
	return plan, nil
}

func (f *flow) acceptShard(ctx context.Context, shard int, generation int64) error {
	return f.amend(ctx, shard, func(_ context.Context, l *txn.Ledger) ([]txn.Entry, error) {
		e := l.Flow()
		if e == nil || e.Fingerprint == f.def.Fingerprint() && e.Generation >= generation {
			return nil, nil
		}
		out := []txn.Entry{f.flowEntry(max(generation, e.Generation+1))}
		for _, p := range f.redirected(l) {
			out = append(out, startEntry(p.src, p.next, true, "declaration accepted: the target is "+p.to+" from here on"))
		}
		return out, nil
	})
}

// redirect is a source partition whose copies go to another topic than before.
type redirect struct {
	src      txn.SourcePartition
	next     int64
	what, to string
}

// redirected are those of a shard. They need a start entry: what their frontier
// says of the target is about the topic before.
func (f *flow) redirected(l *txn.Ledger) []redirect {
	var out []redirect
	for _, p := range l.Partitions() {
		fr := l.Mark(p).Frontier
		if fr == nil {
			continue
		}
		if to := f.def.TargetTopic(fr.SourceTopic); to != fr.TargetTopic {
			out = append(out, redirect{p, fr.Next, fmt.Sprintf("%s[%d], copied to %s up to %d,", fr.SourceTopic, p.Partition, fr.TargetTopic, fr.Next), to})
		}
	}
	slices.SortFunc(out, func(a, b redirect) int { return strings.Compare(a.what, b.what) })
	return out
}
