// Package suite is the contract of the mirror: the same tests run on embedded
// and on real clusters, whatever reader the source leads to.
package suite

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn/wire"
)

// World is a pair of clusters to run the contract on.
type World struct {
	// Source is what the flow reads, Target what it writes.
	Source, Target *testenv.Cluster
	// Reader is what read: auto must choose for an ordinary topic.
	Reader topology.Reader
	// Guarantee that the flows ask for.
	Guarantee topology.Guarantee
	// Form of TxnShareAcknowledge that the flows use, inside of Source, which
	// Target is too; zero for flows between two clusters.
	Form wire.Form
}

// copied is the topic that a topic's copies go to.
func (w World) copied(topic string) string {
	if w.Form != (wire.Form{}) {
		return "copy." + topic
	}
	return topic
}

// ledger reports whether the flows keep a ledger.
func (w World) ledger() bool {
	return w.Guarantee == topology.GuaranteeExactlyOnce && w.Form == (wire.Form{})
}

// flow declares a flow from the world's source to its target, with short
// periods.
func (w World) flow(name string, topics ...string) *topology.Flow {
	f := topology.NewFlow(name)
	f.From, f.To = "source", "target"
	f.Topics.Include = topics
	f.Guarantee = w.Guarantee
	if w.Form != (wire.Form{}) {
		f.To, f.Rename = "source", "copy.{topic}"
		f.KIP1289 = &topology.KIP1289{Key: w.Form.Key, Draft: int8(w.Form.Draft)}
	}
	f.Limits.Refresh = time.Second
	f.Limits.Shutdown = 20 * time.Second
	f.Limits.Lock = 15 * time.Second
	return f
}

// topologyOf puts flows into a topology over the world's clusters.
func (w World) topologyOf(flows ...*topology.Flow) *topology.Topology {
	return &topology.Topology{
		Clusters: map[string]*topology.Cluster{"source": w.Source.Topology("source"), "target": w.Target.Topology("target")},
		Flows:    flows,
	}
}

// Process is a mirror that runs in the test's own process.
type Process struct {
	// Mirror that runs.
	Mirror *mirror.Mirror

	t      testing.TB
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

// Start runs a topology until Stop, or the end of the test.
func Start(t testing.TB, top *topology.Topology, change ...func(*mirror.Options)) *Process {
	t.Helper()
	logs := &buffer{}
	opts := mirror.Options{
		Topology: top,
		ReadFile: os.ReadFile,
		Log:      slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&opts)
	}
	m, err := mirror.New(opts)
	if err != nil {
		t.Fatalf("new mirror: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it outlives the test's own context, for an orderly end
	p := &Process{t: t, Mirror: m, cancel: cancel, done: make(chan error, 1)}
	go func() { p.done <- m.Run(ctx) }()
	t.Cleanup(func() {
		if err := p.wait(); err != nil && !t.Failed() {
			t.Logf("mirror ended with: %v", err)
		}
		if t.Failed() {
			t.Logf("mirror log:\n%s", logs.String())
		}
	})
	return p
}

// Stop ends the mirror in order and fails the test when it does not end well.
func (p *Process) Stop() {
	p.t.Helper()
	if err := p.wait(); err != nil {
		p.t.Errorf("mirror ended with: %v", err)
	}
}

func (p *Process) wait() error {
	p.once.Do(func() {
		p.cancel()
		select {
		case p.err = <-p.done:
		case <-time.After(time.Minute):
			p.t.Errorf("the mirror does not end")
		}
	})
	return p.err
}

// Flow is the state of the flow of that name.
func (p *Process) Flow(name string) mirror.FlowState {
	for _, f := range p.Mirror.State().Flows {
		if f.Name == name {
			return f
		}
	}
	return mirror.FlowState{}
}

// Eventually asks until ok, or fails the test with what the last answer was.
func Eventually(t testing.TB, within time.Duration, what string, ok func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		good, seen := ok()
		if good {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; last seen: %s", within, what, seen)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// arrived waits until a topic's copy has at least n committed records.
func (w World) arrived(t testing.TB, topic string, n int, within time.Duration) []*kgo.Record {
	t.Helper()
	return w.arrivedIn(t, w.copied(topic), n, within)
}

// arrivedIn waits until a target topic has at least n committed records.
func (w World) arrivedIn(t testing.TB, topic string, n int, within time.Duration) []*kgo.Record {
	t.Helper()
	var got []*kgo.Record
	Eventually(t, within, "records on the target", func() (bool, string) {
		if !w.exists(t, topic) {
			return false, "no topic " + topic
		}
		got = w.Target.ReadStable(t, topic)
		return len(got) >= n, fmt.Sprintf("%s has %d of %d", topic, len(got), n)
	})
	return got
}

func (w World) exists(t testing.TB, topic string) bool {
	t.Helper()
	ts, err := w.Target.Admin(t).ListTopics(t.Context(), topic)
	return err == nil && ts.Has(topic)
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
