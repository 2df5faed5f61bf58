package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaSink writes to a Kafka cluster: idempotent producer, acks=all, each
// record into the partition and with the timestamp it has.
//
// While the target does not answer, Put waits inside one producer, whose
// sequence numbers let the broker tell a repetition from a new record. Giving
// up a batch that may have arrived and putting it again would duplicate it.
// So after [kafkaSink.patience] only those records fail (as retriable) of
// which nothing is on the way; Put goes on waiting for the others and says so
// through onBlocked. When its ctx ends it lets go of these too.
//
// The client's RecordDeliveryTimeout is no use here: it counts from the
// record's timestamp, which is the source's.
type kafkaSink struct {
	opts func() ([]kgo.Opt, error)

	// onBlocked, unless nil, is told from within Put that no record was
	// written since the given time, and why as far as can be found out. It
	// comes every [kafkaSink.notice] until there is progress.
	onBlocked func(since time.Time, err error)

	// inOrder: what is written of a partition is in the order of recs, also
	// when some of it is refused.
	inOrder bool
	// ordered: behind a record that is refused nothing of its partition is
	// tried; those records fail as retriable.
	ordered bool

	patience time.Duration // for records not on the way yet; default 10 s
	notice   time.Duration // default 5 s
	missing  time.Duration // a topic may be unknown for that long; default 30 s

	batch   int32 // bound of a batch before compression
	request int32 // bound of a request
	gather  bool  // nothing is sent before a Put has handed over all records

	// small takes batches of records up to the topic's limit, large one
	// record at a time. Both are nil until needed and after a failure that
	// takes a new producer.
	small, large *kgo.Client
	stale        bool
	absentAt     map[string]time.Time // topics that are unknown, and since when
	spare        []kgo.Record         // room for the next Put's copies

	mu      sync.Mutex // the clients use what follows from their own goroutines
	limits  map[string]int32
	dialErr error
}

var _ Sink = (*kafkaSink)(nil)

// newKafkaSink returns a sink that calls opts for each client that it makes,
// as hooks serve one client each. Opts may set compression (default lz4),
// linger and batch size.
func newKafkaSink(opts func() ([]kgo.Opt, error)) *kafkaSink {
	return &kafkaSink{
		opts: opts, patience: 10 * time.Second, notice: 5 * time.Second, missing: 30 * time.Second,
		limits: map[string]int32{}, absentAt: map[string]time.Time{},
	}
}

// wholePut, as linger, makes the client hold everything until it is flushed.
const wholePut = time.Minute

func (s *kafkaSink) newClient(batch func(topic string) int32) (*kgo.Client, error) {
	given, err := s.opts()
	if err != nil {
		return nil, fmt.Errorf("make producer: %w", err)
	}
	opts := slices.Concat(
		[]kgo.Opt{
			kgo.ProducerBatchCompression(kgo.Lz4Compression(), kgo.NoCompression()),
			kgo.ProducerLinger(wholePut),
			kgo.ProducerBatchMaxBytes(defaultBatch),
		},
		given,
		[]kgo.Opt{
			kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			// What is buffered is the batch of one Put, which the caller bounds.
			kgo.MaxBufferedRecords(math.MaxInt32),
			kgo.WithHooks(s),
		})
	if batch != nil {
		opts = append(opts, kgo.ProducerBatchMaxBytesFn(batch))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("make producer: %w", err)
	}
	return cl, nil
}

// OnBrokerConnect implements kgo.HookBrokerConnect: it remembers why the
// target can't be reached.
func (s *kafkaSink) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialErr = err
}

// Open returns once the target has given out a producer id. The error has a
// hint when the target has no idempotent producer or does not permit it, and is
// retriable when the target can't be reached.
func (s *kafkaSink) Open(ctx context.Context) error {
	cl, err := s.newClient(nil)
	if err != nil {
		return err
	}
	s.batch = cl.OptValue(kgo.ProducerBatchMaxBytes).(int32)
	s.request = cl.OptValue(kgo.BrokerMaxWriteBytes).(int32)
	s.gather = cl.OptValue(kgo.ProducerLinger).(time.Duration) == wholePut
	cl.Close()
	return s.ready(ctx)
}

// ready makes the producer unless there is one.
func (s *kafkaSink) ready(ctx context.Context) error {
	if s.stale {
		s.drop()
	}
	if s.small != nil {
		return nil
	}
	cl, err := s.newClient(s.limit)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	id, _, err := cl.ProducerID(ctx)
	switch {
	case err == nil && id >= 0:
		s.small = cl
		return nil
	case err == nil:
		err = &hinted{errors.New("the target has no idempotent producer (InitProducerId)"), "it needs Kafka 0.11 or later"}
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		err = &hinted{fmt.Errorf("start producer: %w", err), topicHint(err)}
	default:
		err = Retriable(fmt.Errorf("start producer: %w", s.unreachable(err)))
	}
	cl.Close()
	return err
}

// drop lets the producers go. What they still hold is not sent any more.
func (s *kafkaSink) drop() {
	for _, cl := range []*kgo.Client{s.small, s.large} {
		if cl != nil {
			cl.Close()
		}
	}
	s.small, s.large, s.stale = nil, nil, false
}

// Close lets the producers go; Put has left nothing in them.
func (s *kafkaSink) Close(context.Context) error {
	s.drop()
	return nil
}

// Put implements [Sink]. Each round writes what it can of each partition in
// order. A partition ends at its first retriable failure. A batch that is
// refused goes again in parts until it is known for which records.
func (s *kafkaSink) Put(ctx context.Context, recs []*kgo.Record) error {
	failed := map[int]error{}
	queues := s.lineUp(recs, failed)
	for len(queues) > 0 {
		err := context.Cause(ctx)
		if err == nil {
			err = s.ready(ctx)
		}
		if err != nil {
			for _, q := range queues {
				for _, i := range q.todo {
					failed[i] = Retriable(err)
				}
			}
			break
		}
		for _, q := range queues {
			q.next(recs, s.limit(q.topic), s.inOrder)
		}
		s.judge(ctx, queues, s.write(ctx, recs, queues), failed)
		queues = slices.DeleteFunc(queues, func(q *queue) bool { return len(q.todo) == 0 })
	}
	if s.stale {
		s.drop()
	}
	if len(failed) > 0 {
		return &PutError{failed}
	}
	return nil
}

// lineUp sorts recs into a queue per partition. A timestamp that the client
// can't write as it is fails the record: it would be changed in silence.
func (s *kafkaSink) lineUp(recs []*kgo.Record, failed map[int]error) []*queue {
	var queues []*queue
	by := map[place]*queue{}
	for i, rec := range recs {
		if rec.Timestamp.UnixNano()/int64(time.Millisecond) != rec.Timestamp.UnixMilli() {
			failed[i] = &hinted{
				fmt.Errorf("timestamp %d ms can't be written: it is outside the years 1678 to 2262", rec.Timestamp.UnixMilli()),
				"such times are mostly microseconds by mistake",
			}
			continue
		}
		at := place{rec.Topic, rec.Partition}
		q := by[at]
		if q == nil {
			q = &queue{topic: rec.Topic, partition: rec.Partition}
			by[at] = q
			queues = append(queues, q)
		}
		q.todo = append(q.todo, i)
	}
	return queues
}

// write sends the run of each queue and returns what became of each of recs;
// nil for those that are not part of it.
func (s *kafkaSink) write(ctx context.Context, recs []*kgo.Record, queues []*queue) []error {
	n := 0
	used := map[*kgo.Client]bool{}
	for _, q := range queues {
		n += q.run
	}
	r := newRound(len(recs), n)
	copies := slices.Grow(s.spare[:0], n)
	// Past this, the client fails what it has not sent, see [kafkaSink].
	hand, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	for _, q := range queues {
		cl, err := s.client(q)
		for _, i := range q.todo[:q.run] {
			r.errs[i] = errOpen
			if err != nil {
				r.decide(i, err)
				continue
			}
			used[cl] = true
			rec := recs[i]
			copies = append(copies, kgo.Record{
				Topic: rec.Topic, Partition: rec.Partition, Timestamp: rec.Timestamp,
				Key: rec.Key, Value: rec.Value, Headers: rec.Headers,
			})
			cl.Produce(hand, &copies[len(copies)-1], func(_ *kgo.Record, err error) { r.decide(i, err) })
		}
	}
	// Flush has to go on for as long as there is something to send.
	flushing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if s.gather {
		for cl := range used {
			wg.Go(func() { _ = cl.Flush(flushing) }) // its only error is that of flushing
		}
	}
	s.wait(ctx, r, queues)
	stop()
	wg.Wait()
	errs, all := r.result(context.Cause(ctx))
	if all {
		clear(copies)
		s.spare = copies
	} else {
		s.spare = nil // the client may still read them
	}
	return errs
}

// client is the one that takes the run of q.
func (s *kafkaSink) client(q *queue) (*kgo.Client, error) {
	if !q.alone {
		return s.small, nil
	}
	if s.large == nil {
		cl, err := s.newClient(func(string) int32 { return s.request })
		if err != nil {
			return nil, err
		}
		s.large = cl
	}
	return s.large, nil
}

// wait returns when each record of r is decided, or ctx ends.
func (s *kafkaSink) wait(ctx context.Context, r *round, queues []*queue) {
	tick := time.NewTicker(s.notice)
	defer tick.Stop()
	since, open := time.Now(), r.left()
	for {
		select {
		case <-r.done:
			return
		case <-ctx.Done():
			// What is on the way can't be called back, but no more shall follow.
			s.drop()
			return
		case <-tick.C:
			if now := r.left(); now < open {
				since, open = time.Now(), now
			} else if s.onBlocked != nil {
				if stuck := r.stuck(queues); len(stuck) > 0 {
					s.onBlocked(since, s.reasons(ctx, stuck)[stuck[0]])
				}
			}
		}
	}
}
