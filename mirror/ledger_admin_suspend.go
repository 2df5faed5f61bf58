package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/txn"
)

// suspendLedger makes a ledger stand aside before the flow copies at-least-once
// because somebody asked for that: shard by shard it fences whoever copies, has
// the group at the source begin exactly at the ledger's positions, and marks the
// shard as suspended. What is copied from then on is not in the ledger. A call
// that ended half-way is completed by the next; without a ledger, or with one
// that is suspended already, there is nothing to do.
func (f *flow) suspendLedger(ctx context.Context) error {
	if !f.hasTarget() {
		return nil
	}
	found, err := f.findLedger(ctx)
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		// Who may not look at the ledger has not written to it.
		f.log.Info("no ledger looked for", "reason", err)
		return nil
	}
	if err != nil || !found {
		return err
	}
	ls, err := f.readLedger(ctx)
	if err != nil {
		return err
	}
	if newest(ls) == nil {
		return nil // it was made and never used
	}
	if err := f.ours(ls); err != nil {
		return err
	}
	for k, l := range ls {
		if l.Suspended() != nil {
			continue
		}
		if err := f.suspendShard(ctx, k, true); err != nil {
			return err
		}
		f.log.Info("ledger suspended", "shard", k, "positions", len(l.Positions()), "to", f.settings.GroupID)
	}
	return nil
}

// suspendShard suspends one shard; carry takes its positions to the source.
func (f *flow) suspendShard(ctx context.Context, shard int, carry bool) error {
	return f.amend(ctx, shard, func(ctx context.Context, l *txn.Ledger) ([]txn.Entry, error) {
		if l.Suspended() != nil {
			return nil, nil
		}
		// In this order: what the group was told of is the ledger's last word,
		// because the entry commits only if nobody has written in between.
		if carry {
			if err := f.carryFromLedger(ctx, l); err != nil {
				return nil, err
			}
		}
		var out []txn.Entry
		if l.Flow() == nil { // a shard that nobody had come to yet
			out = append(out, f.flowEntry(1))
		}
		return append(out, txn.Entry{Key: txn.Key{Kind: txn.KindSuspend}, Value: &txn.Suspend{
			Reason: "guarantee: at-least-once was asked for", Time: time.Now().UnixMilli(),
		}}), nil
	})
}

// carryFromLedger commits the positions of a shard for the group at the source.
// Those of topics that are gone mean nothing any more.
func (f *flow) carryFromLedger(ctx context.Context, l *txn.Ledger) error {
	topics, err := listTopics(ctx, f.src)
	if err != nil {
		return fmt.Errorf("list topics of %s: %w", f.def.From, err)
	}
	places := f.sourcePlaces(topics)
	var os kadm.Offsets
	for p, next := range l.Positions() {
		at, ok := places[p]
		if !ok {
			continue
		}
		o := kadm.Offset{Topic: at.topic, Partition: at.partition, At: next, LeaderEpoch: -1}
		if fr := l.Mark(p).Frontier; fr != nil {
			o.LeaderEpoch = fr.LeaderEpoch
		}
		if id := topics[at.topic].ID; id != ([16]byte{}) {
			o.Metadata = idText(id)
		}
		os.Add(o)
	}
	if len(os) == 0 {
		return nil
	}
	resp, err := f.admin().CommitOffsets(ctx, f.settings.GroupID, os)
	if err == nil {
		err = resp.Error()
	}
	switch {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.RebalanceInProgress):
		return waitForOthers(fmt.Errorf("group %s has members: %w", f.settings.GroupID, err))
	case err != nil:
		return groupDenied(fmt.Errorf("carry the ledger's positions to group %s: %w", f.settings.GroupID, err), f.settings.GroupID)
	}
	return nil
}

// resumeLedger has exactly-once go on where the at-least-once run got to.
func (f *flow) resumeLedger(ctx context.Context, do bool) (LedgerPlan, error) {
	var plan LedgerPlan
	found, err := f.findLedger(ctx)
	if err != nil {
		return plan, err
	}
	if !found {
		return plan, f.refuse("there is no ledger at "+f.def.To, "a first run with guarantee: exactly-once makes one, and goes on at the positions of the at-least-once run")
	}
	ls, err := f.readLedger(ctx)
	if err != nil {
		return plan, err
	}
	if err := f.ours(ls); err != nil {
		return plan, err
	}
	var shards []int
	for k, l := range ls {
		if l.Suspended() != nil {
			shards = append(shards, k)
		}
	}
	if len(shards) == 0 {
		return plan, nil
	}
	if err := f.idle(ctx); err != nil {
		return plan, err
	}
	if err := f.gather(ctx, &plan, do); err != nil {
		return plan, err
	}
	if plan.Places, err = f.resumePlaces(ctx, ls); err != nil {
		return plan, err
	}
	plan.say("%d of %d shards of %s take the positions below and are no longer suspended", len(shards), len(ls), txn.LedgerTopic(f.def.Name))
	if !do {
		return plan, nil
	}
	for _, k := range shards {
		if err := f.resumeShard(ctx, k, plan.Places); err != nil {
			return plan, err
		}
	}
	if err := f.idle(ctx); err != nil {
		// A process joined while it was being resumed: what it copies is not in
		// the positions that were taken.
		for _, k := range shards {
			if serr := f.suspendShard(ctx, k, false); serr != nil {
				return plan, errors.Join(err, serr)
			}
		}
		return plan, err
	}
	return plan, nil
}

// resumePlaces are where the partitions of suspended shards go on: the group's
// positions, and never below the ledger's.
func (f *flow) resumePlaces(ctx context.Context, ls []*txn.Ledger) ([]LedgerPlace, error) {
	all, err := f.ledgerSources(ctx)
	if err != nil {
		return nil, err
	}
	group, err := f.groupPositions(ctx, all)
	if err != nil {
		return nil, err
	}
	var out []LedgerPlace
	var missing []string
	for _, p := range all {
		l := ls[p.src.Shard(len(ls))]
		if l.Suspended() == nil {
			continue
		}
		was, known := l.Mark(p.src).Position()
		at, ok := group[place{p.Topic, p.Partition}]
		switch {
		case !ok && known:
			missing = append(missing, fmt.Sprintf("%s[%d] (the ledger has %d)", p.Topic, p.Partition, was))
		case ok && (!known || at > was):
			p.From, p.Reached, p.prior = at, at, true
			p.Why = fmt.Sprintf("resumed after at-least-once: position of group %s", f.settings.GroupID)
			out = append(out, p)
		}
	}
	if len(missing) > 0 {
		return nil, f.refuse(fmt.Sprintf("group %s at the source has no position of %s: how far the at-least-once run got is not known", f.settings.GroupID, some(missing)),
			"set it with kafka-consumer-groups.sh --reset-offsets; the ledger's own position copies again what came since")
	}
	return out, nil
}

// resumeShard ends the suspension of a shard. A partition that got no further
// meanwhile keeps its frontier.
func (f *flow) resumeShard(ctx context.Context, shard int, all []LedgerPlace) error {
	return f.amend(ctx, shard, func(_ context.Context, l *txn.Ledger) ([]txn.Entry, error) {
		if l.Suspended() == nil {
			return nil, nil
		}
		var on []LedgerPlace
		for _, p := range all {
			if was, ok := l.Mark(p.src).Position(); !ok || p.From > was {
				on = append(on, p)
			}
		}
		return append(startsOf(on, shard, f.ledger.shards), txn.Entry{Key: txn.Key{Kind: txn.KindSuspend}}), nil
	})
}

// shardList names shards.
func shardList(ns []int) string { return strings.Trim(fmt.Sprint(ns), "[]") }
