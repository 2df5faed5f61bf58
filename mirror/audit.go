package mirror

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// audit watches that a share group's start offset does not pass a record that
// this flow has not finished: the broker does that when a record reaches the
// group's delivery limit, or when retention takes it, and no client is told. It
// can judge only while every member of the group belongs to this process; what
// other processes finish it can't see. Not safe for concurrent use.
type audit struct {
	parts map[tip]*auditPart
}

type auditPart struct {
	from     int64 // looked at up to here; -1 before the first look
	settled  txn.RangeSet
	suspects []txn.Range // passed at the last look, unsettled then
}

func newAudit() *audit { return &audit{parts: map[tip]*auditPart{}} }

func (a *audit) part(t tip) *auditPart {
	p := a.parts[t]
	if p == nil {
		p = &auditPart{from: -1}
		a.parts[t] = p
	}
	return p
}

func (a *audit) settled(t tip, r txn.Range) { a.part(t).settled.Add(r.First, r.Last) }

// passed notes that the group starts at start now, and returns offsets below it
// that nobody here settled. They are named one look late: the answer to an
// acknowledgement may still have been on its way at the last. The first look is
// the baseline: the start offset trails, so what is below done then was settled
// by an earlier process. alone: every member of the group is of this
// process.
func (a *audit) passed(t tip, start, done int64, alone bool) []txn.Range {
	p := a.part(t)
	if p.from < 0 {
		p.from = max(start, done)
	}
	var lost []txn.Range
	if alone {
		for _, s := range p.suspects {
			lost = append(lost, p.settled.Missing(s.First, s.Last)...)
		}
	}
	p.suspects = nil
	if alone && start > p.from {
		p.suspects = p.settled.Missing(p.from, start-1)
	}
	p.from = max(p.from, start)
	keep := p.from
	if len(p.suspects) > 0 {
		keep = p.suspects[0].First
	}
	p.settled.Remove(0, keep-1)
	return lost
}

// lostRange is a run of source offsets that the share group will not hand out
// any more and that was not copied.
type lostRange struct {
	topic string
	src   tip
	txn.Range
}

// auditLost looks for records that the group gave up on, and copies them by
// offset.
func (f *flow) auditLost(ctx context.Context, at map[place]standing) error {
	if f.decision.reader != topology.ReaderShare {
		return nil
	}
	members, err := shareMembers(ctx, f.admin(), f.settings.ShareGroupID)
	if err != nil {
		return err
	}
	f.mu.Lock()
	alone := true
	for _, m := range members {
		alone = alone && f.members[m]
	}
	f.mu.Unlock()
	f.board.mu.Lock()
	for pl, s := range at {
		t := tip{s.id, pl.partition}
		if s.id == ([16]byte{}) || s.start < 0 {
			continue
		}
		for _, r := range f.board.audit.passed(t, s.start, s.done, alone) {
			f.lost = append(f.lost, lostRange{pl.topic, t, r})
		}
	}
	f.board.mu.Unlock()
	var later []lostRange
	for _, l := range f.lost {
		if done, err := f.recover(ctx, l); err != nil {
			f.log.Warn("records that the share group lost are not copied yet", "topic", l.topic, "partition", l.src.partition,
				"first", l.First, "last", l.Last, "reason", err)
			later = append(later, l)
		} else if !done {
			later = append(later, l)
		}
	}
	f.lost = later
	return nil
}

// recover reads a run by offset and copies what is in it. Most runs hold no
// record: control records and rolled back transactions are passed by the
// broker without being handed out.
func (f *flow) recover(ctx context.Context, l lostRange) (done bool, err error) {
	recs, logStart, err := f.readRange(ctx, l)
	if err != nil {
		return false, err
	}
	if logStart > l.First {
		f.board.gap(l.topic, l.src.partition, l.First, min(l.Last, logStart-1))
	}
	b := &batch{}
	for _, rec := range recs {
		if !f.written.has(l.src, rec.Offset) {
			b.items = append(b.items, item{rec: rec, src: l.src})
		}
	}
	if len(b.items) == 0 {
		return true, nil
	}
	f.log.Error("the share group gave up on records; copying them by offset", "topic", l.topic, "partition", l.src.partition,
		"first", b.items[0].rec.Offset, "records", len(b.items), "hint", "a record reached the group's delivery limit")
	sink, err := f.newSink(-1)
	if err != nil {
		return false, err
	}
	if err := sink.Open(ctx); err != nil {
		return false, fmt.Errorf("open target: %w", err)
	}
	ln := &lane{name: "recovery", flow: f, sink: sink, chain: f.chain()}
	ln.copy(ctx, b)
	if err := sink.Close(ctx); err != nil {
		return false, fmt.Errorf("close target: %w", err)
	}
	open := false
	for i := range b.items {
		it := &b.items[i]
		switch {
		case it.fate == fateOpen:
			open = true
		case it.written:
			f.written.add(l.src, it.rec.Offset, it.rec.Offset)
			f.board.copied(l.topic, l.src.partition, 1, it.size())
			f.board.recovered(1)
		}
	}
	return !open, nil
}

// readRange reads a run of committed records by offset.
func (f *flow) readRange(ctx context.Context, l lostRange) (recs []*kgo.Record, logStart int64, err error) {
	cl, err := f.client(f.def.From, "source-lost",
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{l.topic: {l.src.partition: kgo.NewOffset().At(l.First)}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(250*time.Millisecond))
	if err != nil {
		return nil, 0, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for {
		// A record from beyond the run tells that the run is read; when it
		// ends the log, one poll without a record does.
		once, cancel := context.WithTimeout(ctx, time.Second)
		fetches := cl.PollFetches(once)
		cancel()
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		var failed error
		past := false
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if p.Err != nil && once.Err() == nil {
				failed = p.Err
			}
			logStart = max(logStart, p.LogStartOffset)
			for _, rec := range p.Records {
				past = past || rec.Offset >= l.Last
				if rec.Offset <= l.Last && !rec.Attrs.IsControl() {
					recs = append(recs, rec)
				}
			}
		})
		if failed != nil {
			return nil, 0, fmt.Errorf("read %s[%d] from offset %d: %w", l.topic, l.src.partition, l.First, failed)
		}
		if past || once.Err() != nil {
			return recs, logStart, nil
		}
	}
}
