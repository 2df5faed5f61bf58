package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
)

// lane is one worker of a flow: one source member, one sink, one batch at a
// time.
type lane struct {
	name   string
	flow   *flow
	reader reader
	sink   Sink
	chain  transform.Chain
}

// run copies until ctx ends. Work begun is finished under work, which outlives
// ctx by the shutdown limit.
//
// The order is the promise: a record is settled as done only after Put
// returned for it.
func (l *lane) run(ctx, work context.Context) error {
	for {
		b, err := l.reader.poll(ctx)
		switch {
		case ctx.Err() != nil && b == nil:
			return nil
		case err != nil:
			return err
		}
		l.copy(work, b)
		if err := l.reader.settle(work, b); err != nil {
			return err
		}
	}
}

// pending is a record of a batch on its way to the sink.
type pending struct {
	item *item
	out  *kgo.Record
}

// copy writes a batch and sets the fate of each record. Records that can't be
// written by the time ctx ends stay open.
func (l *lane) copy(ctx context.Context, b *batch) {
	todo := make([]pending, 0, len(b.items))
	for i := range b.items {
		it := &b.items[i]
		if it.fate != fateOpen {
			continue // the reader's own decision
		}
		out, verdict, reason := l.chain.Apply(it.rec)
		switch verdict {
		case transform.Keep:
			todo = append(todo, pending{it, out})
		case transform.Drop:
			it.fate = fateDone
			l.flow.board.left(it.rec.Topic, it.rec.Partition, leftEcho, 1)
		case transform.Reject:
			l.fail(pending{it, out}, errors.New(reason))
		}
	}
	defer l.flow.payLast(context.WithoutCancel(ctx), b)
	for try := 1; ; try++ {
		before := len(todo)
		var held bool
		todo, held = l.put(ctx, l.wanted(todo))
		if len(todo) == 0 {
			break
		}
		if len(todo) < before {
			try = 1 // it gets on
			if !held {
				try = 0
				continue
			}
		}
		if sleep(ctx, backoff(try, 50*time.Millisecond, 5*time.Second)) != nil {
			return
		}
	}
	l.flow.board.trouble(l.name+" target", nil)
}

// wanted leaves out records whose topic or partition was stopped meanwhile.
func (l *lane) wanted(todo []pending) []pending {
	keep := todo[:0]
	for _, p := range todo {
		if p.item.fate == fateOpen && l.flow.copies(p.item.rec.Topic, p.item.rec.Partition) {
			keep = append(keep, p)
		}
	}
	return keep
}

// put tries once and returns what is to be tried again. held: some of it waits
// for the target, and not only for a decision on a record before it.
func (l *lane) put(ctx context.Context, todo []pending) (again []pending, held bool) {
	if len(todo) == 0 {
		return nil, false
	}
	recs := make([]*kgo.Record, len(todo))
	for i, p := range todo {
		recs[i] = p.out
	}
	err := l.sink.Put(ctx, recs)
	var some *PutError
	each := errors.As(err, &some)
	var cause error
	for i, p := range todo {
		err := err
		if each {
			err = some.Failed[i]
		}
		switch {
		case err == nil:
			p.item.fate, p.item.written = fateDone, true
		case IsRetriable(err):
			again = append(again, p)
			if cause == nil && !errors.Is(err, errBehind) {
				cause = err
			}
		default:
			l.fail(p, err)
		}
	}
	if cause != nil {
		l.flow.board.retried(cause)
		l.flow.board.trouble(l.name+" target", fmt.Errorf("%d records wait for the target: %w", len(again), cause))
	}
	return again, cause != nil
}

// fail decides on a record that the target, or a transform, refuses for good.
func (l *lane) fail(p pending, err error) {
	rec := p.item.rec
	var te *topicError
	switch {
	case errors.As(err, &te):
		l.flow.block(rec.Topic, te)
	case l.flow.def.OnError == topology.OnErrorSkip:
		p.item.fate = fateRejected
		l.flow.board.left(rec.Topic, rec.Partition, leftSkipped, 1)
		l.flow.log.Warn("record skipped", "topic", rec.Topic, "partition", rec.Partition, "offset", rec.Offset, "reason", err)
	default:
		l.flow.stop(rec.Topic, rec.Partition, rec.Offset, err)
	}
}
