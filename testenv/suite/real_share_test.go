package suite

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// TestRealShare: what the limits of a real broker's share groups, and its log
// cleaner, do to a flow. The source has tight limits: two members in a group, two
// share sessions, and two deliveries of a record, of which a group can't ask
// for more than five.
func TestRealShare(t *testing.T) {
	t.Parallel()
	w := World{
		Source: testenv.Real(t, "4.4.0", testenv.RealOptions{Config: map[string]string{
			"group.share.max.size":                 "2",
			"group.share.max.share.sessions":       "2", // of all groups
			"group.share.delivery.count.limit":     "2",
			"group.share.max.delivery.count.limit": "5",
			"log.cleaner.backoff.ms":               "100",
		}}),
		Target: testenv.Real(t, "4.4.0"),
		Reader: topology.ReaderShare, Guarantee: topology.GuaranteeAtLeastOnce,
	}
	for _, c := range []struct {
		name string
		test func(*testing.T, World)
	}{
		{"FirstRecord", testFirstRecord},
		{"Case11CompactionHoles", testCompactionHoles},
		{"Case12Order", testOrder},
		{"Case15Members", testMemberLimit},
		{"Case15Sessions", testSessionLimit},
		{"Case2TargetOutage", testTargetOutage}, // last: it takes the target down
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

// milestones notes when each kind of request was answered for the first and
// the last time before the first record was on the target.
type milestones struct {
	began time.Time
	lines chan string
}

var _ kgo.HookBrokerE2E = milestones{}

// OnBrokerE2E notes one request.
func (m milestones) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	select {
	case m.lines <- fmt.Sprintf("%5d ms %s took %v", time.Since(m.began).Milliseconds(), kmsg.NameForKey(key), e.DurationE2E().Round(time.Millisecond)):
	default: // enough is known
	}
}

// A new flow's first record: the time it takes is logged, with where it goes.
// The first flow of a cluster waits for the internal topics as well.
func testFirstRecord(t *testing.T, w World) {
	for _, flow := range []string{"first", "second"} {
		w.Source.CreateTopic(t, flow, 2, 1, nil)
		w.Source.Produce(t, testenv.Records(flow, 2, 10, 1)...)
		m := milestones{time.Now(), make(chan string, 500)}
		p := Start(t, w.topologyOf(w.flow(flow, flow)), func(o *mirror.Options) {
			o.Hooks = func(string, string) []kgo.Hook { return []kgo.Hook{m} }
		})
		w.arrived(t, flow, 10, within)
		t.Logf("the records of a %s flow were on the target after %v", flow, time.Since(m.began).Round(time.Millisecond))
		for range len(m.lines) {
			t.Log(<-m.lines)
		}
		p.Stop()
		w.same(t, flow)
	}
}

// names waits until a flow's reason names an error and its hint a setting.
func names(t *testing.T, p *Process, flow, reason, hint string) {
	t.Helper()
	Eventually(t, within, reason+" is named", func() (bool, string) {
		st := p.Flow(flow)
		return strings.Contains(st.Reason, reason) && strings.Contains(st.Hint, hint), st.Reason + " (" + st.Hint + ")"
	})
}

// Lanes beyond the broker's size of a group back off with the limit's name,
// and the others do the work.
func testMemberLimit(t *testing.T, w World) {
	const topic, flow = "a15", "members"
	w.Source.CreateTopic(t, topic, 4, 1, nil)
	w.Source.Produce(t, testenv.Records(topic, 4, 100, 15)...)
	f := w.flow(flow, topic)
	f.Lanes = 4
	p := Start(t, w.topologyOf(f))
	names(t, p, flow, "GROUP_MAX_SIZE_REACHED", "group.share.max.size")
	w.arrived(t, topic, 100, within)
	w.drained(t, p, flow, 4)
	names(t, p, flow, "GROUP_MAX_SIZE_REACHED", "group.share.max.size")
	p.Stop()
	w.same(t, topic)
}

// A flow that finds all sessions of the broker taken says so, and goes on when
// another flow has left.
func testSessionLimit(t *testing.T, w World) {
	const first, second = "a15-first", "a15-second"
	var ps []*Process
	for i, topic := range []string{first, second} {
		w.Source.CreateTopic(t, topic, 2, 1, nil)
		w.Source.Produce(t, testenv.Records(topic, 2, 100, int64(150+i))...)
		ps = append(ps, Start(t, w.topologyOf(w.flow(topic, topic))))
		if i == 0 {
			w.arrived(t, topic, 100, within)
			w.drained(t, ps[0], topic, 2)
		}
	}
	names(t, ps[1], second, "SHARE_SESSION_LIMIT_REACHED", "group.share.max.share.sessions")
	ps[0].Stop()
	w.arrived(t, second, 100, within)
	w.drained(t, ps[1], second, 2)
	ps[1].Stop()
	w.same(t, first)
	w.same(t, second)
}

// outage is longer than the group's delivery limit (2) times its lock (15 s).
const outage = 33 * time.Second

// While the target is down what was acquired is held: no record is delivered
// a second time, and after the outage each is there once.
func testTargetOutage(t *testing.T, w World) {
	const topic, flow = "a2", "outage"
	w.Source.CreateTopic(t, topic, 1, 1, nil)
	w.Source.Produce(t, testenv.Records(topic, 1, 5, 2)...)
	var last atomic.Int64
	p := Start(t, w.topologyOf(w.flow(flow, topic)), func(o *mirror.Options) {
		o.Observer.LastDelivery = func(string, string, int32, int64) { last.Add(1) }
	})
	w.arrived(t, topic, 5, within)
	w.drained(t, p, flow, 1)

	if err := w.Target.KillNode(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.Source.Produce(t, testenv.Records(topic, 1, 20, 22)...)
	Eventually(t, within, "the flow says that the target is down", func() (bool, string) {
		st := p.Flow(flow)
		return strings.Contains(st.Reason, "not reachable") || strings.Contains(st.Reason, "connection refused"), st.Reason
	})
	over := time.After(outage)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-over:
			waiting = false
		case <-tick.C:
			if n := last.Load(); n > 0 {
				t.Fatalf("%d records were delivered a second time, the last that the group permits", n)
			}
		}
	}
	if err := w.Target.StartNode(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.arrived(t, topic, 25, within)
	w.drained(t, p, flow, 1)
	st := p.Flow(flow)
	p.Stop()
	if n := last.Load(); n > 0 || st.Recovered > 0 || st.Lost > 0 {
		t.Errorf("%d records came to their last delivery, %d were given up by the group, %d are lost", n, st.Recovered, st.Lost)
	}
	w.same(t, topic)
}
