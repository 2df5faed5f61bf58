package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
)

// toTopic matches produce requests of the flow that have copies for the given
// partitions of "t", for all without any.
func (w *fakeWorld) toTopic(partitions ...int32) func(kmsg.Request) bool {
	id := w.target.Fake().TopicInfo("t").TopicID
	return func(kreq kmsg.Request) bool {
		req, ok := kreq.(*kmsg.ProduceRequest)
		if !ok || !ofFlow(req) {
			return false
		}
		for _, rt := range req.Topics {
			for _, rp := range rt.Partitions {
				if (rt.Topic == "t" || rt.TopicID == id) && (len(partitions) == 0 || rp.Partition == partitions[0]) {
					return true
				}
			}
		}
		return false
	}
}

// lastStable is the sum of the last stable offsets of "t", and of its ends.
func (w *fakeWorld) lastStable() (stable, end int64) {
	w.Helper()
	adm := w.target.Admin(w.T)
	s, err := adm.ListCommittedOffsets(w.Context(), "t")
	if err != nil {
		w.Fatal(err)
	}
	e, err := adm.ListEndOffsets(w.Context(), "t")
	if err != nil {
		w.Fatal(err)
	}
	for _, o := range s.Offsets().Sorted() {
		stable += o.At
	}
	for _, o := range e.Offsets().Sorted() {
		end += o.At
	}
	return stable, end
}

// Every produce of a batch is answered NOT_ENOUGH_REPLICAS until patience ends,
// while the partitions joined the transaction, or even have the data: it is
// ended over the wire, and the last stable offset moves on.
func TestCase24EveryProduceFails(t *testing.T) {
	for _, level := range []int16{2, 1} {
		t.Run(fmt.Sprintf("v%d", level), func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, level, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.give(2, 100, 24)
				l := w.live()
				w.copied(l)
				behind := testenv.Fault{
					Keys: []kmsg.Key{kmsg.Produce}, Match: w.toTopic(), Times: -1, Do: testenv.AlterAnswer,
					Alter: func(_ kmsg.Request, resp kmsg.Response) bool { return coded(resp, kerr.NotEnoughReplicasAfterAppend) },
				}
				failing := w.target.Front().Arm(behind)
				rec := w.target.Front().Watch(testenv.TxnKeys...)
				w.more("t", 2, 20, 240)
				w.reached(failing)
				if stable, end := w.lastStable(); stable == end {
					w.Error("no transaction is open")
				}
				if _, err := rec.Wait(w.Context(), func(req kmsg.Request) bool { return req.Key() == int16(kmsg.InitProducerID) }); err != nil {
					w.Fatal(err)
				}
				failing.Disarm()
				<-time.After(2 * time.Second)
				if stable, end := w.lastStable(); stable != end {
					w.Errorf("the target is stable up to %d of %d", stable, end)
				}
				w.copied(l)
				w.once(l)
			})
		})
	}
}

// One partition of four answers NOT_LEADER for a whole batch: the transaction is
// given up and done again as a whole.
func TestCase29OnePartitionFails(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.Ledger.Shards = 1
		w.flow.Limits.Records = 40
		w.give(4, 40, 29)
		l := w.live()
		w.copied(l)
		calls := w.target.Front().Watch(kmsg.Produce, kmsg.EndTxn, kmsg.InitProducerID)
		failing := w.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Match: w.toTopic(2), Times: -1, Do: testenv.AlterAnswer,
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
				done := false
				for _, rt := range resp.(*kmsg.ProduceResponse).Topics {
					for i := range rt.Partitions {
						if rt.Partitions[i].Partition == 2 {
							rt.Partitions[i].ErrorCode, rt.Partitions[i].BaseOffset = kerr.NotLeaderForPartition.Code, -1
							done = true
						}
					}
				}
				return done
			},
		})
		w.more("t", 4, 400, 290)
		if _, err := calls.Wait(w.Context(), func(req kmsg.Request) bool { return req.Key() == int16(kmsg.InitProducerID) }); err != nil {
			w.Fatal(err)
		}
		failing.Disarm()
		w.copied(l)
		w.once(l)
	})
}

// A record fails once with an error that no repetition mends; the ones behind it
// do not pass it.
func TestCase44OneRecordFailsOnce(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.InvalidRecord, kerr.PolicyViolation, kerr.MessageTooLarge, kerr.UnknownServerError} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.give(1, 100, 44)
				failing := w.target.Front().Arm(testenv.Fault{
					Keys: []kmsg.Key{kmsg.Produce}, Nth: 5, Do: testenv.AnswerInstead,
					Match: func(req kmsg.Request) bool {
						return req.Key() == int16(kmsg.Produce) && ofShards(req) && len(w.copiesIn(req)) > 0
					},
					Answer: func(req kmsg.Request) kmsg.Response { return denial(req, code) },
				})
				l := w.live()
				w.copied(l)
				failing.MustHaveFired(w)
				w.once(l)
			})
		})
	}
}

// decoded are the records of a partition in a produce request.
func decoded(p kmsg.ProduceRequestTopicPartition) kgo.FetchPartition {
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", Partition: p.Partition, IsolationLevel: kgo.ReadUncommitted()},
		&kmsg.FetchResponseTopicPartition{Partition: p.Partition, RecordBatches: p.Records}, decompressor, nil)
	return got
}

var decompressor = kgo.DefaultDecompressor()

// copiesIn are the records for "t" in a produce request.
func (w *fakeWorld) copiesIn(kreq kmsg.Request) (out []*kgo.Record) {
	info := w.target.Fake().TopicInfo("t")
	if info == nil {
		return nil
	}
	for _, rt := range kreq.(*kmsg.ProduceRequest).Topics {
		for _, rp := range rt.Partitions {
			if rt.Topic != "t" && rt.TopicID != info.TopicID {
				continue
			}
			out = append(out, decoded(rp).Records...)
		}
	}
	return out
}

// refusing answers produce requests that hold a matching record with an error,
// for as long as it is armed.
func (w *fakeWorld) refusing(code *kerr.Error, match func(*kgo.Record) bool) *testenv.Armed {
	return w.target.Front().Arm(testenv.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Times: -1, Do: testenv.AnswerInstead,
		Match: func(req kmsg.Request) bool {
			if !ofShards(req) {
				return false
			}
			for _, rec := range w.copiesIn(req) {
				if match(rec) {
					return true
				}
			}
			return false
		},
		Answer: func(req kmsg.Request) kmsg.Response { return denial(req, code) },
	})
}
