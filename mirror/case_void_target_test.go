package mirror_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// The target's log ends before what the ledger says of it.
func TestVoidTargetTruncated(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		l.Stop()
		w.target.Front().Arm(testenv.Fault{
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
		w.more("t", 2, 40, 2)
		l = w.live()
		w.halted(l, 0, "the target's log was cut", "ends at 15")
		w.until(l.Process, "eo", "the other partition goes on", func(st mirror.FlowState) bool { return len(st.Partitions) > 1 && st.Partitions[1].Lag == 0 })
		l.Stop()
		if n := len(w.target.ReadAll(w.T, "t")); n != 60 {
			w.Errorf("%d records, want 60", n)
		}
	})
}

// The target topic is deleted and created again, while the flow is stopped or
// runs: it stops, or fills the new one from the source's log start.
func TestVoidTargetRecreated(t *testing.T) {
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
				w.remove("t")
				w.target.CreateTopic(w.T, "t", 2, 1, nil)
				w.more("t", 2, 40, 2)
				if !running {
					l = w.live()
				}
				for p := range int32(2) {
					w.halted(l, p, "target topic t was deleted and created again", "on_target_recreate: refill")
				}
				l.Stop()
				if n := len(w.target.ReadAll(w.T, "t")); n != 0 {
					w.Errorf("%d records in the new topic", n)
				}
				w.flow.OnTargetRecreate = topology.OnTargetRecreateRefill
				l = w.live()
				w.copied(l)
				w.once(l)
			})
		})
	}
}

// With on_target_recreate: refill a topic that is recreated while records flow is
// filled anew, without a stop.
func TestVoidTargetRefilledWhileRunning(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.OnTargetRecreate = topology.OnTargetRecreateRefill
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		for i := range int64(3) {
			w.remove("t")
			w.more("t", 2, 40, 10+i)
			<-time.After(time.Duration(i) * 400 * time.Millisecond)
			if w.target.Fake().TopicInfo("t") == nil {
				w.target.CreateTopic(w.T, "t", 2, 1, nil)
			}
			w.more("t", 2, 40, 20+i)
			w.copied(l)
			w.same("t", testenv.Compare{})
		}
		w.once(l)
	})
}
