package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// lostRange is a run of source offsets that the share group will not hand out
// any more and that was not copied.
type lostRange struct {
	topic string
	src   tip
	txn.Range
	told bool // it was logged that there are records in it
	owed bool // it is noted at the source, see owed.go
}

// recoverySink is the number of the sink through which lost records go; lanes
// count from 0.
const recoverySink = -1

// sinkName is how a sink is called in troubles and logs.
func sinkName(n int) string {
	if n == recoverySink {
		return whereRecovery
	}
	return fmt.Sprintf("lane %d", n)
}

// loseTrack hands runs to recoverLost.
func (f *flow) loseTrack(lost []lostRange) {
	if len(lost) == 0 {
		return
	}
	f.mu.Lock()
	f.lost = append(f.lost, lost...)
	f.mu.Unlock()
	f.nudgeRecovery()
}

func (f *flow) nudgeRecovery() {
	select {
	case f.losses <- struct{}{}:
	default:
	}
}

// recoverLost copies by offset what the share group gave up on, until ctx ends;
// nobody else will, after a restart neither. So it goes on after that, like the
// lanes within the shutdown limit and while work lasts.
func (f *flow) recoverLost(ctx, work context.Context) {
	if f.decision.reader != topology.ReaderShare {
		return
	}
	work, cancel := context.WithCancel(work)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		pause(work, f.def.Limits.Shutdown-f.goodbye())
		cancel()
	})()
	for fails := 0; ; {
		select {
		case <-f.losses:
		case <-ctx.Done():
		}
		last := ctx.Err() != nil // before the pass: what is found during it gets one more
		err := f.recoverAll(work)
		f.board.trouble(whereRecovery, err)
		if last {
			break
		}
		if err == nil {
			fails = 0
			continue
		}
		fails++
		pause(ctx, backoff(fails, lagEvery, 10*lagEvery))
		f.nudgeRecovery()
	}
	f.mu.Lock()
	left := f.lost
	f.mu.Unlock()
	for _, l := range left {
		if l.owed || f.noteOwed(context.WithoutCancel(ctx), l, true) == nil {
			continue // noted at the source; the next process copies it
		}
		f.log.Error("records that the share group gave up on are not copied", "topic", l.topic, "partition", l.src.partition,
			"first", l.First, "last", l.Last, "hint", "copy them by hand: the group will not hand them out again")
	}
}

// recoverAll copies what is lost by now. What can't be copied is kept for the
// next time; the error is that of the first such run.
func (f *flow) recoverAll(ctx context.Context) error {
	f.mu.Lock()
	todo := f.lost
	f.lost = nil
	f.mu.Unlock()
	var first error
	var later []lostRange
	for _, l := range todo {
		whole := l
		err := f.recover(ctx, &l)
		if err == nil {
			f.paid(ctx, whole)
		} else {
			later = append(later, l)
			if first == nil {
				first = err
			}
		}
	}
	f.mu.Lock()
	f.lost = append(later, f.lost...)
	f.mu.Unlock()
	return first
}

// errHeld: records stay behind, because their topic is stopped or the time is over.
var errHeld = errors.New("records that the share group gave up on are held back")

// recover copies a run piece by piece and cuts off what is finished. Most runs
// hold no record: control records and rolled back transactions are passed by
// the broker without being handed out.
func (f *flow) recover(ctx context.Context, l *lostRange) error {
	for l.First <= l.Last {
		recs, next, err := f.readPiece(ctx, l)
		if err != nil {
			return err
		}
		b := &batch{}
		for _, rec := range recs {
			if !f.written.has(l.src, rec) {
				b.items = append(b.items, item{rec: rec, src: l.src})
			}
		}
		if len(b.items) > 0 {
			if err := f.copyPiece(ctx, l, b); err != nil {
				return err
			}
		}
		l.First = next
	}
	return nil
}

// copyPiece writes what a piece holds. Written records are noted at once, so
// that whatever fails then, they are not written again.
func (f *flow) copyPiece(ctx context.Context, l *lostRange, b *batch) error {
	if f.binds() && !l.owed {
		f.report(l, b)
		return nil
	}
	if !l.told {
		l.told = true
		f.log.Error("the share group gave up on records; copying them by offset", "topic", l.topic, "partition", l.src.partition,
			"first", b.items[0].rec.Offset, "last", l.Last, "hint", "a record reached the group's delivery limit")
	}
	sink, err := f.newSink(recoverySink)
	if err != nil {
		return err
	}
	if err := sink.Open(ctx); err != nil {
		return fmt.Errorf("open target: %w", err)
	}
	ln := &lane{name: sinkName(recoverySink), flow: f, sink: sink, chain: f.chain()}
	ln.copy(ctx, b)
	f.written.add(b.items)
	err = nil
	for i := range b.items {
		it := &b.items[i]
		switch {
		case it.fate == fateOpen:
			err = errHeld
		case it.written:
			f.board.copied(l.topic, l.src.partition, 1, it.size())
			f.board.recovered(1)
		default: // left out on purpose, and counted: not a second time
		}
	}
	if cerr := sink.Close(ctx); cerr != nil && err == nil {
		err = fmt.Errorf("close target: %w", cerr)
	}
	return err
}

// report names records that the group gave up on, where nobody can tell for
// sure that they are not on the target: a copy could be the second.
func (f *flow) report(l *lostRange, b *batch) {
	for _, r := range b.runsOf(func(*item) bool { return true }) {
		f.board.abandoned(l.topic, l.src.partition, r.First, r.Last)
	}
}

// readPiece reads committed records from the front of a run, at most a fetch's
// worth, and returns where the next piece begins. What is gone from the source
// is reported, and cut off the run, once.
func (f *flow) readPiece(ctx context.Context, l *lostRange) (recs []*kgo.Record, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	list, err := listTopics(ctx, f.src, l.topic)
	if err != nil {
		return nil, 0, fmt.Errorf("list topics of %s: %w", f.def.From, err)
	}
	topic := list[l.topic]
	if topic.Err == nil && topic.ID != l.src.id || errors.Is(topic.Err, kerr.UnknownTopicOrPartition) && f.dropped(l.topic) {
		f.gone(l, l.Last) // deleted
		return nil, l.Last + 1, nil
	}
	if topic.Err != nil {
		return nil, 0, fmt.Errorf("source topic %s: %w", l.topic, topic.Err)
	}
	limit := int32(f.def.Limits.Bytes)
	at := place{l.topic, l.src.partition}
	spots := map[place]spot{at: {id: l.src.id, offset: l.First}}
	got, err := fetchAt(ctx, f.src, topic.Partitions[l.src.partition].Leader, spots, limit, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s[%d] from offset %d: %w", l.topic, l.src.partition, l.First, err)
	}
	piece := got[at]
	if errors.Is(piece.err, kerr.OffsetOutOfRange) {
		starts, err := f.admin().ListStartOffsets(ctx, l.topic)
		if err != nil {
			return nil, 0, fmt.Errorf("list start offsets of %s: %w", f.def.From, err)
		}
		if s, ok := starts.Lookup(l.topic, l.src.partition); ok && s.Err == nil && s.Offset > l.First {
			f.gone(l, min(l.Last, s.Offset-1))
			return nil, l.First, nil
		}
	}
	if piece.err == nil && piece.next <= l.First {
		piece.err = errNoAnswer
	}
	if piece.err != nil {
		return nil, 0, fmt.Errorf("read %s[%d] from offset %d: %w", l.topic, l.src.partition, l.First, piece.err)
	}
	for _, rec := range piece.recs {
		if rec.Offset > l.Last {
			break
		}
		if len(recs) == f.def.Limits.Records {
			return recs, rec.Offset, nil
		}
		recs = append(recs, rec)
	}
	return recs, piece.next, nil
}

// gone reports that the source has nothing of a run up to last any more, and
// cuts that off. What is on the target was not missed.
func (f *flow) gone(l *lostRange, last int64) {
	for _, r := range f.written.missing(l.src, txn.Range{First: l.First, Last: last}) {
		f.board.gap(l.topic, l.src.partition, r.First, r.Last)
	}
	l.First = last + 1
}

// dropped reports whether the flow does not know a topic any more.
func (f *flow) dropped(topic string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ready := f.ready[topic]
	return !ready && f.blocked[topic] == nil && f.stopped[topic] == ""
}
