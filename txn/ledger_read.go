package txn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrDamaged: a ledger partition holds what no version of this tool writes, or
// a position that goes back. Nothing may be copied on its word.
var ErrDamaged = errors.New("the ledger is damaged")

var decompressor = kgo.DefaultDecompressor()

// Read reads the partition of a ledger topic on to its end: the one that the
// leader gives when asked now, read_uncommitted (ledger section 2). Asked before
// the caller's fence, the end decides nothing. Errors of brokers that pass are
// tried again until ctx ends; what a broker refuses comes back as it is, for
// [Classify], and damage as [ErrDamaged]. After an error the ledger is to be
// thrown away unless ctx ended.
func (l *Ledger) Read(ctx context.Context, cl *kgo.Client, topic string, partition int32) error {
	r := ledgerReader{cl: cl, topic: topic, partition: partition}
	var end, start int64
	find := func() (err error) {
		if err = r.locate(ctx); err != nil {
			return err
		}
		if end, err = r.offset(ctx, -1); err != nil {
			return err
		}
		start, err = r.offset(ctx, -2)
		return err
	}
	if err := r.insist(ctx, find); err != nil {
		return fmt.Errorf("find the end of %s[%d]: %w", topic, partition, err)
	}
	for try := 1; l.next > end && try <= 5; try++ {
		// Whoever answered may not be the leader any more.
		if err := wait(ctx, backoff(try, 50*time.Millisecond, time.Second)); err != nil {
			return err
		}
		if err := r.insist(ctx, find); err != nil {
			return fmt.Errorf("find the end of %s[%d]: %w", topic, partition, err)
		}
	}
	if l.next > end {
		return fmt.Errorf("%s[%d] ends at %d and was read up to %d before: %w", topic, partition, end, l.next, ErrDamaged)
	}
	return l.readTo(ctx, &r, start, end)
}

// ReadLedgers reads the partitions of a ledger topic, ls[k] being that of
// partition k, on to their ends; see [Ledger.Read]. It asks for all ends at once,
// and only those that have something new cost a request more: it is for looking
// on, not for owning. The errors are those of single partitions, nil where there
// is none.
func ReadLedgers(ctx context.Context, cl *kgo.Client, topic string, ls []*Ledger) []error {
	errs := make([]error, len(ls))
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, topic)
	var ends kadm.ListedOffsets
	if err == nil {
		ends, err = adm.ListEndOffsets(ctx, topic)
	}
	known := func(list kadm.ListedOffsets, k int) (int64, bool) {
		o, ok := list.Lookup(topic, int32(k))
		return o.Offset, err == nil && ok && o.Err == nil
	}
	const atOnce = 16
	var wg sync.WaitGroup
	for from := range min(atOnce, len(ls)) {
		wg.Go(func() {
			for k := from; k < len(ls); k += atOnce {
				start, hasStart := known(starts, k)
				end, hasEnd := known(ends, k)
				switch {
				case !hasStart || !hasEnd || ls[k].next > end:
					errs[k] = ls[k].Read(ctx, cl, topic, int32(k))
				case max(ls[k].next, start) < end:
					r := ledgerReader{cl: cl, topic: topic, partition: int32(k)}
					if errs[k] = r.insist(ctx, func() error { return r.locate(ctx) }); errs[k] == nil {
						errs[k] = ls[k].readTo(ctx, &r, start, end)
					}
				}
			}
		})
	}
	wg.Wait()
	return errs
}

// readTo reads from where the ledger is, or the log's start, to end.
func (l *Ledger) readTo(ctx context.Context, r *ledgerReader, start, end int64) error {
	at := max(l.next, start)
	for at < end {
		var fp kgo.FetchPartition
		next := at
		fetch := func() (err error) {
			fp, next, err = r.fetch(ctx, at)
			if err == nil && next == at {
				// The leader's high watermark, up to which it hands out records,
				// has not reached the end yet.
				err = kerr.OffsetNotAvailable
			}
			return err
		}
		if err := r.insist(ctx, fetch); err != nil {
			return fmt.Errorf("read %s[%d] from offset %d: %w", r.topic, r.partition, at, err)
		}
		for _, rec := range fp.Records {
			if err := l.add(rec); err != nil {
				return fmt.Errorf("read %s[%d]: %w", r.topic, r.partition, err)
			}
		}
		at = next
	}
	l.next = max(l.next, at)
	return nil
}

// ledgerReader asks the leader of one partition.
type ledgerReader struct {
	cl        *kgo.Client
	topic     string
	partition int32

	id     [16]byte
	leader int32
}

// insist repeats do while its error passes by itself.
func (r *ledgerReader) insist(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil || Classify(ReadLedger, err) != Retry {
			return err
		}
		if werr := wait(ctx, backoff(try, 5*time.Millisecond, time.Second)); werr != nil {
			return fmt.Errorf("%w (last: %w)", werr, err)
		}
		if err := r.locate(ctx); err != nil && Classify(ReadLedger, err) != Retry {
			return err
		}
	}
}

// locate finds the leader.
func (r *ledgerReader) locate(ctx context.Context) error {
	topics, err := topicMetadata(ctx, r.cl, r.topic)
	if err != nil {
		return err
	}
	t := topics[r.topic]
	if t.err != nil {
		return t.err
	}
	leader, ok := t.leaders[r.partition]
	if !ok {
		return kerr.UnknownTopicOrPartition
	}
	if leader < 0 {
		return kerr.LeaderNotAvailable
	}
	r.id, r.leader = t.id, leader
	return nil
}

// offset asks for the end (-1) or the start (-2) of the log.
func (r *ledgerReader) offset(ctx context.Context, which int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = r.topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = r.partition, which
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := r.cl.Broker(int(r.leader)).Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errNoAnswer
	}
	p := resp.Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

// fetch reads once, with control records and what is not committed.
func (r *ledgerReader) fetch(ctx context.Context, at int64) (kgo.FetchPartition, int64, error) {
	const most = 4 << 20
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes = 0, most
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = r.topic, r.id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = r.partition, at, most
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := r.cl.Broker(int(r.leader)).Request(ctx, req)
	if err != nil {
		return kgo.FetchPartition{}, at, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return kgo.FetchPartition{}, at, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return kgo.FetchPartition{}, at, errNoAnswer
	}
	p := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return kgo.FetchPartition{}, at, err
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at, KeepControlRecords: true, IsolationLevel: kgo.ReadUncommitted(), Topic: r.topic, Partition: r.partition,
	}, p, decompressor, nil)
	if fp.Err != nil {
		return fp, at, fmt.Errorf("%w: %w", ErrDamaged, fp.Err)
	}
	return fp, next, nil
}

// topicInfo is what metadata says of a topic.
type topicInfo struct {
	id      [16]byte
	leaders map[int32]int32
	err     error
}

// topicMetadata asks for topics by name, never from a cache, and has none made.
func topicMetadata(ctx context.Context, cl *kgo.Client, names ...string) (map[string]topicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	out := make(map[string]topicInfo, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		info := topicInfo{id: t.TopicID, leaders: map[int32]int32{}, err: kerr.ErrorForCode(t.ErrorCode)}
		for _, p := range t.Partitions {
			info.leaders[p.Partition] = p.Leader
		}
		out[*t.Topic] = info
	}
	for _, name := range names {
		if _, ok := out[name]; !ok {
			out[name] = topicInfo{err: kerr.UnknownTopicOrPartition}
		}
	}
	return out, nil
}

// errNoAnswer: the broker's answer leaves out what was asked for. It stands for
// no answer at all.
var errNoAnswer = fmt.Errorf("the broker's answer leaves out what was asked: %w", kerr.NetworkException)

// wait is over after d, or with an error when ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// backoff is the pause before try n, doubled each time, the upper half random.
func backoff(n int, first, most time.Duration) time.Duration {
	d := first
	for i := 1; i < n && d < most; i++ {
		d *= 2
	}
	d = min(d, most)
	return d/2 + rand.N(d/2+1)
}
