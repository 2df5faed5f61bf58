package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn/wire"
)

// within is how long a few hundred records may take on a busy machine.
const within = 40 * time.Second

// Run runs the whole contract on w, one test after the other: each has topics
// and a flow of its own.
func Run(t *testing.T, w World) {
	for _, c := range []struct {
		name string
		test func(*testing.T, World)
	}{
		{"Case1History", testHistory},       // G1, G2, G3
		{"Case3RolledBack", testRolledBack}, // G4
		{"Case13ChangeOfReader", testChangeOfReader},
		{"Case14LogStartMoves", testLogStartMoves},
		{"Case50Growth", testGrowth},
		{"Case52FewerPartitions", testFewerPartitions},
		{"Case57TwoWay", testTwoWay},
		{"Case58TwoNames", testTwoNames}, // G5
		{"Case59Internals", testInternals},
		{"Case61NothingMatches", testNothingMatches},
		{"OversizedStops", testOversizedStops},
		{"OversizedSkipped", testOversizedSkipped},
		{"Rename", testRename},
		{"StartLatest", testStartLatest},
	} {
		if w.Form != (wire.Form{}) && slices.Contains(forTwo, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

// forTwo need two clusters, or both readers for one flow.
var forTwo = []string{"Case13ChangeOfReader", "Case57TwoWay", "Case58TwoNames"}

// same compares a topic's copy with it, record by record.
func (w World) same(t *testing.T, topic string) {
	t.Helper()
	testenv.AssertExactlyOnce(t, w.Source.ReadAll(t, topic), w.Target.ReadAll(t, w.copied(topic)), w.compare())
}

func (w World) compare() testenv.Compare {
	return testenv.Compare{IgnoreHeaders: []string{transform.ProvenanceHeader}, Unordered: w.Reader == topology.ReaderShare}
}

// drained waits until the flow runs, knows n partitions and has no lag.
func (w World) drained(t *testing.T, p *Process, flow string, n int) {
	t.Helper()
	Eventually(t, within, "no lag", func() (bool, string) {
		st := p.Flow(flow)
		busy := 0
		for _, part := range st.Partitions {
			if part.Lag != 0 {
				busy++
			}
		}
		return st.Phase == mirror.FlowRunning && len(st.Partitions) >= n && busy == 0,
			fmt.Sprintf("%s %s, %d partitions known, %d with lag", st.Phase, st.Reason, len(st.Partitions), busy)
	})
}

// What was there before the start and what comes after it arrive as they are;
// a restart with nothing new writes nothing.
func testHistory(t *testing.T, w World) {
	const topic = "a1"
	w.Source.CreateTopic(t, topic, 3, 1, nil)
	w.Source.Produce(t, testenv.Records(topic, 3, 300, 1)...)
	p := Start(t, w.topologyOf(w.flow("history", topic)))
	w.arrived(t, topic, 300, within)
	w.Source.Produce(t, testenv.Records(topic, 3, 300, 2)...)
	w.arrived(t, topic, 600, within)
	if got := p.Flow("history"); got.Reader != string(w.Reader) {
		t.Errorf("reader %q, want %q: %s", got.Reader, w.Reader, got.Why)
	}
	w.drained(t, p, "history", 3)
	p.Stop()
	p = Start(t, w.topologyOf(w.flow("history", topic)))
	w.drained(t, p, "history", 3)
	p.Stop()
	w.same(t, topic)
}

// Aborted and open transactions of the source never show on the target.
func testRolledBack(t *testing.T, w World) {
	const topic = "a3"
	w.Source.CreateTopic(t, topic, 1, 1, nil)
	rs := testenv.Records(topic, 1, 20, 3)
	cl := w.Source.Client(t, kgo.TransactionalID("a3-"+t.Name()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	txn := func(rs []*kgo.Record, end kgo.TransactionEndTry) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	txn(rs[:5], kgo.TryCommit)
	txn(rs[5:10], kgo.TryAbort)
	w.Source.Produce(t, rs[10:15]...)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), rs[15:20]...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p := Start(t, w.topologyOf(w.flow("rolled-back", topic)))
	w.arrived(t, topic, 10, within)
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	last := testenv.Records(topic, 1, 1, 4)
	w.Source.Produce(t, last...)
	w.arrived(t, topic, 11, within)
	w.drained(t, p, "rolled-back", 1)
	p.Stop()
	w.same(t, topic)
}

// Three changes of reader lose and repeat nothing; the groups have names of
// their own.
func testChangeOfReader(t *testing.T, w World) {
	if w.Reader != topology.ReaderShare {
		return // there is only one reader here
	}
	const topic = "a13"
	w.Source.CreateTopic(t, topic, 2, 1, nil)
	n := 0
	for i, reader := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition, topology.ReaderShare, topology.ReaderPartition} {
		w.Source.Produce(t, testenv.Records(topic, 2, 100, int64(130+i))...)
		n += 100
		f := w.flow("change", topic)
		f.Read = reader
		p := Start(t, w.topologyOf(f))
		w.arrived(t, topic, n, within)
		w.drained(t, p, "change", 2)
		p.Stop()
	}
	w.same(t, topic)
}

// Records that go from the source before they were read are reported with
// their range, and copying goes on behind them.
func testLogStartMoves(t *testing.T, w World) {
	const topic = "a14"
	w.Source.CreateTopic(t, topic, 1, 1, nil)
	w.Source.Produce(t, testenv.Records(topic, 1, 100, 14)...)
	f := w.flow("log-start", topic)
	p := Start(t, w.topologyOf(f))
	w.arrived(t, topic, 100, within)
	w.drained(t, p, "log-start", 1)
	p.Stop()

	w.Source.Produce(t, testenv.Records(topic, 1, 400, 15)...)
	deleteRecords(t, w.Source, topic, 0, 300)
	if w.ledger() {
		p = Start(t, w.topologyOf(f))
		Eventually(t, within, "the partition stops with the exact gap", func() (bool, string) {
			reason := ""
			for _, ps := range p.Flow("log-start").Partitions {
				reason = ps.Reason
			}
			return strings.Contains(reason, "offsets 100..299 (200)"), reason
		})
		p.Stop()
		f = w.flow("log-start", topic)
		f.OnGap = topology.OnGapSkip
	}
	p = Start(t, w.topologyOf(f))
	got := w.arrived(t, topic, 300, within)
	Eventually(t, within, "the gap is reported", func() (bool, string) {
		st := p.Flow("log-start")
		return st.Lost == 200, fmt.Sprintf("lost %d", st.Lost)
	})
	p.Stop()
	testenv.AssertExactlyOnce(t, w.Source.ReadAll(t, topic), got[100:], w.compare())
}

// Topics and partitions that appear while running are copied from their first
// record.
func testGrowth(t *testing.T, w World) {
	w.Source.CreateTopic(t, "d50-old", 2, 1, nil)
	p := Start(t, w.topologyOf(w.flow("growth", "d50.*")))
	Eventually(t, within, "the flow runs", func() (bool, string) {
		st := p.Flow("growth")
		return st.Phase == mirror.FlowRunning && st.Lanes > 0, string(st.Phase)
	})
	w.Source.CreateTopic(t, "d50-new", 3, 1, nil)
	w.Source.Produce(t, testenv.Records("d50-new", 3, 30, 50)...)
	grow(t, w.Source, "d50-old", 5)
	w.Source.Produce(t, testenv.Records("d50-old", 5, 50, 51)...)
	w.arrived(t, "d50-new", 30, within)
	w.arrived(t, "d50-old", 50, within)
	w.drained(t, p, "growth", 8)
	p.Stop()
	w.same(t, "d50-new")
	w.same(t, "d50-old")
}

// A target with fewer partitions is grown before data flows; one with more is
// taken as it is.
func testFewerPartitions(t *testing.T, w World) {
	w.Source.CreateTopic(t, "d52-few", 4, 1, nil)
	w.Source.CreateTopic(t, "d52-many", 4, 1, nil)
	w.Target.CreateTopic(t, w.copied("d52-few"), 1, 1, nil)
	w.Target.CreateTopic(t, w.copied("d52-many"), 8, 1, nil)
	for _, topic := range []string{"d52-few", "d52-many"} {
		w.Source.Produce(t, testenv.Records(topic, 4, 100, 52)...)
	}
	p := Start(t, w.topologyOf(w.flow("partitions", "d52-.*")))
	for _, topic := range []string{"d52-few", "d52-many"} {
		w.arrived(t, topic, 100, within)
	}
	w.drained(t, p, "partitions", 8)
	p.Stop()
	w.same(t, "d52-few")
	w.same(t, "d52-many")
}

// Two flows with unchanged names in opposite directions do not echo.
func testTwoWay(t *testing.T, w World) {
	const topic = "d57"
	w.Source.CreateTopic(t, topic, 1, 1, nil)
	w.Target.CreateTopic(t, topic, 1, 1, nil)
	w.Source.Produce(t, testenv.Records(topic, 1, 10, 57)...)
	w.Target.Produce(t, testenv.Records(topic, 1, 10, 58)...)
	there, back := w.flow("there", topic), w.flow("back", topic)
	back.From, back.To = "target", "source"
	p := Start(t, w.topologyOf(there, back))
	w.arrived(t, topic, 20, within)
	Eventually(t, within, "both directions settle", func() (bool, string) {
		a, b := p.Flow("there"), p.Flow("back")
		return a.Echoed == 10 && b.Echoed == 10, fmt.Sprintf("echoes left out: %d and %d", a.Echoed, b.Echoed)
	})
	w.drained(t, p, "there", 1)
	w.drained(t, p, "back", 1)
	p.Stop()
	for _, c := range []*testenv.Cluster{w.Source, w.Target} {
		if n := len(c.ReadAll(t, topic)); n != 20 {
			t.Errorf("%d records on %s, want 20", n, c.Name())
		}
	}
}

// Two names for one cluster are refused by the cluster's id.
func testTwoNames(t *testing.T, w World) {
	w.Source.CreateTopic(t, "d58", 1, 1, nil)
	top := w.topologyOf(w.flow("names", "d58"))
	top.Clusters["target"] = w.Source.Topology("target")
	top.Flows[0].Rename = "{cluster}.{topic}"
	p := Start(t, top)
	Eventually(t, within, "the flow is refused", func() (bool, string) {
		st := p.Flow("names")
		return st.Phase == mirror.FlowStopped && strings.Contains(st.Reason, "two names for one cluster"), string(st.Phase) + " " + st.Reason
	})
	if err := p.wait(); err == nil {
		t.Error("the refusal is not returned by Run")
	}
}

// Internal topics are not copied, whatever the separator; a name that only
// looks like a mirrored one is.
func testInternals(t *testing.T, w World) {
	internal := []string{"mm2-offset-syncs_B_internal", "B_checkpoints_internal", "mm2-configs.B.internal", "onceover.other.ledger.internal"}
	ordinary := []string{"CLUSTER-1_x", "_schemas"}
	for _, topic := range append(internal, ordinary...) {
		w.Source.CreateTopic(t, topic, 1, 1, nil)
		w.Source.Produce(t, testenv.Records(topic, 1, 5, 59)...)
	}
	f := w.flow("internals", ".*")
	f.Topics.Exclude = []string{"[ad][0-9].*", "(copy|int59).*"} // topics of other tests, and copies
	f.Rename = "int59-{topic}"
	p := Start(t, w.topologyOf(f))
	for _, topic := range ordinary {
		w.arrivedIn(t, "int59-"+topic, 5, within)
	}
	w.drained(t, p, "internals", 2)
	st := p.Flow("internals")
	p.Stop()
	for _, ts := range st.Topics {
		if topology.Internal(ts.Topic) {
			t.Errorf("internal topic %s is part of the flow", ts.Topic)
		}
	}
	for _, topic := range internal {
		if w.exists(t, "int59-"+topic) {
			t.Errorf("internal topic %s was copied", topic)
		}
	}
}

// A flow that matches nothing says so and is not healthy; it starts when a
// topic appears.
func testNothingMatches(t *testing.T, w World) {
	p := Start(t, w.topologyOf(w.flow("nothing", "d61-none")))
	Eventually(t, within, "the flow waits", func() (bool, string) {
		st := p.Flow("nothing")
		return st.Phase == mirror.FlowWaiting && strings.Contains(st.Reason, "no topic of source matches"), string(st.Phase) + " " + st.Reason
	})
	if p.Mirror.Health().OK {
		t.Error("healthy, although nothing is copied")
	}
	w.Source.CreateTopic(t, "d61-none", 1, 1, nil)
	w.Source.Produce(t, testenv.Records("d61-none", 1, 10, 61)...)
	w.arrived(t, "d61-none", 10, within)
	w.drained(t, p, "nothing", 1)
	if h := p.Mirror.Health(); !h.OK {
		t.Errorf("not healthy: %v", h.Problems)
	}
	p.Stop()
}

// A rename puts the source's name into the target's.
func testRename(t *testing.T, w World) {
	const topic = "rename-me"
	w.Source.CreateTopic(t, topic, 2, 1, nil)
	w.Source.Produce(t, testenv.Records(topic, 2, 50, 99)...)
	f := w.flow("rename", topic)
	f.Rename = "{cluster}.{topic}"
	p := Start(t, w.topologyOf(f))
	w.arrivedIn(t, "source."+topic, 50, within)
	w.drained(t, p, "rename", 2)
	p.Stop()
	for _, rec := range w.Target.ReadAll(t, "source."+topic) {
		if rec.Topic != "source."+topic {
			t.Fatalf("record in topic %s", rec.Topic)
		}
	}
}

// start: latest skips what is there at the first start, and nothing else: what
// is written while the mirror is down, and topics that appear later, arrive.
func testStartLatest(t *testing.T, w World) {
	w.Source.CreateTopic(t, "late-a", 2, 1, nil)
	w.Source.Produce(t, testenv.Records("late-a", 2, 50, 70)...)
	f := w.flow("latest", "late-.*")
	f.Start = topology.StartLatest
	p := Start(t, w.topologyOf(f))
	w.drained(t, p, "latest", 2)
	p.Stop()
	w.Source.Produce(t, testenv.Records("late-a", 2, 20, 71)...)
	w.Source.CreateTopic(t, "late-b", 1, 1, nil)
	w.Source.Produce(t, testenv.Records("late-b", 1, 10, 72)...)
	p = Start(t, w.topologyOf(f))
	w.arrived(t, "late-a", 20, within)
	w.arrived(t, "late-b", 10, within)
	w.drained(t, p, "latest", 3)
	p.Stop()
	var want []*kgo.Record
	for _, rec := range w.Source.ReadAll(t, "late-a") {
		if rec.Offset >= 25 { // 50 records over 2 partitions were there
			want = append(want, rec)
		}
	}
	testenv.AssertExactlyOnce(t, want, w.Target.ReadAll(t, w.copied("late-a")), w.compare())
	w.same(t, "late-b")
}
