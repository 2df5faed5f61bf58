package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
	"github.com/onceover-mirror/onceover/txn/wire"
)

// evidence is what a decision rests on beside the declaration.
type evidence struct {
	// src and dst is what the clusters can do; dst is nil for a sink other than
	// Kafka.
	src, dst *txn.Capabilities
	// target is what the target has for exactly-once, by a ledger or by share
	// acknowledgements in transactions, whichever the flow asks for; nil where
	// nobody needed to ask.
	target *txn.TxnAbilities
	// compacted names topics of the flow that need order, unread those of them of
	// which that is only feared.
	compacted, unread []string
}

// probeTxn finds out, once, what the target has for exactly-once, where that may
// be decided on.
func (f *flow) probeTxn(ctx context.Context) error {
	if f.dst == nil || f.dstTxn != nil || f.def.Guarantee == topology.GuaranteeAtLeastOnce && f.def.KIP1289 == nil {
		return nil
	}
	ask := f.askLedger
	if f.def.KIP1289 != nil {
		ask = f.askBinding
	}
	a, err := ask(ctx)
	if err != nil {
		return &hinted{fmt.Errorf("%s: %w", side("target", f.def.To), err), "see the brokers of cluster " + f.def.To}
	}
	for _, line := range a.Remarks {
		f.log.Info("target for exactly-once", "remark", line)
	}
	if a.Ledger {
		f.ledger = ledgerHome{a.Topics.LedgerID, a.Topics.Shards}
	}
	f.dstTxn = a
	return nil
}

// askLedger asks for what exactly-once with a ledger takes.
func (f *flow) askLedger(ctx context.Context) (*txn.TxnAbilities, error) {
	return txn.ProbeTxn(ctx, f.dst, f.dstCap, txn.TxnAsk{
		Ledger: f.ledgerSpec(), AllowUnverified: f.def.AllowUnverified, AllowNoTopicIDs: f.def.AllowNoTopicIDs,
	})
}

// askBinding asks for what share acknowledgements in transactions take. A ledger
// that is in use is in the way of them: what it has copied the share group would
// hand out again.
func (f *flow) askBinding(ctx context.Context) (*txn.TxnAbilities, error) {
	k := f.def.KIP1289
	a, err := txn.ProbeShare(ctx, f.dst, f.dstCap, txn.ShareAsk{
		Flow: f.def.Name, Group: f.settings.ShareGroupID, Timeout: min(f.def.Transaction.Timeout, boundTimeout),
		Form: wire.Form{Key: k.Key, Draft: wire.Draft(k.Draft)},
	})
	if err != nil {
		return nil, err
	}
	used, err := f.ledgerInUse(ctx)
	if err != nil {
		return nil, err
	}
	if used {
		a.Findings = append(a.Findings, txn.Finding{
			Problem: "the flow has copied by its ledger, " + txn.LedgerTopic(f.def.Name) + ": where a share group begins is not bound to that",
			Hint: "run it with guarantee: at-least-once and without kip1289 until it copies: that hands the ledger's positions on, and suspends the ledger; " +
				"a flow with a new name begins anew",
		})
	}
	return a, nil
}

// ledgerInUse reports whether the flow has a ledger with positions in it that
// were not handed on to the group at the source.
func (f *flow) ledgerInUse(ctx context.Context) (bool, error) {
	found, err := f.findLedger(ctx)
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return false, nil // who may not look at the ledger has not written to it
	}
	if err != nil || !found {
		return false, err
	}
	ls, err := f.readLedger(ctx)
	if err != nil {
		return false, err
	}
	return newest(ls) != nil && slices.ContainsFunc(ls, func(l *txn.Ledger) bool { return l.Suspended() == nil }), nil
}

// ledgerSpec is what the flow's ledger topics are to be.
func (f *flow) ledgerSpec() txn.LedgerSpec {
	return txn.LedgerSpec{
		Flow: f.def.Name, Shards: f.def.Ledger.Shards, ReplicationFactor: f.def.Ledger.ReplicationFactor,
		TxnTimeout: f.def.Transaction.Timeout,
		// A source topic that keeps its records may join at any time.
		MapRetention: -1,
	}
}
