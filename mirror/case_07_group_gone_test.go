package mirror_test

import (
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
)

// A group that is deleted under its members is joined anew within two
// heartbeats, with its settings; nothing is lost, and what this process knows
// to be on the target is not copied again.
func TestCase7GroupGone(t *testing.T) {
	for name, reset := range map[string]string{"Earliest": "earliest", "Latest": "latest"} {
		t.Run(name, func(t *testing.T) { testGroupGone(t, reset) })
	}
}

// testGroupGone: somebody sets the group's reset to that before it goes.
func testGroupGone(t *testing.T, reset string) {
	const heartbeat = 500 * time.Millisecond
	w := newWorld(t, quick(map[string]string{"group.share.heartbeat.interval.ms": "500"}))
	w.fill("a7", 1, 50, 7)
	f := w.flow("gone", "a7")
	group := w.shareGroup(f)
	var (
		mu    sync.Mutex
		joins []time.Time
	)
	watch(w.source, kmsg.ShareGroupHeartbeat, func(req kmsg.Request) {
		if req.(*kmsg.ShareGroupHeartbeatRequest).MemberEpoch == 0 {
			mu.Lock()
			defer mu.Unlock()
			joins = append(joins, time.Now())
		}
	})
	p := w.start(f)
	w.arrived("a7", 50)
	w.settled(p, "gone", 50)

	w.setGroup(group, "share.auto.offset.reset", reset)
	mu.Lock()
	before := len(joins)
	mu.Unlock()
	// The records are there when the group is joined anew, or latest would
	// have nothing to skip.
	w.source.Produce(t, testenv.Records("a7", 1, 50, 70)...)
	w.arrived("a7", 100)
	w.dropGroup(group)
	gone := time.Now()
	suite.Eventually(t, within, "the group is joined anew", func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return len(joins) > before, ""
	})
	mu.Lock()
	if took := joins[before].Sub(gone); took > 2*heartbeat {
		t.Errorf("joined anew after %v; two heartbeats are %v", took, 2*heartbeat)
	}
	mu.Unlock()
	w.source.Produce(t, testenv.Records("a7", 1, 50, 71)...)
	w.arrived("a7", 150)
	w.drained(p, "gone", 1)
	if got := w.groupSetting(group, "share.auto.offset.reset"); got != "earliest" {
		t.Errorf("share.auto.offset.reset is %s after the group was joined anew", got)
	}
	p.Stop()
	w.same("a7", unordered)
}
