package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Begin opens a transaction. Nothing is sent by it.
func (s *Session) Begin() {
	s.runs, s.counts, s.outcome, s.cause = MapBuilder{}, [2]int{}, Unknown, nil
	clear(s.last)
	s.records, s.bytes = 0, 0
	s.p.begin()
	s.on(evBegin{s.p.v2})
}

// IsOpen reports whether a transaction takes copies.
func (s *Session) IsOpen() bool { return s.m.state == Open }

// Add appends rec, the copy of the source's record at offset, to the
// transaction. It keeps no part of rec and sends nothing.
func (s *Session) Add(source SourcePartition, offset int64, rec *kgo.Record) {
	s.records++
	s.bytes += len(rec.Key) + len(rec.Value)
	for i := range rec.Headers {
		s.bytes += len(rec.Headers[i].Key) + len(rec.Headers[i].Value)
	}
	if n := s.p.add(target{rec.Topic, rec.Partition}, rec, &source, offset); n > 0 {
		s.on(evSent{n})
	}
}

// Size is how much was added since Begin: records, their keys, values and
// headers, and the bytes that the map takes so far.
func (s *Session) Size() (records, bytes, mapBytes int) {
	return s.records, s.bytes, s.runs.Size()
}

// Rest is how long the next copies would wait, because the transaction before
// is still being ended; time to gather more.
func (s *Session) Rest() time.Duration { return max(0, time.Until(s.p.rest.until)) }

// Send sends what is at hand and takes the answers that are there. It does not
// wait for any. An error means that the transaction is over, aborted.
func (s *Session) Send(ctx context.Context) error {
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

// Commit ends the transaction with the entries that write gives once all copies
// are on the target: at most one frontier for each source partition, and what
// else is to be known. last has the offset after the last copy on the target of
// each source partition. Nil has the transaction aborted. [Committed] comes without error. [Aborted] and
// [Unknown] come with the reason, a *[RefusedError] among others; then
// [Session.Own] is to be called. When ctx ends before EndTxn was sent the
// transaction is aborted.
func (s *Session) Commit(ctx context.Context, write func(last map[SourcePartition]int64) []Entry) (Outcome, error) {
	if n := s.p.sealAll(); n > 0 {
		s.on(evSent{n})
	}
	s.on(evCommit{})
	if !s.flush(ctx) {
		return s.end()
	}
	entries := write(s.last)
	if entries == nil {
		s.on(evAbort{})
		s.finish(ctx, false)
		return s.outcome, errGivenUp
	}
	positions, err := s.write(entries)
	if err != nil {
		s.failed(Produce, err)
		s.on(evFlushErr{Stop})
		return s.end()
	}
	if !s.flush(ctx) {
		return s.end()
	}
	s.on(evPositionWritten{s.counts[0], positions, s.p.id})
	if s.counts[1] > 0 || s.m.copies > 0 {
		s.on(evMapWritten{s.counts[1], s.p.id})
	}
	s.on(evFlushOK{})
	s.finish(ctx, true)
	return s.end()
}

// write hands the records of ledger and map to the producer.
func (s *Session) write(entries []Entry) (Positions, error) {
	if len(entries) == 0 {
		return nil, errors.New("a transaction without entries")
	}
	positions := Positions{}
	now := time.Now()
	ledger, offsets := s.p.always[0], s.p.always[1]
	for _, e := range entries {
		k, v, err := e.Encode()
		if err != nil {
			return nil, err
		}
		if f, ok := e.Value.(*Frontier); ok {
			positions[e.Key.Source] = f.Next
		}
		s.p.add(ledger, &kgo.Record{Topic: ledger.topic, Partition: ledger.partition, Timestamp: now, Key: k, Value: v}, nil, 0)
	}
	maps, err := s.runs.Records()
	if err != nil {
		return nil, err
	}
	for _, v := range maps {
		s.p.add(offsets, &kgo.Record{Topic: offsets.topic, Partition: offsets.partition, Timestamp: now, Value: v}, nil, 0)
	}
	s.p.sealAll()
	s.counts = [2]int{len(entries), len(maps)}
	s.on(evSent{len(entries) + len(maps)})
	return positions, nil
}

// flush sends and waits until nothing is left to be answered; false when the
// transaction is over.
func (s *Session) flush(ctx context.Context) bool {
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
func (s *Session) push(ctx context.Context) {
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
func (s *Session) stuck(at target, err error) {
	if ofPartition(err) && at != s.p.always[0] && at != s.p.always[1] {
		err = &StuckError{Topic: at.topic, Partition: at.partition, Err: err}
	} else {
		err = fmt.Errorf("produce to %s[%d]: %w", at.topic, at.partition, err)
	}
	s.failed(Produce, err)
	s.on(evProduceErr{RestartLane})
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

// patience is how long a batch is tried again: so that a transaction that will
// not succeed is given up before the broker does.
func (s *Session) patience() time.Duration { return s.cfg.Timeout * 2 / 3 }

// take deals with the answer to a produce request.
func (s *Session) take(a answer) {
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
		if r.at == s.p.always[0] {
			if r.first != s.due {
				s.failed(Produce, fmt.Errorf("an entry is at offset %d of %s[%d], not at %d: %w", r.first, r.at.topic, r.at.partition, s.due, ErrMoved))
				s.on(evProduceErr{RestartLane})
				return
			}
			s.due += int64(r.n)
		}
		if len(r.spots) == 0 {
			continue // of ledger or map: counted when all of them are there
		}
		for _, sp := range r.spots {
			first := r.first + int64(sp.at)
			run := Run{
				Source: sp.source, First: sp.offset, Last: sp.offset + int64(sp.n) - 1,
				TargetTopicID: s.p.topics[r.at.topic].id, TargetPartition: r.at.partition, TargetFirst: first,
			}
			if err := s.runs.Add(run); err != nil {
				s.failed(Produce, err)
				s.on(evProduceErr{Stop})
				return
			}
			s.last[sp.source] = first + int64(sp.n)
		}
		s.on(evProduced{r.n, r.id})
	}
}

// finish sends EndTxn for as long as step says so.
func (s *Session) finish(ctx context.Context, commit bool) {
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
		s.due++ // the marker
		s.on(evEndOK{id})
	}
}

// end is the outcome of a transaction, with its reason.
func (s *Session) end() (Outcome, error) {
	if s.outcome == Committed {
		return Committed, nil
	}
	return s.outcome, s.because(errStale)
}

// Abort gives the transaction up, unless none is open. [Session.Own] is to be
// called before the next one.
func (s *Session) Abort(ctx context.Context) {
	if s.m.state != Open {
		return
	}
	s.on(evAbort{})
	s.finish(ctx, false)
}

// Close ends the session: a transaction that is open is aborted if that can be
// done cleanly; if not, the next owner of the shard ends it, or its timeout.
// The client stays open.
func (s *Session) Close(ctx context.Context) {
	s.on(evClose{})
	s.finish(ctx, false)
	s.p.drop()
}
