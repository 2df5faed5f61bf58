package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn"
	"github.com/onceover-mirror/onceover/txn/wire"
)

// askTimeout bounds one attempt at asking a cluster something.
const askTimeout = 15 * time.Second

// prepare examines both clusters, decides how to run, and sets up what the
// reader needs. It waits for clusters that can't be reached and returns an
// error only for a *Refusal or the end of ctx.
func (f *flow) prepare(ctx context.Context) error {
	if err := f.open(); err != nil {
		return err
	}
	if err := f.insist(ctx, f.probe); err != nil {
		return err
	}
	f.cat = f.newCatalog()
	var v *view
	look := func(ctx context.Context) (err error) {
		v, err = f.cat.refresh(ctx, nil)
		return err
	}
	if err := f.insist(ctx, look); err != nil {
		return err
	}
	if err := f.insist(ctx, f.probeTxn); err != nil {
		return err
	}
	set := func(ctx context.Context) error { return f.insist(ctx, f.setGroup) }
	if err := f.choose(ctx, v, set); err != nil {
		return err
	}
	if f.exactly() {
		if err := f.prepareLedger(ctx); err != nil {
			return err
		}
		f.board.decided(f.decision)
		f.adopt(v)
		return nil
	}
	if err := f.insist(ctx, f.suspendLedger); err != nil {
		return err
	}
	if err := f.insist(ctx, f.carryPositions); err != nil {
		return err
	}
	if f.decision.reader == topology.ReaderShare {
		f.board.keepAudit()
	}
	f.board.decided(f.decision)
	if f.decision.reader == topology.ReaderShare {
		if err := f.insist(ctx, f.refresh); err != nil { // once more, with the stops
			return err
		}
		return f.insist(ctx, f.lookAtLag) // the audit's baseline, before anything moves
	}
	f.adopt(v)
	return nil
}

// choose decides how to run. group is asked whether the share group can be set
// up, when one is to be read through; with read: auto its refusal is no end.
func (f *flow) choose(ctx context.Context, v *view, group func(context.Context) error) error {
	d, refusal := decide(f.def, f.settings, evidence{f.srcCap, f.dstCap, f.dstTxn, v.compacted, v.unread})
	if refusal != nil {
		return refusal
	}
	f.decision = d
	if d.reader != topology.ReaderShare {
		return nil
	}
	err := group(ctx)
	if errors.As(err, &refusal) && f.settings.Read == topology.ReaderAuto {
		// Share groups are there but can't be set up as they must be.
		f.decision.reader = topology.ReaderPartition
		f.decision.serverAssignor = f.settings.Protocol == "consumer"
		f.decision.because([]string{"share groups can't be used here: " + refusal.Problem + " (" + refusal.Hint + ")"})
		return nil
	}
	return err
}

func (f *flow) newCatalog() *catalog {
	return &catalog{flow: f.def, src: f.src, dst: f.dst, sameCluster: f.def.From == f.def.To, copied: f.copiedBefore, log: f.log}
}

// insist repeats an action until it succeeds, is refused, or ctx ends. The
// flow is shown as waiting meanwhile.
func (f *flow) insist(ctx context.Context, do func(context.Context) error) error {
	for try := 1; ; try++ {
		once, cancel := context.WithTimeout(ctx, askTimeout)
		err := f.named(do(once))
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var refusal *Refusal
		if err == nil {
			return nil
		}
		if errors.As(err, &refusal) {
			return err
		}
		f.board.phase(FlowWaiting, err.Error(), hintOf(err))
		if err := sleep(ctx, backoff(try, 250*time.Millisecond, 10*time.Second)); err != nil {
			return err
		}
	}
}

// open makes the clients for questions; lanes make their own.
func (f *flow) open() error {
	var err error
	if f.src, err = f.client(f.def.From, "source-admin"); err != nil {
		return err
	}
	if f.hasTarget() {
		f.dst, err = f.client(f.def.To, "target-admin")
	}
	return err
}

func (f *flow) hasTarget() bool {
	return f.def.Sink == nil && f.opts.Sinks[f.def.Name] == nil
}

func (f *flow) client(cluster, role string, extra ...kgo.Opt) (*kgo.Client, error) {
	opts, err := f.clientOpts(cluster, role)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, f.refuse(fmt.Sprintf("open a client for cluster %s: %v", cluster, err), "")
	}
	return cl, nil
}

func (f *flow) clientOpts(cluster, role string) ([]kgo.Opt, error) {
	opts, err := clientOpts(f.opts.Topology.Clusters[cluster], f.opts)
	if err != nil {
		return nil, f.refuse(err.Error(), hintOf(err))
	}
	if f.opts.Hooks != nil {
		opts = append(opts, kgo.WithHooks(f.opts.Hooks(f.def.Name, role)...))
	}
	return opts, nil
}

func (f *flow) probe(ctx context.Context) error {
	var err error
	if f.srcCap, err = txn.Probe(ctx, f.src); err != nil {
		return &hinted{fmt.Errorf("%s: %w", side("source", f.def.From), err), "see bootstrap, tls and sasl of cluster " + f.def.From}
	}
	if f.dst == nil {
		return nil
	}
	if f.dstCap, err = txn.Probe(ctx, f.dst); err != nil {
		return &hinted{fmt.Errorf("%s: %w", side("target", f.def.To), err), "see bootstrap, tls and sasl of cluster " + f.def.To}
	}
	return nil
}

// side names a cluster with its part in the flow. In the quick form the
// clusters are called just that.
func side(part, cluster string) string {
	if part == cluster {
		return part
	}
	return part + " " + cluster
}

// tryGroup finds out whether setGroup would be refused, and alters nothing.
func (f *flow) tryGroup(ctx context.Context) error {
	g := groupSettings{group: f.settings.ShareGroupID, lock: f.def.Limits.Lock, dry: true}
	_, err := g.apply(ctx, f.src)
	return err
}

// setGroup gives the share group its settings.
func (f *flow) setGroup(ctx context.Context) error {
	g := groupSettings{group: f.settings.ShareGroupID, lock: f.def.Limits.Lock}
	s, err := g.apply(ctx, f.src)
	if err != nil {
		return err
	}
	f.mu.Lock()
	was := f.group
	f.group = s
	f.mu.Unlock()
	for _, line := range s.remarks {
		if !slices.Contains(was.remarks, line) {
			f.log.Warn("share group settings", "group", g.group, "remark", line)
		}
	}
	return nil
}

// newSink makes the sink of a lane.
func (f *flow) newSink(n int) (Sink, error) {
	if mk := f.opts.Sinks[f.def.Name]; mk != nil {
		s, err := mk(n)
		if err != nil {
			return nil, fmt.Errorf("make sink: %w", err)
		}
		return s, nil
	}
	if f.def.Sink != nil {
		return newFileSink(f.def.Sink.File.Path, f.opts.OpenFile), nil
	}
	more, err := producerOpts(f.settings.Producer)
	if err != nil {
		return nil, f.refuse(err.Error(), hintOf(err))
	}
	s := newKafkaSink(func() ([]kgo.Opt, error) {
		opts, err := f.clientOpts(f.def.To, "target")
		return append(opts, more...), err
	})
	// Behind a record that is skipped the partition goes on in any case.
	s.inOrder = f.decision.reader == topology.ReaderPartition
	s.ordered = f.decision.reader == topology.ReaderPartition && f.def.OnError != topology.OnErrorSkip
	s.onBlocked = func(since time.Time, err error) {
		f.board.trouble(sinkName(n)+" target", fmt.Errorf("nothing written since %s: %w", since.Format(time.TimeOnly), err))
	}
	return s, nil
}

// chain is what happens to each record between source and target.
func (f *flow) chain() transform.Chain {
	var c transform.Chain
	if f.def.Provenance && f.dstCap != nil && f.srcCap.ClusterID != f.dstCap.ClusterID {
		c = append(c, transform.Provenance(f.srcCap.ClusterID, f.dstCap.ClusterID))
	}
	return append(c, transform.Rename(f.def.TargetTopic))
}

// newReader joins the source's group.
func (f *flow) newReader(name string) (reader, error) {
	if f.decision.reader == topology.ReaderShare {
		return f.newShareReader(name, f.board, f.written)
	}
	opts, err := f.clientOpts(f.def.From, "source")
	if err != nil {
		return nil, err
	}
	more, err := consumerOpts(f.settings.Consumer)
	if err != nil {
		return nil, f.refuse(err.Error(), hintOf(err))
	}
	opts = append(opts, kgo.FetchMaxBytes(int32(f.def.Limits.Bytes)), kgo.FetchMaxPartitionBytes(int32(f.def.Limits.Bytes)),
		kgo.SessionTimeout(sessionTimeout),
		// New partitions are found by the client's own look at metadata.
		kgo.MetadataMaxAge(max(f.def.Limits.Refresh, time.Second)))
	return newPartitionReader(append(opts, more...), f.settings.GroupID, f.decision.serverAssignor, partitionConfig{
		lane: name, instance: f.instance(name), records: f.def.Limits.Records, board: f.board, log: f.log,
		topicFailed: f.sourceRefused, unreadable: f.unreadable, copies: f.copies, doubted: f.refreshSoon,
	})
}

// sessionTimeout is how long a consumer group waits for a dead member, where the
// classic protocol lets the client say.
const sessionTimeout = 10 * time.Second

// instance names a lane across restarts, "" when the process has no name.
func (f *flow) instance(lane string) string {
	f.mu.Lock()
	nameless := f.nameless
	f.mu.Unlock()
	if nameless || f.opts.Instance == "" {
		return ""
	}
	return f.opts.Instance + "." + f.def.Name + "." + strings.ReplaceAll(lane, " ", "-")
}

// newShareReader makes a member of the flow's share group that reports to b.
func (f *flow) newShareReader(name string, b *board, written *writtenSet) (*shareReader, error) {
	opts, err := f.clientOpts(f.def.From, "source")
	if err != nil {
		return nil, err
	}
	more, err := consumerOpts(f.settings.Consumer)
	if err != nil {
		return nil, f.refuse(err.Error(), hintOf(err))
	}
	// A session is tied to its connection: it must not be closed for idleness
	// while a slow target keeps the lane, whatever the settings say.
	opts = append(append(opts, more...), kgo.ConnIdleTimeout(5*time.Minute))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, f.refuse(fmt.Sprintf("open source client: %v", err), "")
	}
	f.mu.Lock()
	group := f.group
	f.mu.Unlock()
	cfg := shareConfig{
		group: f.settings.ShareGroupID, lane: name, instance: f.instance(name), records: f.def.Limits.Records, bytes: f.def.Limits.Bytes,
		partitionBytes: int32(f.def.Limits.Bytes), minBytes: 1, maxWait: 500 * time.Millisecond,
		lock: cmp.Or(group.lock, f.def.Limits.Lock), renew: f.srcCap.Renew(), deliveryLimit: cmp.Or(group.deliveries, defaultDeliveries),
		board: b, log: f.log, written: written,
		bound: f.binds(), gapsBound: f.binds() && f.form().Draft == wire.DraftGaps,
		rejoining: f.setGroup, owe: f.oweLast, lose: f.loseLast, topicFailed: f.sourceRefused, unreadable: f.unreadable,
	}
	if err := cfg.override(f.settings.Consumer); err != nil {
		cl.Close()
		return nil, err
	}
	return newShareReader(cl, cfg), nil
}

func (f *flow) sourceRefused(topic string, err error) {
	f.block(topic, &hinted{fmt.Errorf("not permitted: READ on %s: %w", f.def.From, err), "grant READ on TOPIC " + topic})
}
