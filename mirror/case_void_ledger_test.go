package mirror_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// What happens to a ledger while its flow runs, and while it is stopped, ends the
// flow with the reason; nothing is copied on its word.
func TestVoidLedgerAltered(t *testing.T) {
	ledger := txn.LedgerTopic("eo")
	alter := func(w *fakeWorld, key, value string) {
		if _, err := w.target.Admin(w.T).AlterTopicConfigs(w.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, ledger); err != nil {
			w.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		do    func(w *fakeWorld)
		words []string
	}{
		"deleted policy": {func(w *fakeWorld) { alter(w, "cleanup.policy", "delete") }, []string{"cleanup.policy"}},
		"partitions added": {func(w *fakeWorld) {
			if _, err := w.target.Admin(w.T).CreatePartitions(w.Context(), 2, ledger); err != nil {
				w.Fatal(err)
			}
		}, []string{"partitions"}},
		"recreated": {func(w *fakeWorld) {
			w.remove(ledger)
			policy := "compact"
			w.target.CreateTopic(w.T, ledger, 2, 1, map[string]*string{"cleanup.policy": &policy})
		}, nil},
		"deleted": {func(w *fakeWorld) { w.remove(ledger) }, nil},
	} {
		for _, running := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "/stopped", true: "/running"}[running], func(t *testing.T) {
				t.Parallel()
				inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
					w.give(2, 40, 1)
					l := w.live()
					w.copied(l)
					if !running {
						l.Stop()
					}
					c.do(w)
					if !running {
						l = w.live()
					}
					w.refusedWith(l, append([]string{"ledger"}, c.words...)...)
					w.more("t", 2, 40, 2)
					l = w.live()
					w.refusedWith(l, "ledger")
					if n := len(w.target.ReadAll(w.T, "t")); n != 40 {
						w.Errorf("%d records, want 40", n)
					}
				})
			})
		}
	}
}

// A ledger of another flow of the same name is not this flow's.
func TestVoidOtherFlow(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(w *fakeWorld)
		words []string
	}{
		"fingerprint": {func(w *fakeWorld) { w.flow.Rename = "copy.{topic}" }, []string{"declaration has changed", "mirror ledger accept"}},
		"shards":      {func(w *fakeWorld) { w.flow.Ledger.Shards = 4 }, []string{"ledger.shards is 4", "founded with 2"}},
		"source cluster": {func(w *fakeWorld) {
			w.source = testenv.Embedded(w.T, testenv.EmbeddedOptions{Network: w.network})
			w.give(2, 40, 2)
		}, []string{"belongs to a flow from cluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.give(2, 40, 1)
				l := w.live()
				w.copied(l)
				l.Stop()
				before := w.written()
				c.do(w)
				l = w.live()
				w.refusedWith(l, c.words...)
				if after := w.written(); after != before {
					w.Errorf("written %s, then %s", before, after)
				}
			})
		})
	}
}

// Two flows of one name on one target, from two sources: the second is refused,
// the first goes on.
func TestVoidTwoFlowsOfOneName(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 40, 1)
		one := w.live()
		w.copied(one)
		first := w.source
		w.source = testenv.Embedded(w.T, testenv.EmbeddedOptions{Network: w.network})
		w.give(2, 40, 2)
		two := w.liveAs("two")
		w.until(two.Process, "eo", "the second is refused", func(st mirror.FlowState) bool {
			return st.Phase == mirror.FlowStopped && says(st.Reason, "belongs to a flow from cluster")
		})
		w.source = first
		w.more("t", 2, 40, 3)
		w.copied(one)
		w.once(one)
	})
}

// A transaction of somebody else hangs in the ledger: the shard says which, and
// how to end it; the other shard goes on.
func TestVoidHangingTransaction(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		l.Stop()
		e := txn.Entry{Key: txn.Key{Kind: txn.KindSuspend}, Value: &txn.Suspend{Reason: "nobody", Time: time.Now().UnixMilli()}}
		key, value, err := e.Encode()
		if err != nil {
			w.Fatal(err)
		}
		cl := w.target.Client(w.T, kgo.TransactionalID("hangs"), kgo.TransactionTimeout(14*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := cl.BeginTransaction(); err != nil {
			w.Fatal(err)
		}
		if err := cl.ProduceSync(w.Context(), &kgo.Record{Topic: txn.LedgerTopic("eo"), Partition: 0, Key: key, Value: value}).FirstErr(); err != nil {
			w.Fatal(err)
		}
		w.more("t", 2, 40, 2)
		l = w.live()
		w.until(l.Process, "eo", "it is said", func(st mirror.FlowState) bool {
			for _, tr := range st.Troubles {
				if tr.Where == "shard 0" && says(tr.Reason, "hanging transaction", "kafka-transactions.sh", "--partition 0") {
					return true
				}
			}
			return false
		})
		w.until(l.Process, "eo", "the other shard goes on", func(st mirror.FlowState) bool { return st.Records == 20 })
		if err := cl.EndTransaction(w.Context(), kgo.TryAbort); err != nil {
			w.Fatal(err)
		}
		w.copied(l)
		w.once(l)
	})
}
