package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transaction is what sessions have in common: the shell around step, which does
// what that says. One goroutine owns it.
type transaction struct {
	p *producer
	m machine
	// tell, unless nil, is told what keeps the session waiting; toldAt is when.
	tell   func(since time.Time, err error)
	toldAt time.Time
	// written, unless nil, is told of each batch that is on the target, and
	// marked of each end of a transaction. False: the transaction is over.
	written func(r result) bool
	marked  func()

	// Of the transaction that is open, or was last:
	outcome Outcome
	cause   error // why it was given up, or the session ended
	records int
	bytes   int
}

// begin opens a transaction. Nothing is sent by it.
func (s *transaction) begin(share bool) {
	s.outcome, s.cause = Unknown, nil
	s.records, s.bytes = 0, 0
	s.p.begin()
	s.on(evBegin{s.p.v2, share})
}

// patient is how long something may wait before the owner is told.
const patient = 5 * time.Second

// IsOpen reports whether a transaction takes copies.
func (s *transaction) IsOpen() bool { return s.m.state == Open }

// Rest is how long the next copies would wait, because the transaction before
// is still being ended; time to gather more.
func (s *transaction) Rest() time.Duration { return max(0, time.Until(s.p.rest.until)) }

// Send sends what is at hand and takes the answers that are there. It does not
// wait for any. An error means that the transaction is over, aborted.
func (s *transaction) Send(ctx context.Context) error {
	for s.m.state == Open {
		s.push(ctx)
		select {
		case a := <-s.p.answers:
			s.take(a)
			continue
		default:
		}
		break
	}
	if s.m.state != Open {
		return s.because(errStale)
	}
	return nil
}

// Add appends rec, the copy of the source's record at offset, to the
// transaction. It keeps no part of rec and sends nothing.
func (s *transaction) Add(source SourcePartition, offset int64, rec *kgo.Record) {
	s.records++
	s.bytes += len(rec.Key) + len(rec.Value)
	for i := range rec.Headers {
		s.bytes += len(rec.Headers[i].Key) + len(rec.Headers[i].Value)
	}
	if n := s.p.add(target{rec.Topic, rec.Partition}, rec, &source, offset); n > 0 {
		s.on(evSent{n})
	}
}

// flush sends and waits until nothing is left to be answered; false when the
// transaction is over.
func (s *transaction) flush(ctx context.Context) bool {
	tick := time.NewTicker(patient)
	defer tick.Stop()
	for s.m.state == Flushing {
		s.push(ctx)
		if s.m.state != Flushing || s.p.idle() {
			break
		}
		var retry <-chan time.Time
		var timer *time.Timer
		if at, ok := s.p.nextTry(); ok {
			timer = time.NewTimer(time.Until(at))
			retry = timer.C
		}
		select {
		case a := <-s.p.answers:
			s.take(a)
		case <-retry:
		case <-tick.C:
			s.blocked(s.p.problem())
		case <-ctx.Done():
			s.failed(Produce, context.Cause(ctx))
			s.on(evFlushErr{RestartLane})
		}
		if timer != nil {
			timer.Stop()
		}
	}
	return s.m.state == Flushing
}

// push has the producer send.
func (s *transaction) push(ctx context.Context) {
	if q := s.p.overdue(s.patience()); q != nil {
		s.stuck(q.at, q.problem)
		return
	}
	if r, err := s.p.send(ctx); err != nil {
		if r == Inspect && s.classify(r, err) == Retry && ctx.Err() == nil {
			for _, q := range s.p.order {
				if len(q.sealed) > 0 && !q.flying {
					s.p.again(q, err)
				}
			}
			return
		}
		s.failed(r, err)
		a := s.classify(r, err)
		if a == Retry {
			a = RestartLane
		}
		s.on(evProduceErr{a})
	}
}

// stuck ends a transaction that waits for one partition for too long.
func (s *transaction) stuck(at target, err error) {
	if ofPartition(err) && !slices.Contains(s.p.always, at) {
		err = &StuckError{Topic: at.topic, Partition: at.partition, Err: err}
	} else {
		err = fmt.Errorf("produce to %s[%d]: %w", at.topic, at.partition, err)
	}
	s.failed(Produce, err)
	s.on(evProduceErr{RestartLane})
}

// patience is how long a batch is tried again: so that a transaction that will
// not succeed is given up before the broker does.
func (s *transaction) patience() time.Duration { return s.p.timeout * 2 / 3 }

// take deals with the answer to a produce request.
func (s *transaction) take(a answer) {
	for _, r := range s.p.take(a, s.patience()) {
		if s.m.state != Open && s.m.state != Flushing {
			return
		}
		if r.err != nil {
			action := s.classify(Produce, r.err)
			err := fmt.Errorf("produce to %s[%d]: %w", r.at.topic, r.at.partition, r.err)
			if action == Retry {
				s.stuck(r.at, r.err)
				continue
			}
			if action == Abort && len(r.spots) > 0 {
				refused := &RefusedError{Topic: r.at.topic, Partition: r.at.partition, Err: r.err}
				if r.n == 1 {
					refused.Source, refused.Offset = &r.spots[0].source, r.spots[0].offset
				}
				err = refused
			}
			s.failed(Produce, err)
			s.on(evProduceErr{action})
			continue
		}
		if s.written != nil && !s.written(r) {
			return
		}
		if len(r.spots) == 0 {
			continue // of ledger or map: counted when all of them are there
		}
		s.on(evProduced{r.n, r.id})
	}
}

// finish sends EndTxn for as long as step says so.
func (s *transaction) finish(ctx context.Context, commit bool) {
	began := time.Now()
	for try := 0; s.m.state == Ending; try++ {
		if try > 0 {
			s.blocked(began, s.cause)
			if err := wait(ctx, backoff(try, 5*time.Millisecond, 500*time.Millisecond)); err != nil {
				s.on(evEndErr{RestartLane})
				return
			}
		}
		r := EndTxnV1
		if s.p.v2 {
			r = EndTxnV2
		}
		id, err := s.p.end(ctx, commit)
		if err != nil {
			s.failed(r, err)
			s.on(evEndErr{s.classify(r, err)})
			continue
		}
		if s.marked != nil {
			s.marked()
		}
		s.on(evEndOK{id})
	}
}

// end is the outcome of a transaction, with its reason.
func (s *transaction) end() (Outcome, error) {
	if s.outcome == Committed {
		return Committed, nil
	}
	return s.outcome, s.because(errStale)
}

// Abort gives the transaction up, unless none is open. [Session.Own] is to be
// called before the next one.
func (s *transaction) Abort(ctx context.Context) {
	if s.m.state != Open {
		return
	}
	s.on(evAbort{})
	s.finish(ctx, false)
}

// ofPartition reports whether an error is one that the partition's own leader
// gives, or that stands for its having none.
func ofPartition(err error) bool {
	for _, e := range []*kerr.Error{
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable,
		kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError, kerr.RequestTimedOut,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// classify is [Classify], with errors of this package.
func (s *transaction) classify(r Request, err error) Action {
	switch {
	case errors.Is(err, ErrDamaged):
		return Stop
	case errors.Is(err, ErrRecreated):
		return RestartLane
	}
	return Classify(r, err)
}

// Resolved is what became of the last transaction, as far as it is known;
// after [Session.Own] that includes one that was in doubt.
func (s *transaction) Resolved() Outcome { return s.outcome }

// blocked tells the owner now and then that something has been waiting.
func (s *transaction) blocked(since time.Time, err error) {
	if now := time.Now(); s.tell != nil && err != nil && now.Sub(since) >= patient && now.Sub(s.toldAt) >= patient {
		s.toldAt = now
		s.tell(since, err)
	}
}

// Fenced reports whether somebody else has used the transactional id, see
// [ErrFenced].
func (s *transaction) Fenced() bool { return s.m.state == Fenced }

// TxnID is the transactional id.
func (s *transaction) TxnID() string { return s.p.txnID }

// ProducerID is the producer's id as of now.
func (s *transaction) ProducerID() int64 { return s.p.id.id }

// Epoch is the producer's epoch as of now.
func (s *transaction) Epoch() int16 { return s.p.id.epoch }

// V2 reports whether transactions are those of KIP-890, as of the last
// [Session.Own].
func (s *transaction) V2() bool { return s.p.v2 }

// failed keeps the reason for what follows.
func (s *transaction) failed(r Request, err error) {
	if r == Produce || r == ReadLedger { // their errors say what they are about
		s.cause = err
		return
	}
	s.cause = fmt.Errorf("%s of %s: %w", r, s.p.txnID, err)
}

// because is the error of a session that can't go on by itself.
func (s *transaction) because(err error) error {
	switch {
	case s.cause == nil && err == nil:
		return errors.New("the session is closed")
	case s.cause == nil:
		return err
	case s.m.state == Fenced && !errors.Is(s.cause, ErrFenced):
		return fmt.Errorf("%w: %w", ErrFenced, s.cause)
	case err != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return fmt.Errorf("%w (last: %w)", err, s.cause)
	}
	return s.cause
}

// on takes an event to step. Of the effects, those that ask for a request are
// done by who gave the event: they follow from the state.
func (s *transaction) on(ev event) {
	var todo []effect
	s.m, todo = step(s.m, ev)
	for _, e := range todo {
		switch e {
		case dropBuffered:
			s.p.drop()
		case deliverCommitted:
			s.outcome = Committed
		case deliverAborted:
			s.outcome = Aborted
		case deliverUnknown:
			s.outcome = Unknown
		case sendInit, reinit, readLedger, sendCommit, sendAbort:
		}
	}
}
