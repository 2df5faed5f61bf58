package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceover-mirror/onceover/txn"
)

// commit ends the transaction with the acknowledgements of all that was decided
// on in it. What was left undecided is given back.
func (l *boundLane) commit(work context.Context) error {
	acks := l.acks()
	if len(acks) == 0 {
		// Nothing was decided, so nothing was written.
		l.giveBackOpen()
		return nil
	}
	if !l.session.IsOpen() {
		l.session.Begin() // everything was left out
	}
	records, _ := l.session.Size()
	began := time.Now()
	outcome, err := l.session.Commit(work, acks, l.guard())
	l.f.board.ended(l.number, outcome)
	if outcome != txn.Committed {
		return l.given(outcome, fmt.Errorf("commit (outcome %v): %w", outcome, err))
	}
	l.gotOn = true
	if l.held {
		l.held = false
		l.f.board.trouble(l.name+" target", nil)
	}
	l.settle()
	if see := l.f.opts.Observer.Committed; see != nil {
		see(l.f.def.Name, int(l.number), records, time.Since(began))
	}
	return nil
}

func decided(it *item) bool { return it.fate != fateOpen }

// acks are the acknowledgements of what was decided.
func (l *boundLane) acks() []txn.ShareAck {
	var acks []txn.ShareAck
	add := func(runs []ownRange, kind txn.AckKind) {
		for _, r := range runs {
			acks = append(acks, txn.ShareAck{TopicID: r.src.id, Partition: r.src.partition, First: r.First, Last: r.Last, Kind: kind})
		}
	}
	for _, b := range l.batches {
		add(b.runsOf(func(it *item) bool { return it.fate == fateDone }), txn.AckAccept)
		add(b.runsOf(func(it *item) bool { return it.fate == fateRejected }), txn.AckReject)
		add(b.gaps, txn.AckGap)
	}
	return acks
}

// guard asks, before the acknowledgements are staged and after, whether all of
// their locks hold.
func (l *boundLane) guard() func() error {
	before := true
	return func() error {
		for _, b := range l.batches {
			by := time.Now()
			if before {
				by = by.Add(l.reader.margin())
			}
			if err := b.holds(b.boundRuns(), by); err != nil {
				return err
			}
		}
		if !before {
			return nil
		}
		before = false
		for _, b := range l.batches {
			if err := b.stage(b.boundRuns()); err != nil {
				return err
			}
			l.staged = true
		}
		return nil
	}
}

// boundRuns are the offsets of b whose fate is in the transaction.
func (b *batch) boundRuns() []ownRange { return append(b.runsOf(decided), b.gaps...) }

// settle takes note of a transaction that committed.
func (l *boundLane) settle() {
	type sum struct {
		n     int
		bytes int64
	}
	sums := map[place]sum{}
	for _, b := range l.batches {
		runs := b.boundRuns()
		b.ended(runs)
		for _, r := range runs {
			l.f.board.settled(r.src, r.Range)
		}
		for i := range b.items {
			it := &b.items[i]
			if it.written {
				at := place{it.rec.Topic, it.rec.Partition}
				s := sums[at]
				sums[at] = sum{s.n + 1, s.bytes + it.size()}
			}
			if it.fate == fateRejected {
				delete(l.rulings, spotOf{it.src, it.rec.Offset})
			}
		}
	}
	for at, s := range sums {
		l.f.board.copied(at.topic, at.partition, s.n, s.bytes)
	}
	for _, o := range l.left {
		l.f.board.left(o.at.topic, o.at.partition, o.reason, 1)
		if o.why != nil {
			l.f.log.Warn("record skipped", "topic", o.at.topic, "partition", o.at.partition, "offset", o.offset, "reason", o.why)
		}
	}
	l.giveBackOpen()
}

func (l *boundLane) giveBackOpen() {
	for _, b := range l.batches {
		b.giveBack(b.runsOf(func(it *item) bool { return it.fate == fateOpen }))
	}
}

// given decides on the reason for which a transaction did not commit, and what
// becomes of its records: before anything was staged they are still locked and
// are tried again as they are; after that they come again from the broker.
func (l *boundLane) given(outcome txn.Outcome, err error) error {
	if !l.staged {
		l.kept = append(l.batches, l.kept...)
	} else {
		l.giveBackOpen()
		var stage *txn.StageError
		errors.As(err, &stage)
		for _, b := range l.batches {
			for _, r := range b.boundRuns() {
				if stage != nil && stage.Partitions[txn.StagedPartition{TopicID: r.src.id, Partition: r.src.partition}] != nil {
					// Refused, and so not staged: it need not wait for its lock to end.
					b.from.ses.unstaged(r.src, r.Range, b.grant)
					b.giveBack([]ownRange{r})
					continue
				}
				b.ended([]ownRange{r})
				if outcome == txn.Unknown {
					// It may be final: then it is not handed out again, and not missing.
					l.f.board.settled(r.src, r.Range)
				}
			}
		}
	}
	var stuck *txn.StuckError
	var refused *txn.RefusedError
	switch {
	case errors.As(err, &stuck):
		if topic, ok := l.sources[stuck.Topic]; ok {
			l.f.block(topic, &topicError{Topic: stuck.Topic, Err: stuck.Err, Hint: topicHint(stuck.Err)})
		}
	case errors.As(err, &refused):
		topic, ok := l.sources[refused.Topic]
		switch {
		case ok && classify(refused.Err) == verdictTopic:
			l.f.block(topic, &topicError{Topic: refused.Topic, Err: refused.Err, Hint: topicHint(refused.Err)})
		case refused.Source != nil && classify(refused.Err) == verdictRecord:
			src := tip{refused.Source.TopicID, refused.Source.Partition}
			l.rulings[spotOf{src, refused.Offset}] = refusedRecord(refused.Err)
		}
	}
	return err
}
