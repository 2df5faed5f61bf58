package mirror

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/txn"
)

// shareConfig is what a shareReader needs to know of its flow.
type shareConfig struct {
	group string
	lane  string // for logs and troubles
	// instance names the member, "" for a random id.
	instance string
	rack     string
	// records and bytes bound a fetch, partitionBytes one partition of it.
	records, bytes int
	partitionBytes int32
	minBytes       int32
	maxWait        time.Duration
	lock           time.Duration // until a broker says otherwise
	renew          bool          // the broker knows RENEW
	deliveryLimit  int16
	// bound: acknowledgements of records go into a transaction (KIP-1289), of
	// gaps too with gapsBound.
	bound, gapsBound bool
	board            *board
	log              *slog.Logger
	written          *writtenSet
	// rejoining is called before the member joins anew because the broker
	// forgot it or the group: the group's settings may be gone with it.
	rejoining func(ctx context.Context) error
	// owe is called for a record on its last delivery before it is handed to
	// the lane, and lose when it is given back without having been there.
	owe  func(ctx context.Context, topic string, src tip, offset int64)
	lose func(topic string, src tip, offset int64)
	// topicFailed: the broker refuses the topic to this client.
	topicFailed func(topic string, err error)
	// unreadable: data of a partition can't be decoded from offset on. True:
	// reject what can't be read and go on.
	// n offsets are concerned.
	unreadable func(topic string, partition int32, offset, n int64, err error) bool
}

// shareReader reads through one share group member (KIP-932). It is a client
// of its own: kgo's share consumer accepts every record that is not
// acknowledged by the next poll, and hides member id and epochs (ADR 0004).
//
// Three kinds of goroutine work for it: the member (heartbeats and metadata),
// one pump per broker, and the lane that polls.
type shareReader struct {
	cfg    shareConfig
	cl     *kgo.Client
	member string // own id

	out     chan *batch
	fatal   chan error
	wake    chan struct{} // the member shall look again, now
	home    int32         // the group's coordinator, the member's own
	epoch   atomic.Int32  // of the member, 0 while it is none
	lockFor atomic.Int64  // lock time that the broker last named, ns

	mu        sync.Mutex
	topics    []string
	assigned  map[tip]bool
	names     map[[16]byte]string
	shown     map[[16]byte]time.Time // when metadata last showed the topic
	leaders   map[tip]int32
	pumps     map[int32]*pump
	dirty     bool        // leaders may have moved
	doubts    int         // raised by each reason to doubt the membership
	trusted   int         // doubts up to this one are dispelled
	robberies []time.Time // when brokers did not know the session, lately
	closing   bool

	idle     atomic.Bool // the lane waits for records
	started  bool
	stop     context.CancelFunc // ends members and pumps
	abort    context.CancelFunc // ends their requests
	pumpCtx  context.Context    //nolint:containedctx // pumps are started as brokers appear, all under one life
	ioCtx    context.Context    //nolint:containedctx // as above, for requests
	workers  sync.WaitGroup
	memberWG sync.WaitGroup
}

// override applies the consumer settings that a share reader honours.
func (c *shareConfig) override(consumer map[string]string) error {
	for key, value := range consumer {
		wide, err := strconv.ParseInt(value, 10, 32)
		n := int(wide)
		switch key {
		case "fetch.min.bytes":
			c.minBytes = int32(wide)
		case "fetch.max.bytes":
			c.bytes = min(c.bytes, n)
		case "max.partition.fetch.bytes":
			c.partitionBytes = int32(wide)
		case "fetch.max.wait.ms":
			c.maxWait = time.Duration(n) * time.Millisecond
		case "max.poll.records":
			c.records = min(c.records, n)
		case "client.rack":
			c.rack, err = value, nil
		default:
			continue // a setting of the client
		}
		if err != nil {
			return &Refusal{Problem: fmt.Sprintf("consumer.override.%s: %q is no number", key, value)}
		}
	}
	return nil
}

// newShareReader makes a reader over cl, which must not be shared: a share
// session is tied to its connection. The reader closes cl.
func newShareReader(cl *kgo.Client, cfg shareConfig) *shareReader {
	// Acknowledgements and renewals wait behind a fetch.
	cfg.maxWait = min(cfg.maxWait, max(cfg.lock/4, 100*time.Millisecond))
	r := &shareReader{
		cfg: cfg, cl: cl, member: memberID(cfg.group, cfg.instance), home: noHome,
		out: make(chan *batch), fatal: make(chan error, 1), wake: make(chan struct{}, 1),
		assigned: map[tip]bool{}, names: map[[16]byte]string{}, shown: map[[16]byte]time.Time{}, leaders: map[tip]int32{}, pumps: map[int32]*pump{},
	}
	r.lockFor.Store(int64(cfg.lock))
	r.pumpCtx, r.stop = context.WithCancel(context.Background())
	r.ioCtx, r.abort = context.WithCancel(context.Background())
	return r
}

// memberID is 16 bytes in base64, as Kafka's own clients have it: random, or
// that of the instance, which is then the same after a restart.
func memberID(group, instance string) string {
	var b [16]byte
	if instance == "" {
		_, _ = rand.Read(b[:]) // never fails, says its documentation
	} else {
		sum := sha256.Sum256([]byte(group + "\x00" + instance))
		copy(b[:], sum[:])
	}
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func (r *shareReader) lock() time.Duration     { return time.Duration(r.lockFor.Load()) }
func (r *shareReader) setLock(d time.Duration) { r.lockFor.Store(int64(d)) }

func (r *shareReader) poll(ctx context.Context) (*batch, error) {
	if !r.started {
		r.started = true
		r.memberWG.Go(func() { r.manage(r.pumpCtx) })
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.setIdle(true)
	defer r.setIdle(false)
	select {
	case b := <-r.out:
		return b, nil
	case err := <-r.fatal:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *shareReader) settle(_ context.Context, b *batch) error {
	acks := map[tip][]ackRange{}
	for i := range b.items {
		it := &b.items[i]
		a := ackRange{first: it.rec.Offset, last: it.rec.Offset, kind: ackRelease}
		switch it.fate {
		case fateDone:
			a.kind = ackAccept
			if it.written {
				a.records, a.bytes = 1, it.size()
			}
		case fateRejected:
			a.kind = ackReject
		case fateOpen:
		}
		acks[it.src] = append(acks[it.src], a)
	}
	// Written comes before free, or the record could slip through between the
	// two.
	r.cfg.written.add(b.items)
	for t := range acks {
		acks[t] = mergeAcks(acks[t])
		for _, a := range acks[t] {
			r.cfg.written.free(t, txn.Range{First: a.first, Last: a.last}, b.from)
		}
	}
	b.from.ack(acks)
	return nil
}

// setIdle notes whether the lane waits for records.
func (r *shareReader) setIdle(idle bool) {
	r.idle.Store(idle)
	if idle && !r.cfg.renew {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, p := range r.pumps {
			p.nudge()
		}
	}
}

// wants reports whether to fetch. Locks that can't be renewed are not taken
// ahead of need: they would run out, and use up deliveries, while the lane waits
// for a slow target.
func (r *shareReader) wants() bool { return r.cfg.renew || r.idle.Load() }

func (r *shareReader) setTopics(topics []string) {
	topics = slices.Sorted(slices.Values(topics))
	r.mu.Lock()
	changed := !slices.Equal(topics, r.topics)
	r.topics = topics
	r.mu.Unlock()
	if changed {
		// At once: records of a topic that was stopped are given back, and
		// would be fetched again until the member has come round.
		r.distribute()
		r.nudge()
	}
}

func (r *shareReader) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// doubt stops fetching until the group has answered a heartbeat. A group that
// was deleted would be made anew by a fetch, with whatever reset setting it has
// by then, and history would be skipped.
func (r *shareReader) doubt() {
	r.mu.Lock()
	r.doubts++
	r.mu.Unlock()
	r.distribute()
	r.nudge()
}

// doubtful reports whether the membership is in doubt, and which doubt a
// heartbeat that is sent now would dispel.
func (r *shareReader) doubtful() (bool, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doubts > r.trusted, r.doubts
}

// trust dispels the doubts up to that one; later ones stay.
func (r *shareReader) trust(doubt int) {
	r.mu.Lock()
	r.trusted = max(r.trusted, doubt)
	r.mu.Unlock()
}

// robbed notes that a broker no longer knows this member's session. Again and
// again in a short time means that another process uses the same member id.
func (r *shareReader) robbed() {
	const times, within = 6, 10 * time.Second
	r.mu.Lock()
	now := time.Now()
	r.robberies = append(slices.DeleteFunc(r.robberies, func(t time.Time) bool { return now.Sub(t) > within }), now)
	fight := len(r.robberies) >= times && r.cfg.instance != ""
	r.mu.Unlock()
	if fight {
		r.fail(errNameTaken)
	}
}

// refreshSoon has the member look at the metadata again, before the next
// heartbeat is due.
func (r *shareReader) refreshSoon() {
	r.mu.Lock()
	r.dirty = true
	r.mu.Unlock()
	r.nudge()
}

// close leaves in the order that frees the records at once: settle, close the
// sessions, then leave the group. (A leave alone keeps the
// records locked, as seen on Kafka 4.4.)
func (r *shareReader) close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, r.abort)
	defer stop()
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	r.stop()
	r.memberWG.Wait()
	r.workers.Wait()
	err := r.leave(r.ioCtx)
	r.abort()
	r.cl.Close()
	for _, p := range r.pumps {
		r.cfg.board.trouble(p.name(), nil)
	}
	r.cfg.board.trouble(r.cfg.lane+" membership", nil)
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("leave share group %s: %w", r.cfg.group, cause)
	}
	return err
}

// fail hands the lane an error that ends it.
func (r *shareReader) fail(err error) {
	select {
	case r.fatal <- err:
	default:
	}
}

func (r *shareReader) topicName(id [16]byte) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[id]
}

// distribute gives each leader's pump its part of the assignment.
func (r *shareReader) distribute() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return
	}
	want := map[int32]map[tip]bool{}
	for t := range r.assigned {
		node, ok := r.leaders[t]
		if r.doubts > r.trusted || !ok || node < 0 || r.names[t.id] == "" || !slices.Contains(r.topics, r.names[t.id]) {
			continue
		}
		if want[node] == nil {
			want[node] = map[tip]bool{}
		}
		want[node][t] = true
	}
	for node := range want {
		if r.pumps[node] == nil {
			p := newPump(r, node)
			r.pumps[node] = p
			r.workers.Go(func() { p.run(r.pumpCtx, r.ioCtx) })
		}
	}
	for node, p := range r.pumps {
		p.setWant(want[node])
	}
}

// partitionFailed decides what an error on one partition of a fetch means.
func (r *shareReader) partitionFailed(t tip, err error) {
	topic := r.topicName(t.id)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		r.cfg.topicFailed(topic, err)
	case errors.Is(err, kerr.CorruptMessage):
		r.cfg.unreadable(topic, t.partition, -1, 0, err)
	default:
		r.cfg.board.hindered(topic, t.partition, err)
		r.cfg.log.Info("share fetch will be tried again", "topic", topic, "partition", t.partition, "reason", err)
		r.refreshSoon()
	}
}

// explain adds advice to errors that an operator can do something about.
func (r *shareReader) explain(err error) error {
	switch {
	case errors.Is(err, kerr.ShareSessionLimitReached):
		return &hinted{err, "the broker's group.share.max.share.sessions is reached: raise it, or run fewer lanes"}
	case errors.Is(err, kerr.GroupMaxSizeReached):
		return &hinted{err, "the broker's group.share.max.size is reached: raise it, or run fewer lanes"}
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return &hinted{err, "grant READ on GROUP " + r.cfg.group + " at the source"}
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return &hinted{err, "grant READ and DESCRIBE on the flow's topics at the source"}
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return &hinted{err, "a group of another type has the name " + r.cfg.group + ": set share.group.id to another name"}
	}
	return err
}
