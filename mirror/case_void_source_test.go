package mirror_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// diverged has the source say that its log of t[0] ends at an offset in the epoch
// that was copied.
func (w *fakeWorld) diverged(at int64) *testenv.Armed {
	return w.source.Front().Arm(testenv.Fault{
		Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Do: testenv.AlterAnswer, Times: -1,
		Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
			for _, rt := range resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
				for i := range rt.Partitions {
					if p := &rt.Partitions[i]; rt.Topic == "t" && p.Partition == 0 && p.ErrorCode == 0 {
						p.EndOffset = at
						return true
					}
				}
			}
			return false
		},
	})
}

// The source has lost records that were copied (an unclean election) and has
// others in their place: found at a restart and at a change of leader.
func TestVoidSourceDiverged(t *testing.T) {
	for _, running := range []bool{false, true} {
		name := map[bool]string{false: "restart", true: "leader moves"}[running]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{Nodes: 2}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.give(2, 40, 1)
				l := w.live()
				w.copied(l)
				if !running {
					l.Stop()
				}
				w.diverged(15)
				w.source.MoveLeader(w.T, "t", 0, 1-w.source.Fake().LeaderFor("t", 0))
				w.more("t", 2, 40, 2)
				if !running {
					l = w.live()
				}
				w.halted(l, 0, "source's log was cut", "diverged at offset 15", "copied up to 20")
				l.Stop()
				if n := len(w.target.ReadAll(w.T, "t")); n != 60 {
					w.Errorf("%d records, want 60", n)
				}
			})
		})
	}
}

// The source's log ends before the position.
func TestVoidSourceTruncated(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		l.Stop()
		w.source.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.ListOffsets}, Do: testenv.AlterAnswer, Times: -1, ClientID: "onceover",
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
				done := false
				for _, rt := range resp.(*kmsg.ListOffsetsResponse).Topics {
					for i := range rt.Partitions {
						if p := &rt.Partitions[i]; rt.Topic == "t" && p.Partition == 0 && p.Offset > 15 {
							p.Offset, done = 15, true
						}
					}
				}
				return done
			},
		})
		l = w.live()
		w.halted(l, 0, "source's log was cut", "ends at 15", "copied up to 20")
	})
}

// The source topic is deleted and created again: the flow stops, or copies the new
// one behind what is there.
func TestVoidSourceRecreated(t *testing.T) {
	for _, running := range []bool{false, true} {
		name := map[bool]string{false: "stopped", true: "running"}[running]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.give(2, 40, 1)
				l := w.live()
				w.copied(l)
				if !running {
					l.Stop()
				}
				if _, err := w.source.Admin(w.T).DeleteTopics(w.Context(), "t"); err != nil {
					w.Fatal(err)
				}
				w.give(2, 60, 2)
				if !running {
					l = w.live()
				}
				for p := range int32(2) {
					w.halted(l, p, "the source topic was deleted and created again", "copied up to 20", "on_recreate: restart")
				}
				l.Stop()
				if n := len(w.target.ReadAll(w.T, "t")); n != 40 {
					w.Errorf("%d records, want 40", n)
				}
				w.flow.OnRecreate = topology.OnRecreateRestart
				l = w.live()
				w.copied(l)
				l.Stop()
				got := w.target.ReadAll(w.T, "t")
				if len(got) != 100 {
					w.Fatalf("%d records, want 100", len(got))
				}
				// Partition after partition, the old ones first.
				fresh := append(got[20:50:50], got[70:]...)
				testenv.AssertExactlyOnce(w.T, w.source.ReadAll(w.T, "t"), fresh, testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}})
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
