package mirror

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// sourcePartition is what the ledger knows a partition by. A source without
// topic ids (before 2.8) can't tell a recreated topic from the one before.
func (f *flow) sourcePartition(rt route, partition int32) txn.SourcePartition {
	id := rt.id
	if id == [16]byte{} {
		sum := sha256.Sum256([]byte("topic without id " + rt.topic))
		copy(id[:], sum[:])
	}
	return txn.SourcePartition{Cluster: f.srcCap.ClusterID, TopicID: id, Partition: partition}
}

// place takes up the partitions of the shard that are new, and lets go of those
// that are not the flow's any more. In a ledger that has nothing yet it writes
// the flow entry, too.
func (l *shardLane) place(ctx, work context.Context, founding bool) error {
	want := l.wanted()
	for at, p := range l.parts {
		w := want[at]
		if w == nil || w.src != p.src || w.route.targetID != p.route.targetID {
			l.drop(p)
		} else {
			delete(want, at)
		}
	}
	if l.outdated(want) {
		if err := l.remake(); err != nil {
			return err
		}
	}
	var entries []txn.Entry
	if founding {
		if err := l.f.traces(ctx, l.shard); err != nil {
			return err
		}
		entries = append(entries, l.f.flowEntry(1))
	}
	fresh, err := l.f.present(ctx, slices.Collect(maps.Values(want)))
	if err != nil {
		return err
	}
	if len(fresh) > 0 {
		more, err := l.admit(ctx, fresh, founding)
		if err != nil {
			return err
		}
		entries = append(entries, more...)
	}
	if len(entries) > 0 {
		l.session.Begin()
		_, err := l.session.Commit(work, func(map[txn.SourcePartition]int64) []txn.Entry {
			l.committing(entries)
			return entries
		})
		if err != nil {
			return fmt.Errorf("write where source partitions begin: %w", err)
		}
	}
	begin := map[place]readPlace{}
	for _, p := range fresh {
		m := l.marks[p.src]
		at, ok := m.Position()
		if !ok || p.waits || !l.f.copies(p.at.topic, p.at.partition) {
			continue // not yet, or stopped by admit
		}
		p.next, p.committed, p.epoch, p.targetNext = at, at, -1, -1
		if m.Frontier != nil {
			p.epoch, p.targetNext = m.Frontier.LeaderEpoch, m.Frontier.TargetNext
		}
		begin[p.at] = readPlace{next: at, epoch: p.epoch}
		l.session.Expect(p.route.target, p.route.targetID)
		l.parts[p.at], l.bySrc[p.src] = p, p
		l.ids[p.at.topic] = p.src.TopicID
		l.f.reached(p.at, p.src, at, p.epoch)
	}
	if len(begin) > 0 {
		l.rd.add(begin)
	}
	return nil
}

// outdated reports whether the reader has read a topic under another id before,
// whichever of its partitions that was: a client goes on asking for a topic by the
// id that it had before it was recreated.
func (l *shardLane) outdated(want map[place]*shardPart) bool {
	for at, p := range want {
		if id, ok := l.ids[at.topic]; ok && id != p.src.TopicID {
			return true
		}
	}
	return false
}

// remake opens the source anew.
func (l *shardLane) remake() error {
	l.rd.close()
	rd, err := l.f.newShardReader(l.name)
	if err != nil {
		return err
	}
	l.rd = rd
	clear(l.ids)
	again := map[place]readPlace{}
	for at, p := range l.parts {
		again[at] = readPlace{next: p.next, epoch: p.epoch}
		l.ids[at.topic] = p.src.TopicID
	}
	if len(again) > 0 {
		l.rd.add(again)
	}
	return nil
}

// present looks again at topics that are about to be judged by their offsets: one
// that was recreated since the last refresh has those of another log. A
// partition of such a source topic waits for the next refresh.
func (f *flow) present(ctx context.Context, ps []*shardPart) ([]*shardPart, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var topics, targets []string
	for _, p := range ps {
		topics, targets = append(topics, p.at.topic), append(targets, p.route.target)
	}
	src, err := listTopics(ctx, f.src, unique(topics)...)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", f.def.From, err)
	}
	dst, err := listTopics(ctx, f.dst, unique(targets)...)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	var out []*shardPart
	for _, p := range ps {
		if t := src[p.at.topic]; t.Err == nil && t.ID != p.route.id {
			f.refreshSoon()
			continue
		}
		if t := dst[p.route.target]; t.Err == nil {
			p.route.targetID = t.ID
		}
		out = append(out, p)
	}
	return out, nil
}

// wanted are the partitions of the shard that the flow copies now.
func (l *shardLane) wanted() map[place]*shardPart {
	f := l.f
	want := map[place]*shardPart{}
	f.mu.Lock()
	defer f.mu.Unlock()
	for topic, rt := range f.ready {
		for p := range int32(rt.partitions) {
			at := place{topic, p}
			src := f.sourcePartition(rt, p)
			if _, stopped := f.parts[at]; stopped || src.Shard(f.ledger.shards) != int(l.shard) {
				continue
			}
			want[at] = &shardPart{at: at, src: src, route: rt}
		}
	}
	return want
}

// admit looks at partitions before they are read, and returns the entries that
// have to stand in the ledger first. Those whose position means nothing any more
// it stops.
func (l *shardLane) admit(ctx context.Context, fresh []*shardPart, founding bool) ([]txn.Entry, error) {
	var unknown, known []*shardPart
	for _, p := range fresh {
		if _, ok := l.marks[p.src].Position(); ok {
			known = append(known, p)
		} else {
			unknown = append(unknown, p)
		}
	}
	entries, err := l.f.firstPositions(ctx, unknown, founding)
	if slices.ContainsFunc(unknown, func(p *shardPart) bool { return p.waits }) {
		l.lookAgain()
	}
	if err != nil || len(known) == 0 {
		return entries, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	bounds, err := l.f.bounds(ctx, known)
	if err != nil {
		return nil, err
	}
	for _, p := range known {
		if b := bounds[p.at]; b.start < 0 || b.end < 0 || b.targetEnd < 0 || b.targetStable < 0 {
			// Without a leader for the moment; just then logs are cut.
			p.waits = true
			l.lookAgain()
			continue
		}
		more, v := l.f.judgePosition(p, l.marks[p.src], bounds[p.at])
		if v == nil && l.uncounted(ctx, p, bounds[p.at]) {
			v = &void{
				fmt.Sprintf("copies of a committed transaction have no marker at the target, from offset %d of %s[%d] on", bounds[p.at].targetStable, p.route.target, p.at.partition),
				"the target's brokers have lost it; the next abort there would take the copies away: recreate the target topic with on_target_recreate: refill",
			}
		}
		if v != nil {
			at, _ := l.marks[p.src].Position()
			l.f.void(p.at, at, v)
			continue
		}
		entries = append(entries, more...)
	}
	return entries, nil
}

// uncounted reports whether copies that the ledger counts stand in a transaction
// of this shard that its coordinator takes for ended, seen on a broker that was
// killed and came back before its partitions had leaders. It is asked right behind
// the fence, where none of the shard's is open.
func (l *shardLane) uncounted(ctx context.Context, p *shardPart, b bound) bool {
	f := l.marks[p.src].Frontier
	if f == nil || l.gotOn || b.targetStable >= f.TargetNext {
		return false
	}
	var at kadm.TopicsSet
	at.Add(p.route.target, p.at.partition)
	found, err := kadm.NewClient(l.f.dst).DescribeProducers(ctx, at)
	if err != nil {
		l.f.log.Info("it can't be told who holds back copies", "topic", p.route.target, "partition", p.at.partition, "reason", err)
		return false
	}
	for _, d := range found.SortedProducers() {
		if d.ProducerID == l.session.ProducerID() && d.CurrentTxnStartOffset >= 0 && d.CurrentTxnStartOffset < f.TargetNext {
			return true
		}
	}
	return false
}

// bound is where the logs of a source partition and of its copy begin and end,
// -1 where that could not be asked.
type bound struct{ start, end, targetEnd, targetStable int64 }

// bounds asks both clusters.
func (f *flow) bounds(ctx context.Context, ps []*shardPart) (map[place]bound, error) {
	var topics, targets []string
	for _, p := range ps {
		topics, targets = append(topics, p.at.topic), append(targets, p.route.target)
	}
	src, dst := kadm.NewClient(f.src), kadm.NewClient(f.dst)
	starts, err := src.ListStartOffsets(ctx, unique(topics)...)
	if err != nil {
		return nil, fmt.Errorf("list start offsets of %s: %w", f.def.From, err)
	}
	ends, err := src.ListEndOffsets(ctx, unique(topics)...)
	if err != nil {
		return nil, fmt.Errorf("list end offsets of %s: %w", f.def.From, err)
	}
	stable, err := dst.ListCommittedOffsets(ctx, unique(targets)...)
	if err != nil {
		return nil, fmt.Errorf("list stable offsets of %s: %w", f.def.To, err)
	}
	tEnds, err := dst.ListEndOffsets(ctx, unique(targets)...)
	if err != nil {
		return nil, fmt.Errorf("list end offsets of %s: %w", f.def.To, err)
	}
	out := map[place]bound{}
	for _, p := range ps {
		out[p.at] = bound{
			start: offsetOf(starts, p.at.topic, p.at.partition), end: offsetOf(ends, p.at.topic, p.at.partition),
			targetEnd: offsetOf(tEnds, p.route.target, p.at.partition), targetStable: offsetOf(stable, p.route.target, p.at.partition),
		}
	}
	return out, nil
}

// unique returns the names sorted, each once, and leaves the list as it is.
func unique(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

func offsetOf(list kadm.ListedOffsets, topic string, partition int32) int64 {
	if o, ok := list.Lookup(topic, partition); ok && o.Err == nil {
		return o.Offset
	}
	return -1
}

// void is why what the ledger says of a partition does not hold any more (ledger
// section 9).
type void struct{ reason, hint string }

// void stops a partition whose promise can't be kept.
func (f *flow) void(at place, offset int64, v *void) {
	reason := fmt.Sprintf("%s[%d] stopped at offset %d: %s", at.topic, at.partition, offset, v.reason)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.parts[at]; ok {
		return
	}
	f.parts[at] = reason
	f.board.stop(at.topic, at.partition, reason, v.hint)
}

// judgePosition compares what the ledger says of a partition with the two logs.
func (f *flow) judgePosition(p *shardPart, m txn.Mark, b bound) ([]txn.Entry, *void) {
	at, _ := m.Position()
	if fr := m.Frontier; fr != nil && p.route.targetID != ([16]byte{}) && fr.TargetTopicID != ([16]byte{}) && fr.TargetTopicID != p.route.targetID {
		if f.def.OnTargetRecreate == topology.OnTargetRecreateRefill {
			f.log.Warn("target topic was recreated; it is filled again", "topic", p.at.topic, "partition", p.at.partition, "from", b.start)
			return []txn.Entry{startEntry(p.src, b.start, false, "target topic was recreated: filled again")}, nil
		}
		return nil, &void{
			fmt.Sprintf("the target topic %s was deleted and created again since %d was reached", p.route.target, at),
			"set on_target_recreate: refill to fill it again from the source's log start",
		}
	}
	if fr := m.Frontier; fr != nil && b.targetEnd >= 0 && fr.TargetNext > b.targetEnd {
		return nil, &void{
			fmt.Sprintf("the target's log was cut: %s[%d] ends at %d and had copies up to %d", p.route.target, p.at.partition, b.targetEnd, fr.TargetNext),
			cutHint,
		}
	}
	if b.end >= 0 && at > b.end {
		return nil, &void{
			fmt.Sprintf("the source's log was cut: it ends at %d and was copied up to %d", b.end, at),
			"an unclean election at the source; decide which side is right, then recreate the target topic with on_target_recreate: refill",
		}
	}
	if b.start > at {
		lost := b.start - at
		f.board.gap(p.at.topic, p.at.partition, at, b.start-1)
		if f.def.OnGap == topology.OnGapSkip {
			reason := fmt.Sprintf("source gap: %d offsets went before they were copied", lost)
			return append(jump(p.src, m, b.start, reason), []txn.Entry{
				gapEntry(p.src, at, b.start-1, reason),
			}...), nil
		}
		return nil, &void{
			fmt.Sprintf("source gap: offsets %d..%d (%d) went from the source before they were copied", at, b.start-1, lost),
			"retention or DeleteRecords was faster than the flow; set on_gap: skip to record the gap and go on at " + fmt.Sprint(b.start),
		}
	}
	return nil, nil
}

const cutHint = "copies are lost at the target (an unclean election, or a restored disk); recreate the target topic with on_target_recreate: refill"

// jump moves a position forward: a start with the reason, and what else the
// frontier knows of source and target, which a start alone would take away.
func jump(src txn.SourcePartition, m txn.Mark, to int64, reason string) []txn.Entry {
	out := []txn.Entry{startEntry(src, to, prior(m), reason)}
	if m.Frontier != nil {
		f := *m.Frontier
		f.Next, f.Time = to, time.Now().UnixMilli()
		out = append(out, txn.Entry{Key: txn.Key{Kind: txn.KindFrontier, Source: src}, Value: &f})
	}
	return out
}

// prior reports whether copies below a position were made outside of the ledger;
// to go on further up does not change that.
func prior(m txn.Mark) bool { return m.Start != nil && m.Start.Prior }

func startEntry(src txn.SourcePartition, at int64, prior bool, reason string) txn.Entry {
	return txn.Entry{
		Key:   txn.Key{Kind: txn.KindStart, Source: src},
		Value: &txn.Start{Position: at, Prior: prior, Reason: cut(reason), Time: time.Now().UnixMilli()},
	}
}
