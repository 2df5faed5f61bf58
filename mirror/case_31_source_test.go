package mirror_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// The source lists aborted transactions with the last one first: what is between
// two of them is copied, and they are not.
func TestCase31AbortedListReversed(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.source.CreateTopic(w.T, "t", 1, 1, nil)
		cl := w.source.Client(w.T, kgo.TransactionalID("app"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		rs := testenv.Records("t", 1, 60, 31)
		for i := 0; i < len(rs); i += 2 {
			if err := cl.BeginTransaction(); err != nil {
				w.Fatal(err)
			}
			if err := cl.ProduceSync(w.Context(), rs[i:i+2]...).FirstErr(); err != nil {
				w.Fatal(err)
			}
			if err := cl.EndTransaction(w.Context(), kgo.TransactionEndTry(i%4 != 0)); err != nil {
				w.Fatal(err)
			}
		}
		w.source.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Do: testenv.AlterAnswer, Times: -1, ClientID: "onceover",
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
				done := false
				for _, rt := range resp.(*kmsg.FetchResponse).Topics {
					for _, rp := range rt.Partitions {
						slices.Reverse(rp.AbortedTransactions)
						done = done || len(rp.AbortedTransactions) > 1
					}
				}
				return done
			},
		})
		l := w.live()
		w.copied(l)
		if n := len(w.target.ReadAll(w.T, "t")); n != 30 {
			w.Errorf("%d records, want 30", n)
		}
		w.once(l)
	})
}

// The reader is sent to a follower and back, again and again; the follower is
// behind, and its log begins later.
func TestCase47FollowerAndBackExactly(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{Nodes: 2}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		const n = 2000
		w.give(2, 100, 47)
		fake := w.source.Fake()
		leader := fake.LeaderFor("t", 0)
		follower := 1 - leader
		if err := fake.MoveTopicPartition("t", 1, follower); err != nil {
			w.Fatal(err)
		}
		fake.SetFollowers("t", 0, []int32{follower})
		every := func(nth int64, change func(*kmsg.FetchResponseTopicPartition)) func(kmsg.Request, kmsg.Response) bool {
			var calls atomic.Int64
			return func(_ kmsg.Request, resp kmsg.Response) bool {
				for _, rt := range resp.(*kmsg.FetchResponse).Topics {
					for i := range rt.Partitions {
						if p := &rt.Partitions[i]; p.Partition == 0 && len(p.RecordBatches) > 0 && calls.Add(1)%nth == 0 {
							change(p)
							return true
						}
					}
				}
				return false
			}
		}
		there := w.source.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Do: testenv.AlterAnswer, Times: -1, Nodes: []int32{leader},
			Alter: every(2, func(p *kmsg.FetchResponseTopicPartition) { p.PreferredReadReplica, p.RecordBatches = follower, nil }),
		})
		back := w.source.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Do: testenv.AlterAnswer, Times: -1, Nodes: []int32{follower},
			Alter: every(3, func(p *kmsg.FetchResponseTopicPartition) {
				p.ErrorCode, p.LogStartOffset, p.RecordBatches = kerr.OffsetOutOfRange.Code, n, nil
			}),
		})
		w.flow.Properties = map[string]topology.Value{"consumer.override.client.rack": {Text: "krack"}}
		l := w.live()
		for i := range int64(n / 100) {
			w.more("t", 2, 100, 4700+i)
			w.copied(l)
		}
		if there.Fired() < 2 || back.Fired() < 2 {
			w.Errorf("%v, %v", there, back)
		}
		w.once(l)
	})
}

// A source that gives no leader epochs: positions move on, restarts repeat
// nothing, and it is said once a process that truncation can't be told.
func TestCase49NoLeaderEpochsExactly(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 100, 49)
		w.source.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Metadata, kmsg.Fetch, kmsg.ListOffsets}, Do: testenv.AlterAnswer, Times: -1,
			Alter: func(_ kmsg.Request, kresp kmsg.Response) bool {
				switch resp := kresp.(type) {
				case *kmsg.MetadataResponse:
					for i := range resp.Topics {
						for j := range resp.Topics[i].Partitions {
							resp.Topics[i].Partitions[j].LeaderEpoch = -1
						}
					}
				case *kmsg.ListOffsetsResponse:
					for i := range resp.Topics {
						for j := range resp.Topics[i].Partitions {
							resp.Topics[i].Partitions[j].LeaderEpoch = -1
						}
					}
				case *kmsg.FetchResponse:
					for _, rt := range resp.Topics {
						for _, rp := range rt.Partitions {
							withoutEpochs(rp.RecordBatches)
						}
					}
				}
				return true
			},
		})
		for i := range int64(3) {
			l := w.live()
			w.copied(l)
			l.Stop()
			w.more("t", 2, 100, 490+i)
		}
		l := w.live()
		w.copied(l)
		if n := l.log.count("gives no leader epochs"); n < 1 || n > 2 {
			w.Errorf("it is said %d times that truncation can't be told", n)
		}
		w.once(l)
	})
}

// withoutEpochs sets the leader epoch of record batches to -1; it is not covered
// by their checksum.
func withoutEpochs(batches []byte) {
	for at := 0; at+16 <= len(batches); {
		copy(batches[at+12:at+16], "\xff\xff\xff\xff")
		at += 12 + int(uint32(batches[at+8])<<24|uint32(batches[at+9])<<16|uint32(batches[at+10])<<8|uint32(batches[at+11]))
	}
}
