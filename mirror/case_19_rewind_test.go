package mirror_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// sent checks the order in which source records went over the wire: in each
// partition the next one follows the one before, or, after a transaction that
// was given up, the last one that a commit was asked for. from are the copies'
// originals. It returns how often a partition stepped back.
func (w *fakeWorld) sent(calls []testenv.Call, from []*kgo.Record) (back int) {
	w.Helper()
	offset := map[string]int64{}
	for _, rec := range from {
		offset[string(rec.Value)] = rec.Offset
	}
	last := map[int32]int64{}           // of a partition
	asked := map[int32]map[int64]bool{} // where a commit was asked for
	id := map[[16]byte]bool{w.target.Fake().TopicInfo("t").TopicID: true}
	for _, c := range calls {
		switch req := c.Request.(type) {
		case *kmsg.EndTxnRequest:
			for p, at := range last {
				if req.Commit && asked[p] != nil {
					asked[p][at] = true
				}
			}
		case *kmsg.ProduceRequest:
			for _, rt := range req.Topics {
				if rt.Topic != "t" && !id[rt.TopicID] {
					continue
				}
				for _, rp := range rt.Partitions {
					got := decoded(rp)
					if got.Err != nil || len(got.Records) == 0 {
						w.Fatalf("%d records of a produce request: %v", len(got.Records), got.Err)
					}
					if asked[rp.Partition] == nil {
						asked[rp.Partition], last[rp.Partition] = map[int64]bool{-1: true}, -1
					}
					first := offset[string(got.Records[0].Value)]
					switch before := last[rp.Partition]; {
					case first == before+1:
					case first > before+1:
						w.Errorf("t[%d]: offset %d was sent after %d", rp.Partition, first, before)
					case !asked[rp.Partition][first-1]:
						w.Errorf("t[%d]: went back from %d to %d, where nothing was committed", rp.Partition, before, first)
					default:
						back++
					}
					for i, rec := range got.Records {
						if at := offset[string(rec.Value)]; at != first+int64(i) {
							w.Errorf("t[%d]: offset %d was sent as number %d after %d", rp.Partition, at, i, first)
						}
					}
					last[rp.Partition] = first + int64(len(got.Records)) - 1
				}
			}
		}
	}
	return back
}

// aborts makes one in n transactional requests fail, at random.
func (w *fakeWorld) aborts(seed uint64, n int) *testenv.Armed {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	fault := stepFaults["failed"]
	var mu sync.Mutex
	fault.Keys, fault.Times = []kmsg.Key{kmsg.Produce, kmsg.EndTxn}, -1
	fault.Match = func(req kmsg.Request) bool {
		if !ofFlow(req) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n) == 0
	}
	return w.target.Front().Arm(fault)
}

// ofFlow matches the transactional requests of a flow "eo" of up to 16 shards.
func ofFlow(req kmsg.Request) bool {
	for k := range 16 {
		if testenv.OfTransaction(txn.ShardTxnID("eo", k))(req) {
			return true
		}
	}
	return false
}

// Transactions are aborted while leaders at the source move, and the client's
// questions about epochs are answered late: what is sent after an abort follows
// the last commit.
func TestCase19RewindAndLeaderMoves(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{Nodes: 3}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		const rounds = 100
		seed := rand.Uint64()
		w.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 19))
		w.flow.Ledger.Shards = 1
		late := w.source.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Do: testenv.DelayAnswer, Delay: 300 * time.Millisecond, Times: -1})
		calls := w.target.Front().Watch(kmsg.Produce, kmsg.EndTxn)
		w.give(3, 60, 19)
		l := w.live()
		w.copied(l)
		failing := w.aborts(seed, 3)
		for i := range rounds {
			w.more("t", 3, 50, 1900+int64(i))
			<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond)
			w.source.MoveLeader(w.T, "t", 0, int32(i%3))
			<-time.After(time.Duration(rng.IntN(400)) * time.Millisecond)
		}
		failing.Disarm()
		w.copied(l)
		back := w.sent(calls.Of(ofFlow), w.source.ReadAll(w.T, "t"))
		w.Logf("%d requests failed, %d steps back, %d late answers about epochs", failing.Fired(), back, late.Fired())
		if failing.Fired() < 20 || back < 20 || late.Fired() < 20 {
			w.Error("too little happened")
		}
		w.once(l)
	})
}

// A third process comes and goes while transactions abort: nothing that was read
// ahead is sent after the position has moved back, or elsewhere.
func TestCase20RebalancesAndAborts(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		seed := rand.Uint64()
		w.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 20))
		w.flow.Ledger.Shards = 6
		calls := w.target.Front().Watch(kmsg.Produce, kmsg.EndTxn)
		w.give(12, 240, 20)
		one, two := w.liveAs("one"), w.liveAs("two")
		w.copied(one)
		failing := w.aborts(seed, 20)
		for i := range 6 {
			third := w.liveAs("three")
			for j := range 20 {
				w.more("t", 12, 48, 20_000+int64(i*100+j))
				<-time.After(time.Duration(rng.IntN(500)) * time.Millisecond)
			}
			if i%3 == 2 {
				third.kill()
			} else {
				third.Stop()
			}
		}
		failing.Disarm()
		w.copied(one)
		w.copied(two)
		back := w.sent(calls.Of(ofFlow), w.source.ReadAll(w.T, "t"))
		w.Logf("%d requests failed, %d steps back", failing.Fired(), back)
		if failing.Fired() < 20 || back < 20 {
			w.Error("too little happened")
		}
		two.Stop()
		w.once(one)
	})
}

// The end of a transaction comes to the broker, or shows in the ledger, only
// after its writer died: the next owner waits for it, and copies nothing twice.
func TestCase21PositionsBehindTheFence(t *testing.T) {
	late := testenv.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Match: ofShards, Nth: 5}
	for name, arm := range map[string]func(w *fakeWorld) *testenv.Armed{
		"commit on its way": func(w *fakeWorld) *testenv.Armed {
			late := late
			late.Do, late.Delay = testenv.DelayRequest, 2*time.Second
			return w.target.Front().Arm(late)
		},
		"commit not answered": func(w *fakeWorld) *testenv.Armed {
			late := late
			late.Do = testenv.AnswerLost
			return w.target.Front().Arm(late)
		},
	} {
		for _, level := range []int16{2, 1} {
			t.Run(fmt.Sprintf("%s/v%d", name, level), func(t *testing.T) {
				t.Parallel()
				inFakeTime(t, level, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
					w.give(2, 200, 21)
					armed := arm(w)
					l := w.live()
					if w.copiedOr(l, armed.Reached()) {
						w.Fatal("nothing was late")
					}
					l.kill()
					// The leader of the ledger does not show its last records for a while.
					front := w.target.Front()
					for shard := range int32(2) {
						ends, err := w.target.Admin(w.T).ListEndOffsets(w.Context(), txn.LedgerTopic("eo"))
						if err != nil {
							w.Fatal(err)
						}
						end, _ := ends.Lookup(txn.LedgerTopic("eo"), shard)
						front.Arm(front.HighWatermarkStale(txn.LedgerTopic("eo"), shard, end.Offset-1, 20))
						front.Arm(testenv.HighWatermarkLags(txn.LedgerTopic("eo"), shard, 3))
					}
					l = w.live()
					w.copied(l)
					w.once(l)
				})
			})
		}
	}
}
