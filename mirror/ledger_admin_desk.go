package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/txn"
)

// findLedger looks for the ledger topic; false when there is none.
func (f *flow) findLedger(ctx context.Context) (bool, error) {
	name := txn.LedgerTopic(f.def.Name)
	have, err := listTopics(ctx, f.dst, name)
	if err != nil {
		return false, fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	t := have[name]
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition), t.Topic == "":
		return false, nil
	case t.Err != nil:
		return false, fmt.Errorf("look for topic %s: %w", name, t.Err)
	}
	f.ledger = ledgerHome{t.ID, len(t.Partitions)}
	return true, nil
}

// readLedger reads all shards as they are, without a fence.
func (f *flow) readLedger(ctx context.Context) ([]*txn.Ledger, error) {
	out := make([]*txn.Ledger, f.ledger.shards)
	for k := range out {
		out[k] = &txn.Ledger{}
	}
	return out, f.readShards(ctx, out)
}

// readShards reads ledgers on to their ends. One that could not be read is empty
// afterwards.
func (f *flow) readShards(ctx context.Context, ls []*txn.Ledger) error {
	var first error
	for k, err := range txn.ReadLedgers(ctx, f.dst, txn.LedgerTopic(f.def.Name), ls) {
		if err == nil {
			continue
		}
		ls[k] = &txn.Ledger{}
		if first == nil {
			first = f.ledgerProblem(fmt.Errorf("read the ledger: %w", err))
		}
	}
	return first
}

// ours refuses a ledger that belongs to other clusters, or to a ledger topic that
// was there before.
func (f *flow) ours(ls []*txn.Ledger) error {
	for k, l := range ls {
		e := l.Flow()
		if e != nil && (e.SourceCluster != f.srcCap.ClusterID || e.TargetCluster != f.dstCap.ClusterID || e.LedgerTopicID != f.ledger.id || int(e.K) != f.ledger.shards) {
			return f.refuse(fmt.Sprintf("shard %d of %s does not belong to this flow between these clusters", k, txn.LedgerTopic(f.def.Name)), "see mirror ledger check")
		}
	}
	return nil
}

// newest is the flow entry with the highest generation, nil without any.
func newest(ls []*txn.Ledger) *txn.Flow {
	var out *txn.Flow
	for _, l := range ls {
		if e := l.Flow(); e != nil && (out == nil || e.Generation > out.Generation) {
			out = e
		}
	}
	return out
}

// amend owns a shard, and with that fences whoever copies into it, and commits
// what write makes of its ledger; nothing, where that is none. Whoever was fenced
// may fence in turn: then it begins anew, from the ledger. It returns once the
// ledger is known to say what was written.
func (f *flow) amend(ctx context.Context, shard int, write func(context.Context, *txn.Ledger) ([]txn.Entry, error)) error {
	opts, err := f.clientOpts(f.def.To, "target-admin")
	if err != nil {
		return err
	}
	more, err := producerOpts(f.settings.Producer)
	if err != nil {
		return f.refuse(err.Error(), hintOf(err))
	}
	cl, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return f.refuse(fmt.Sprintf("open target client: %v", err), "")
	}
	defer cl.Close()
	s, err := txn.NewSession(txn.SessionConfig{Client: cl, Flow: f.def.Name, Shard: shard, Timeout: f.def.Transaction.Timeout})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	for try := 1; ; try++ {
		l, err := s.Own(ctx)
		if err != nil && !errors.Is(err, txn.ErrFenced) {
			return f.ledgerProblem(fmt.Errorf("take shard %d: %w", shard, err))
		}
		if err == nil {
			entries, err := write(ctx, l)
			if err != nil || len(entries) == 0 {
				return err
			}
			s.Begin()
			out, err := s.Commit(ctx, func(map[txn.SourcePartition]int64) []txn.Entry { return entries })
			if out == txn.Committed {
				return nil
			}
			f.log.Info("ledger entry not committed yet", "shard", shard, "outcome", out, "reason", err)
		}
		if err := sleep(ctx, backoff(try, 10*time.Millisecond, time.Second)); err != nil {
			return fmt.Errorf("take shard %d: %w", shard, err)
		}
	}
}
