package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
)

// inBubble runs a test in fake time, on clusters of one virtual network.
func inBubble(t *testing.T, test func(w *world, change func(*mirror.Options))) {
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		o := testenv.EmbeddedOptions{Network: network}
		w := &world{t, testenv.Embedded(t, o), testenv.Embedded(t, o)}
		test(w, func(o *mirror.Options) { o.Dial = network.DialContext })
	})
}

// A target that refuses every write makes the flow unhealthy within a minute,
// and the reason is there.
func TestCase61TargetRefuses(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		t.Run(string(read), func(t *testing.T) {
			inBubble(t, func(w *world, change func(*mirror.Options)) {
				w.fill("d12", 2, 20, 61)
				h := w.target.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "d12", Err: kerr.NotEnoughReplicas, Count: -1})
				f := w.flow("refused", "d12")
				f.Read = read
				p := w.start(f, change)
				began := time.Now()
				unhealthy(w, p, "refused", func(h mirror.Health) bool {
					return len(h.Problems) == 2 && says(h.Problems[0], "d12[0]", "stalled") && says(h.Problems[1], "d12[1]", "stalled")
				})
				if took := time.Since(began); took > time.Minute {
					w.Errorf("unhealthy after %v", took)
				}
				st := p.Flow("refused")
				if !says(st.Reason, "target d12[") || !says(st.Partitions[0].Reason, "target d12[") {
					w.Errorf("reason %q, of a partition %q", st.Reason, st.Partitions[0].Reason)
				}
				w.fired(h, 1)
				h.Remove()
				w.arrived("d12", 20)
				w.drained(p, "refused", 2)
				if h := p.Mirror.Health(); !h.OK {
					w.Errorf("not healthy again: %v", h.Problems)
				}
				p.Stop()
				w.same("d12", unordered)
			})
		})
	}
}

// One partition of eight that can't be read is named with its own reason; the
// others are not held up.
func TestCase61OnePartitionStuck(t *testing.T) {
	for read, key := range map[topology.Reader]kmsg.Key{topology.ReaderShare: kmsg.ShareFetch, topology.ReaderPartition: kmsg.Fetch} {
		t.Run(string(read), func(t *testing.T) {
			inBubble(t, func(w *world, change func(*mirror.Options)) {
				h := w.source.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: "d12", Partitions: []int32{5}, Err: kerr.KafkaStorageError, Count: -1})
				w.fill("d12", 8, 80, 61)
				f := w.flow("stuck", "d12")
				f.Read = read
				p := w.start(f, change)
				began := time.Now()
				w.arrived("d12", 70)
				if took := time.Since(began); took > 10*time.Second {
					w.Errorf("the other partitions took %v", took)
				}
				unhealthy(w, p, "stuck", func(h mirror.Health) bool {
					return len(h.Problems) == 1 && says(h.Problems[0], "d12[5]", "stalled", "KAFKA_STORAGE_ERROR")
				})
				if took := time.Since(began); took > time.Minute {
					w.Errorf("unhealthy after %v", took)
				}
				// New records of the others are copied as fast as ever.
				w.source.Produce(w.T, testenv.Records("d12", 5, 50, 62)...)
				began = time.Now()
				w.arrived("d12", 120)
				if took := time.Since(began); took > 5*time.Second {
					w.Errorf("beside a stuck partition, new records took %v", took)
				}
				w.fired(h, 2)
				h.Remove()
				w.arrived("d12", 130)
				st := w.drained(p, "stuck", 8)
				for _, ps := range st.Partitions {
					if ps.Reason != "" {
						w.Errorf("%s[%d] has a reason still: %s", ps.Topic, ps.Partition, ps.Reason)
					}
				}
				p.Stop()
				w.same("d12", unordered)
			})
		})
	}
}

// unhealthy waits for a verdict, for at most twice StallAfter.
func unhealthy(w *world, p *suite.Process, flow string, ok func(mirror.Health) bool) {
	w.Helper()
	suite.Eventually(w.T, 2*mirror.StallAfter, flow+" is unhealthy", func() (bool, string) {
		h := p.Mirror.Health()
		return !h.OK && ok(h), strings.Join(h.Problems, "\n")
	})
}
