package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn"
)

// take adds what a poll brought to the transaction, which begins with the first
// copy.
func (l *shardLane) take(got []arrival) {
	for i := range got {
		a := &got[i]
		p := l.parts[a.at]
		if p == nil || p.stop != nil {
			continue
		}
		for _, rec := range a.recs {
			l.takeOne(p, rec)
			if p.stop != nil {
				break
			}
		}
		if a.err != nil && p.stop == nil {
			l.faults = append(l.faults, *a)
		}
		if p.next > p.committed && l.holedAt.IsZero() {
			l.holedAt = time.Now()
		}
	}
}

func (l *shardLane) takeOne(p *shardPart, rec *kgo.Record) {
	if !rec.Attrs.IsControl() {
		r, ruled := l.rulings[p.src]
		ruled = ruled && r.offset == rec.Offset
		out, verdict, reason := l.chain.Apply(rec)
		switch {
		case !ruled && verdict == transform.Keep:
			if !l.session.IsOpen() {
				l.session.Begin()
			}
			l.session.Add(p.src, rec.Offset, out)
			p.records++
			p.bytes += int64(len(rec.Key) + len(rec.Value))
		case verdict == transform.Drop:
			p.echoes++
		default:
			if !ruled {
				r = l.rule(p, rec.Offset, errors.New(reason))
			}
			if !r.skip {
				p.stop, p.stopAt = r.err, rec.Offset
				return
			}
			p.gaps = append(p.gaps, gapEntry(p.src, rec.Offset, rec.Offset, "skipped: "+r.err.Error()))
		}
	}
	p.next, p.epoch = rec.Offset+1, rec.LeaderEpoch
}

// rule decides on a record that can't be copied.
func (l *shardLane) rule(p *shardPart, offset int64, err error) ruling {
	r := ruling{offset: offset, err: err, skip: l.f.def.OnError == topology.OnErrorSkip}
	l.rulings[p.src] = r
	return r
}

// refusedRecord is why the target refuses a record, with its hint.
func refusedRecord(err error) error { return refused(err) }

func gapEntry(src txn.SourcePartition, first, last int64, reason string) txn.Entry {
	return txn.Entry{
		Key:   txn.Key{Kind: txn.KindGap, Source: src, First: first},
		Value: &txn.Gap{Last: last, Reason: cut(reason), Time: time.Now().UnixMilli()},
	}
}

// cut bounds a text that is written to the ledger.
func cut(s string) string {
	const most = 500
	if len(s) > most {
		return s[:most]
	}
	return s
}

// movedOn reports whether a position is ahead of the ledger's.
func (l *shardLane) movedOn() bool {
	for _, p := range l.parts {
		if p.next > p.committed {
			return true
		}
	}
	return false
}

// mustWrite reports whether there is something to be written besides copies.
func (l *shardLane) mustWrite() bool {
	for _, p := range l.parts {
		if len(p.gaps) > 0 || p.stop != nil && p.next > p.committed {
			return true
		}
	}
	return len(l.faults) > 0 && !l.holedAt.IsZero()
}

// holesDue reports whether a position has waited long enough to be written
// without a copy.
func (l *shardLane) holesDue() bool {
	return !l.holedAt.IsZero() && time.Since(l.holedAt) >= holes
}

// entries are those of the transaction that is open: a frontier for each
// partition that got on, and the records that were left out by decision.
func (l *shardLane) entries(last map[txn.SourcePartition]int64) []txn.Entry {
	now := time.Now().UnixMilli()
	var out []txn.Entry
	for _, p := range l.parts {
		if p.next == p.committed {
			continue
		}
		next := p.targetNext
		if n, ok := last[p.src]; ok {
			if n <= next {
				l.cutAt = p
				return nil
			}
			next = n
		}
		id := l.session.TargetTopicID(p.route.target)
		if id == [16]byte{} {
			id = p.route.targetID
		}
		out = append(out, txn.Entry{Key: txn.Key{Kind: txn.KindFrontier, Source: p.src}, Value: &txn.Frontier{
			Next: p.next, LeaderEpoch: p.epoch, TargetTopicID: id, TargetNext: next,
			SourceTopic: p.at.topic, TargetTopic: p.route.target,
			TxnID: l.session.TxnID(), ProducerEpoch: l.session.Epoch(), Time: now,
		}})
		out = append(out, p.gaps...)
	}
	l.committing(out)
	return out
}

// committing keeps what the ledger will say if the commit comes off; after any
// other end it is read anew.
func (l *shardLane) committing(entries []txn.Entry) {
	for _, e := range entries {
		m := l.marks[e.Key.Source]
		switch v := e.Value.(type) {
		case *txn.Start:
			m = txn.Mark{Start: v}
		case *txn.Frontier:
			m.Frontier = v
		default:
			continue
		}
		l.marks[e.Key.Source] = m
	}
}

// settle takes note of a transaction that committed, or of a poll that brought
// nothing to be written.
func (l *shardLane) settle() {
	written := false
	for _, p := range l.parts {
		at, _ := l.marks[p.src].Position()
		if at <= p.committed {
			continue
		}
		written = true
		p.committed = at
		if f := l.marks[p.src].Frontier; f != nil {
			p.targetNext = f.TargetNext
		}
		if p.records > 0 {
			l.f.board.copied(p.at.topic, p.at.partition, p.records, p.bytes)
		}
		if p.echoes > 0 {
			l.f.board.left(p.at.topic, p.at.partition, leftEcho, p.echoes)
		}
		for _, g := range p.gaps {
			l.f.log.Warn("record skipped", "topic", p.at.topic, "partition", p.at.partition, "offset", g.Key.First, "reason", g.Value.(*txn.Gap).Reason)
			l.f.board.left(p.at.topic, p.at.partition, leftSkipped, 1)
		}
		if r, ok := l.rulings[p.src]; ok && r.offset < at {
			delete(l.rulings, p.src)
		}
		l.f.reached(p.at, p.src, at, p.epoch)
		p.records, p.echoes, p.bytes, p.gaps = 0, 0, 0, nil
	}
	switch {
	case !l.movedOn():
		l.holedAt = time.Time{}
	case written || l.holedAt.IsZero():
		l.holedAt = time.Now()
	}
}

// face deals with what ends the reading of a partition, when all before it is
// committed.
func (l *shardLane) face(ctx, work context.Context) error {
	for _, p := range l.parts {
		if p.stop != nil {
			l.f.stop(p.at.topic, p.at.partition, p.stopAt, p.stop)
			delete(l.rulings, p.src) // the next time it is tried anew
			l.drop(p)
		}
	}
	faults := l.faults
	l.faults = nil
	for i := range faults {
		if p := l.parts[faults[i].at]; p != nil {
			if err := l.fault(ctx, work, p, faults[i].err); err != nil {
				return err
			}
		}
	}
	return nil
}

// fault decides on a partition that can't be read on.
func (l *shardLane) fault(ctx, work context.Context, p *shardPart, err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		l.drop(p)
		l.f.sourceRefused(p.at.topic, err)
	case errors.As(err, &loss):
		l.drop(p)
		l.f.void(p.at, loss.ResetTo, &void{
			reason: fmt.Sprintf("the source's log was cut: it diverged at offset %d from what was copied up to %d", loss.ResetTo, loss.ConsumedTo),
			hint:   "after an unclean election the two clusters differ from there on; decide which is right, then take the position back with a new flow name or recreate the target topic",
		})
	case errors.Is(err, kerr.OffsetOutOfRange):
		l.drop(p)
		l.lookAgain() // where the log stands is looked at when it is taken up again
	case errors.Is(err, kerr.CorruptMessage), errors.Is(err, errUndecodable):
		last, endErr := batchEnd(ctx, l.f.src, p.at.topic, p.at.partition, p.next)
		if endErr != nil {
			return fmt.Errorf("%w; and where that ends: %w", err, endErr)
		}
		l.drop(p)
		if !l.f.unreadable(p.at.topic, p.at.partition, p.next, last-p.next+1, err) {
			return nil
		}
		return l.pass(work, p, last, "unreadable: "+err.Error())
	default:
		return err
	}
	return nil
}

// pass moves the position of a partition that is not being read over a run of
// offsets, with a trace in the ledger.
func (l *shardLane) pass(work context.Context, p *shardPart, last int64, reason string) error {
	gap := gapEntry(p.src, p.next, last, reason)
	l.session.Begin()
	_, err := l.session.Commit(work, func(map[txn.SourcePartition]int64) []txn.Entry {
		es := append(jump(p.src, l.marks[p.src], last+1, reason), gap)
		l.committing(es)
		return es
	})
	if err != nil {
		return err
	}
	l.renew()
	return nil
}

// drop ends the reading of a partition.
func (l *shardLane) drop(p *shardPart) {
	l.rd.remove([]place{p.at})
	delete(l.parts, p.at)
	delete(l.bySrc, p.src)
	if !l.movedOn() {
		l.holedAt = time.Time{}
	}
}

// lookAgain has partitions that are not read taken up again in a while.
func (l *shardLane) lookAgain() {
	if at := time.Now().Add(time.Second); l.lookAt.IsZero() || at.Before(l.lookAt) {
		l.lookAt = at
	}
}
