package mirror_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// The state of an exactly-once flow says who has which shards, and what became of
// its transactions, also of one whose commit was left without an answer.
func TestShardState(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	w.fill("orders", 4, 100, 1)
	f := w.flow("shown", "orders")
	f.Guarantee = topology.GuaranteeExactlyOnce
	type commit struct {
		records int
		took    time.Duration
	}
	commits := make(chan commit, 1000)
	p := w.start(f, func(o *mirror.Options) {
		o.Observer.Committed = func(_ string, _, n int, took time.Duration) { commits <- commit{n, took} }
	})
	w.settled(p, "shown", 100)
	st := w.until(p, "shown", "the shards are known", func(st mirror.FlowState) bool { return st.Shards != nil && st.Shards.Total == 8 })
	s := st.Shards
	if !slices.Equal(s.Owned, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("owned %v, want all eight", s.Owned)
	}
	if s.Committed < 1 || s.Aborted+s.InDoubt+s.Resolved+s.Fenced != 0 || time.Since(s.LastCommit) > time.Minute {
		t.Errorf("%+v", *s)
	}
	records := 0
	for range s.Committed {
		c := <-commits
		records += c.records
		if c.took <= 0 || c.took > time.Minute {
			t.Errorf("a commit took %v", c.took)
		}
	}
	if records != 100 {
		t.Errorf("%d records in %d commits, want 100", records, s.Committed)
	}

	lost := w.target.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Do: testenv.AnswerLost, Nth: 1})
	w.source.Produce(t, testenv.Records("orders", 4, 4, 2)...)
	w.arrived("orders", 104)
	s = w.until(p, "shown", "the doubt is resolved", func(st mirror.FlowState) bool { return st.Shards.Resolved == 1 }).Shards
	lost.MustHaveFired(t)
	if s.InDoubt != 1 || s.Fenced != 0 {
		t.Errorf("after a lost answer: %+v", *s)
	}

	for k := range 8 {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(fmt.Sprintf("onceover.shown.%d", k)), 10_000
		if resp, err := req.RequestWith(t.Context(), w.target.Client(t)); err != nil || resp.ErrorCode != 0 {
			t.Fatalf("fence shard %d: %v, %v", k, resp, err)
		}
	}
	w.source.Produce(t, testenv.Records("orders", 4, 4, 3)...)
	w.arrived("orders", 108)
	if s = p.Flow("shown").Shards; s.Fenced < 1 || s.Aborted < 1 {
		t.Errorf("after a fence: %+v", *s)
	}

	// Another process takes its part, and one that ends gives up what it had.
	q := w.start(f)
	w.until(q, "shown", "the other has its part", func(st mirror.FlowState) bool { return st.Shards != nil && len(st.Shards.Owned) == 4 })
	s = w.until(p, "shown", "half of it is given up", func(st mirror.FlowState) bool { return len(st.Shards.Owned) == 4 }).Shards
	for _, k := range q.Flow("shown").Shards.Owned {
		if slices.Contains(s.Owned, k) {
			t.Errorf("both have shard %d", k)
		}
	}
	q.Stop()
	w.until(p, "shown", "all of it is back", func(st mirror.FlowState) bool { return len(st.Shards.Owned) == 8 })
	if left := q.Flow("shown").Shards.Owned; len(left) != 0 {
		t.Errorf("a process that has ended owns %v", left)
	}
	// From outside, the ledger says how many there are and when it was written.
	if seen := w.status(f).Shards; seen == nil || seen.Total != 8 || len(seen.Owned) != 0 || seen.LastCommit.IsZero() {
		t.Errorf("seen from outside: %+v", seen)
	}
	p.Stop()
	w.same("orders", testenv.Compare{})
}
