package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

func compacted() map[string]*string {
	policy, lag := "compact", "0"
	return map[string]*string{"cleanup.policy": &policy, "min.compaction.lag.ms": &lag}
}

// keyed makes n records over a few keys.
func keyed(topic string, keys, n int, seed int64) []*kgo.Record {
	rs := testenv.Records(topic, 1, n, seed)
	for i, r := range rs {
		r.Key = fmt.Appendf(nil, "key-%d", i%keys)
	}
	return rs
}

// What survived compaction and what came after it arrives through a share
// group; the holes keep nothing up and are no loss.
func TestCase11CompactionHoles(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.source.CreateTopic(t, "a11", 1, 1, compacted())
	old := keyed("a11", 10, 5000, 11)
	for len(old) > 0 { // batches with survivors and batches without
		w.source.Produce(t, old[:500]...)
		old = old[500:]
	}
	w.source.Fake().Compact()
	survivors := len(w.source.ReadAll(t, "a11"))
	if survivors >= 5000 {
		t.Fatalf("nothing was compacted: %d records", survivors)
	}
	w.source.Produce(t, keyed("a11", 20, 20, 12)...)
	f := w.flow("holes", "a11")
	f.Ordered = topology.OrderedFalse
	p := w.start(f)
	w.arrived("a11", survivors+20)
	// A loss would be reported at the second look at the group's position.
	looks := w.source.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeShareGroupOffsets}, Observe: true, Count: -1})
	if err := looks.Wait(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	st := w.drained(p, "holes", 1)
	if st.Reader != string(topology.ReaderShare) || st.Lost != 0 || st.Recovered != 0 {
		t.Errorf("reader %s, %d lost, %d recovered", st.Reader, st.Lost, st.Recovered)
	}
	p.Stop()
	if d := (testenv.Compare{Unordered: true, IgnoreHeaders: []string{testenv.Provenance}}).Diff(w.source.ReadAll(t, "a11"), w.target.ReadAll(t, "a11")).String(); d != "" {
		t.Error(d)
	}
}

// A share group does not keep the order of a key. Where it matters, another
// reader is taken or the flow is refused.
func TestCase12Order(t *testing.T) {
	t.Run("RefusedWhenDeclared", func(t *testing.T) {
		_, err := topology.Parse("flow.yaml", []byte(`
clusters:
  east: {bootstrap: ["east:9092"]}
  west: {bootstrap: ["west:9092"]}
flows:
  - name: f
    from: east
    to: west
    topics: {include: [a12]}
    read: share
    ordered: true
`), func(string) (string, bool) { return "", false })
		if err == nil || !strings.Contains(err.Error(), "ordered: true") {
			t.Errorf("read: share with ordered: true: %v", err)
		}
	})
	t.Run("RefusedForCompacted", func(t *testing.T) {
		w := newWorld(t, quick(nil))
		w.source.CreateTopic(t, "a12", 1, 1, compacted())
		f := w.flow("order", "a12")
		f.Read = topology.ReaderShare
		p := w.start(f)
		st := w.until(p, "order", "the flow is refused", func(st mirror.FlowState) bool { return st.Phase == mirror.FlowStopped })
		if !says(st.Reason+st.Hint, "a12", "order", "read: partition") {
			t.Errorf("refused because: %s (%s)", st.Reason, st.Hint)
		}
	})
	t.Run("Kept", func(t *testing.T) {
		w := newWorld(t, quick(nil))
		w.source.CreateTopic(t, "a12", 1, 1, compacted())
		rs := keyed("a12", 1, 1000, 12)
		for i, r := range rs {
			r.Value = fmt.Append(nil, i+1)
		}
		w.source.Produce(t, rs[:500]...)
		f := w.flow("order", "a12")
		f.Lanes = 3
		p := w.start(f)
		w.arrived("a12", 1)
		w.source.Produce(t, rs[500:]...)
		got := w.arrived("a12", 1000)
		st := w.settled(p, "order", 1000)
		p.Stop()
		if st.Reader != string(topology.ReaderPartition) || st.Order != "per partition" || !strings.Contains(st.Why, "a12") {
			t.Errorf("reader %s, order %s, because %s", st.Reader, st.Order, st.Why)
		}
		if last := string(got[len(got)-1].Value); last != "1000" {
			t.Errorf("the last value is %s", last)
		}
		w.same("a12", testenv.Compare{})
	})
	t.Run("NotKeptIsSaid", func(t *testing.T) {
		w := newWorld(t, quick(nil))
		w.fill("a12", 1, 1, 12)
		p := w.start(w.flow("order", "a12"))
		st := w.until(p, "order", "the flow runs", func(st mirror.FlowState) bool { return st.Phase == mirror.FlowRunning })
		if st.Reader != string(topology.ReaderShare) || st.Order != "not kept" {
			t.Errorf("reader %s, order %s", st.Reader, st.Order)
		}
		p.Stop()
	})
}
