package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// The transaction with which a flow begins does not commit, again and again. The
// markers of what was given up are not taken for copies of an earlier run.
func TestFoundingIsTriedAgain(t *testing.T) {
	for _, level := range []int16{2, 1} {
		t.Run(fmt.Sprintf("v%d", level), func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, level, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.flow.Ledger.Shards = 1
				w.give(1, 40, 1)
				lost := w.target.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Match: testenv.Commits(txn.ShardTxnID("eo", 0)), Do: testenv.CutBefore, Times: -1})
				l := w.live()
				w.until(l.Process, "eo", "it is tried again", func(st mirror.FlowState) bool { return st.Retries >= 3 })
				lost.MustHaveFired(w)
				// One that had copies leaves its marker in the map, under v2 also.
				w.aborted(txn.MapTopic("eo"))
				lost.Disarm()
				w.copied(l)
				w.once(l)
			})
		})
	}
}

// aborted leaves an aborted transaction in partition 0 of a target topic.
func (w *fakeWorld) aborted(topic string) {
	w.Helper()
	cl := w.target.Client(w.T, kgo.TransactionalID("aborts"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	err := cl.BeginTransaction()
	if err == nil {
		err = cl.ProduceSync(w.Context(), &kgo.Record{Topic: topic, Value: []byte("nothing")}).FirstErr()
	}
	if err == nil {
		err = cl.EndTransaction(w.Context(), kgo.TryAbort)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// When a flow begins, a partition without a leader keeps all from beginning:
// later it would count as one that appeared while the flow ran, and be copied
// from its start although an earlier run has copied most of it.
func TestFoundingWaitsForEveryPartition(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.Ledger.Shards = 1
		w.give(2, 40, 1)
		set, err := w.topologyOf(w.flow).Resolve(w.flow)
		if err != nil {
			w.Fatal(err)
		}
		var earlier kadm.Offsets
		earlier.AddOffset("t", 0, 5, -1)
		earlier.AddOffset("t", 1, 13, -1)
		if _, err := w.source.Admin(w.T).CommitOffsets(w.Context(), set.GroupID, earlier); err != nil {
			w.Fatal(err)
		}
		leaderless := untold(w.source, logStart, "t", 1)
		ends := w.target.Front().Watch(kmsg.EndTxn)
		l := w.live()
		w.complains(l, "shard 0", "no offsets of t[1]")
		<-time.After(5 * time.Second)
		if n := len(ends.Of(testenv.Commits(txn.ShardTxnID("eo", 0)))); n > 0 {
			w.Errorf("%d commits meanwhile", n)
		}
		leaderless.MustHaveFired(w)
		leaderless.Disarm()
		w.has("t", 15+7)
		w.copied(l)
		l.Stop()
		for _, row := range w.ledgerIn().Positions {
			if want := []int64{5, 13}[row.Partition]; row.Start == nil || row.Start.Position != want || !row.Start.Prior {
				w.Errorf("t[%d] began at %+v, want %d", row.Partition, row.Start, want)
			}
		}
	})
}

// A flow of very many shards begins over a line that takes a while for each
// answer: its ledger is not read one partition after the other.
func TestManyShardsStart(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.Ledger.Shards = 300
		far := w.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.ListOffsets, kmsg.Fetch}, Do: testenv.DelayAnswer, Delay: 5 * time.Millisecond, Times: -1, ClientID: "onceover",
		})
		w.give(1, 20, 1)
		began := time.Now()
		l := w.live()
		w.until(l.Process, "eo", "the flow runs", func(st mirror.FlowState) bool { return st.Phase == mirror.FlowRunning })
		if took := time.Since(began); took > time.Second {
			w.Errorf("running after %v", took)
		}
		w.copied(l)
		if took := time.Since(began); took > 20*time.Second {
			w.Errorf("copied after %v, %d late answers", took, far.Fired())
		}
		w.has("t", 20)
	})
}
