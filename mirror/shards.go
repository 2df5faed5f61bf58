package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// exactly reports whether the flow copies exactly once by a ledger.
func (f *flow) exactly() bool {
	return f.decision.guarantee == topology.GuaranteeExactlyOnce && !f.binds()
}

// shardKeeper runs a lane for each shard that the group gives to this process.
type shardKeeper struct {
	f         *flow
	ctx, work context.Context //nolint:containedctx // of all lanes; the group's callbacks have none of ours
	fail      func(error)

	mu    sync.Mutex
	group *shardGroup
	lanes map[int32]*keptLane
	over  bool
}

// keptLane is a shard that is kept running.
type keptLane struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// keepShards takes part in the shard group until ctx ends or the flow is
// refused. Work begun is finished under work.
func (f *flow) keepShards(ctx, work context.Context) error {
	lanes, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	k := &shardKeeper{f: f, ctx: lanes, work: work, fail: fail, lanes: map[int32]*keptLane{}}
	for fails := 0; lanes.Err() == nil; fails++ {
		err := k.join(lanes)
		if lanes.Err() != nil {
			break
		}
		f.board.trouble(whereShards, err)
		if errors.Is(err, errNameTaken) {
			f.dropName(whereShards)
		}
		pause(lanes, backoff(fails+1, 200*time.Millisecond, 10*time.Second))
	}
	if cause := context.Cause(lanes); ctx.Err() == nil && cause != nil {
		return cause
	}
	return nil
}

// whereShards is the trouble of the shard group.
const whereShards = "shards"

// join is one membership in the group.
func (k *shardKeeper) join(ctx context.Context) error {
	opts, err := k.f.clientOpts(k.f.def.To, "target")
	if err != nil {
		return err
	}
	lost := make(chan error, 1)
	trouble := func(err error) {
		if errors.Is(err, errNameTaken) {
			select {
			case lost <- err:
			default:
			}
		}
		k.f.board.trouble(whereShards, err)
	}
	k.mu.Lock() // the group's callbacks may come before it is known here
	k.over = false
	g, err := joinShards(ctx, opts, k.f.def.Name, k.f.instance(whereShards), k.f.log, k.start, k.stop, trouble)
	k.group = g
	k.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case err = <-lost:
	case <-ctx.Done():
	}
	// Lanes end before the group is left: whoever gets their shards need not
	// fence them.
	k.mu.Lock()
	k.over = true
	all := slices.Collect(maps.Keys(k.lanes))
	k.mu.Unlock()
	k.stop(all, "the process leaves the group")
	bye, cancel := context.WithTimeout(context.WithoutCancel(k.work), k.f.goodbye())
	defer cancel()
	if cerr := g.close(bye); cerr != nil {
		k.f.log.Info("group not left in order; its shards move when the session ends", "reason", cerr)
	}
	return err
}

// start runs lanes.
func (k *shardKeeper) start(shards []int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range shards {
		if k.over || k.lanes[n] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(k.ctx)
		l := &keptLane{cancel: cancel, done: make(chan struct{})}
		k.lanes[n] = l
		go func() {
			defer close(l.done)
			k.keep(ctx, n)
		}()
	}
}

// stop ends lanes and waits until they have.
func (k *shardKeeper) stop(shards []int32, why string) {
	k.mu.Lock()
	var ended []*keptLane
	for _, n := range shards {
		if l := k.lanes[n]; l != nil {
			l.cancel()
			ended = append(ended, l)
			delete(k.lanes, n)
		}
	}
	k.mu.Unlock()
	for _, l := range ended {
		<-l.done
	}
	if len(ended) > 0 {
		k.f.log.Info("lanes ended", "lanes", len(ended), "reason", why)
	}
}

// keep runs the lane of a shard, and runs it anew after a failure, until ctx
// ends. A refusal ends the flow.
func (k *shardKeeper) keep(ctx context.Context, shard int32) {
	name := fmt.Sprintf("shard %d", shard)
	defer k.f.board.trouble(name, nil)
	for fails := 1; ctx.Err() == nil; fails++ {
		began := time.Now()
		err := k.one(ctx, shard, name)
		var refusal *Refusal
		if ctx.Err() == nil && errors.As(err, &refusal) {
			k.fail(err)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			fails = 1
		}
		k.f.board.trouble(name, err)
		pause(ctx, backoff(fails, 200*time.Millisecond, 10*time.Second))
	}
}

// one is the life of one lane.
func (k *shardKeeper) one(ctx context.Context, shard int32, name string) error {
	f := k.f
	more, err := producerOpts(f.settings.Producer)
	if err != nil {
		return f.refuse(err.Error(), hintOf(err))
	}
	opts, err := f.clientOpts(f.def.To, "target")
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(append(append([]kgo.Opt{
		kgo.ProducerBatchCompression(kgo.Lz4Compression(), kgo.NoCompression()), kgo.ProducerBatchMaxBytes(defaultBatch),
	}, opts...), more...)...)
	if err != nil {
		return f.refuse(fmt.Sprintf("open target client: %v", err), "")
	}
	defer cl.Close()
	l := &shardLane{name: name, shard: shard, f: f, chain: f.chain(), rulings: map[txn.SourcePartition]ruling{}}
	l.session, err = txn.NewSession(txn.SessionConfig{
		Client: cl, Flow: f.def.Name, Shard: int(shard), Timeout: f.def.Transaction.Timeout,
		Blocked: func(since time.Time, err error) {
			l.held = true
			f.board.trouble(name+" target", fmt.Errorf("nothing written since %s: %w", since.Format(time.TimeOnly), err))
		},
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	l.group = k.group
	k.mu.Unlock()
	f.mu.Lock()
	f.shards[shard] = l
	f.mu.Unlock()
	f.board.lanes(1)
	defer func() {
		f.board.lanes(-1)
		f.mu.Lock()
		if f.shards[shard] == l {
			delete(f.shards, shard)
		}
		f.mu.Unlock()
		f.board.trouble(name+" target", nil)
	}()
	return l.run(ctx, k.work)
}

// newShardReader opens the source for a lane.
func (f *flow) newShardReader(lane string) (*shardReader, error) {
	opts, err := f.clientOpts(f.def.From, "source")
	if err != nil {
		return nil, err
	}
	more, err := consumerOpts(f.settings.Consumer)
	if err != nil {
		return nil, f.refuse(err.Error(), hintOf(err))
	}
	bytes := int32(max(f.def.Limits.Bytes/8, 1<<20))
	opts = append(opts, kgo.FetchMaxBytes(bytes), kgo.FetchMaxPartitionBytes(bytes), kgo.MetadataMaxAge(max(f.def.Limits.Refresh, time.Second)))
	return newShardReader(append(opts, more...), lane, f.board, f.log, f.refreshSoon)
}

// reachedPlace is a position of this process that the source's group is told of.
type reachedPlace struct {
	src   txn.SourcePartition
	next  int64
	epoch int32
}

// reached notes the committed position of a partition.
func (f *flow) reached(at place, src txn.SourcePartition, next int64, epoch int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.progress[at] = reachedPlace{src, next, epoch}
	if h := f.halts[at]; h != nil && next > h.offset {
		delete(f.halts, at)
		f.board.resumedPartition(at)
	}
}

// halt is a partition that stopped because of a record. It is tried again: what
// the target refuses today it may take when somebody has raised a limit.
type halt struct {
	*blockage
	offset int64
}

// halt notes a stop. f.mu is held.
func (f *flow) halt(at place, offset int64, err error) {
	var was *blockage
	if h := f.halts[at]; h != nil && h.offset == offset {
		was = h.blockage
	}
	f.halts[at] = &halt{was.again(err, time.Now(), f.def.Limits.Refresh), offset}
}

// tryHalted lets lanes try again what has stopped for long enough. It shows as
// stopped until it gets on.
func (f *flow) tryHalted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, h := range f.halts {
		if _, stopped := f.parts[at]; stopped && !h.holding(time.Now()) {
			delete(f.parts, at)
		}
	}
	f.subscribe()
}

// positionsEvery is how often the source's group is told of positions.
const positionsEvery = 5 * time.Second

// tellPositions commits this process's positions to the group at the source, for
// people's tools: best effort, and never read back while there is a ledger. It
// goes on until ctx ends and once more after that.
func (f *flow) tellPositions(ctx context.Context) {
	told := map[place]reachedPlace{}
	said := false
	for ended := false; !ended; {
		ended = sleep(ctx, positionsEvery) != nil
		f.mu.Lock()
		now := maps.Clone(f.progress)
		f.mu.Unlock()
		var os kadm.Offsets
		for at, p := range now {
			if told[at] != p {
				os.Add(kadm.Offset{Topic: at.topic, Partition: at.partition, At: p.next, LeaderEpoch: p.epoch, Metadata: idText(p.src.TopicID) + ledgerMark})
			}
		}
		if len(os) == 0 {
			continue
		}
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), positionsEvery)
		resp, err := f.admin().CommitOffsets(once, f.settings.GroupID, os)
		cancel()
		if err == nil {
			err = resp.Error()
		}
		switch {
		case err == nil:
			told, said = now, false
		case !said && !errors.Is(err, kerr.UnknownMemberID):
			said = true
			f.log.Info("positions not told to the source's group; nothing depends on them", "group", f.settings.GroupID, "reason", err)
		}
	}
}
