package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Begin opens a transaction. Nothing is sent by it.
func (s *Session) Begin() {
	s.runs, s.counts = MapBuilder{}, [2]int{}
	clear(s.last)
	s.begin(false)
}

// Size is how much was added since Begin: records, their keys, values and
// headers, and the bytes that the map takes so far.
func (s *Session) Size() (records, bytes, mapBytes int) {
	return s.records, s.bytes, s.runs.Size()
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

// Close ends the session: a transaction that is open is aborted if that can be
// done cleanly; if not, the next owner of the shard ends it, or its timeout.
// The client stays open.
func (s *Session) Close(ctx context.Context) {
	s.on(evClose{})
	s.finish(ctx, false)
	s.p.drop()
}

// place notes where copies went, and that the ledger goes on where it should.
func (s *Session) place(r result) bool {
	if r.at == s.p.always[0] {
		if r.first != s.due {
			s.failed(Produce, fmt.Errorf("an entry is at offset %d of %s[%d], not at %d: %w", r.first, r.at.topic, r.at.partition, s.due, ErrMoved))
			s.on(evProduceErr{RestartLane})
			return false
		}
		s.due += int64(r.n)
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
			return false
		}
		s.last[sp.source] = first + int64(sp.n)
	}
	return true
}
