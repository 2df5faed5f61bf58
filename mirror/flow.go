package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// flow runs one declared flow in this process. run is its one long role; the
// goroutines that it starts are waited for before it returns.
type flow struct {
	def      *topology.Flow
	settings *topology.Resolved
	opts     *Options
	log      *slog.Logger
	board    *board
	written  *writtenSet

	// Set by prepare, constant afterwards.
	src, dst       *kgo.Client
	srcCap, dstCap *txn.Capabilities // dstCap is nil for a sink other than Kafka
	dstTxn         *txn.TxnAbilities // nil where exactly-once is not asked for
	decision       decision
	group          settledSettings
	cat            *catalog
	ledger         ledgerHome // exactly-once

	tails []*txn.Ledger // of all shards, as last read by the lag watcher

	mu      sync.Mutex
	readers map[int]reader       // by lane
	ready   map[string]route     // topics being copied
	blocked map[string]*blockage // topics that the target or the source refused
	stopped map[string]string    // share: topic -> reason
	parts   map[place]string     // partition: stopped, with reason
	owed    map[string]stopRecord
	absent  map[string]int  // refreshes in a row that did not show the topic
	members map[string]bool // ids of every share member that this process ever had
	wake    chan struct{}
	// nameless: another process uses the instance name.
	nameless bool
	// Exactly-once: lanes by shard, and committed positions.
	shards   map[int32]*shardLane
	progress map[place]reachedPlace
	halts    map[place]*halt

	oweMu sync.Mutex // one change to the owed notes at a time

	stuck   map[tip]*stuckPart // the lag watcher's own
	holdups map[place]*holdup  // the lag watcher's own

	lost   []lostRange   // to be copied by offset
	losses chan struct{} // lost has grown
}

func newFlow(m *Mirror, def *topology.Flow) (*flow, error) {
	settings, err := m.opts.Topology.Resolve(def)
	if err != nil {
		return nil, err
	}
	log := m.opts.Log.With("flow", def.Name)
	to := def.To
	if def.Sink != nil && def.Sink.File != nil {
		to = "file " + def.Sink.File.Path
	}
	return &flow{
		def: def, settings: settings, opts: &m.opts, log: log,
		board:   newBoard(def.Name, def.From, to, &m.opts.Observer, log),
		written: &writtenSet{}, readers: map[int]reader{}, ready: map[string]route{},
		blocked: map[string]*blockage{}, stopped: map[string]string{}, parts: map[place]string{},
		owed: map[string]stopRecord{}, absent: map[string]int{}, wake: make(chan struct{}, 1), losses: make(chan struct{}, 1), members: map[string]bool{}, stuck: map[tip]*stuckPart{},
		holdups: map[place]*holdup{},
		shards:  map[int32]*shardLane{}, progress: map[place]reachedPlace{}, halts: map[place]*halt{},
	}, nil
}

// run copies until ctx ends, or until the flow is refused. It prepares first;
// clusters that can't be reached are waited for.
func (f *flow) run(ctx context.Context) (err error) {
	f.board.phase(FlowStarting, "", "")
	defer func() {
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal):
			refusal.Flow = f.def.Name
			f.board.phase(FlowStopped, refusal.Problem, refusal.Hint)
		case err != nil:
			f.board.phase(FlowStopped, err.Error(), hintOf(err))
		default:
			f.board.phase(FlowStopped, "", "")
		}
	}()
	defer f.closeClients()
	if err := f.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	// Work begun is finished after ctx ends, within the shutdown limit.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	var clock sync.WaitGroup
	clock.Go(func() {
		select {
		case <-ctx.Done():
		case <-ended.Done():
			return
		}
		f.board.phase(FlowStopping, "", "")
		if sleep(ended, f.def.Limits.Shutdown-f.goodbye()) == nil {
			cancel(fmt.Errorf("not finished within the shutdown limit of %v", f.def.Limits.Shutdown))
		}
	})
	defer func() {
		end()
		clock.Wait()
	}()

	lanes, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	f.startLanes(lanes, work, &wg, fail)
	wg.Go(func() {
		if err := f.watchTopics(lanes); err != nil {
			fail(err)
		}
	})
	wg.Go(func() {
		if err := f.watchLag(lanes); err != nil {
			fail(err)
		}
	})
	f.takeOwed(ctx)
	wg.Go(func() { f.recoverLost(lanes, work) })
	wg.Wait()
	if err := f.writeOwed(work); err != nil {
		f.log.Warn("a stop is not kept; it will be found again", "reason", err)
	}
	if cause := context.Cause(lanes); ctx.Err() == nil && cause != nil {
		return cause
	}
	return nil
}

// startLanes starts what copies.
func (f *flow) startLanes(ctx, work context.Context, wg *sync.WaitGroup, fail func(error)) {
	if f.exactly() {
		wg.Go(func() {
			told, end := context.WithCancel(ctx)
			var tell sync.WaitGroup
			tell.Go(func() { f.tellPositions(told) })
			if err := f.keepShards(ctx, work); err != nil {
				fail(err)
			}
			end() // the last word comes after the last commit
			tell.Wait()
		})
		return
	}
	for n := range f.def.Lanes {
		wg.Go(func() {
			if err := f.keepLane(ctx, work, n); err != nil {
				fail(err)
			}
		})
	}
}

// keepLane runs a lane, and runs it anew after a failure, until ctx ends or it
// is refused.
func (f *flow) keepLane(ctx, work context.Context, n int) error {
	name := fmt.Sprintf("lane %d", n)
	for fails := 0; ctx.Err() == nil; {
		began := time.Now()
		err := f.oneLane(ctx, work, n, name)
		var refusal *Refusal
		if ctx.Err() == nil && (err == nil || errors.As(err, &refusal)) {
			return err
		}
		if time.Since(began) > time.Minute {
			fails = 0
		}
		fails++
		if errors.Is(err, errNameTaken) {
			f.dropName(name)
		}
		f.board.trouble(name, err)
		pause(ctx, backoff(fails, 200*time.Millisecond, 10*time.Second))
	}
	return nil
}

// dropName has the lanes go on under random names, for another process uses
// theirs: two members with one name take the records out of each other's hands.
func (f *flow) dropName(lane string) {
	f.mu.Lock()
	was := f.nameless
	f.nameless = true
	f.mu.Unlock()
	if !was {
		f.log.Warn("instance name in use by another process; going on under a random one", "instance", f.opts.Instance, "lane", lane,
			"hint", "give each process its own --instance")
	}
}

// oneLane is the life of one lane: open the sink, join, copy, leave.
func (f *flow) oneLane(ctx, work context.Context, n int, name string) (err error) {
	if f.binds() {
		return f.oneBoundLane(ctx, work, n, name)
	}
	sink, err := f.newSink(n)
	if err != nil {
		return err
	}
	// The target is known to take writes before anything is acquired: a
	// restart while it is down costs no record a delivery.
	if err := sink.Open(ctx); err != nil {
		return fmt.Errorf("open target: %w", err)
	}
	defer func() {
		if cerr := sink.Close(work); cerr != nil && err == nil {
			err = fmt.Errorf("close target: %w", cerr)
		}
	}()
	rd, err := f.newReader(name)
	if err != nil {
		return err
	}
	f.addReader(n, rd)
	defer f.dropReader(n)
	f.board.lanes(1)
	defer f.board.lanes(-1)
	defer func() {
		// However the lane ends, it leaves in an orderly way.
		bye, cancel := context.WithTimeout(context.WithoutCancel(work), f.goodbye())
		defer cancel()
		if cerr := rd.close(bye); cerr != nil {
			f.log.Info("group not left in order; what was held comes back when the locks or the session end", "lane", name, "reason", cerr)
		}
	}()
	f.board.trouble(name, nil)
	l := &lane{name: name, flow: f, reader: rd, sink: sink, chain: f.chain()}
	return l.run(ctx, work)
}

// goodbye is the part of the shutdown limit that is kept for giving back what
// is held and leaving the group.
func (f *flow) goodbye() time.Duration { return min(f.def.Limits.Shutdown/3, 10*time.Second) }

func (f *flow) addReader(n int, r reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers[n] = r
	if sr, ok := r.(*shareReader); ok {
		f.members[sr.member] = true
	}
	r.setTopics(slices.Collect(maps.Keys(f.ready)))
}

func (f *flow) dropReader(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, n)
}

// subscribe tells every lane what to read. f.mu is held.
func (f *flow) subscribe() {
	topics := slices.Collect(maps.Keys(f.ready))
	for _, r := range f.readers {
		r.setTopics(topics)
	}
	for _, l := range f.shards {
		l.renew()
	}
}

// copies reports whether the flow still copies a partition.
func (f *flow) copies(topic string, partition int32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.ready[topic]; !ok {
		return false
	}
	_, stopped := f.parts[place{topic, partition}]
	return !stopped
}

// block takes a topic out of the flow for a while, see [blockage].
func (f *flow) block(topic string, err error) {
	f.mu.Lock()
	had := f.blocked[topic]
	was := had != nil && had.err.Error() == err.Error()
	f.blocked[topic] = had.again(err, time.Now(), f.def.Limits.Refresh)
	delete(f.ready, topic)
	f.subscribe()
	f.mu.Unlock()
	if !was {
		f.log.Warn("topic not copied", "topic", topic, "reason", err, "hint", hintOf(err))
	}
	f.refreshSoon()
}

func (f *flow) refreshSoon() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// stop ends a partition because of a record. A share reader owns no partition:
// there the topic leaves every member's subscription, which is kept at the
// source until a person resumes it.
func (f *flow) stop(topic string, partition int32, offset int64, err error) {
	reason := fmt.Sprintf("%s[%d] stopped at offset %d: %v", topic, partition, offset, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.decision.reader != topology.ReaderShare {
		at := place{topic, partition}
		if _, ok := f.parts[at]; ok {
			return
		}
		f.parts[at] = reason
		hint := "mend the cause and restart the mirror, or set on_error: skip"
		if f.exactly() {
			hint = "mend the cause, and it goes on by itself; or set on_error: skip"
			f.halt(at, offset, err)
		}
		f.board.stop(topic, partition, reason, hint)
		return
	}
	if _, ok := f.stopped[topic]; ok {
		return
	}
	f.stopped[topic] = reason
	f.owed[topic] = stopRecord{Partition: partition, Offset: offset, Reason: reason}
	delete(f.ready, topic)
	f.subscribe()
	f.board.stop(topic, partition, reason, "mend the cause, then: mirror resume --flow "+f.def.Name+" --topic "+topic)
	f.refreshSoon()
}

// unreadable decides on data that can't be decoded.
func (f *flow) unreadable(topic string, partition int32, offset, n int64, err error) bool {
	err = fmt.Errorf("the data can't be decoded: %w", err)
	if f.def.OnError == topology.OnErrorSkip && offset >= 0 {
		f.board.left(topic, partition, leftSkipped, int(n))
		f.log.Warn("unreadable data skipped", "topic", topic, "partition", partition, "offset", offset, "offsets", n, "reason", err)
		return true
	}
	f.stop(topic, partition, offset, err)
	return false
}

func (f *flow) closeClients() {
	for _, cl := range []*kgo.Client{f.src, f.dst} {
		if cl != nil {
			cl.Close()
		}
	}
}

func (f *flow) admin() *kadm.Client { return kadm.NewClient(f.src) }

// pause is sleep for a loop that looks at ctx itself.
func pause(ctx context.Context, d time.Duration) { _ = sleep(ctx, d) }

// sleep waits for d, or for ctx to end, and returns its error then.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
