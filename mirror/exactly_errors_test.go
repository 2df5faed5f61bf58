package mirror_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// Timestamps of ListOffsets for the two ends of a log.
const (
	logStart int64 = -2
	logEnd   int64 = -1
)

// untold has a cluster not know one end of a partition's log for the flow, for as
// long as it is armed.
func untold(c *testenv.Cluster, end int64, topic string, partition int32) *testenv.Armed {
	return c.Front().Arm(testenv.Fault{
		Keys: []kmsg.Key{kmsg.ListOffsets}, Do: testenv.AlterAnswer, Times: -1, ClientID: "onceover",
		Alter: func(kreq kmsg.Request, kresp kmsg.Response) bool {
			if kreq.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp != end {
				return false
			}
			for _, rt := range kresp.(*kmsg.ListOffsetsResponse).Topics {
				for i := range rt.Partitions {
					if p := &rt.Partitions[i]; rt.Topic == topic && p.Partition == partition {
						p.ErrorCode, p.Offset, p.Timestamp, p.LeaderEpoch = kerr.OffsetNotAvailable.Code, -1, -1, -1
						return true
					}
				}
			}
			return false
		},
	})
}

// has waits until the target has n records of a topic, and fails on more.
func (w *fakeWorld) has(topic string, n int) {
	w.Helper()
	if got := len(w.arrived(topic, n)); got != n {
		w.Errorf("%s has %d records on the target, want %d", topic, got, n)
	}
}

// complains waits until a lane or so says what keeps it from working.
func (w *fakeWorld) complains(l *life, where string, words ...string) {
	w.Helper()
	w.until(l.Process, "eo", where+" says so", func(st mirror.FlowState) bool {
		for _, tr := range st.Troubles {
			if tr.Where == where && says(tr.Reason, words...) {
				return true
			}
		}
		return false
	})
}

// A lane fails while no transaction is open, long after it has read its ledger:
// it goes on from where it stands, not from where it stood then.
func TestErrorBetweenTransactionsCopiesNothingTwice(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.Ledger.Shards = 1
		w.flow.Topics.Include = []string{"t", "late"}
		w.give(1, 10, 1)
		l := w.live()
		w.copied(l)
		l.Stop()
		l = w.live()
		w.copied(l)
		w.more("t", 1, 90, 2)
		w.copied(l)
		// Nobody says where the new topic begins.
		held := w.source.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.ListOffsets}, Do: testenv.HoldRequest, Times: -1, ClientID: "onceover",
			Match: func(kreq kmsg.Request) bool {
				ts := kreq.(*kmsg.ListOffsetsRequest).Topics
				return len(ts) == 1 && ts[0].Topic == "late" && ts[0].Partitions[0].Timestamp == logStart
			},
		})
		w.fill("late", 1, 10, 3)
		w.until(l.Process, "eo", "the lane begins anew", func(st mirror.FlowState) bool { return st.Retries > 0 })
		held.MustHaveFired(w)
		held.Disarm()
		w.has("late", 10)
		w.more("t", 1, 10, 4) // behind whatever is read twice
		w.has("t", 110)
		w.once(l)
	})
}

// A topic that is gone from the target is blocked with its reason. The others of
// the shard go on, under v1 also although a transaction is refused all partitions
// because of one.
func TestMissingTargetHoldsUpNoOther(t *testing.T) {
	for _, level := range []int16{2, 1} {
		t.Run(fmt.Sprintf("v%d", level), func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, level, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.flow.Ledger.Shards = 1
				w.flow.Topics.Include = []string{"t", "gone"}
				w.flow.Create.Enabled = false
				w.flow.Limits.Refresh = time.Minute // nobody looks: the transaction finds out
				w.flow.Transaction.Timeout = 6 * time.Second
				for _, topic := range w.flow.Topics.Include {
					w.target.CreateTopic(w.T, topic, 1, -1, nil)
					w.fill(topic, 1, 20, 1)
				}
				l := w.live()
				w.has("t", 20)
				w.has("gone", 20)
				w.remove("gone")
				tries := w.target.Front().Watch(kmsg.InitProducerID)
				w.more("gone", 1, 10, 2)
				w.more("t", 1, 10, 3)
				began := time.Now()
				w.has("t", 30)
				if took := time.Since(began); took > 15*time.Second {
					w.Errorf("copied after %v", took)
				}
				if len(tries.Calls()) == 0 {
					w.Error("the missing topic was in no transaction")
				}
				w.until(l.Process, "eo", "the reason is said", func(st mirror.FlowState) bool {
					for _, ts := range st.Topics {
						if ts.Topic == "gone" && !ts.Ready && ts.Reason != "" {
							return true
						}
					}
					return false
				})
			})
		})
	}
}

// TRANSACTION_ABORTABLE is about the transaction: a record that was alone in a
// batch is not refused by it, and not skipped.
func TestAbortableSkipsNothing(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.OnError = topology.OnErrorSkip
		w.give(1, 20, 1)
		l := w.live()
		w.copied(l)
		failing := w.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Match: w.toTopic(), Do: testenv.AlterAnswer, Times: 3,
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool { return coded(resp, kerr.TransactionAbortable) },
		})
		w.more("t", 1, 1, 2)
		w.reached(failing)
		w.copied(l)
		if st := l.Flow("eo"); st.Skipped != 0 {
			w.Errorf("%d records skipped", st.Skipped)
		}
		w.once(l)
	})
}

// A coordinator that can't be reached blocks no topic: once it is back, what waits
// is copied, long before the flow looks at its topics again.
func TestCoordinatorsErrorBlocksNoTopic(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.Limits.Refresh = 2 * time.Minute
		w.flow.Transaction.Timeout = 5 * time.Second
		w.give(1, 20, 1)
		l := w.live()
		w.has("t", 20)
		failing := w.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Match: w.toTopic(), Do: testenv.AlterAnswer, Times: -1,
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool { return coded(resp, kerr.CoordinatorNotAvailable) },
		})
		fences := w.target.Front().Watch(kmsg.InitProducerID)
		w.more("t", 1, 10, 2)
		if _, err := fences.Wait(w.Context(), ofShards); err != nil { // the transaction has lost patience
			w.Fatal(err)
		}
		failing.Disarm()
		began := time.Now()
		w.has("t", 30)
		if took := time.Since(began); took > 10*time.Second {
			w.Errorf("copied after %v; the topics are %+v", took, l.Flow("eo").Topics)
		}
		w.once(l)
	})
}

// Whoever was fenced in the middle of a transaction fences nobody as long as the
// group can't be asked whose the shard is.
func TestFencedLaneWaitsForTheGroup(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.Ledger.Shards = 1
		w.give(1, 20, 1)
		l := w.live()
		w.copied(l)
		silent := w.target.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Do: testenv.HoldRequest, Times: -1})
		w.reached(silent)
		req := kmsg.NewPtrInitProducerIDRequest()
		id := txn.ShardTxnID("eo", 0)
		req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 30_000, -1, -1
		if resp, err := req.RequestWith(w.Context(), w.target.Client(w.T)); err != nil || resp.ErrorCode != 0 {
			w.Fatalf("%v, %+v", err, resp)
		}
		fences := w.target.Front().Watch(kmsg.InitProducerID)
		w.more("t", 1, 10, 2)
		w.until(l.Process, "eo", "the lane is fenced", func(st mirror.FlowState) bool { return st.Shards != nil && st.Shards.Fenced > 0 })
		<-time.After(4 * time.Second) // less than the group's session
		if n := len(fences.Calls()); n > 0 {
			w.Errorf("it has fenced %d times, unasked", n)
		}
		silent.Disarm()
		w.copied(l)
		if len(fences.Calls()) == 0 {
			w.Error("copied without a fence")
		}
		w.once(l)
	})
}

// One look at the ledger's topics finds what a broker has not heard of yet: that
// ends nothing, unless the next looks find the same.
func TestOneStaleLookEndsNothing(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		stale := testenv.Fault{
			Keys: []kmsg.Key{kmsg.Metadata}, Do: testenv.AlterAnswer, Times: 2, ClientID: "onceover",
			Match: func(req kmsg.Request) bool { return req.(*kmsg.MetadataRequest).IncludeTopicAuthorizedOperations },
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
				for i := range resp.(*kmsg.MetadataResponse).Topics {
					m := &resp.(*kmsg.MetadataResponse).Topics[i]
					if m.Topic != nil && *m.Topic == txn.LedgerTopic("eo") {
						m.ErrorCode, m.Partitions, m.TopicID = kerr.UnknownTopicOrPartition.Code, nil, [16]byte{}
						return true
					}
				}
				return false
			},
		}
		twice := w.target.Front().Arm(stale)
		w.reached(twice)
		<-time.After(20 * w.flow.Limits.Refresh)
		if st := l.Flow("eo"); st.Phase != mirror.FlowRunning || twice.Fired() != 2 {
			w.Errorf("%s after %d stale answers: %s", st.Phase, twice.Fired(), st.Reason)
		}
		w.more("t", 2, 40, 2)
		w.copied(l)
		stale.Times = -1
		w.target.Front().Arm(stale)
		w.refusedWith(l, "ledger")
	})
}

// A target that answers "later" to the fence for ever is seen as what keeps the
// flow up, as long as it does.
func TestFenceThatWaitsIsSaid(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 40, 1)
		busy := w.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.InitProducerID}, Match: ofShards, Do: testenv.AlterAnswer, Times: -1,
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool { return coded(resp, kerr.ConcurrentTransactions) },
		})
		l := w.live()
		for _, shard := range []string{"shard 0", "shard 1"} {
			w.complains(l, shard+" target", "nothing written since", "CONCURRENT_TRANSACTIONS")
		}
		busy.MustHaveFired(w)
		busy.Disarm()
		w.copied(l)
		w.until(l.Process, "eo", "no more is said", func(st mirror.FlowState) bool {
			for _, tr := range st.Troubles {
				if strings.HasPrefix(tr.Where, "shard ") {
					return false
				}
			}
			return true
		})
		w.once(l)
	})
}
