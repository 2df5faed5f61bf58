package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn"
)

// shardGroup is this process's membership in the group on the target that hands
// out the shards of a flow: to be assigned partition k of the ledger topic is to
// own shard k (ledger section 1). It only spreads the work; that a shard has one
// writer is seen to by the transactional id.
type shardGroup struct {
	cl       *kgo.Client
	group    string
	ledger   string
	instance string // static member id, "" for none
	log      *slog.Logger

	// gained and lost are told of shards, from the group's own goroutine; a
	// rebalance waits for them.
	gained func(shards []int32)
	lost   func(shards []int32, why string)

	mu    sync.Mutex
	owned map[int32]bool
	polls sync.WaitGroup
	// taken: the instance name is another process's, who must not be made to
	// leave.
	taken atomic.Bool
	stop  context.CancelFunc
}

// joinShards joins the group. trouble is told of, or with nil of the end of,
// whatever keeps the process out of it; the error that it is called with may be
// errNameTaken.
func joinShards(ctx context.Context, opts []kgo.Opt, flow, instance string, log *slog.Logger, gained func([]int32), lost func([]int32, string), trouble func(error)) (*shardGroup, error) {
	g := &shardGroup{
		group: txn.ShardGroup(flow), ledger: txn.LedgerTopic(flow), instance: instance, log: log,
		gained: gained, lost: lost, owned: map[int32]bool{},
	}
	opts = append(opts,
		kgo.ConsumerGroup(g.group),
		kgo.ConsumeTopics(g.ledger),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(sessionTimeout),
		// A member that died is noticed after the session timeout; the others
		// learn of it with their next heartbeat.
		kgo.HeartbeatInterval(sessionTimeout/10),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		kgo.KeepRetryableFetchErrors(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { g.take(ps[g.ledger]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) {
			g.give(ps[g.ledger], "the group gives it to another process")
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) {
			g.give(ps[g.ledger], "the process was taken out of the group")
		}),
	)
	if instance != "" {
		opts = append(opts, kgo.InstanceID(instance))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("open target client: %w", err)
	}
	// The group is wanted, not the topic's records: lanes read those behind
	// their fence.
	cl.PauseFetchTopics(g.ledger)
	g.cl = cl
	ctx, g.stop = context.WithCancel(ctx)
	g.polls.Go(func() { g.watch(ctx, trouble) })
	return g, nil
}

// watch takes the errors of the group.
func (g *shardGroup) watch(ctx context.Context, trouble func(error)) {
	for {
		once, cancel := context.WithTimeout(ctx, 2*sessionTimeout)
		fetches := g.cl.PollFetches(once)
		cancel()
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		var worst error
		for _, e := range fetches.Errors() {
			var session *kgo.ErrGroupSession
			switch {
			case errors.Is(e.Err, kerr.FencedInstanceID):
				g.taken.Store(true)
				trouble(errNameTaken)
				return
			case errors.As(e.Err, &session):
				worst = g.explain(fmt.Errorf("shard group %s: %w", g.group, e.Err))
			}
		}
		trouble(worst)
	}
}

func (g *shardGroup) explain(err error) error {
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return &hinted{err, "grant READ on GROUP " + g.group + " at the target"}
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return &hinted{err, "grant READ, WRITE and DESCRIBE on TOPIC " + g.ledger + " at the target"}
	}
	return err
}

func (g *shardGroup) take(shards []int32) {
	if len(shards) == 0 {
		return
	}
	g.mu.Lock()
	for _, k := range shards {
		g.owned[k] = true
	}
	g.mu.Unlock()
	slices.Sort(shards)
	g.log.Info("shards gained", "shards", shards)
	g.gained(shards)
}

func (g *shardGroup) give(shards []int32, why string) {
	if len(shards) == 0 {
		return
	}
	g.mu.Lock()
	for _, k := range shards {
		delete(g.owned, k)
	}
	g.mu.Unlock()
	slices.Sort(shards)
	g.log.Info("shards lost", "shards", shards, "reason", why)
	g.lost(shards, why)
}

func (g *shardGroup) has(shard int32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.owned[shard]
}

// confirm asks the coordinator, with a heartbeat sent now, whether this process
// is a member as it believes, and reports whether the shard is its own then. A
// process that is cut off from the coordinator alone must not fence the rightful
// owner (ledger section 4).
func (g *shardGroup) confirm(ctx context.Context, shard int32) (bool, error) {
	member, generation := g.cl.GroupMetadata()
	if generation < 0 {
		return false, nil
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = g.group, member, generation
	if g.instance != "" {
		req.InstanceID = &g.instance
	}
	resp, err := req.RequestWith(ctx, g.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return false, fmt.Errorf("confirm shard %d with group %s: %w", shard, g.group, err)
	}
	return g.has(shard), nil
}

// close leaves the group, so that others take over at once.
func (g *shardGroup) close(ctx context.Context) error {
	g.stop()
	var err error
	if !g.taken.Load() {
		err = leaveGroup(ctx, g.cl, g.group, g.instance)
	}
	g.cl.CloseAllowingRebalance()
	g.polls.Wait()
	if err != nil {
		return fmt.Errorf("leave shard group %s: %w", g.group, err)
	}
	return nil
}

// leaveGroup leaves a group. A static member does not leave by itself, since it
// may come back; this one is asked to, so that others take over at once.
func leaveGroup(ctx context.Context, cl *kgo.Client, group, instance string) error {
	err := cl.LeaveGroupContext(ctx)
	if instance == "" || err != nil {
		return err
	}
	resp, err := kadm.NewClient(cl).LeaveGroup(ctx, kadm.LeaveGroup(group).InstanceIDs(instance))
	if err == nil {
		err = resp.Error()
	}
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.GroupIDNotFound) {
		err = nil
	}
	return err
}

// confirmed waits until the group has confirmed a shard; an error when it is
// lost or ctx ends.
func (g *shardGroup) confirmed(ctx context.Context, shard int32) error {
	for try := 1; ; try++ {
		if err := sleep(ctx, backoff(try, 100*time.Millisecond, 5*time.Second)); err != nil {
			return err
		}
		ok, err := g.confirm(ctx, shard)
		if ok {
			return nil
		}
		if err == nil && !g.has(shard) {
			return errShardLost
		}
		if err != nil {
			g.log.Info("shard not confirmed yet", "shard", shard, "reason", err)
		}
	}
}

// errShardLost: the group has given the shard to another process.
var errShardLost = errors.New("the shard belongs to another process")
