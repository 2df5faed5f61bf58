package mirror_test

import (
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// refusedWith waits until the flow is stopped for a reason with every word; its
// hint counts.
func (w *fakeWorld) refusedWith(l *life, words ...string) {
	w.Helper()
	w.until(l.Process, "eo", "the flow is refused", func(st mirror.FlowState) bool {
		return st.Phase == mirror.FlowStopped && says(st.Reason+" "+st.Hint, words...)
	})
}

// A transaction timeout above what the target's brokers permit is refused with
// their maximum, before anything is written.
func TestCase27BrokerMaximum(t *testing.T) {
	target := testenv.EmbeddedOptions{Configs: map[string]string{"transaction.max.timeout.ms": "20000"}}
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, target, func(w *fakeWorld) {
		w.give(2, 20, 27)
		w.flow.Transaction.Timeout = 25 * time.Second
		l := w.live()
		w.refusedWith(l, "transaction.timeout 25s", "at most 20s", "transaction.max.timeout.ms")
		if ts, err := w.target.Admin(w.T).ListTopics(w.Context()); err != nil || ts.Has(txn.LedgerTopic("eo")) {
			w.Errorf("topics on the target: %v, %v", ts.Names(), err)
		}
		w.flow.Transaction.Timeout = 20 * time.Second
		l = w.live()
		w.copied(l)
		w.once(l)
	})
}

// A topic that does not exist yet keeps nothing up: the flow runs, is stopped in
// time, and takes the topic up within a refresh of its appearance. So does a flow
// that has no topic at all.
func TestCase28TopicMissing(t *testing.T) {
	for _, topics := range [][]string{{"t", "t-missing"}, {"t-missing"}} {
		t.Run(topics[0], func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.flow.Topics.Include = topics
				w.flow.Start = topology.StartEarliest
				if len(topics) > 1 {
					w.give(2, 20, 28)
				}
				for range 2 {
					l := w.live()
					<-time.After(20 * time.Second)
					if st := l.Flow("eo"); st.Phase != mirror.FlowRunning && len(topics) > 1 || st.Phase == mirror.FlowStopped {
						w.Errorf("the flow is %s: %s", st.Phase, st.Reason)
					}
					began := time.Now()
					l.Stop()
					if took := time.Since(began); took > 10*time.Second {
						w.Errorf("stopped after %v", took)
					}
				}
				l := w.live()
				<-time.After(20 * time.Second)
				w.fill("t-missing", 1, 10, 280)
				<-time.After(w.flow.Limits.Refresh + 5*time.Second)
				w.same("t-missing", testenv.Compare{})
				began := time.Now()
				l.Stop()
				if took := time.Since(began); took > 10*time.Second {
					w.Errorf("stopped after %v", took)
				}
			})
		})
	}
}
