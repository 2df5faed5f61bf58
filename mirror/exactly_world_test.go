package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// fakeWorld is a world in fake time with an exactly-once flow "eo" over the
// topic "t".
type fakeWorld struct {
	*world
	network *kfake.VirtualNetwork
	flow    *topology.Flow
}

// inFakeTime runs test in a bubble, with n partitions in the topic and as many
// shards in the flow, so that each partition is in a shard of its own.
func inFakeTime(t *testing.T, level int16, source, target testenv.EmbeddedOptions, test func(*fakeWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		source.Network, target.Network = network, network
		w := &world{t, testenv.Embedded(t, source), testenv.Embedded(t, target)}
		if level < 2 {
			w.target.SetTransactionVersion(t, level)
		}
		f := w.exact("eo", "t")
		f.Limits.Records = 10
		f.Limits.Refresh = time.Second
		test(&fakeWorld{w, network, f})
	})
}

// life is a mirror process that can be killed: it is cut off from everything at
// once, and what it does after that reaches nobody.
type life struct {
	*suite.Process
	w   *fakeWorld
	log logbook

	mu    sync.Mutex
	dead  map[string]bool // addresses that it does not reach
	conns map[net.Conn]string
}

// live starts the process "one".
func (w *fakeWorld) live() *life {
	w.Helper()
	return w.liveAs("one")
}

// liveAs starts a process under an instance name.
func (w *fakeWorld) liveAs(instance string) *life {
	w.Helper()
	l := &life{w: w, dead: map[string]bool{}, conns: map[net.Conn]string{}}
	l.Process = w.start(w.flow, l.log.options, func(o *mirror.Options) { o.Dial, o.Instance = l.dial, instance })
	return l
}

func (l *life) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead[addr] {
		return nil, errors.New("cut off")
	}
	conn, err := l.w.network.DialContext(ctx, network, addr)
	if err == nil {
		l.conns[conn] = addr
	}
	return conn, err
}

// cut ends all connections to the clusters and allows no new ones.
func (l *life) cut(from ...*testenv.Cluster) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range from {
		for _, addr := range c.Bootstrap() {
			l.dead[addr] = true
		}
	}
	for conn, addr := range l.conns {
		if l.dead[addr] {
			_ = conn.Close()
			delete(l.conns, conn)
		}
	}
}

// heal takes back what cut has done.
func (l *life) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.dead)
}

// kill ends the process without a word to anybody.
func (l *life) kill() {
	l.cut(l.w.source, l.w.target)
	l.Stop()
}

// copied waits until nothing lags.
func (w *fakeWorld) copied(l *life) {
	w.Helper()
	if !w.copiedOr(l, nil) {
		w.Fatal("not copied")
	}
}

// copiedOr waits until nothing lags, and returns false if other happens before.
func (w *fakeWorld) copiedOr(l *life, other <-chan struct{}) bool {
	w.Helper()
	began := time.Now()
	late := time.After(2 * time.Minute)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		st := l.Flow("eo")
		if st.Phase == mirror.FlowRunning && st.Looked.After(began) && len(st.Partitions) > 0 &&
			!slices.ContainsFunc(st.Partitions, func(p mirror.PartitionState) bool { return p.Lag != 0 }) {
			return true
		}
		select {
		case <-other:
			return false
		case <-tick.C:
		case <-late:
			w.Fatalf("not copied after two minutes: %+v", st)
		}
	}
}

// reached waits until a fault has acted.
func (w *fakeWorld) reached(a *testenv.Armed) {
	w.Helper()
	select {
	case <-a.Reached():
	case <-time.After(2 * time.Minute):
		w.Fatalf("%v", a)
	}
}

// once is the standard check: each record once, in order, read_committed; the
// ledger stands at the source's end and has nothing to complain about; and a
// restart with nothing new writes nothing.
func (w *fakeWorld) once(l *life) {
	w.Helper()
	w.copied(l)
	l.Stop()
	w.same("t", testenv.Compare{})
	r := w.ledgerIn()
	w.sound(r)
	for _, row := range r.Positions {
		if row.Lag != 0 {
			w.Errorf("%s[%d] stands at %d of %d", row.Topic, row.Partition, row.Position, row.End)
		}
	}
	before := w.written()
	l = w.live()
	w.copied(l)
	<-time.After(3 * time.Second)
	l.Stop()
	if after := w.written(); after != before {
		w.Errorf("an idle restart has written: %s, then %s", before, after)
	}
}

// written are the ends of all that the flow writes to.
func (w *fakeWorld) written() string {
	w.Helper()
	ends, err := w.target.Admin(w.T).ListEndOffsets(w.Context(), "t", txn.LedgerTopic("eo"), txn.MapTopic("eo"))
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for _, o := range ends.Offsets().Sorted() {
		out = append(out, fmt.Sprintf("%s[%d] %d", o.Topic, o.Partition, o.At))
	}
	return strings.Join(out, ", ")
}

// ledgerIn is world.ledger over the virtual network.
func (w *fakeWorld) ledgerIn() mirror.LedgerReport {
	w.Helper()
	m, err := mirror.New(mirror.Options{Topology: w.topologyOf(w.flow), Dial: w.network.DialContext})
	if err != nil {
		w.Fatal(err)
	}
	r, err := m.Ledger(w.Context(), "eo")
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// give makes the topic of the flow and fills it.
func (w *fakeWorld) give(partitions, n int, seed int64) []*kgo.Record {
	w.Helper()
	return w.fill("t", partitions, n, seed)
}
