package suite

import (
	"context"
	"encoding/base64"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// TestRealNodes: what goes on in a source of three nodes while a flow reads
// it. The target is embedded, to leave the memory to the source.
func TestRealNodes(t *testing.T) {
	t.Parallel()
	w := World{Source: testenv.Real(t, "4.4.0", testenv.RealOptions{Nodes: 3}), Target: testenv.Embedded(t), Reader: topology.ReaderShare, Guarantee: topology.GuaranteeAtLeastOnce}
	for _, c := range []struct {
		name string
		test func(*testing.T, World)
	}{
		{"Case8ShareCoordinatorGoes", testShareCoordinatorGoes},
		{"LeaderMoves", testLeaderMoves},
		{"Case48RollingRestart", testRollingRestart},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

// traffic writes records at a steady pace until it is ended, over whatever
// happens to the nodes.
type traffic struct {
	stop    context.CancelFunc
	wg      sync.WaitGroup
	records int
	err     error
}

// send begins traffic of that many records a second on a topic.
func send(t *testing.T, c *testenv.Cluster, topic string, partitions, rate int) *traffic {
	t.Helper()
	const batches = 20 // a second
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(250*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{stop: cancel}
	t.Cleanup(func() { tr.end(t) })
	tr.wg.Go(func() {
		tick := time.NewTicker(time.Second / batches)
		defer tick.Stop()
		for n := int64(0); ctx.Err() == nil; n++ {
			recs := testenv.Records(topic, partitions, rate/batches, n)
			// A write that was begun is finished, or its fate would be open.
			if err := cl.ProduceSync(context.WithoutCancel(ctx), recs...).FirstErr(); err != nil {
				tr.err = err
				return
			}
			tr.records += len(recs)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return tr
}

// end stops the traffic and returns how many records were written.
func (tr *traffic) end(t *testing.T) int {
	t.Helper()
	tr.stop()
	tr.wg.Wait()
	if tr.err != nil {
		t.Errorf("traffic: %v", tr.err)
	}
	return tr.records
}

// coordinator returns the node that keeps the share state of a partition.
func coordinator(t *testing.T, c *testenv.Cluster, group, topic string, partition int32) int32 {
	t.Helper()
	adm := c.Admin(t)
	topics, err := adm.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	const share = 2 // of FindCoordinator's kinds
	id := topics[topic].ID
	var node int32
	Eventually(t, within, "a share coordinator", func() (bool, string) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType = share
		req.CoordinatorKeys = []string{fmt.Sprintf("%s:%s:%d", group, base64.RawURLEncoding.EncodeToString(id[:]), partition)}
		resp, err := req.RequestWith(t.Context(), c.Client(t))
		if err != nil || len(resp.Coordinators) != 1 {
			return false, fmt.Sprint(err)
		}
		node = resp.Coordinators[0].NodeID
		return resp.Coordinators[0].ErrorCode == 0, fmt.Sprint(resp.Coordinators[0].ErrorCode)
	})
	return node
}

// A share coordinator that goes while it initialises the partitions of a new
// group leaves none of them behind.
func testShareCoordinatorGoes(t *testing.T, w World) {
	const topic, flow = "a8", "initialising"
	w.Source.CreateTopic(t, topic, 12, 3, nil)
	w.Source.Produce(t, testenv.Records(topic, 12, 120, 8)...)
	node := coordinator(t, w.Source, "onceover."+flow, topic, 7)
	p := Start(t, w.topologyOf(w.flow(flow, topic)))
	Eventually(t, within, "the lanes join", func() (bool, string) {
		st := p.Flow(flow)
		return st.Lanes == 2, fmt.Sprintf("%d lanes, %s %s", st.Lanes, st.Phase, st.Reason)
	})
	restart(t, w.Source, node)
	w.arrived(t, topic, 120, 2*within)
	w.drained(t, p, flow, 12)
	p.Stop()
	testenv.AssertAtLeastOnce(t, w.Source.ReadAll(t, topic), w.Target.ReadAll(t, topic), w.compare())
}

// restart kills a node and starts it again.
func restart(t *testing.T, c *testenv.Cluster, node int32) {
	t.Helper()
	if err := c.KillNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if err := c.StartNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// Leaders that move under load lose nothing, whatever the reader.
func testLeaderMoves(t *testing.T, w World) {
	for _, reader := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		topic, flow := "moves-"+string(reader), "moves-"+string(reader)
		w.Source.CreateTopic(t, topic, 3, 3, nil)
		f := w.flow(flow, topic)
		f.Read = reader
		p := Start(t, w.topologyOf(f))
		tr := send(t, w.Source, topic, 3, 400)
		w.arrived(t, topic, 1, within)
		for i := range int32(6) {
			at := len(w.Target.ReadStable(t, topic))
			w.Source.MoveLeader(t, topic, i%3, (i/3+i+1)%3)
			w.arrived(t, topic, at+40, within)
		}
		n := tr.end(t)
		w.arrived(t, topic, n, within)
		w.drained(t, p, flow, 3)
		p.Stop()
		c := testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}, Unordered: reader == topology.ReaderShare}
		testenv.AssertAtLeastOnce(t, w.Source.ReadAll(t, topic), w.Target.ReadAll(t, topic), c)
		t.Logf("%s: %d records, %d copies", reader, n, len(w.Target.ReadAll(t, topic)))
	}
}

// A rolling restart of the source, each node down for a while, needs nobody:
// nothing is missing, and the flow is well soon after the last node is back.
func testRollingRestart(t *testing.T, w World) {
	const (
		topic, flow = "c48", "rolling"
		down        = 5 * time.Second
		wellWithin  = 30 * time.Second
	)
	w.Source.CreateTopic(t, topic, 6, 3, nil)
	p := Start(t, w.topologyOf(w.flow(flow, topic)))
	tr := send(t, w.Source, topic, 6, 200)
	w.arrived(t, topic, 1, within)
	for _, node := range w.Source.Nodes() {
		if err := w.Source.StopNode(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		select {
		case <-time.After(down):
		case <-t.Context().Done():
		}
		if err := w.Source.StartNode(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	back := time.Now()
	Eventually(t, wellWithin, "the flow is well", func() (bool, string) {
		st := p.Flow(flow)
		lag := int64(0)
		for _, part := range st.Partitions {
			lag = max(lag, part.Lag)
		}
		h := p.Mirror.Health()
		return h.OK && st.Phase == mirror.FlowRunning && st.Reason == "" && st.Lanes == 2 && len(st.Partitions) == 6 && lag < 200,
			fmt.Sprintf("%s, %d lanes, lag up to %d, %s %v", st.Phase, st.Lanes, lag, st.Reason, h.Problems)
	})
	t.Logf("well %v after the last node was back", time.Since(back).Round(100*time.Millisecond))
	n := tr.end(t)
	w.arrived(t, topic, n, within)
	w.drained(t, p, flow, 6)
	p.Stop()
	testenv.AssertAtLeastOnce(t, w.Source.ReadAll(t, topic), w.Target.ReadAll(t, topic), w.compare())
	t.Logf("%d records, %d copies", n, len(w.Target.ReadAll(t, topic)))
}
