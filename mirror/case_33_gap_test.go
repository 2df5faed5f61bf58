package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// halted waits until a partition of "t" is stopped, with every word in its reason
// or hint.
func (w *fakeWorld) halted(l *life, partition int32, words ...string) {
	w.Helper()
	w.until(l.Process, "eo", fmt.Sprintf("t[%d] is stopped", partition), func(st mirror.FlowState) bool {
		for _, p := range st.Partitions {
			if p.Topic == "t" && p.Partition == partition && p.Phase == mirror.PartitionStopped && says(p.Reason+" "+p.Hint, words...) {
				return true
			}
		}
		return false
	})
	if l.Mirror.Health().OK {
		w.Error("healthy, although a partition is stopped")
	}
}

// starved has the source show nothing new of a partition while it is armed.
func (w *fakeWorld) starved(partition int32) *testenv.Armed {
	defer func() { <-time.After(10 * time.Second) }() // a fetch that waits is as it was
	return w.source.Front().Arm(testenv.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Do: testenv.AlterAnswer, Times: -1, Delay: 50 * time.Millisecond, ClientID: "onceover",
		Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
			for _, rt := range resp.(*kmsg.FetchResponse).Topics {
				for i := range rt.Partitions {
					if p := &rt.Partitions[i]; p.Partition == partition && len(p.RecordBatches) > 0 {
						p.RecordBatches = nil
						return true
					}
				}
			}
			return false
		},
	})
}

// Records go from the source before they were copied, while the flow is stopped
// or runs: the exact gap is named, and the policy decides.
func TestCase33RetentionOvertakes(t *testing.T) {
	for _, running := range []bool{false, true} {
		for _, policy := range []topology.OnGap{topology.OnGapStop, topology.OnGapSkip} {
			t.Run(fmt.Sprintf("running=%t/%s", running, policy), func(t *testing.T) {
				t.Parallel()
				inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
					w.flow.OnGap = policy
					w.give(2, 20, 33)
					l := w.live()
					w.copied(l)
					hungry := w.starved(0)
					if !running {
						hungry.Disarm()
						l.Stop()
					}
					w.more("t", 2, 200, 330)
					if running {
						w.reached(hungry)
					}
					if err := w.source.Fake().DeleteRecords("t", 0, 60); err != nil {
						w.Fatal(err)
					}
					w.more("t", 2, 80, 331)
					hungry.Disarm()
					if !running {
						l = w.live()
					}
					want := w.source.ReadAll(w.T, "t")
					if policy == topology.OnGapStop {
						w.halted(l, 0, "offsets 10..59 (50)", "on_gap: skip")
						l.Stop()
						l = w.live()
						w.halted(l, 0, "offsets 10..59 (50)")
						l.Stop()
						// The way out is the other policy.
						w.flow.OnGap = topology.OnGapSkip
						l = w.live()
					}
					w.copied(l)
					w.until(l.Process, "eo", "the gap counts", func(st mirror.FlowState) bool { return st.Lost == 50 })
					l.Stop()
					got := w.target.ReadAll(w.T, "t")
					// Those that went were copied in part: the first ten.
					testenv.AssertExactlyOnce(w.T, want, got[10:], testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}})
					for _, row := range w.ledgerIn().Positions {
						if row.Partition == 0 && (len(row.Gaps) != 1 || row.Gaps[0].First != 10 || row.Gaps[0].Last != 59) {
							w.Errorf("gaps %+v", row.Gaps)
						}
					}
					before := w.written()
					l = w.live()
					w.copied(l)
					l.Stop()
					if after := w.written(); before != after {
						w.Errorf("a restart has written: %s, then %s", before, after)
					}
				})
			})
		}
	}
}

// Compaction leaves the same distances between offsets, and is no gap.
func TestCase33CompactionIsNoGap(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.source.CreateTopic(w.T, "t", 1, 1, compacted())
		w.source.Produce(w.T, keyed("t", 10, 200, 33)...)
		l := w.live()
		w.copied(l)
		l.Stop()
		w.source.Produce(w.T, keyed("t", 10, 300, 34)...)
		w.source.Produce(w.T, keyed("t", 10, 300, 35)...)
		w.source.Fake().Compact()
		survivors := w.source.ReadAll(w.T, "t")
		if len(survivors) >= 400 {
			w.Fatalf("%d records after compaction", len(survivors))
		}
		w.source.Produce(w.T, keyed("t", 20, 20, 36)...)
		l = w.live()
		w.copied(l)
		if st := l.Flow("eo"); st.Lost != 0 {
			w.Errorf("%d records count as lost", st.Lost)
		}
		l.Stop()
		got := w.target.ReadAll(w.T, "t")
		testenv.AssertExactlyOnce(w.T, w.source.ReadAll(w.T, "t"), got[200:], testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}})
	})
}
