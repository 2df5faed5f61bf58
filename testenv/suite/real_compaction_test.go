package suite

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// keyed gives records their keys in turn.
func keyed(recs []*kgo.Record, keys int, prefix string) []*kgo.Record {
	for i, r := range recs {
		r.Key = fmt.Appendf(nil, "%s-%d", prefix, i%keys)
	}
	return recs
}

// setting is a topic config's value.
func setting(v string) *string { return &v }

// Acquired ranges cover offsets that compaction took: they are acknowledged as
// gaps, so that nothing waits for a lock to run out, and they are no loss.
func testCompactionHoles(t *testing.T, w World) {
	const topic, flow = "a11", "holes"
	w.Source.CreateTopic(t, topic, 1, 1, map[string]*string{
		"cleanup.policy": setting("compact"), "segment.ms": setting("100"),
		"min.cleanable.dirty.ratio": setting("0.001"), "min.compaction.lag.ms": setting("0"), "max.compaction.lag.ms": setting("1"),
	})
	// The second producer takes all records of the first one's last batch:
	// the cleaner keeps it, empty, for its sequence number.
	w.Source.Produce(t, keyed(testenv.Records(topic, 1, 5000, 11), 10, "k")...)
	w.Source.Produce(t, keyed(testenv.Records(topic, 1, 10, 12), 10, "k")...)
	n := 0
	Eventually(t, within, "the log shrinks", func() (bool, string) {
		// A segment is closed by a record that comes after its time.
		w.Source.Produce(t, keyed(testenv.Records(topic, 1, 1, int64(1000+n)), 1, "roll")...)
		n++
		left := len(w.Source.ReadAll(t, topic))
		return left < 20, fmt.Sprintf("%d records after %d rolls", left, n)
	})
	w.Source.Produce(t, keyed(testenv.Records(topic, 1, 20, 13), 20, "new")...)

	var gaps atomic.Int64
	f := w.flow(flow, topic)
	f.Ordered, f.Read = topology.OrderedFalse, topology.ReaderShare
	began := time.Now()
	p := Start(t, w.topologyOf(f), func(o *mirror.Options) {
		o.Observer.Gap = func(string, string, int32, int64, int64) { gaps.Add(1) }
	})
	Eventually(t, within, "survivors and new records arrive", func() (bool, string) {
		if !w.exists(t, topic) {
			return false, "no topic"
		}
		d := w.compare().Diff(w.Source.ReadAll(t, topic), w.Target.ReadAll(t, topic))
		return len(d.Missing) == 0, d.String()
	})
	w.drained(t, p, flow, 1)
	if took := time.Since(began); took > f.Limits.Lock {
		t.Errorf("no lag after %v only: holes held their locks (%v)", took, f.Limits.Lock)
	}
	st := p.Flow(flow)
	p.Stop()
	if gaps.Load() > 0 || st.Lost > 0 || st.RefusedAcks > 0 {
		t.Errorf("%d gaps and %d lost offsets reported, %d acknowledgements refused, want none", gaps.Load(), st.Lost, st.RefusedAcks)
	}
	w.same(t, topic)
}

// A compacted topic is read in order, also with more lanes than partitions:
// the last value of a key stays the last.
func testOrder(t *testing.T, w World) {
	const topic, flow = "a12", "order"
	w.Source.CreateTopic(t, topic, 1, 1, map[string]*string{"cleanup.policy": setting("compact")})
	w.Target.CreateTopic(t, topic, 1, 1, nil) // keeps every value, to look at
	recs := testenv.Records(topic, 1, 1000, 12)
	for i, r := range recs {
		r.Key, r.Value = []byte("k"), fmt.Append(nil, i+1)
	}
	w.Source.Produce(t, recs[:500]...)
	p := Start(t, w.topologyOf(w.flow(flow, topic)))
	w.arrived(t, topic, 1, within)
	for i := 500; i < len(recs); i += 50 { // while the mirror is at work
		w.Source.Produce(t, recs[i:i+50]...)
	}
	got := w.arrived(t, topic, len(recs), within)
	w.drained(t, p, flow, 1)
	st := p.Flow(flow)
	p.Stop()
	if st.Reader != string(topology.ReaderPartition) || st.Order != "per partition" || !strings.Contains(st.Why, "compacted topics need it: "+topic) {
		t.Errorf("reader %s, order %s: %s", st.Reader, st.Order, st.Why)
	}
	testenv.AssertExactlyOnce(t, recs, got, testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}})
	if last := string(got[len(got)-1].Value); last != "1000" {
		t.Errorf("the last value is %s", last)
	}
}
