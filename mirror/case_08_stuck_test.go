package mirror_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/topology"
)

// A partition that the share group never begins is raised, and copied by offset;
// when it begins after all, nothing of it is copied a second time.
func TestCase08PartitionNeverBegins(t *testing.T) {
	inBubble(t, func(w *world, change func(*mirror.Options)) {
		w.fill("a8", 12, 120, 8)
		h := w.source.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ShareFetch}, Topic: "a8", Partitions: []int32{7}, Err: kerr.UnknownTopicOrPartition, Count: -1})
		f := w.flow("begins", "a8")
		f.Read = topology.ReaderShare
		p := w.start(f, change)
		began := time.Now()
		unhealthy(w, p, "begins", func(h mirror.Health) bool {
			return len(h.Problems) > 0 && says(h.Problems[0], "a8[7]", "stalled")
		})
		w.arrived("a8", 120)
		if took := time.Since(began); took > 2*mirror.StallAfter {
			w.Errorf("copied after %v", took)
		}
		if n := p.Flow("begins").Recovered; n != 10 {
			w.Errorf("%d records copied by offset, want 10", n)
		}
		w.fired(h, 1)
		h.Remove()
		w.drained(p, "begins", 12)
		p.Stop()
		w.same("a8", unordered)
	})
}
