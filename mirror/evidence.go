package mirror

import (
	"context"
	"fmt"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// evidence is what a decision rests on beside the declaration.
type evidence struct {
	// src and dst is what the clusters can do; dst is nil for a sink other than
	// Kafka.
	src, dst *txn.Capabilities
	// target is what the target has for exactly-once, nil where nobody needed to
	// ask.
	target *txn.TxnAbilities
	// compacted names topics of the flow that need order, unread those of them of
	// which that is only feared.
	compacted, unread []string
}

// probeTxn finds out, once, what the target has for exactly-once, where that may
// be decided on.
func (f *flow) probeTxn(ctx context.Context) error {
	if f.dst == nil || f.def.Guarantee == topology.GuaranteeAtLeastOnce || f.dstTxn != nil {
		return nil
	}
	a, err := txn.ProbeTxn(ctx, f.dst, f.dstCap, txn.TxnAsk{
		Ledger: f.ledgerSpec(), AllowUnverified: f.def.AllowUnverified, AllowNoTopicIDs: f.def.AllowNoTopicIDs,
	})
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

// ledgerSpec is what the flow's ledger topics are to be.
func (f *flow) ledgerSpec() txn.LedgerSpec {
	return txn.LedgerSpec{
		Flow: f.def.Name, Shards: f.def.Ledger.Shards, ReplicationFactor: f.def.Ledger.ReplicationFactor,
		TxnTimeout: f.def.Transaction.Timeout,
		// A source topic that keeps its records may join at any time.
		MapRetention: -1,
	}
}
