package mirror

import (
	"fmt"
	"strings"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// decision is how a flow will run.
type decision struct {
	guarantee topology.Guarantee
	reader    topology.Reader
	// serverAssignor: the source's KIP-848 protocol serves the partition reader.
	serverAssignor bool
	// binding, where set, has the share reader's acknowledgements inside the
	// transaction of the copies (KIP-1289), which is what makes it exactly-once.
	// nil with every other decision.
	binding *topology.KIP1289
	// strength is why the guarantee is what it is, empty where it was asked for;
	// why is the reason for the reader, too.
	strength, why string
}

func (d decision) order() string {
	if d.reader == topology.ReaderShare {
		return "not kept"
	}
	return "per partition"
}

// because sets why.
func (d *decision) because(reasons []string) {
	if d.strength != "" {
		reasons = append([]string{d.strength}, reasons...)
	}
	d.why = strings.Join(reasons, "; ")
}

// decide picks guarantee and reader from what the declaration asks for and what
// the clusters can do, or says everything that is missing.
func decide(f *topology.Flow, r *topology.Resolved, ev evidence) (decision, *Refusal) {
	if ev.dst != nil && f.From != f.To && ev.src.ClusterID != "" && ev.src.ClusterID == ev.dst.ClusterID {
		return decision{}, &Refusal{
			f.Name, fmt.Sprintf("%s and %s are two names for one cluster (id %s)", f.From, f.To, ev.src.ClusterID),
			"give each cluster one name; to copy inside one cluster, set from and to to the same name and rename the topics",
		}
	}
	if f.KIP1289 != nil {
		return bind(f, r, ev)
	}
	if ev.dst != nil && !ev.dst.IdempotentProduce() {
		return decision{}, &Refusal{
			f.Name, "the " + side("target", f.To) + " has no idempotent producer (InitProducerId)",
			"at-least-once needs Kafka 0.11 or later at the target",
		}
	}
	if f.Guarantee == topology.GuaranteeAtLeastOnce {
		return atLeastOnce(f, r, ev, "")
	}
	lacks := exactlyOnceLacks(f, r, ev)
	switch {
	case len(lacks) == 0:
		return exactlyOnce(f, r, ev), nil
	case f.Guarantee == topology.GuaranteeExactlyOnce:
		return decision{}, refuseAll(f.Name, "guarantee: exactly-once can't be had", lacks)
	case ev.target != nil && ev.target.Ledger:
		// What is copied outside of the ledger is not in it: exactly-once could
		// not go on from there.
		return decision{}, refuseAll(f.Name, "the flow has a ledger and, under guarantee: auto, does not fall to at-least-once, but exactly-once can't be had", lacks)
	}
	return atLeastOnce(f, r, ev, "at-least-once: "+firstOf(lacks))
}

// exactlyOnceLacks is everything that is in the way of exactly-once.
func exactlyOnceLacks(f *topology.Flow, r *topology.Resolved, ev evidence) []txn.Finding {
	if ev.target == nil {
		return []txn.Finding{{Problem: "a target other than a Kafka cluster takes part in no transaction", Hint: "copy to a Kafka cluster, or set guarantee: at-least-once"}}
	}
	var lacks []txn.Finding
	if r.Read == topology.ReaderShare {
		lack := txn.Finding{Problem: "exactly-once with read: share is not supported by this version", Hint: "set read: auto or partition"}
		if f.From == f.To {
			lack = txn.Finding{Problem: "exactly-once with read: share takes kip1289", Hint: "set read: auto or partition, or see docs/KIP1289.md"}
		}
		lacks = append(lacks, lack)
	}
	if !ev.src.TopicIDs() && !f.AllowNoTopicIDs {
		lacks = append(lacks, txn.Finding{
			Problem: "the " + side("source", f.From) + " has no topic ids (before Kafka 2.8): a topic that is made anew can't be told from the old one",
			Hint:    "upgrade it, or set allow_no_topic_ids: true",
		})
	}
	return append(lacks, ev.target.Findings...)
}

// refuseAll says of everything at once what is in the way, and what to do.
func refuseAll(flow, what string, all []txn.Finding) *Refusal {
	if len(all) == 1 {
		return &Refusal{flow, what + ": " + all[0].Problem, all[0].Hint}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, for %d reasons:", what, len(all))
	for _, one := range all {
		fmt.Fprintf(&b, "\n  - %s", one.Problem)
		if one.Hint != "" {
			fmt.Fprintf(&b, " (%s)", one.Hint)
		}
	}
	return &Refusal{flow, b.String(), "mend all of them, or set guarantee: at-least-once"}
}

// firstOf is the first of several findings, in one line.
func firstOf(all []txn.Finding) string {
	if len(all) == 1 {
		return all[0].Problem
	}
	return fmt.Sprintf("%s, and %d more (see mirror plan)", all[0].Problem, len(all)-1)
}

// exactlyOnce is the decision where nothing is in the way: one writer a shard,
// which reads by partition and so keeps order.
func exactlyOnce(f *topology.Flow, r *topology.Resolved, ev evidence) decision {
	d := decision{guarantee: topology.GuaranteeExactlyOnce, reader: topology.ReaderPartition}
	d.strength = fmt.Sprintf("both clusters can do it (target: transaction.version %d)", ev.target.Level)
	if f.Guarantee == topology.GuaranteeAuto {
		d.strength = "exactly-once: " + d.strength
	}
	if !ev.target.Verified {
		d.strength += ", unverified transactions are allowed"
	}
	var why []string
	switch {
	case r.Read == topology.ReaderPartition:
		why = append(why, "read: partition")
	case ev.src.ShareGroups() && f.From == f.To:
		why = append(why, "read: partition, because exactly-once through a share group takes kip1289")
	case ev.src.ShareGroups():
		why = append(why, "read: partition, because exactly-once through share groups is not part of this version")
	}
	d.because(why)
	return d
}

// atLeastOnce picks the reader. strength says why the guarantee is no better,
// empty where it was asked for.
func atLeastOnce(f *topology.Flow, r *topology.Resolved, ev evidence, strength string) (decision, *Refusal) {
	refuse := func(problem, hint string) (decision, *Refusal) {
		return decision{}, &Refusal{Flow: f.Name, Problem: problem, Hint: hint}
	}
	d := decision{guarantee: topology.GuaranteeAtLeastOnce, strength: strength}
	ordered := f.Ordered == topology.OrderedTrue
	compacted, unread := ev.compacted, ev.unread
	var why []string
	if f.Ordered == topology.OrderedAuto && len(compacted) > 0 && r.Read != topology.ReaderShare {
		ordered = true
		why = append(why, "order is kept: "+orderedBy(compacted, unread))
	}
	if f.Ordered == topology.OrderedAuto && len(compacted) > len(unread) && r.Read == topology.ReaderShare {
		return refuse("read: share does not keep order: "+orderedBy(compacted, unread),
			"set read: partition, exclude them, or set ordered: false to accept that an old value may win")
	}
	share := ev.src.ShareGroups()
	switch {
	case r.Read == topology.ReaderShare && !share:
		return refuse("read: share needs share groups at the "+side("source", f.From)+" (share.version 1 finalised, Kafka 4.1 or later), which has "+shareState(ev.src),
			"set read: auto or partition, or finalise share.version at the source")
	case r.Read == topology.ReaderShare:
		d.reader = topology.ReaderShare
		why = append(why, "read: share")
		if len(unread) > 0 {
			why = append(why, orderedBy(unread, unread))
		}
	case r.Read == topology.ReaderPartition:
		d.reader = topology.ReaderPartition
		why = append(why, "read: partition")
	case ordered:
		d.reader = topology.ReaderPartition
		if f.Ordered == topology.OrderedTrue {
			why = append(why, "ordered: true")
		}
	case share:
		d.reader = topology.ReaderShare
		why = append(why, "the source has share groups and nothing needs order")
	default:
		d.reader = topology.ReaderPartition
		why = append(why, "the source has no share groups: "+shareState(ev.src))
	}
	if d.reader == topology.ReaderShare {
		if !ev.src.Renew() {
			why = append(why, "its locks can't be renewed (before Kafka 4.2)")
		}
	} else {
		// The classic protocol is the default: with it a dead member is noticed
		// after 10 s, with the other after the broker's 45 s (ADR 0006).
		d.serverAssignor = r.Protocol == "consumer"
		if d.serverAssignor && !ev.src.ConsumerProtocol() {
			return refuse("group.protocol=consumer needs group.version 1 finalised at the "+side("source", f.From), "set group.protocol=classic")
		}
	}
	d.because(why)
	return d, nil
}

func shareState(c *txn.Capabilities) string {
	if v := c.Features[txn.FeatureShare]; v > 0 {
		return fmt.Sprintf("share.version %d but brokers that do not serve it", v)
	}
	return "share.version 0"
}

// some lists the first names of a long list.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// orderedBy says which topics make a flow need order.
func orderedBy(compacted, unread []string) string {
	if len(unread) < len(compacted) {
		return "compacted topics need it: " + some(compacted)
	}
	return "without DESCRIBE_CONFIGS at the source it can't be told whether topics are compacted and need it: " + some(unread)
}
