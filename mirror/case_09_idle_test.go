package mirror_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/suite"
)

// A partition that is taken away while its records are being written gets
// their acknowledgements, and is not fetched again for them: afterwards the
// flow is idle, and nothing was delivered twice.
func TestCase9RevokedWithPendingAcks(t *testing.T) {
	w := newWorld(t, quick(map[string]string{"group.share.record.lock.duration.ms": "30000"}))
	w.fill("a9", 3, 300, 9)
	var fetches atomic.Int64
	var counts tamper
	var mu sync.Mutex
	most := int16(0)
	counts.keys = []kmsg.Key{kmsg.ShareFetch}
	counts.change = func(_ string, resp kmsg.Response) bool {
		fetches.Add(1)
		for _, tp := range resp.(*kmsg.ShareFetchResponse).Topics {
			for _, p := range tp.Partitions {
				for _, a := range p.AcquiredRecords {
					mu.Lock()
					most = max(most, a.DeliveryCount)
					mu.Unlock()
				}
			}
		}
		return false
	}
	release := make(chan struct{})
	sink := newRecorder(func(ctx context.Context, try int, _ []*kgo.Record) error {
		if try > 1 {
			return nil
		}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	first := w.start(w.flow("idle", "a9"), sink.options("idle"), counts.options)
	<-sink.open
	// Two more members take partitions of the first, which holds records of
	// all three.
	moved := w.source.Fake().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ShareFetch}, Observe: true, Count: -1,
		When: func(req kmsg.Request) bool { return len(req.(*kmsg.ShareFetchRequest).ForgottenTopicsData) > 0 },
	})
	f := w.flow("idle", "a9")
	f.Lanes = 2
	second := w.start(f, newRecorder(nil).options("idle"), counts.options)
	group := w.shareGroup(f)
	suite.Eventually(t, within, "every member has its share", func() (bool, string) {
		ds, err := w.source.Admin(t).DescribeShareGroups(t.Context(), group)
		if err != nil {
			return false, err.Error()
		}
		g := ds[group]
		behind := slices.ContainsFunc(g.Members, func(m kadm.ShareGroupMember) bool { return m.MemberEpoch != g.GroupEpoch })
		return len(g.Members) == 3 && !behind, fmt.Sprintf("%+v", g)
	})
	close(release)
	for _, p := range []*suite.Process{first, second} {
		w.drained(p, "idle", 3)
	}
	w.fired(moved, 1)
	const soak = 2 * time.Second
	before := fetches.Load()
	<-time.After(soak)
	// Three lanes that wait half a second each.
	if n := fetches.Load() - before; n > 3*5 {
		t.Errorf("%d fetches in %v of idleness", n, soak)
	}
	first.Stop()
	second.Stop()
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		t.Errorf("a record was delivered %d times", most)
	}
	if n := first.Flow("idle").Records + second.Flow("idle").Records; n != 300 {
		t.Errorf("%d records copied, want 300", n)
	}
}
