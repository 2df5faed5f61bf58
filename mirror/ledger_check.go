package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/txn"
)

func (k *ledgerLook) find(where, problem, hint string) {
	k.r.Findings = append(k.r.Findings, LedgerFinding{where, problem, hint})
}

// unseen finds what could not be looked at: that nothing is wrong with it is not
// known.
func (k *ledgerLook) unseen(what string, err error) {
	hint := hintOf(err)
	if errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		hint = "grant DESCRIBE on it, and READ on topics"
	}
	k.find(what, "not looked at: "+err.Error(), hint)
}

// check judges what was read.
func (k *ledgerLook) check(ctx context.Context) {
	k.checkTopics(ctx)
	k.checkShards(ctx)
	for i := range k.r.Positions {
		k.checkPosition(&k.r.Positions[i])
	}
	if err := k.checkOpen(ctx); err != nil {
		k.unseen("open transactions at "+k.f.def.To, err)
	}
}

func (k *ledgerLook) checkTopics(ctx context.Context) {
	found, err := k.f.ledgerSpec().Check(ctx, k.f.dst, k.r.K)
	if err != nil {
		k.unseen("settings of "+k.r.Topic, err)
	}
	for _, f := range found {
		k.find(k.r.Topic, f.Problem, f.Hint)
	}
}

// checkShards says what a lane would refuse, each reason once.
func (k *ledgerLook) checkShards(ctx context.Context) {
	shards := map[string][]string{}
	var order []LedgerFinding
	note := func(n int, problem, hint string) {
		if shards[problem] == nil {
			order = append(order, LedgerFinding{"", problem, hint})
		}
		shards[problem] = append(shards[problem], fmt.Sprint(n))
	}
	for n, l := range k.shards {
		if l == nil {
			note(n, k.r.Shards[n].Problem, "nothing is copied on its word")
			continue
		}
		e := l.Flow()
		if e == nil && l.Empty() && k.hasMap(n) {
			note(n, "the ledger partition is empty and the map has records of it: its entries were lost", "mirror ledger init --accept --flow "+k.r.Flow)
		}
		var refusal *Refusal
		if l.Suspended() == nil && errors.As(k.f.judgeLedger(ctx, int32(n), l), &refusal) {
			note(n, refusal.Problem, refusal.Hint)
		}
		for _, p := range l.Partitions() {
			if right := p.Shard(len(k.shards)); k.r.K == len(k.shards) && right != n {
				note(n, fmt.Sprintf("a position of %s, which belongs to shard %d", p, right), "nothing is copied on its word; keep a copy of the topic for analysis")
			}
		}
	}
	for _, one := range order {
		k.find(namedShards(shards[one.Problem]), one.Problem, one.Hint)
	}
}

func (k *ledgerLook) hasMap(shard int) bool {
	for p := range k.maps {
		if p.Shard(len(k.shards)) == shard {
			return true
		}
	}
	return false
}

func namedShards(ns []string) string {
	if len(ns) == 1 {
		return "shard " + ns[0]
	}
	return "shards " + strings.Join(ns, ", ")
}

// checkPosition compares a position with the two logs and the map (ledger
// section 9).
func (k *ledgerLook) checkPosition(row *LedgerPosition) {
	at := fmt.Sprintf("%s[%d]", row.Topic, row.Partition)
	if row.Start == nil {
		k.find(at, "a position without a start entry", "its first entries were lost; see docs/OPERATIONS.md, The ledger")
	}
	if row.Gone {
		if k.present(row.Topic) {
			k.find(at, fmt.Sprintf("the source topic was deleted and created again; the one before was copied up to %d", row.Position),
				"set on_recreate: restart to copy the new one from its beginning")
		}
		return
	}
	src := k.at[place{row.Topic, row.Partition}]
	switch {
	case src.end >= 0 && row.Position > src.end:
		k.find(at, fmt.Sprintf("the position %d is above the end of the source's log, %d: that log was cut", row.Position, src.end),
			"an unclean election at the source; decide which side is right, then recreate the target topic with on_target_recreate: refill")
	// What a suspended ledger has not copied, the at-least-once run may have.
	case src.start > row.Position && row.Position >= 0 && k.r.Suspended == nil:
		k.find(at, fmt.Sprintf("offsets %d..%d (%d) went from the source before they were copied", row.Position, src.start-1, src.start-row.Position),
			"set on_gap: skip to record the gap and go on at "+fmt.Sprint(src.start))
	}
	if row.Frontier != nil {
		k.checkTarget(at, row)
	}
}

// present reports whether the source has a topic of that name.
func (k *ledgerLook) present(topic string) bool {
	for _, at := range k.sources {
		if at.topic == topic {
			return true
		}
	}
	return false
}

func (k *ledgerLook) checkTarget(at string, row *LedgerPosition) {
	p := row.src
	fr := k.frozen[p].Frontier
	target := k.targets[fr.TargetTopic]
	end := offsetOf(k.ends, fr.TargetTopic, row.Partition)
	none := [16]byte{}
	switch {
	case errors.Is(target.Err, kerr.UnknownTopicOrPartition):
		k.find(at, "the target topic "+fr.TargetTopic+" is missing", "what was copied is gone with it; set on_target_recreate: refill to fill it again")
		return
	case target.ID != none && fr.TargetTopicID != none && target.ID != fr.TargetTopicID:
		k.find(at, fmt.Sprintf("the target topic %s was deleted and created again since %d was reached", fr.TargetTopic, fr.Next),
			"set on_target_recreate: refill to fill it again from the source's log start")
		return
	case end >= 0 && fr.TargetNext > end:
		k.find(at, fmt.Sprintf("the target's log was cut: %s[%d] ends at %d and had copies up to %d", fr.TargetTopic, row.Partition, end, fr.TargetNext),
			"copies are lost at the target; recreate the target topic with on_target_recreate: refill")
	}
	if !row.Map.Complete || fr.TargetNext < 0 || k.forgot[row.Shard] {
		return
	}
	// Copies and runs are of one transaction: the last copy is in the map.
	reached := int64(-1)
	if c := k.maps[p]; c != nil {
		if n, ok := c.ends[fr.TargetTopicID]; ok {
			reached = n
		}
	}
	if reached < fr.TargetNext {
		k.find(at, fmt.Sprintf("the offset map ends at %d of the target and copies go up to %d", reached, fr.TargetNext),
			"records of "+txn.MapTopic(k.r.Flow)+" were lost: positions of groups can't be translated there, copies are not concerned")
	}
}

// checkOpen looks for transactions that nobody will ever end, on the ledger, the
// map and the target's topics: read_committed readers wait at them.
func (k *ledgerLook) checkOpen(ctx context.Context) error {
	adm := kadm.NewClient(k.f.dst)
	set := kadm.TopicsSet{}
	for n := range k.shards {
		set.Add(k.r.Topic, int32(n))
		if k.mapped[n] {
			set.Add(txn.MapTopic(k.r.Flow), int32(n))
		}
	}
	for i := range k.r.Positions {
		row := &k.r.Positions[i]
		if fr := row.Frontier; fr != nil && k.targets[fr.Target].Err == nil {
			set.Add(fr.Target, row.Partition)
		}
	}
	before, err := openAt(ctx, adm, set)
	if err != nil || len(before) == 0 {
		return err
	}
	var ids []int64
	for s := range before {
		ids = append(ids, s.producer)
	}
	listed, err := adm.ListTransactions(ctx, ids, nil)
	if err != nil {
		return fmt.Errorf("list transactions: %w", err)
	}
	going := map[int64]bool{}
	for _, t := range listed {
		switch t.State {
		case "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence":
			going[t.ProducerID] = true
		}
	}
	// One that has ended meanwhile is no longer open.
	after, err := openAt(ctx, adm, set)
	if err != nil {
		return err
	}
	for s := range after {
		if !before[s] || going[s.producer] {
			continue
		}
		k.find(fmt.Sprintf("%s[%d]", s.topic, s.partition), fmt.Sprintf("hanging transaction of producer %d at offset %d: no coordinator knows it, and readers of committed records wait there", s.producer, s.offset),
			fmt.Sprintf("end it, in each partition where it hangs and in the ledger's last, with: kafka-transactions.sh --bootstrap-server %s abort --topic %s --partition %d --start-offset %d",
				strings.Join(k.f.opts.Topology.Clusters[k.f.def.To].Bootstrap, ","), s.topic, s.partition, s.offset))
	}
	return nil
}

// openSpot is where a transaction begins that has no marker in a partition.
type openSpot struct {
	topic     string
	partition int32
	producer  int64
	offset    int64
}

// openAt asks the leaders; brokers before 3.0 can't tell.
func openAt(ctx context.Context, adm *kadm.Client, set kadm.TopicsSet) (map[openSpot]bool, error) {
	out := map[openSpot]bool{}
	all, err := adm.DescribeProducers(ctx, set)
	if errors.Is(err, kerr.UnsupportedVersion) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe producers: %w", err)
	}
	all.EachProducer(func(p kadm.DescribedProducer) {
		if p.CurrentTxnStartOffset >= 0 {
			out[openSpot{p.Topic, p.Partition, p.ProducerID, p.CurrentTxnStartOffset}] = true
		}
	})
	return out, nil
}
