// Package robust shows that nothing is lost, and with exactly-once nothing is
// there twice: it runs the built binary as processes between two clusters under
// steady traffic, kills and freezes processes and brokers, moves leaders, and
// then compares what is on the target with what is on the source.
//
// traffic.go makes the records, failpoint.go the faults, point.go those at named
// points, owner.go knows who holds which shards and transactions, hanging.go ends what a
// broker leaves open, watch.go reads along, history.go notes what happened, validate.go judges and report.go sums
// up. Every choice follows
// from a seed. A fault that did not hit fails its campaign: a process has to be
// seen copying in the moment before it is killed, frozen or stopped.
package robust

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn/wire"
)

const (
	// lock is the shortest record lock that a broker permits.
	lock = 15 * time.Second
	// stopWithin is how long an orderly stop of a process may take.
	stopWithin = 10 * time.Second
	// patience bounds each wait for the mirror to go on after a fault.
	patience = 60 * time.Second
)

// setting is where a campaign takes place.
type setting struct {
	source, target *testenv.Cluster
	reader         topology.Reader
	processes      int   // default 2
	partitions     int32 // default 6
	replicas       int16 // of the source topic, default 1
	rate           int   // records a second, default 4000
	// exactly once by a ledger instead of at least once.
	exactly bool
	// bound: exactly once inside the source cluster, with acknowledgements bound
	// to transactions (KIP-1289).
	bound bool
	// transaction is the transaction timeout of exactly-once, default 5 s.
	transaction time.Duration
	// binary to run, default the one that is shipped.
	binary string
}

// campaign is one topic, one flow and the processes that run it.
type campaign struct {
	t *testing.T
	setting
	topic    string
	flow     *topology.Flow
	groups   *topology.Resolved
	file     string // the declaration
	seed     int64
	rng      *rand.Rand
	procs    []*process
	traffic  *traffic
	history  history
	client   *kgo.Client // of the source
	adm      *kadm.Client
	restarts []time.Duration

	// Of exactly-once:
	targetClient *kgo.Client
	shardOf      []int // by partition
	watch        *watch
	recoveries   map[string][]*recovery // by how
}

// begin starts traffic and processes and returns when each process copies.
func begin(t *testing.T, seed int64, s setting) *campaign {
	t.Helper()
	s.fill()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ".", "-").Replace(strings.TrimPrefix(t.Name(), "Test")))
	h := fnv.New64()
	h.Write([]byte(name))
	c := &campaign{
		t: t, setting: s, topic: name, seed: seed,
		rng:   rand.New(rand.NewPCG(uint64(seed), h.Sum64())),
		procs: make([]*process, s.processes),
	}
	c.client = s.source.Client(t)
	c.adm = kadm.NewClient(c.client)
	c.history.log = t.Logf
	c.declare(name)
	s.source.CreateTopic(t, c.topic, s.partitions, s.replicas, nil)
	if s.bound {
		s.source.CreateTopic(t, c.into(), s.partitions, s.replicas, nil)
	}
	if s.exactly {
		c.targetClient = s.target.Client(t)
		c.findShards()
		c.watch = startWatch(t, s.target, c.topic, s.partitions)
	}
	c.traffic = startTraffic(t, s.source, c.topic, int(s.partitions), s.rate, seed)
	t.Cleanup(func() {
		for _, p := range c.procs {
			p.abandon()
			if t.Failed() && p != nil {
				t.Logf("%s said at the end:\n%s", p.name, p.out.tail(40))
			}
		}
	})
	for slot := range c.procs {
		c.start(slot)
	}
	if s.exactly {
		c.recovered("started", c.watch.recovery(c.all(), time.Now()))
		return c
	}
	for slot := range c.procs {
		c.copying(slot)
	}
	return c
}

// boundForm is the form of TxnShareAcknowledge that bound campaigns speak.
var boundForm = wire.Form{Key: 95, Draft: wire.DraftGaps}

// into is the topic that the copies are in.
func (c *campaign) into() string {
	if c.bound {
		return "copy." + c.topic
	}
	return c.topic
}

// all are the partitions of the topic.
func (c *campaign) all() []int32 {
	ps := make([]int32, c.partitions)
	for p := range ps {
		ps[p] = int32(p)
	}
	return ps
}

func (s *setting) fill() {
	if s.processes == 0 {
		s.processes = 2
	}
	if s.partitions == 0 {
		s.partitions = 6
	}
	if s.replicas == 0 {
		s.replicas = 1
	}
	if s.rate == 0 {
		s.rate = 4000
	}
	if s.transaction == 0 {
		s.transaction = 5 * time.Second
	}
	if s.binary == "" {
		s.binary = binary
	}
}

// declare writes the declaration that the processes run.
func (c *campaign) declare(name string) {
	c.t.Helper()
	f := topology.NewFlow(name)
	f.From, f.To, f.Topics.Include, f.Read = "source", "target", []string{c.topic}, c.reader
	f.Guarantee = topology.GuaranteeAtLeastOnce
	if c.exactly {
		f.Guarantee, f.Read, f.Transaction.Timeout = topology.GuaranteeExactlyOnce, topology.ReaderPartition, c.transaction
	}
	if c.bound {
		f.Guarantee, f.Transaction.Timeout = topology.GuaranteeExactlyOnce, c.transaction
		f.KIP1289 = &topology.KIP1289{Key: boundForm.Key, Draft: int8(boundForm.Draft)}
		f.To, f.Rename = "source", "copy.{topic}"
	}
	f.Limits.Refresh, f.Limits.Shutdown, f.Limits.Lock = time.Second, stopWithin-time.Second, lock
	top := &topology.Topology{
		Clusters: map[string]*topology.Cluster{"source": c.source.Topology("source"), "target": c.target.Topology("target")},
		Flows:    []*topology.Flow{f},
	}
	if c.bound {
		delete(top.Clusters, "target")
	}
	groups, err := top.Resolve(f)
	if err != nil {
		c.t.Fatal(err)
	}
	c.flow, c.groups, c.file = f, groups, filepath.Join(c.t.TempDir(), "flow.yaml")
	if err := os.WriteFile(c.file, top.Canonical(), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// await asks until ok returns nil, or ends the test with its last error.
func (c *campaign) await(within time.Duration, what string, ok func(ctx context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("not within %v: %s: %v", within, what, err)
		}
	}
}

// lag is the number of records that the flow's group still has to read, of all
// partitions. It is asked of the source, not of the mirror.
func (c *campaign) lag(ctx context.Context) (int64, error) {
	switch {
	case c.exactly:
		return c.ledgerLag(ctx)
	case c.reader == topology.ReaderShare:
		return c.shareLag(ctx)
	}
	ends, err := c.adm.ListCommittedOffsets(ctx, c.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("list end offsets: %w", err)
	}
	at, err := c.adm.FetchOffsets(ctx, c.groups.GroupID)
	if err != nil {
		return 0, fmt.Errorf("read positions of group %s: %w", c.groups.GroupID, err)
	}
	var lag int64
	for p := range c.partitions {
		end, ok := ends.Lookup(c.topic, p)
		if !ok {
			return 0, fmt.Errorf("partition %d has no end offset", p)
		}
		if pos, ok := at.Lookup(c.topic, p); ok && pos.At >= 0 {
			lag += end.Offset - pos.At
		} else {
			lag += end.Offset
		}
	}
	return lag, nil
}

func (c *campaign) shareLag(ctx context.Context) (int64, error) {
	all, err := c.adm.DescribeShareGroupOffsets(ctx, c.groups.ShareGroupID)
	if err == nil {
		err = all[c.groups.ShareGroupID].Err
	}
	if err != nil {
		return 0, fmt.Errorf("read offsets of share group %s: %w", c.groups.ShareGroupID, err)
	}
	var lag int64
	for p := range c.partitions {
		o, ok := all[c.groups.ShareGroupID].Offsets.Lookup(c.topic, p)
		if !ok || o.Err != nil || o.Lag < 0 {
			return 0, fmt.Errorf("the lag of partition %d is not known (error: %w)", p, o.Err)
		}
		lag += o.Lag
	}
	return lag, nil
}

// drained waits until the flow's group has no lag.
func (c *campaign) drained(within time.Duration) {
	c.t.Helper()
	c.await(within, "no lag", func(ctx context.Context) error {
		lag, err := c.lag(ctx)
		if err == nil && lag != 0 {
			err = fmt.Errorf("%d records lag", lag)
		}
		return err
	})
}

// finish ends the traffic, waits until the flow has caught up, stops the
// processes in order, judges, and requires each named fault to have fired that
// often.
func (c *campaign) finish(faults map[fault]int) verdict {
	c.t.Helper()
	acked := c.traffic.finish(c.t)
	c.drained(2 * patience)
	for slot := range c.procs {
		c.stop(slot)
	}
	if c.exactly {
		c.settledTarget()
	}
	v := c.judge(acked)
	c.t.Log(c.report(v))
	if problems := v.problems(); problems != "" {
		c.t.Errorf("%s", problems)
	}
	if c.exactly {
		// Beside the judge, which knows nothing of the program's ledger and map.
		if code, said := c.verify(); code != 0 {
			c.t.Errorf("mirror verify ends with %d:\n%s", code, said)
		}
	}
	for f, n := range faults {
		if got := c.history.count(f); got < n {
			c.t.Errorf("fault %q: fired %d times, %d were wanted", f, got, n)
		}
	}
	return v
}

func (c *campaign) judge(acked []*kgo.Record) verdict {
	c.t.Helper()
	v := judge(acked, c.source.ReadAll(c.t, c.topic), c.target.ReadAll(c.t, c.into()), c.exactly || c.reader == topology.ReaderPartition)
	v.exactly = c.exactly || c.bound
	return v
}
