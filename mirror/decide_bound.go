package mirror

import (
	"fmt"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// bind is the decision of a flow that has share acknowledgements in transactions
// switched on (KIP-1289). It is refused where that can't be had, whatever the
// guarantee asked for: nobody switches it on to get less.
func bind(f *topology.Flow, r *topology.Resolved, ev evidence) (decision, *Refusal) {
	k := f.KIP1289
	if lacks := bindingLacks(f, r, ev); len(lacks) > 0 {
		refusal := refuseAll(f.Name, "kip1289 is set and can't be had", lacks)
		if len(lacks) > 1 {
			refusal.Hint = "mend all of them, or remove kip1289"
		}
		return decision{}, refusal
	}
	d := decision{guarantee: topology.GuaranteeExactlyOnce, reader: topology.ReaderShare, binding: k}
	why := []string{fmt.Sprintf("share acknowledgements inside the transaction (KIP-1289, key %d, draft %d)", k.Key, k.Draft)}
	if f.Ordered == topology.OrderedAuto && len(ev.unread) > 0 {
		why = append(why, orderedBy(ev.unread, ev.unread))
	}
	d.because(why)
	return d, nil
}

// bindingLacks is everything that is in the way of share acknowledgements inside
// transactions.
func bindingLacks(f *topology.Flow, r *topology.Resolved, ev evidence) []txn.Finding {
	var lacks []txn.Finding
	switch {
	case ev.target == nil:
		lacks = append(lacks, txn.Finding{Problem: "a target other than a Kafka cluster takes part in no transaction", Hint: "copy to the cluster that the flow reads, or remove kip1289"})
	case f.From != f.To:
		lacks = append(lacks, txn.Finding{
			Problem: fmt.Sprintf("acknowledgements at %s and copies at %s can't be in one transaction", f.From, f.To),
			Hint:    "kip1289 is for flows inside one cluster; between two, guarantee: exactly-once keeps a ledger",
		})
	}
	if ev.target != nil {
		lacks = append(lacks, ev.target.Findings...)
	}
	if f.Guarantee == topology.GuaranteeAtLeastOnce {
		lacks = append(lacks, txn.Finding{Problem: "guarantee: at-least-once contradicts it", Hint: "remove one of them"})
	}
	if r.Read == topology.ReaderPartition {
		lacks = append(lacks, txn.Finding{Problem: "read: partition reads through no share group", Hint: "set read: auto or share"})
	}
	switch {
	case f.Ordered == topology.OrderedTrue:
		lacks = append(lacks, txn.Finding{Problem: "ordered: true can't be had through a share group, which keeps no order", Hint: "set ordered: false"})
	case f.Ordered == topology.OrderedAuto && len(ev.compacted) > len(ev.unread):
		lacks = append(lacks, txn.Finding{
			Problem: "a share group does not keep order: " + orderedBy(ev.compacted, ev.unread),
			Hint:    "exclude them, or set ordered: false to accept that an old value may win",
		})
	}
	return lacks
}
