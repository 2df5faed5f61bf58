package mirror_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
)

// Acknowledgements that the source refuses are seen, counted and not taken for
// progress; the records come again and are acknowledged without a second copy.
func TestCase6RefusedAcks(t *testing.T) {
	// Long enough for all answers to be in before the first record comes again.
	w := newWorld(t, quick(map[string]string{"group.share.record.lock.duration.ms": "6000"}))
	w.fill("a6", 1, 50, 6)
	// A broker refuses all of a partition's ranges when one is in the wrong
	// state.
	bad := w.source.Fake().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ShareAcknowledge}, Topic: "a6", Err: kerr.InvalidRecordState, Count: -1,
		When: func(req kmsg.Request) bool { return touches(ranges(req, accept), 10, 19) },
	})
	var lost atomic.Int64
	once := w.source.Fake().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ShareAcknowledge}, Topic: "a6", Err: kerr.RequestTimedOut, Count: 1,
		When: func(req kmsg.Request) bool {
			rs := ranges(req, accept)
			if !touches(rs, 30, 30) || touches(rs, 10, 19) {
				return false
			}
			for _, r := range rs {
				lost.Add(r[1] - r[0] + 1)
			}
			return true
		},
	})
	p := w.start(w.flow("acks", "a6"))
	st := w.until(p, "acks", "all acknowledgements are answered", func(st mirror.FlowState) bool {
		return once.Hits() == 1 && st.RefusedAcks == 10+lost.Load() && st.Records == 50-st.RefusedAcks
	})
	if n := len(w.target.ReadAll(t, "a6")); n != 50 {
		t.Errorf("%d records on the target while %d count as copied, want 50", n, st.Records)
	}
	w.fired(bad, 2)
	bad.Remove()
	st = w.until(p, "acks", "the redelivered records are acknowledged", func(st mirror.FlowState) bool {
		return len(st.Partitions) == 1 && st.Partitions[0].Lag == 0 && st.Partitions[0].EndOffset == 50
	})
	p.Stop()
	if st.Records != 50 {
		t.Errorf("%d records count as copied in the end, want 50", st.Records)
	}
	if st.RefusedAcks != 10+lost.Load() {
		t.Errorf("%d refused acknowledgements, want %d", st.RefusedAcks, 10+lost.Load())
	}
	w.same("a6", unordered)
}
