package mirror_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
)

// With fewer share sessions than lanes, those that get none back off, say
// which limit it is, and leave their partitions to the others.
func TestCase15SessionLimit(t *testing.T) {
	w := newWorld(t, quick(map[string]string{"group.share.max.share.sessions": "2"}))
	w.fill("a15", 4, 100, 15)
	opened := w.source.Fake().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ShareFetch}, Observe: true, Count: -1,
		When: func(req kmsg.Request) bool { return req.(*kmsg.ShareFetchRequest).ShareSessionEpoch == 0 },
	})
	f := w.flow("sessions", "a15")
	f.Lanes = 4
	began := time.Now()
	p := w.start(f)
	w.until(p, "sessions", "the limit is named", func(st mirror.FlowState) bool {
		return says(st.Reason+st.Hint, "SHARE_SESSION_LIMIT_REACHED", "group.share.max.share.sessions")
	})
	w.arrived("a15", 100)
	w.source.Produce(t, testenv.Records("a15", 4, 100, 16)...)
	w.arrived("a15", 200)
	w.settled(p, "sessions", 200)
	// Two lanes that double their pause from 200 ms on.
	if n, took := opened.Hits(), time.Since(began); float64(n) > 10+4*took.Seconds() {
		t.Errorf("%d sessions asked for in %v", n, took)
	}
	p.Stop()
	w.same("a15", unordered)
}

// A member that the group has no room for does the same.
func TestCase15GroupFull(t *testing.T) {
	w := newWorld(t, quick(map[string]string{"group.share.max.size": "2"}))
	w.fill("a15", 4, 100, 15)
	joins := w.source.Fake().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ShareGroupHeartbeat}, Observe: true, Count: -1,
		When: func(req kmsg.Request) bool { return req.(*kmsg.ShareGroupHeartbeatRequest).MemberEpoch == 0 },
	})
	f := w.flow("members", "a15")
	f.Lanes = 4
	began := time.Now()
	p := w.start(f)
	w.until(p, "members", "the limit is named", func(st mirror.FlowState) bool {
		return says(st.Reason+st.Hint, "GROUP_MAX_SIZE_REACHED", "group.share.max.size")
	})
	w.arrived("a15", 100)
	w.settled(p, "members", 100)
	if n, took := joins.Hits(), time.Since(began); float64(n) > 20+4*took.Seconds() {
		t.Errorf("%d joins in %v", n, took)
	}
	p.Stop()
	w.same("a15", unordered)
}

// A limit that is reached for a while, for all, ends in nothing but a delay.
func TestCase15LimitForAWhile(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.fill("a15", 4, 100, 15)
	h := w.source.Fake().Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.ShareFetch}, TopLevel: true, Err: kerr.ShareSessionLimitReached, Count: 4},
		kfake.Fault{Keys: []kmsg.Key{kmsg.ShareGroupHeartbeat}, TopLevel: true, Err: kerr.GroupMaxSizeReached, Count: 4},
	)
	f := w.flow("while", "a15")
	f.Lanes = 2
	p := w.start(f)
	w.arrived("a15", 100)
	w.settled(p, "while", 100)
	w.fired(h, 8)
	w.until(p, "while", "the trouble is over", func(st mirror.FlowState) bool { return st.Reason == "" && st.Lanes == 2 })
	p.Stop()
	w.same("a15", unordered)
}
