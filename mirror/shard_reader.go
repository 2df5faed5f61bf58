package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// shardReader fetches the source partitions of one shard from given positions,
// read_committed. It is made anew each time that the positions were read from
// the ledger: nothing that was read ahead before can come after that. One
// goroutine calls it.
type shardReader struct {
	cl     *kgo.Client
	places map[place]*readPlace
	rest   respites[place]
	log    *slog.Logger
	board  *board
	lane   string
	// doubted: the source does not know a topic's id any more.
	doubted func()

	saidEpochs bool
}

// readPlace is where a partition is read.
type readPlace struct {
	next   int64 // the next offset expected
	epoch  int32 // leader epoch of the record before it, -1 when not known
	behind bool  // there was more at the source when it last answered
	failed error // it is not read any more
}

// arrival is what a poll brought of one partition: records in order, control
// records among them, then perhaps the reason why it is not read any more.
type arrival struct {
	at   place
	recs []*kgo.Record
	// logStart is the log's start, -1 when not known.
	logStart int64
	// err is a *logCut, a *kgo.ErrDataLoss, an authorization error, or what can't
	// be decoded.
	err error
}

func newShardReader(opts []kgo.Opt, lane string, b *board, log *slog.Logger, doubted func()) (*shardReader, error) {
	opts = append(opts,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
		// A position that is not in the log is a matter for people.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepRetryableFetchErrors(),
	)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("open source client: %w", err)
	}
	return &shardReader{cl: cl, places: map[place]*readPlace{}, rest: respites[place]{}, log: log, board: b, lane: lane, doubted: doubted}, nil
}

func (r *shardReader) close() { r.cl.Close() }

// add begins reading partitions.
func (r *shardReader) add(at map[place]readPlace) {
	from := map[string]map[int32]kgo.Offset{}
	for pl, p := range at {
		if from[pl.topic] == nil {
			from[pl.topic] = map[int32]kgo.Offset{}
		}
		// With the epoch the client finds out whether the source has lost what
		// was read before (KIP-320).
		from[pl.topic][pl.partition] = kgo.NewOffset().At(p.next).WithEpoch(p.epoch)
		r.places[pl] = &p
	}
	r.cl.AddConsumePartitions(from)
}

// remove ends reading partitions.
func (r *shardReader) remove(gone []place) {
	ps := map[string][]int32{}
	for _, pl := range gone {
		ps[pl.topic] = append(ps[pl.topic], pl.partition)
		delete(r.places, pl)
		delete(r.rest, pl)
		r.board.hindered(pl.topic, pl.partition, nil)
	}
	r.cl.RemoveConsumePartitions(ps)
	r.cl.ResumeFetchPartitions(ps) // a pause outlives that, and would hold when they come back
}

// poll waits for something until ctx ends, or not at all with a nil ctx.
func (r *shardReader) poll(ctx context.Context, most int) []arrival {
	r.resume()
	within := func() {}
	if ctx != nil {
		ctx, within = r.rest.within(ctx)
	}
	fetches := r.cl.PollRecords(ctx, most)
	within()
	var out []arrival
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if a, ok := r.file(p); ok {
			out = append(out, a)
		}
	})
	return out
}

// more reports whether records are known to be on their way.
func (r *shardReader) more() bool {
	for _, p := range r.places {
		if p.behind && p.failed == nil {
			return true
		}
	}
	return false
}

// resume fetches the partitions again that were left alone for long enough.
func (r *shardReader) resume() {
	for _, at := range r.rest.over() {
		r.cl.ResumeFetchPartitions(map[string][]int32{at.topic: {at.partition}})
	}
}

// file takes what a poll brought of one partition. A record below the next
// expected offset was handed out before (a fetch from a follower that lags, for
// example) and is left out.
func (r *shardReader) file(p kgo.FetchTopicPartition) (arrival, bool) {
	at := place{p.Topic, p.Partition}
	rp := r.places[at]
	if rp == nil || rp.failed != nil {
		return arrival{}, false
	}
	a := arrival{at: at, logStart: p.LogStartOffset}
	if len(p.Records) == 0 && p.Err == nil {
		a.logStart = -1
	}
	if p.Err == nil && r.rest[at] != nil {
		delete(r.rest, at)
		r.board.hindered(p.Topic, p.Partition, nil)
	}
	for _, rec := range p.Records {
		if rec.Offset < rp.next {
			r.board.left(p.Topic, p.Partition, leftBehind, 1)
			continue
		}
		if rec.LeaderEpoch < 0 && !r.saidEpochs {
			r.saidEpochs = true
			r.log.Warn("the source gives no leader epochs: a log that is cut back can't be told from one that is not",
				"topic", p.Topic, "partition", p.Partition)
		}
		rp.next, rp.epoch = rec.Offset+1, rec.LeaderEpoch
		a.recs = append(a.recs, rec)
	}
	rp.behind = p.Err == nil && p.LastStableOffset > rp.next
	if p.Err != nil {
		a.err = r.judge(at, p.Err, p.HighWatermark > 0)
		if a.err != nil {
			rp.failed = a.err
			r.cl.RemoveConsumePartitions(map[string][]int32{at.topic: {at.partition}})
		}
	}
	return a, len(a.recs) > 0 || a.err != nil
}

// judge is the error of a partition that can't be read on, nil when it is tried
// again after a pause. answered tells that a broker has sent data: only that can
// be bad, other errors that no broker has a code for are of the connection.
func (r *shardReader) judge(at place, err error, answered bool) error {
	var loss *kgo.ErrDataLoss
	switch {
	case errors.As(err, &loss), errors.Is(err, kerr.OffsetOutOfRange), errors.Is(err, kerr.TopicAuthorizationFailed),
		errors.Is(err, kerr.CorruptMessage):
		return err
	case answered && !isKafkaError(err):
		return fmt.Errorf("%w: %w", errUndecodable, err)
	}
	r.log.Info("fetch will be tried again", "topic", at.topic, "partition", at.partition, "reason", err)
	if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) {
		r.doubted()
	}
	r.rest.failed(at)
	r.board.hindered(at.topic, at.partition, err)
	r.cl.PauseFetchPartitions(map[string][]int32{at.topic: {at.partition}})
	return nil
}

// errUndecodable: a batch at the source can't be decoded.
var errUndecodable = errors.New("the data can't be decoded")

// holes is how long a position that moved over nothing but control records waits
// to be written along with copies, before it is written alone.
const holes = time.Second
