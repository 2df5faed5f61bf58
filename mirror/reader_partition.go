package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// partitionReader reads through an ordinary consumer group, read_committed,
// for sources without share groups and flows that need order. Positions are
// committed only for records whose fate is known; a rebalance waits until the
// batch in hand is settled.
type partitionReader struct {
	cl    *kgo.Client
	cfg   partitionConfig
	group string

	// Of the lane alone.
	rest       respites[place] // partitions that failed
	subscribed map[string]bool // topics, as the client has them
	refusals   int             // of commits, in a row
	commitAt   time.Time       // when refused positions are committed again

	changes sync.WaitGroup // of the client's subscription

	saidEpochs bool // that the source gives no leader epochs; the lane's own
	taken      bool // another process has joined under this one's name; the lane's own

	mu     sync.Mutex
	next   map[place]int64     // expected next offset
	owed   map[place]*progress // positions not committed yet
	ids    map[string][16]byte // topic ids, where the source has them
	topics map[string]bool     // wanted
	anew   map[string]bool     // created again at the source, to be read anew
	wake   context.CancelFunc  // ends the poll under way, nil between polls
}

type partitionConfig struct {
	lane     string
	instance string // static member id, "" for none
	records  int
	board    *board
	log      *slog.Logger
	// topicFailed: the broker refuses the topic to this client.
	topicFailed func(topic string, err error)
	// unreadable: n offsets of a partition from offset on can't be decoded.
	// True: skip them.
	unreadable func(topic string, partition int32, offset, n int64, err error) bool
	// copies reports whether the partition is to be copied at all.
	copies func(topic string, partition int32) bool
	// doubted: the source does not know a topic's id (any more).
	doubted func()
}

// newPartitionReader joins group with a client of its own, made from opts.
func newPartitionReader(opts []kgo.Opt, group string, serverAssignor bool, cfg partitionConfig) (*partitionReader, error) {
	r := &partitionReader{
		cfg: cfg, group: group, rest: respites[place]{}, subscribed: map[string]bool{}, next: map[place]int64{},
		owed: map[place]*progress{}, ids: map[string][16]byte{}, topics: map[string]bool{}, anew: map[string]bool{},
	}
	opts = append(opts,
		kgo.ConsumerGroup(group),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A position that stood before the marker of a transaction would be
		// lag for ever.
		kgo.KeepControlRecords(),
		kgo.DisableAutoCommit(),
		// A broker answers a fetch at once when one of its partitions has an
		// error. Left to itself the client asks again at once, too.
		kgo.KeepRetryableFetchErrors(),
		kgo.BlockRebalanceOnPoll(),
		// Topics and partitions that appear later are read from their start.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AdjustFetchOffsetsFn(r.adjust),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { r.forget(ps) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { r.forget(ps) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { r.forget(ps) }),
	)
	if cfg.instance != "" {
		opts = append(opts, kgo.InstanceID(cfg.instance))
	}
	if serverAssignor {
		opts = append(opts, kgo.ServerSideBalancer())
	} else {
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("open source client: %w", err)
	}
	r.cl = cl
	return r, nil
}

func (r *partitionReader) poll(ctx context.Context) (*batch, error) {
	for {
		if err := r.repeat(ctx); err != nil {
			return nil, err
		}
		if err := r.subscribe(ctx); err != nil {
			return nil, err
		}
		r.resume()
		once, cancel := r.untilNext(ctx)
		fetches := r.cl.PollRecords(once, r.cfg.records)
		cancel()
		if err := ctx.Err(); err != nil {
			r.cl.AllowRebalance()
			return nil, err
		}
		if fetches.IsClientClosed() {
			return nil, kgo.ErrClientClosed
		}
		b := &batch{}
		seek := map[string]map[int32]kgo.EpochOffset{}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { r.file(b, p, seek) })
		r.failures(ctx, fetches, b, seek)
		r.seek(seek)
		if fenced(fetches) {
			r.taken = true
			r.cl.AllowRebalance()
			return nil, errNameTaken
		}
		if len(b.items) > 0 {
			return b, nil
		}
		r.cl.AllowRebalance()
	}
}

// untilNext bounds a poll: by the end of a respite, by the next try at
// committing, and by a change of the topics.
func (r *partitionReader) untilNext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, within := r.rest.within(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	var until context.CancelFunc
	if len(r.owed) > 0 {
		ctx, until = context.WithDeadline(ctx, r.commitAt)
	} else {
		ctx, until = context.WithCancel(ctx)
	}
	if len(r.anew) > 0 || !maps.Equal(r.topics, r.subscribed) {
		until()
	}
	r.wake = until
	return ctx, func() {
		r.mu.Lock()
		r.wake = nil
		r.mu.Unlock()
		until()
		within()
	}
}

// resume fetches the partitions again that were left alone for long enough.
func (r *partitionReader) resume() {
	again := map[string][]int32{}
	for _, at := range r.rest.over() {
		again[at.topic] = append(again[at.topic], at.partition)
	}
	if len(again) > 0 {
		r.cl.ResumeFetchPartitions(again)
	}
}

// failures deals with the errors that came with a poll, and adds the offsets to
// go on from. A partition's records in the same poll come before its error.
func (r *partitionReader) failures(ctx context.Context, fetches kgo.Fetches, b *batch, seek map[string]map[int32]kgo.EpochOffset) {
	group := false
	answered := map[place]bool{} // by a broker with data, which alone can be bad
	fetches.EachPartition(func(p kgo.FetchTopicPartition) { answered[place{p.Topic, p.Partition}] = p.HighWatermark > 0 })
	fetches.EachError(func(topic string, partition int32, err error) {
		var (
			session *kgo.ErrGroupSession
			loss    *kgo.ErrDataLoss
		)
		switch {
		case errors.As(err, &session):
			group = true
			r.cfg.board.trouble(r.cfg.lane+" membership", r.explain(fmt.Errorf("consumer group %s: %w", r.group, err)))
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			r.cfg.topicFailed(topic, err)
		case errors.As(err, &loss):
			// The source's log was cut; what comes there now is new.
			r.cfg.log.Warn("source records are gone", "topic", topic, "partition", partition, "reason", err)
			r.mu.Lock()
			r.next[place{topic, partition}] = loss.ResetTo
			r.mu.Unlock()
		case errors.Is(err, kerr.CorruptMessage), !isKafkaError(err) && answered[place{topic, partition}]:
			r.corrupt(ctx, b, seek, place{topic, partition}, err)
		case topic != "":
			r.later(place{topic, partition}, err)
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled): // of the poll, see untilNext
			r.cfg.log.Info("fetch will be tried again", "reason", err)
		}
	})
	if !group {
		r.cfg.board.trouble(r.cfg.lane+" membership", nil)
	}
}

// later leaves a partition alone for a while.
func (r *partitionReader) later(at place, err error) {
	r.cfg.log.Info("fetch will be tried again", "topic", at.topic, "partition", at.partition, "reason", err)
	if errors.Is(err, kerr.UnknownTopicID) {
		r.cfg.doubted()
	}
	r.rest.failed(at)
	r.cfg.board.hindered(at.topic, at.partition, err)
	r.cl.PauseFetchPartitions(map[string][]int32{at.topic: {at.partition}})
}

// corrupt stops a partition whose next batch can't be decoded, or steps over
// the batch: a record without content stands in for it, so that the position
// passes it when everything before it is settled.
func (r *partitionReader) corrupt(ctx context.Context, b *batch, seek map[string]map[int32]kgo.EpochOffset, at place, err error) {
	r.mu.Lock()
	first, ok := r.next[at]
	r.mu.Unlock()
	if !ok {
		first = r.begin(ctx, at)
	}
	last, endErr := batchEnd(ctx, r.cl, at.topic, at.partition, first)
	if endErr != nil {
		r.later(at, fmt.Errorf("%w; and where that ends: %w", err, endErr))
		return
	}
	if !r.cfg.unreadable(at.topic, at.partition, first, last-first+1, err) {
		r.cl.PauseFetchPartitions(map[string][]int32{at.topic: {at.partition}})
		return
	}
	stand := &kgo.Record{Topic: at.topic, Partition: at.partition, Offset: last, LeaderEpoch: -1}
	b.items = append(b.items, item{rec: stand, src: tip{partition: at.partition}, fate: fateRejected})
	back(seek, &kgo.Record{Topic: at.topic, Partition: at.partition, Offset: last + 1})
}

// begin is where reading of a partition began of which nothing came yet.
func (r *partitionReader) begin(ctx context.Context, at place) int64 {
	if o, ok := r.cl.CommittedOffsets()[at.topic][at.partition]; ok && o.Offset >= 0 {
		return o.Offset
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	starts, err := kadm.NewClient(r.cl).ListStartOffsets(ctx, at.topic)
	if o, ok := starts.Lookup(at.topic, at.partition); err == nil && ok && o.Err == nil {
		return o.Offset
	}
	return 0
}

func isKafkaError(err error) bool {
	var ke *kerr.Error
	return errors.As(err, &ke)
}

// file puts one partition's records into the batch. A record below the next
// expected offset was handed out before (a fetch from a follower that lags, for
// example) and is left out.
func (r *partitionReader) file(b *batch, p kgo.FetchTopicPartition, seek map[string]map[int32]kgo.EpochOffset) {
	at := place{p.Topic, p.Partition}
	if p.Err == nil && r.rest[at] != nil {
		delete(r.rest, at)
		r.cfg.board.hindered(p.Topic, p.Partition, nil)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next, known := r.next[at]
	if !known {
		// The first look at a partition: the group's own position is where the
		// log should still be.
		var o kgo.EpochOffset
		if o, known = r.cl.CommittedOffsets()[p.Topic][p.Partition]; known {
			next = o.Offset
		}
	}
	if known && p.LogStartOffset > next && len(p.Records) > 0 && p.Records[0].Offset >= p.LogStartOffset {
		r.cfg.board.gap(p.Topic, p.Partition, next, p.LogStartOffset-1)
	}
	for _, rec := range p.Records {
		if known && rec.Offset < next {
			r.cfg.board.left(p.Topic, p.Partition, leftBehind, 1)
			continue
		}
		if !r.cfg.copies(p.Topic, p.Partition) {
			r.cl.PauseFetchPartitions(map[string][]int32{p.Topic: {p.Partition}})
			back(seek, rec)
			return
		}
		if rec.LeaderEpoch < 0 && !r.saidEpochs {
			r.saidEpochs = true
			r.cfg.log.Warn("the source gives no leader epochs: a log that is cut back can't be told from one that is not",
				"topic", p.Topic, "partition", p.Partition)
		}
		it := item{rec: rec, src: tip{partition: p.Partition}}
		if rec.Attrs.IsControl() {
			it.fate = fateDone // nothing to be copied, but to be passed
		}
		b.items = append(b.items, it)
		next, known = rec.Offset+1, true
	}
	if known {
		r.next[at] = next
	}
}

func back(m map[string]map[int32]kgo.EpochOffset, rec *kgo.Record) {
	if m[rec.Topic] == nil {
		m[rec.Topic] = map[int32]kgo.EpochOffset{}
	}
	if _, ok := m[rec.Topic][rec.Partition]; !ok {
		m[rec.Topic][rec.Partition] = kgo.EpochOffset{Epoch: -1, Offset: rec.Offset}
	}
}

// seek goes on from other offsets: those of records that are open again, or
// behind what can't be read.
func (r *partitionReader) seek(to map[string]map[int32]kgo.EpochOffset) {
	if len(to) == 0 {
		return
	}
	r.mu.Lock()
	for t, ps := range to {
		for p, o := range ps {
			r.next[place{t, p}] = o.Offset
		}
	}
	r.mu.Unlock()
	r.cl.SetOffsets(to)
}

func (r *partitionReader) settle(ctx context.Context, b *batch) error {
	defer r.cl.AllowRebalance()
	done := map[place]*progress{}
	open := map[string]map[int32]kgo.EpochOffset{}
	for i := range b.items {
		it := &b.items[i]
		at := place{it.rec.Topic, it.rec.Partition}
		if _, stopped := open[at.topic][at.partition]; stopped {
			continue // the position can't pass an open record
		}
		if it.fate == fateOpen {
			back(open, it.rec)
			continue
		}
		p := done[at]
		if p == nil {
			p = &progress{}
			done[at] = p
		}
		p.to = kgo.EpochOffset{Epoch: it.rec.LeaderEpoch, Offset: it.rec.Offset + 1}
		if it.written {
			p.records++
			p.bytes += it.size()
		}
	}
	r.commit(ctx, done)
	r.seek(open)
	return nil
}
