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
	ordered   bool
	// serverAssignor: the source's KIP-848 protocol serves the partition reader.
	serverAssignor bool
	why            string
}

func (d decision) order() string {
	if d.reader == topology.ReaderShare {
		return "not kept"
	}
	return "per partition"
}

// decide picks guarantee and reader from what the declaration asks for and
// what the clusters can do, or says what is missing. dst is nil for a sink
// other than Kafka; compacted names topics of the flow that need order, unread
// those of them of which that is only feared.
func decide(f *topology.Flow, r *topology.Resolved, src, dst *txn.Capabilities, compacted, unread []string) (decision, *Refusal) {
	refuse := func(problem, hint string) (decision, *Refusal) {
		return decision{}, &Refusal{Flow: f.Name, Problem: problem, Hint: hint}
	}
	if dst != nil {
		if f.From != f.To && src.ClusterID != "" && src.ClusterID == dst.ClusterID {
			return refuse(fmt.Sprintf("%s and %s are two names for one cluster (id %s)", f.From, f.To, src.ClusterID),
				"give each cluster one name; to copy inside one cluster, set from and to to the same name and rename the topics")
		}
		if !dst.IdempotentProduce() {
			return refuse("the "+side("target", f.To)+" has no idempotent producer (InitProducerId)",
				"at-least-once needs Kafka 0.11 or later at the target")
		}
	}
	d := decision{guarantee: topology.GuaranteeAtLeastOnce, ordered: f.Ordered == topology.OrderedTrue}
	if f.Guarantee == topology.GuaranteeExactlyOnce {
		return refuse("guarantee: exactly-once is not supported by this version", "set guarantee: at-least-once")
	}
	var why []string
	if f.Ordered == topology.OrderedAuto && len(compacted) > 0 && r.Read != topology.ReaderShare {
		d.ordered = true
		why = append(why, "order is kept: "+orderedBy(compacted, unread))
	}
	if f.Ordered == topology.OrderedAuto && len(compacted) > len(unread) && r.Read == topology.ReaderShare {
		return refuse("read: share does not keep order: "+orderedBy(compacted, unread),
			"set read: partition, exclude them, or set ordered: false to accept that an old value may win")
	}
	share := src.ShareGroups()
	switch {
	case r.Read == topology.ReaderShare && !share:
		return refuse("read: share needs share groups at the "+side("source", f.From)+" (share.version 1 finalised, Kafka 4.1 or later), which has "+shareState(src),
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
	case d.ordered:
		d.reader = topology.ReaderPartition
		if f.Ordered == topology.OrderedTrue {
			why = append(why, "ordered: true")
		}
	case share:
		d.reader = topology.ReaderShare
		why = append(why, "the source has share groups and nothing needs order")
	default:
		d.reader = topology.ReaderPartition
		why = append(why, "the source has no share groups: "+shareState(src))
	}
	if d.reader == topology.ReaderShare {
		if !src.Renew() {
			why = append(why, "its locks can't be renewed (before Kafka 4.2)")
		}
	} else {
		// The classic protocol is the default: with it a dead member is noticed
		// after 10 s, with the other after the broker's 45 s (ADR 0006).
		d.serverAssignor = r.Protocol == "consumer"
		if d.serverAssignor && !src.ConsumerProtocol() {
			return refuse("group.protocol=consumer needs group.version 1 finalised at the "+side("source", f.From), "set group.protocol=classic")
		}
	}
	if f.Guarantee == topology.GuaranteeAuto {
		why = append(why, "at-least-once is the strongest of this version")
	}
	d.why = strings.Join(why, "; ")
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
