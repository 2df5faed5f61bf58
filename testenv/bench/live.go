package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// arrival is a copy that a reader got. Times count from the beginning of the
// stream.
type arrival struct {
	partition  int32
	offset     int64
	sent, seen time.Duration
}

// stream sends records to the source of a run at a fixed rate and reads the
// committed copies.
type stream struct {
	job
	producer, reader *kgo.Client
	began            time.Time
	halt             context.CancelFunc
	work             sync.WaitGroup
	// enough is closed when no more are to be sent, idle when none are.
	enough, idle chan struct{}

	mu       sync.Mutex
	arrivals []arrival
	// newest is when the newest copy of each partition was sent.
	newest []time.Duration
	copies []uint8 // of each record, by position
	sent   int
	count
	err error
}

// openStream makes the topics of a run on both clusters. Nothing is sent
// before begin.
func (w *world) openStream(ctx context.Context, j job) (_ *stream, err error) {
	s := &stream{job: j, newest: make([]time.Duration, w.Partitions), enough: make(chan struct{}), idle: make(chan struct{})}
	s.producer, err = kgo.NewClient(append(w.source.Opts(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[w.Codec]),
		kgo.ProducerLinger(0))...)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	_, err = kadm.NewClient(s.producer).CreateTopic(ctx, int32(w.Partitions), -1, nil, j.from)
	if err == nil {
		_, err = kadm.NewClient(w.cl).CreateTopic(ctx, int32(w.Partitions), -1, nil, j.topic())
	}
	if err == nil {
		s.reader, err = kgo.NewClient(append(w.target.Opts(),
			kgo.ConsumeTopics(j.topic()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	}
	if err != nil {
		s.producer.Close()
		return nil, fmt.Errorf("prepare topics of %s: %w", j.alias, err)
	}
	return s, nil
}

// begin sends and reads from now on.
func (s *stream) begin(ctx context.Context) {
	ctx, s.halt = context.WithCancel(ctx)
	s.began = time.Now()
	s.work.Go(func() { s.read(ctx) })
	s.work.Go(func() {
		defer close(s.idle)
		s.send(ctx)
	})
}

// now is the time of the stream.
func (s *stream) now() time.Duration { return time.Since(s.began) }

// due is when a record is to be sent. Latency counts from then, so that a
// sender that is held up makes no figure better.
func (s *stream) due(position uint64) time.Duration {
	return time.Duration(position * uint64(time.Second) / uint64(s.Rate))
}

// payload is the value of the record at a position, with its time in front.
func (s *stream) payload(b []byte, position uint64) []byte {
	b = value(b, s.Seed, position)
	binary.BigEndian.PutUint64(b, uint64(s.due(position)))
	return b
}

func (s *stream) send(ctx context.Context) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for i := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-s.enough:
			if err := s.producer.Flush(ctx); err != nil {
				s.fail(fmt.Errorf("produce to topic %s: %w", s.from, err))
			}
			return
		case <-ticker.C:
		}
		for ; s.due(i) <= s.now(); i++ {
			s.producer.Produce(ctx, &kgo.Record{
				Topic: s.from, Partition: int32(i % uint64(s.Partitions)),
				Key: binary.BigEndian.AppendUint64(nil, i), Value: s.payload(make([]byte, 0, valueSize), i),
			}, func(_ *kgo.Record, err error) {
				if err != nil {
					s.fail(fmt.Errorf("produce to topic %s: %w", s.from, err))
				}
			})
		}
		s.mu.Lock()
		s.sent = int(i)
		s.mu.Unlock()
	}
}

func (s *stream) read(ctx context.Context) {
	want := make([]byte, 0, valueSize)
	for {
		fetches := s.reader.PollFetches(ctx)
		seen := s.now()
		if ctx.Err() != nil {
			return
		}
		if err := fetches.Err(); err != nil {
			s.fail(fmt.Errorf("read topic %s: %w", s.topic(), err))
			return
		}
		s.mu.Lock()
		fetches.EachRecord(func(rec *kgo.Record) { s.arrived(rec, seen, want) })
		s.mu.Unlock()
	}
}

// arrived notes a copy; mu is held.
func (s *stream) arrived(rec *kgo.Record, seen time.Duration, want []byte) {
	if len(rec.Key) != keySize {
		s.Changed++
		return
	}
	i := binary.BigEndian.Uint64(rec.Key)
	if i >= uint64(s.Rate)*uint64(seen/time.Second+1) || int(rec.Partition) != int(i)%s.Partitions ||
		!bytes.Equal(rec.Value, s.payload(want, i)) {
		s.Changed++
		return
	}
	for uint64(len(s.copies)) <= i {
		s.copies = append(s.copies, 0)
	}
	if s.copies[i]++; s.copies[i] > 1 {
		s.Duplicated++
	}
	s.arrivals = append(s.arrivals, arrival{partition: rec.Partition, offset: rec.Offset, sent: s.due(i), seen: seen})
	s.newest[rec.Partition] = max(s.newest[rec.Partition], s.due(i))
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = errors.Join(s.err, err)
}

// await returns when done is true, which is called with mu held. It is an
// error when that takes longer than patience, or one of crew ends.
func (s *stream) await(ctx context.Context, what string, patience time.Duration, crew []process, done func() bool) error {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		for _, p := range crew {
			select {
			case <-p.gone():
				return endedEarly(p)
			default:
			}
		}
		s.mu.Lock()
		ok, err := done(), s.err
		s.mu.Unlock()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Since(began) > patience:
			return fmt.Errorf("%s took longer than %v", what, patience)
		}
	}
}

// finish sends no more, waits for what is under way and says what came.
// Records that do not come within stall are missing.
func (s *stream) finish(ctx context.Context, crew []process) (count, error) {
	close(s.enough)
	<-s.idle
	whole := func() bool { return len(s.copies) == s.sent && !slices.Contains(s.copies, 0) }
	var since time.Time
	err := s.await(ctx, "the rest", stall+2*quiet, crew, func() bool {
		if since.IsZero() && (whole() || s.now()-s.due(uint64(s.sent)) > stall) {
			since = time.Now()
		}
		// What is there twice comes late.
		return !since.IsZero() && time.Since(since) > quiet
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.count
	c.Missing = s.sent - len(s.copies)
	for _, n := range s.copies {
		if n == 0 {
			c.Missing++
		}
	}
	return c, err
}

// close ends both ends and deletes the topics.
func (s *stream) close(ctx context.Context) error {
	if s.halt != nil {
		s.halt()
		s.work.Wait()
	}
	_, err := kadm.NewClient(s.producer).DeleteTopic(ctx, s.from)
	_, terr := kadm.NewClient(s.cl).DeleteTopic(ctx, s.topic())
	s.producer.Close()
	s.reader.Close()
	if err := errors.Join(err, terr); err != nil {
		return fmt.Errorf("delete topics of %s: %w", s.alias, err)
	}
	return nil
}
