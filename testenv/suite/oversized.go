package suite

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// oversized makes a topic whose record 50 is above the target's limit, and
// another topic beside it.
func oversized(t *testing.T, w World, topic string) {
	t.Helper()
	w.Source.CreateTopic(t, topic, 1, 1, nil)
	w.Source.CreateTopic(t, topic+"-other", 1, 1, nil)
	limit := "20000"
	w.Target.CreateTopic(t, w.copied(topic), 1, 1, map[string]*string{"max.message.bytes": &limit})
	rs := testenv.Records(topic, 1, 100, 36)
	big := make([]byte, 60_000)
	_, _ = rand.NewChaCha8([32]byte{36}).Read(big) // does not shrink
	rs[50].Value = big
	w.Source.Produce(t, rs...)
	w.Source.Produce(t, testenv.Records(topic+"-other", 1, 100, 37)...)
}

// A record that the target refuses stops its partition with reason and place;
// the other topics go on, a restart does not lose the stop, and once the cause
// is mended everything arrives.
func testOversizedStops(t *testing.T, w World) {
	const topic = "c36-stop"
	oversized(t, w, topic)
	f := w.flow("oversized-stop", topic+".*")
	p := Start(t, w.topologyOf(f))
	w.arrived(t, topic+"-other", 100, within)
	stopped := func() (bool, string) {
		st := p.Flow("oversized-stop")
		for _, part := range st.Partitions {
			if part.Topic == topic && part.Phase == mirror.PartitionStopped && strings.Contains(part.Reason, topic+"[0] stopped at offset 50") && part.Hint != "" {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", st)
	}
	Eventually(t, within, "the partition is stopped with its reason", stopped)
	if p.Mirror.Health().OK {
		t.Error("healthy, although a partition is stopped")
	}
	p.Stop()
	p = Start(t, w.topologyOf(f))
	Eventually(t, within, "the stop is known after a restart", func() (bool, string) {
		st := p.Flow("oversized-stop")
		for _, ts := range st.Topics {
			if ts.Topic == topic && strings.Contains(ts.Reason, "offset 50") {
				return true, ""
			}
		}
		if w.Reader == topology.ReaderShare {
			return false, fmt.Sprintf("%+v", st.Topics)
		}
		return stopped()
	})
	w.Source.Produce(t, testenv.Records(topic+"-other", 1, 10, 38)...)
	w.arrived(t, topic+"-other", 110, within)

	setTopicConfig(t, w.Target, w.copied(topic), "max.message.bytes", "200000")
	if w.Reader == topology.ReaderShare {
		got, err := p.Mirror.Resume(t.Context(), "oversized-stop", topic)
		if err != nil || len(got) != 1 {
			t.Fatalf("resume: %v, %v", got, err)
		}
	} else if w.Guarantee != topology.GuaranteeExactlyOnce { // which goes on by itself
		p.Stop()
		p = Start(t, w.topologyOf(f))
	}
	Eventually(t, within, "everything arrives", func() (bool, string) {
		d := w.compare().Diff(w.Source.ReadAll(t, topic), w.Target.ReadAll(t, w.copied(topic)))
		return d == nil || len(d.Missing) == 0, fmt.Sprint(d)
	})
	p.Stop()
	if w.Reader == topology.ReaderPartition || w.Guarantee == topology.GuaranteeExactlyOnce {
		w.same(t, topic) // nothing was written behind the refused record, or twice
		return
	}
	testenv.AssertAtLeastOnce(t, w.Source.ReadAll(t, topic), w.Target.ReadAll(t, w.copied(topic)), w.compare())
}

// on_error: skip leaves out that record alone, and counts it.
func testOversizedSkipped(t *testing.T, w World) {
	const topic = "c36-skip"
	oversized(t, w, topic)
	f := w.flow("oversized-skip", topic+".*")
	f.OnError = topology.OnErrorSkip
	p := Start(t, w.topologyOf(f))
	w.arrived(t, topic, 99, within)
	w.drained(t, p, "oversized-skip", 2)
	if n := p.Flow("oversized-skip").Skipped; n != 1 {
		t.Errorf("%d records skipped, want 1", n)
	}
	p.Stop()
	want := w.Source.ReadAll(t, topic)
	testenv.AssertExactlyOnce(t, append(want[:50:50], want[51:]...), w.Target.ReadAll(t, w.copied(topic)), w.compare())
}
