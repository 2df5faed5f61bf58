package mirror_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// The target's log is cut while the flow runs: copies go where there were copies
// before. The partition stops, and what went to the wrong place is not committed.
func TestTargetCutWhileRunning(t *testing.T) {
	for _, level := range []int16{2, 1} {
		t.Run(map[int16]string{2: "v2", 1: "v1"}[level], func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, level, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.flow.Ledger.Shards = 1 // the other partition is in the same transactions
				w.give(2, 40, 1)
				l := w.live()
				w.copied(l)
				id := w.target.Fake().TopicInfo("t").TopicID
				cut := w.target.Front().Arm(testenv.Fault{
					Keys: []kmsg.Key{kmsg.Produce}, Match: w.toTopic(0), Do: testenv.AlterAnswer,
					Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
						for _, rt := range resp.(*kmsg.ProduceResponse).Topics {
							for i := range rt.Partitions {
								if p := &rt.Partitions[i]; (rt.Topic == "t" || rt.TopicID == id) && p.Partition == 0 && p.ErrorCode == 0 {
									p.BaseOffset = 7
									return true
								}
							}
						}
						return false
					},
				})
				w.more("t", 2, 20, 2)
				w.reached(cut)
				w.halted(l, 0, "the target's log was cut", "on_target_recreate: refill")
				w.until(l.Process, "eo", "the other partition goes on", func(st mirror.FlowState) bool { return len(st.Partitions) > 1 && st.Partitions[1].Lag == 0 })
				l.Stop()
				if n := len(w.target.ReadAll(w.T, "t")); n != 50 {
					w.Errorf("%d records, want 50", n)
				}
				for _, row := range w.ledgerIn().Positions {
					if want := []int64{20, 30}[row.Partition]; row.Position != want {
						w.Errorf("t[%d] stands at %d, want %d", row.Partition, row.Position, want)
					}
				}
			})
		})
	}
}

// Where the target's log ends can't be told at the start: just then logs are cut.
// The partition waits, and stops when it is seen.
func TestTargetsEndUnknownCopiesNothing(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		l.Stop()
		leaderless := untold(w.target, logEnd, "t", 0)
		w.more("t", 2, 40, 2)
		l = w.live()
		w.has("t", 60) // the other partition is
		w.reached(leaderless)
		<-time.After(10 * time.Second)
		w.has("t", 60)
		shorter := w.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.ListOffsets}, Do: testenv.AlterAnswer, Times: -1, ClientID: "onceover",
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
				for _, rt := range resp.(*kmsg.ListOffsetsResponse).Topics {
					for i := range rt.Partitions {
						if p := &rt.Partitions[i]; rt.Topic == "t" && p.Partition == 0 && p.Offset > 15 {
							p.Offset = 15
							return true
						}
					}
				}
				return false
			},
		})
		leaderless.Disarm()
		w.halted(l, 0, "the target's log was cut", "ends at 15")
		shorter.MustHaveFired(w)
		l.Stop()
		w.has("t", 60)
	})
}

// marks are what the ledger has of the flow's partitions.
func (w *fakeWorld) marks() map[int32]txn.Mark {
	w.Helper()
	out := map[int32]txn.Mark{}
	cl := w.target.Client(w.T)
	for shard := range w.flow.Ledger.Shards {
		var ledger txn.Ledger
		if err := ledger.Read(w.Context(), cl, txn.LedgerTopic("eo"), int32(shard)); err != nil {
			w.Fatal(err)
		}
		for _, p := range ledger.Partitions() {
			out[p.Partition] = ledger.Mark(p)
		}
	}
	return out
}

// A position that is moved over what can't be copied stays tied to the target that
// has the copies before it: the entry keeps the topic and how far it had copies,
// and a target that is recreated after that is found.
func TestSkippingKeepsTheTarget(t *testing.T) {
	for name, lose := range map[string]func(*fakeWorld) (found func()){
		"gap": func(w *fakeWorld) func() {
			if err := w.source.Fake().DeleteRecords("t", 0, 30); err != nil {
				w.Fatal(err)
			}
			return func() {}
		},
		"unreadable": func(w *fakeWorld) func() {
			bad := spoil(20)
			return w.source.Front().Arm(testenv.Fault{
				Keys: []kmsg.Key{kmsg.Fetch}, Do: testenv.AlterAnswer, Times: -1, ClientID: "onceover",
				Alter: func(_ kmsg.Request, resp kmsg.Response) bool { return bad.change("", resp) },
			}).Disarm
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.flow.OnGap, w.flow.OnError = topology.OnGapSkip, topology.OnErrorSkip
				w.give(1, 20, 1)
				l := w.live()
				w.copied(l)
				l.Stop()
				was := w.marks()[0].Frontier
				w.more("t", 1, 10, 2)
				mend := lose(w)
				l = w.live()
				w.copied(l)
				l.Stop()
				mend()
				m := w.marks()[0]
				switch fr := m.Frontier; {
				case fr == nil:
					w.Error("no frontier behind the skip")
				case fr.Next != 30 || m.Start == nil || m.Start.Position != 30:
					w.Errorf("the skip leads to %d, %+v", fr.Next, m.Start)
				case fr.TargetTopicID != was.TargetTopicID || fr.TargetNext != was.TargetNext || fr.TargetTopicID == [16]byte{}:
					w.Errorf("the target was %x up to %d, is %x up to %d", was.TargetTopicID, was.TargetNext, fr.TargetTopicID, fr.TargetNext)
				}
				if n := len(w.target.ReadAll(w.T, "t")); n != 20 {
					w.Errorf("%d records, want 20", n)
				}
				w.renew(w.target, 1)
				l = w.live()
				w.halted(l, 0, "target topic t was deleted and created again")
			})
		})
	}
}

// The coordinator takes a transaction for ended, and the leader of the copies has
// no marker of it: an abort that comes later would take copies away that the
// ledger counts.
func TestCopiesWithoutMarkerStopThePartition(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.Ledger.Shards = 1
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		l.Stop()
		stable := w.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.ListOffsets}, Do: testenv.AlterAnswer, Times: -1,
			Alter: func(req kmsg.Request, resp kmsg.Response) bool {
				done := false
				for i, rt := range resp.(*kmsg.ListOffsetsResponse).Topics {
					for j := range rt.Partitions {
						p := &resp.(*kmsg.ListOffsetsResponse).Topics[i].Partitions[j]
						if rt.Topic == "t" && p.Partition == 0 && req.(*kmsg.ListOffsetsRequest).IsolationLevel == 1 {
							p.Offset, done = 5, true
						}
					}
				}
				return done
			},
		})
		open := w.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.DescribeProducers}, Do: testenv.AlterAnswer, Times: -1,
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
				d, err := w.target.Admin(w.T).DescribeTransactions(w.Context(), txn.ShardTxnID("eo", 0))
				if err != nil {
					return false
				}
				mine := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				mine.ProducerID, mine.CurrentTxnStartOffset = d[txn.ShardTxnID("eo", 0)].ProducerID, 5
				p := &resp.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0]
				p.ActiveProducers = append(p.ActiveProducers, mine)
				return true
			},
		})
		w.more("t", 2, 20, 2)
		l = w.live()
		w.reached(stable)
		w.reached(open)
		w.halted(l, 0, "no marker", "on_target_recreate: refill")
		w.until(l.Process, "eo", "the other partition goes on", func(st mirror.FlowState) bool { return len(st.Partitions) > 1 && st.Partitions[1].Lag == 0 })
		l.Stop()
		stable.Disarm()
		open.Disarm()
	})
}
