package mirror_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
)

// third matches every third commit.
func third() func(kmsg.Request) bool {
	var n atomic.Int64
	return func(req kmsg.Request) bool {
		return ofShards(req) && req.(*kmsg.EndTxnRequest).Commit && n.Add(1)%3 == 0
	}
}

// Every third commit is answered with an error that says nothing; behind it
// stands a commit, or none.
func TestCase17UnknownErrorOnCommit(t *testing.T) {
	for name, fault := range map[string]testenv.Fault{"committed": stepFaults["failed-yet-done"], "aborted": stepFaults["failed"]} {
		for _, level := range []int16{2, 1} {
			t.Run(fmt.Sprintf("%s/v%d", name, level), func(t *testing.T) {
				t.Parallel()
				inFakeTime(t, level, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
					w.give(2, 600, 17)
					fault.Keys, fault.Match, fault.Times = []kmsg.Key{kmsg.EndTxn}, third(), -1
					armed := w.target.Front().Arm(fault)
					began := time.Now()
					l := w.live()
					w.copied(l)
					// Who gets on in between is not made to wait longer each time.
					if took := time.Since(began); took > 5*time.Second {
						w.Errorf("copied after %v", took)
					}
					if n := armed.Fired(); n < 8 {
						w.Errorf("%d commits were answered with the error", n)
					}
					armed.Disarm()
					w.once(l)
				})
			})
		}
	}
}

// AddPartitionsToTxn (v1) fails for a partition behind others in a transaction
// that has copies already: it commits as a whole or not at all.
func TestCase25PartitionNotAdded(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.ConcurrentTransactions, kerr.UnknownServerError, kerr.TransactionAbortable} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 1, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.flow.Ledger.Shards = 1
				w.give(2, 200, 25)
				var n atomic.Int64
				armed := w.target.Front().Arm(testenv.Fault{
					Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Do: testenv.AlterAnswer, Times: -1, Match: ofShards,
					Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
						for _, rt := range resp.(*kmsg.AddPartitionsToTxnResponse).Topics {
							for i := range rt.Partitions {
								if rt.Topic == "t" && rt.Partitions[i].Partition == 1 && n.Add(1)%3 == 0 {
									rt.Partitions[i].ErrorCode = code.Code
									return true
								}
							}
						}
						return false
					},
				})
				l := w.live()
				w.copied(l)
				if armed.Fired() < 3 {
					w.Errorf("%v", armed)
				}
				armed.Disarm()
				w.once(l)
			})
		})
	}
}

// The level of transaction.version changes while the flow runs.
func TestCase26LevelChanges(t *testing.T) {
	inFakeTime(t, 0, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 100, 26)
		l := w.live()
		w.copied(l)
		for i, level := range []int16{1, 2, 1, 2} {
			w.target.SetTransactionVersion(w.T, level)
			w.more("t", 2, 100, 260+int64(i))
			w.copied(l)
		}
		w.once(l)
	})
}
