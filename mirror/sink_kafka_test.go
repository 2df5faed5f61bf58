package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/testenv"
)

// openSink opens a Kafka sink with short patience. The options are those of a
// flow without overrides.
func openSink(t *testing.T, c *testenv.Cluster, more ...kgo.Opt) *kafkaSink {
	t.Helper()
	s := newKafkaSink(func() ([]kgo.Opt, error) {
		opts, err := clientOpts(c.Topology("target"), &Options{Dial: c.Dial()})
		return append(opts, more...), err
	})
	s.patience, s.notice, s.missing = time.Second, 200*time.Millisecond, time.Hour
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil { //nolint:usetesting // the test's context has ended
			t.Error(err)
		}
	})
	return s
}

func mustPut(t *testing.T, s Sink, recs []*kgo.Record) {
	t.Helper()
	if err := s.Put(t.Context(), recs); err != nil {
		t.Fatal(err)
	}
}

// putUntil puts what is not written yet again and again, as a lane does.
func putUntil(t *testing.T, s Sink, recs []*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		failed := failures(t, s.Put(ctx, recs))
		if len(failed) == 0 {
			return
		}
		var again []*kgo.Record
		for i, rec := range recs {
			if err := failed[i]; err != nil {
				if !IsRetriable(err) {
					t.Fatalf("record %d: %v", i, err)
				}
				again = append(again, rec)
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%d records not written: %v", len(again), failed)
		}
		recs = again
		if sleep(ctx, 50*time.Millisecond) != nil {
			t.Fatal("not written in time")
		}
	}
}

// failures returns the records that a Put named.
func failures(t *testing.T, err error) map[int]error {
	t.Helper()
	if err == nil {
		return nil
	}
	var some *PutError
	if !errors.As(err, &some) {
		t.Fatalf("expected a PutError, got %v", err)
	}
	return some.Failed
}

func wantFailed(t *testing.T, got map[int]error, want []int, is error) {
	t.Helper()
	for _, i := range want {
		if !errors.Is(got[i], is) || IsRetriable(got[i]) {
			t.Errorf("record %d: got %v, want %v for good", i, got[i], is)
		}
	}
	for i, err := range got {
		if !slices.Contains(want, i) {
			t.Errorf("record %d is not to blame: %v", i, err)
		}
	}
}

func allBut(recs []*kgo.Record, which []int) []*kgo.Record {
	var rest []*kgo.Record
	for i, rec := range recs {
		if !slices.Contains(which, i) {
			rest = append(rest, rec)
		}
	}
	return rest
}

// noise does not compress.
func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// sized gives each record a value of that many bytes that do not compress.
func sized(recs []*kgo.Record, seed uint64, size func(i int) int) []*kgo.Record {
	rng := rand.New(rand.NewPCG(seed, 0))
	for i, rec := range recs {
		rec.Value = append([]byte(strconv.Itoa(i)+" "), noise(rng, size(i))...)
	}
	return recs
}

// targets runs a test on embedded and on real clusters.
func targets(t *testing.T, test func(t *testing.T, c *testenv.Cluster)) {
	t.Run("embedded", func(t *testing.T) { test(t, testenv.Embedded(t)) })
	t.Run("embedded 2.8", func(t *testing.T) { test(t, testenv.Embedded(t, testenv.Old(kversion.V2_8_0()))) })
	t.Run("real", func(t *testing.T) { test(t, testenv.Real(t, "4.4.0")) })
}

func configs(kv ...string) map[string]*string {
	m := map[string]*string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = &kv[i+1]
	}
	return m
}

func TestKafkaSink(t *testing.T) {
	targets(t, func(t *testing.T, c *testenv.Cluster) {
		for name, test := range map[string]func(*testing.T, *testenv.Cluster){
			"as given":                  testAsGiven,
			"case 36, one oversized":    testOversized,
			"large but allowed":         testLarge,
			"small limit":               testSmallLimit,
			"case 37, without key":      testKeyless,
			"topic appears":             testTopicAppears,
			"topic made again":          testTopicMadeAgain,
			"partitions appear":         testPartitionsAppear,
			"ended context":             testEndedContext,
			"put of nothing":            func(t *testing.T, c *testenv.Cluster) { mustPut(t, openSink(t, c), nil) },
			"each codec and with pause": testOverrides,
		} {
			t.Run(name, func(t *testing.T) { test(t, c) })
		}
	})
}

func testAsGiven(t *testing.T, c *testenv.Cluster) {
	c.CreateTopic(t, "given", 3, -1, nil)
	at := time.Now().Truncate(time.Millisecond)
	recs := testenv.Records("given", 3, 3000, 1)
	recs = append(
		recs,
		&kgo.Record{Topic: "given", Partition: 1, Timestamp: at},
		&kgo.Record{Topic: "given", Partition: 1, Timestamp: time.UnixMilli(0), Key: []byte{}, Value: []byte{}},
		&kgo.Record{Topic: "given", Partition: 1, Timestamp: time.UnixMilli(1_700_000_000_123), Key: []byte("tombstone")},
		&kgo.Record{Topic: "given", Partition: 2, Timestamp: at, Value: []byte("headers"), Headers: []kgo.RecordHeader{
			{Key: "b", Value: []byte{0x00, 0xff}},
			{Key: "a"},
			{Key: "b", Value: []byte{}},
			{Key: "", Value: []byte("no name")},
		}},
	)
	before := make([]kgo.Record, len(recs))
	for i, rec := range recs {
		rec.Offset, rec.LeaderEpoch = int64(i), 7
		before[i] = *rec
	}
	s := openSink(t, c)
	mustPut(t, s, recs[:1000])
	mustPut(t, s, recs[1000:])
	testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "given"))
	for i, rec := range recs {
		if got, want := fmt.Sprintf("%#v", *rec), fmt.Sprintf("%#v", before[i]); got != want {
			t.Fatalf("Put changed record %d:\n got %s\nwant %s", i, got, want)
		}
	}
}

func testOversized(t *testing.T, c *testenv.Cluster) {
	for _, tc := range []struct {
		topic, limit string
		size         int
	}{
		{"c4", "1048588", 2_000_000},    // above what fits into a batch
		{"c4-small", "20000", 30_000},   // fits, but the topic does not take it
		{"c4-nearly", "1000000", 1e6},   // fits, if only just not
		{"c4-default", "", 1_048_588},   // the broker's default limit
		{"c4-single", "1048588", 5_000}, // nothing is refused: see want below
	} {
		t.Run(tc.topic, func(t *testing.T) {
			cfg := configs("max.message.bytes", tc.limit)
			if tc.limit == "" {
				cfg = nil
			}
			c.CreateTopic(t, tc.topic, 2, -1, cfg)
			const bad = 100 // position 50 of partition 0
			recs := sized(testenv.Records(tc.topic, 2, 400, 4), 4, func(i int) int {
				if i == bad {
					return tc.size
				}
				return 100
			})
			want := []int{bad}
			if tc.size == 5_000 {
				want = nil
			}
			wantFailed(t, failures(t, openSink(t, c).Put(t.Context(), recs)), want, kerr.MessageTooLarge)
			testenv.AssertExactlyOnce(t, allBut(recs, want), c.ReadAll(t, tc.topic))
		})
	}
}

func testLarge(t *testing.T, c *testenv.Cluster) {
	c.CreateTopic(t, "large", 2, -1, configs("max.message.bytes", "4194304"))
	recs := sized(testenv.Records("large", 2, 200, 5), 5, func(i int) int {
		if i%50 < 2 {
			return 2_000_000
		}
		return 1000
	})
	mustPut(t, openSink(t, c), recs)
	testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "large"))
}

// A topic that takes less than usual is asked for its limit once; from then on
// nothing is refused.
func testSmallLimit(t *testing.T, c *testenv.Cluster) {
	c.CreateTopic(t, "small", 1, -1, configs("max.message.bytes", "20000"))
	s := openSink(t, c)
	recs := sized(testenv.Records("small", 1, 1000, 6), 6, func(int) int { return 500 })
	mustPut(t, s, recs[:500])
	if got := s.limit("small"); got != 20_000 {
		t.Errorf("limit is %d, want the topic's 20000", got)
	}
	mustPut(t, s, recs[500:])
	testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "small"))
}

// Without the right to ask for the limit, batches are halved.
func TestKafkaSinkLimitNotTold(t *testing.T) {
	c := testenv.Embedded(t)
	c.CreateTopic(t, "untold", 1, -1, configs("max.message.bytes", "20000"))
	h := c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	recs := sized(testenv.Records("untold", 1, 1000, 6), 6, func(i int) int {
		if i == 700 {
			return 30_000
		}
		return 500
	})
	wantFailed(t, failures(t, openSink(t, c).Put(t.Context(), recs)), []int{700}, kerr.MessageTooLarge)
	testenv.AssertExactlyOnce(t, allBut(recs, []int{700}), c.ReadAll(t, "untold"))
	if h.Hits() == 0 {
		t.Fatal("the fault did not fire")
	}
}

func testKeyless(t *testing.T, c *testenv.Cluster) {
	c.CreateTopic(t, "c5", 2, -1, configs("cleanup.policy", "compact"))
	recs := testenv.Records("c5", 2, 210, 7)
	var bad []int
	for i := range recs {
		if i == 3 || i >= 100 && i < 106 || i == 209 {
			recs[i].Key = nil
			bad = append(bad, i)
		}
	}
	if f := c.Fake(); f != nil {
		refuseBatchesWith(f, "c5", kerr.InvalidRecord, recs, bad)
	}
	got := failures(t, openSink(t, c, kgo.ProducerBatchCompression(kgo.NoCompression())).Put(t.Context(), recs))
	wantFailed(t, got, bad, kerr.InvalidRecord)
	testenv.AssertExactlyOnce(t, allBut(recs, bad), c.ReadAll(t, "c5"))
}

// refuseBatchesWith plays a broker that refuses a whole batch for one record
// in it. Batches must not be compressed.
func refuseBatchesWith(f *kfake.Cluster, topic string, refusal *kerr.Error, recs []*kgo.Record, bad []int) *kfake.FaultHandle {
	id := f.TopicInfo(topic).TopicID
	var faults []kfake.Fault
	for p := range int32(len(f.PartitionInfos(topic))) {
		faults = append(faults, kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{p}, Err: refusal, Count: -1,
			When: func(r kmsg.Request) bool {
				for _, rt := range r.(*kmsg.ProduceRequest).Topics {
					for _, rp := range rt.Partitions {
						if (rt.Topic == topic || rt.TopicID == id) && rp.Partition == p &&
							slices.ContainsFunc(bad, func(i int) bool { return bytes.Contains(rp.Records, recs[i].Value) }) {
							return true
						}
					}
				}
				return false
			},
		})
	}
	return f.Fault(faults...)
}

func testTopicAppears(t *testing.T, c *testenv.Cluster) {
	s := openSink(t, c)
	c.CreateTopic(t, "there", 1, -1, nil)
	there, later := testenv.Records("there", 1, 10, 8), testenv.Records("later", 1, 10, 9)
	failed := failures(t, s.Put(t.Context(), append(slices.Clone(there), later...)))
	for i := range 20 {
		if i < 10 && failed[i] != nil || i >= 10 && !IsRetriable(failed[i]) {
			t.Fatalf("record %d: %v", i, failed[i])
		}
	}
	s.missing = time.Nanosecond
	var te *topicError
	if err := failures(t, s.Put(t.Context(), later))[0]; !errors.As(err, &te) || te.Topic != "later" || hintOf(err) == "" {
		t.Errorf("topic missing for too long: %v", err)
	}
	c.CreateTopic(t, "later", 1, -1, nil)
	putUntil(t, s, later)
	testenv.AssertExactlyOnce(t, later, c.ReadAll(t, "later"))
	testenv.AssertExactlyOnce(t, there, c.ReadAll(t, "there"))
}

func testTopicMadeAgain(t *testing.T, c *testenv.Cluster) {
	c.CreateTopic(t, "again", 1, -1, nil)
	s := openSink(t, c)
	mustPut(t, s, testenv.Records("again", 1, 10, 10))
	if _, err := c.Admin(t).DeleteTopic(t.Context(), "again"); err != nil {
		t.Fatal(err)
	}
	c.CreateTopic(t, "again", 1, -1, nil)
	recs := testenv.Records("again", 1, 10, 11)
	putUntil(t, s, recs)
	testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "again"))
}

func testPartitionsAppear(t *testing.T, c *testenv.Cluster) {
	c.CreateTopic(t, "grows", 1, -1, nil)
	s := openSink(t, c)
	recs := testenv.Records("grows", 2, 20, 12)
	failed := failures(t, s.Put(t.Context(), recs))
	if len(failed) != 10 || !IsRetriable(failed[1]) {
		t.Fatalf("partition 1 does not exist: %v", failed)
	}
	if _, err := c.Admin(t).UpdatePartitions(t.Context(), 2, "grows"); err != nil {
		t.Fatal(err)
	}
	putUntil(t, s, allBut(recs, []int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}))
	testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "grows"))
}

func testEndedContext(t *testing.T, c *testenv.Cluster) {
	c.CreateTopic(t, "ended", 1, -1, nil)
	s := openSink(t, c)
	ctx, cancel := context.WithCancelCause(t.Context())
	because := errors.New("because")
	cancel(because)
	recs := testenv.Records("ended", 1, 10, 13)
	failed := failures(t, s.Put(ctx, recs))
	for i := range recs {
		if !errors.Is(failed[i], because) || !IsRetriable(failed[i]) {
			t.Fatalf("record %d: %v", i, failed[i])
		}
	}
	mustPut(t, s, recs)
	testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "ended"))
}

func testOverrides(t *testing.T, c *testenv.Cluster) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := "codec-" + codec
		c.CreateTopic(t, topic, 1, -1, nil)
		more, err := producerOpts(map[string]string{
			"compression.type": codec, "linger.ms": "5", "batch.size": "16384", "max.request.size": "3000",
		})
		if err != nil {
			t.Fatal(err)
		}
		recs := testenv.Records(topic, 1, 500, 14)
		recs[250].Value = bytes.Repeat([]byte("too large for max.request.size "), 200)
		wantFailed(t, failures(t, openSink(t, c, more...).Put(t.Context(), recs)), []int{250}, kerr.MessageTooLarge)
		testenv.AssertExactlyOnce(t, allBut(recs, []int{250}), c.ReadAll(t, topic))
	}
}

// Whatever is refused, and however batches are cut, the verdict is exact, and
// what is written is in order.
func TestKafkaSinkVerdictsAreExact(t *testing.T) {
	c := testenv.Embedded(t)
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, rand.Uint64()}
	for n, seed := range seeds {
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		topic := fmt.Sprintf("exact-%d", n)
		c.CreateTopic(t, topic, 3, -1, nil)
		recs := testenv.Records(topic, 3, 1+rng.IntN(600), int64(seed>>1))
		var bad []int
		for share := rng.Float64() * rng.Float64(); len(bad) == 0; {
			for i := range recs {
				if rng.Float64() < share {
					bad = append(bad, i)
				}
			}
		}
		h := refuseBatchesWith(c.Fake(), topic, kerr.InvalidTimestamp, recs, bad)
		s := openSink(t, c, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(int32(600+rng.IntN(20_000))))
		s.inOrder = true
		wantFailed(t, failures(t, s.Put(t.Context(), recs)), bad, kerr.InvalidTimestamp)
		testenv.AssertExactlyOnce(t, allBut(recs, bad), c.ReadAll(t, topic))
		if h.Hits() < len(bad) {
			t.Errorf("%d refusals for %d bad records", h.Hits(), len(bad))
		}
		h.Remove()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A partition that does not take records fails as retriable and in order,
// without holding back the others for ever.
func TestKafkaSinkOnePartitionHeld(t *testing.T) {
	for _, refusal := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.KafkaStorageError, kerr.UnknownServerError,
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			c := testenv.Embedded(t)
			c.CreateTopic(t, "held", 2, -1, nil)
			s := openSink(t, c, kgo.ProducerBatchMaxBytes(2000))
			h := c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "held", Partitions: []int32{0}, Err: refusal, Count: -1})
			recs := testenv.Records("held", 2, 200, 20)
			failed := failures(t, s.Put(t.Context(), recs))
			for i, rec := range recs {
				if rec.Partition == 0 && !IsRetriable(failed[i]) || rec.Partition == 1 && failed[i] != nil {
					t.Fatalf("record %d: %v", i, failed[i])
				}
			}
			if h.Hits() == 0 {
				t.Fatal("the fault did not fire")
			}
			h.Remove()
			putUntil(t, s, slices.DeleteFunc(slices.Clone(recs), func(r *kgo.Record) bool { return r.Partition == 1 }))
			testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "held"))
		})
	}
}

// What the broker says of the producer does not lose a record.
func TestKafkaSinkProducerLost(t *testing.T) {
	for _, e := range []*kerr.Error{
		kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.ProducerFenced,
		kerr.InvalidProducerIDMapping, kerr.InvalidTxnState,
	} {
		t.Run(e.Message, func(t *testing.T) {
			c := testenv.Embedded(t)
			c.CreateTopic(t, "lost", 2, -1, nil)
			s := openSink(t, c, kgo.ProducerBatchMaxBytes(2000))
			recs := testenv.Records("lost", 2, 300, 21)
			mustPut(t, s, recs[:100])
			h := c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "lost", Partitions: []int32{1}, Err: e, Count: 2})
			putUntil(t, s, recs[100:])
			if h.Hits() == 0 {
				t.Fatal("the fault did not fire")
			}
			testenv.AssertAtLeastOnce(t, recs, c.ReadAll(t, "lost"))
		})
	}
}

// A request that the broker carried out and called late or short of replicas
// is repeated within the same producer, which makes no second copy.
func TestKafkaSinkAnsweredLate(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(e.Message, func(t *testing.T) {
			c := testenv.Embedded(t)
			c.CreateTopic(t, "late", 2, -1, nil)
			s := openSink(t, c)
			// Answered like that for longer than the patience.
			until := time.Now().Add(3 * s.patience / 2)
			h := c.Fake().Fault(kfake.Fault{
				Keys: []kmsg.Key{kmsg.Produce}, Topic: "late", Err: e, Count: -1,
				When: func(kmsg.Request) bool { return time.Now().Before(until) },
			})
			recs := testenv.Records("late", 2, 300, 22)
			mustPut(t, s, recs)
			if h.Hits() == 0 {
				t.Fatal("the fault did not fire")
			}
			testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "late"))
		})
	}
}

func TestKafkaSinkForbiddenTopic(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed} {
		t.Run(e.Message, func(t *testing.T) {
			c := testenv.Embedded(t)
			c.CreateTopic(t, "forbidden", 1, -1, nil)
			c.CreateTopic(t, "free", 1, -1, nil)
			s := openSink(t, c)
			h := c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.Metadata}, Topic: "forbidden", Err: e, Count: -1})
			forbidden, free := testenv.Records("forbidden", 1, 10, 23), testenv.Records("free", 1, 10, 24)
			failed := failures(t, s.Put(t.Context(), append(slices.Clone(forbidden), free...)))
			for i := range 20 {
				var te *topicError
				if is := errors.As(failed[i], &te) && !IsRetriable(failed[i]) && hintOf(failed[i]) != ""; is != (i < 10) {
					t.Fatalf("record %d: %v", i, failed[i])
				}
			}
			if h.Hits() == 0 {
				t.Fatal("the fault did not fire")
			}
			h.Remove()
			mustPut(t, s, forbidden) // heals without a restart
			testenv.AssertExactlyOnce(t, forbidden, c.ReadAll(t, "forbidden"))
			testenv.AssertExactlyOnce(t, free, c.ReadAll(t, "free"))
		})
	}
}

func TestKafkaSinkRefusesTarget(t *testing.T) {
	none := kversion.V2_8_0()
	none.SetMaxKeyVersion(kmsg.InitProducerID.Int16(), -1)
	for name, c := range map[string]*testenv.Cluster{
		"no idempotent producer": testenv.Embedded(t, testenv.Old(none)),
		"not permitted":          testenv.Embedded(t),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "not permitted" {
				c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
			}
			s := newKafkaSink(func() ([]kgo.Opt, error) { return c.Opts(), nil })
			err := s.Open(t.Context())
			if err == nil || IsRetriable(err) || hintOf(err) == "" {
				t.Errorf("got %v (hint %q), want a refusal with a hint", err, hintOf(err))
			}
		})
	}
}

// sieve is a network that loses answers while it is frozen. A connection that
// lost something is of no more use.
type sieve struct {
	dial   dialFunc
	frozen atomic.Bool
}

func (n *sieve) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := n.dial(ctx, network, address)
	return &sieveConn{Conn: conn, in: n}, err
}

type sieveConn struct {
	net.Conn
	in   *sieve
	lost bool
}

func (c *sieveConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.lost = c.lost || c.in.frozen.Load()
		if err != nil || !c.lost {
			return n, err
		}
	}
}

// While the target does not answer, Put waits and says so; when its context
// ends it returns at once, and no goroutine is left (the bubble would not
// end). What it gave up can be put again.
func TestKafkaSinkSilentTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: new(kfake.VirtualNetwork)})
		c.CreateTopic(t, "silent", 1, -1, nil)
		n := &sieve{dial: c.Dial()}
		s := newKafkaSink(func() ([]kgo.Opt, error) {
			return clientOpts(c.Topology("target"), &Options{Dial: n.connect})
		})
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		recs := testenv.Records("silent", 1, 200, 25)
		mustPut(t, s, recs[:100])

		ctx, cancel := context.WithCancelCause(t.Context())
		because := errors.New("enough")
		begin, told := time.Now(), 0
		s.onBlocked = func(since time.Time, err error) {
			told++
			if !since.Equal(begin) || err == nil {
				t.Errorf("blocked since %v: %v", since, err)
			}
			if time.Since(begin) >= 5*time.Minute {
				cancel(because)
			}
		}
		n.frozen.Store(true)
		failed := failures(t, s.Put(ctx, recs[100:]))
		if got := time.Since(begin); got > 5*time.Minute+2*s.notice || told < 20 {
			t.Errorf("Put returned after %v, told %d times", got, told)
		}
		for i := range 100 {
			if !errors.Is(failed[i], because) || !IsRetriable(failed[i]) {
				t.Fatalf("record %d: %v", i, failed[i])
			}
		}
		n.frozen.Store(false)
		mustPut(t, s, recs[100:])
		testenv.AssertAtLeastOnce(t, recs, c.ReadAll(t, "silent"))
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// A target that comes back while Put waits gets each record once: what was on
// the way is repeated by the producer that began it.
func TestKafkaSinkTargetComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: new(kfake.VirtualNetwork)})
		c.CreateTopic(t, "back", 1, -1, nil)
		n := &sieve{dial: c.Dial()}
		s := newKafkaSink(func() ([]kgo.Opt, error) {
			return clientOpts(c.Topology("target"), &Options{Dial: n.connect})
		})
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		recs := testenv.Records("back", 1, 200, 27)
		mustPut(t, s, recs[:100])
		s.onBlocked = func(since time.Time, _ error) {
			if time.Since(since) > 3*time.Minute {
				n.frozen.Store(false)
			}
		}
		n.frozen.Store(true)
		mustPut(t, s, recs[100:])
		testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "back"))
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestKafkaSinkImpossibleTime(t *testing.T) {
	c := testenv.Embedded(t)
	c.CreateTopic(t, "micro", 1, -1, nil)
	recs := testenv.Records("micro", 1, 3, 26)
	recs[1].Timestamp = time.UnixMilli(1_700_000_000_000_000) // microseconds taken for milliseconds
	failed := failures(t, openSink(t, c).Put(t.Context(), recs))
	if len(failed) != 1 || failed[1] == nil || IsRetriable(failed[1]) {
		t.Fatalf("got %v", failed)
	}
	testenv.AssertExactlyOnce(t, allBut(recs, []int{1}), c.ReadAll(t, "micro"))
}

// A target that is stopped, frozen or killed with a Put under way.
func TestKafkaSinkRealTargetDown(t *testing.T) {
	c := testenv.Real(t, "4.4.0")
	c.CreateTopic(t, "down", 4, -1, nil)
	node := c.Nodes()[0]
	s := openSink(t, c)
	s.patience = 3 * time.Second
	blocked := make(chan error, 100)
	s.onBlocked = func(_ time.Time, err error) {
		select {
		case blocked <- err:
		default:
		}
	}
	ctx := t.Context()
	put := func(recs []*kgo.Record, exact bool, name string, down, up func() error) {
		t.Helper()
		if err := down(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			putUntil(t, s, recs)
		}()
		if exact {
			t.Logf("%s: %v", name, <-blocked)
		}
		if err := up(); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	var all []*kgo.Record
	more := func(seed int64) []*kgo.Record {
		recs := testenv.Records("down", 4, 4000, seed)
		all = append(all, recs...)
		return recs
	}
	mustPut(t, s, more(30))
	put(more(31), true, "frozen", func() error { return c.PauseNode(node) }, func() error { return c.ResumeNode(ctx, node) })
	testenv.AssertExactlyOnce(t, all, c.ReadAll(t, "down"))
	put(more(32), false, "killed", func() error { return c.KillNode(ctx, node) }, func() error { return c.StartNode(ctx, node) })
	put(more(33), false, "stopped", func() error { return c.StopNode(ctx, node) }, func() error { return c.StartNode(ctx, node) })
	testenv.AssertAtLeastOnce(t, all, c.ReadAll(t, "down"))
}

// Too few replicas in sync: the broker refuses, nothing is on the way, and the
// other partitions are not held back. A leader that moves is followed.
func TestKafkaSinkRealThreeNodes(t *testing.T) {
	c := testenv.Real(t, "4.4.0", testenv.RealOptions{Nodes: 3})
	ctx := t.Context()
	c.CreateTopic(t, "three", 2, 3, configs("min.insync.replicas", "3"))
	c.CreateTopic(t, "two", 2, 3, configs("min.insync.replicas", "2"))
	s := openSink(t, c)
	s.patience = 3 * time.Second
	three, two := testenv.Records("three", 2, 1000, 40), testenv.Records("two", 2, 1000, 41)
	mustPut(t, s, append(slices.Clone(three[:500]), two[:500]...))

	node := c.Nodes()[2]
	if err := c.KillNode(ctx, node); err != nil {
		t.Fatal(err)
	}
	putUntil(t, s, two[500:])
	// A batch that a replica may have taken can't be called back: Put then
	// waits, and says so. Else it gives the records up as retriable.
	blocked, given := make(chan error, 100), make(chan error, 1)
	s.notice = time.Second
	s.onBlocked = func(_ time.Time, err error) {
		select {
		case blocked <- err:
		default:
		}
	}
	go func() { given <- s.Put(ctx, three[500:]) }()
	waiting := false
	select {
	case err := <-blocked:
		waiting = true
		t.Logf("waits: %v", err)
	case err := <-given:
		failed := failures(t, err)
		for i := range 500 {
			if !IsRetriable(failed[i]) {
				t.Fatalf("record %d: %v", i, failed[i])
			}
		}
		t.Logf("gives up for now: %v", failed[0])
	case <-time.After(time.Minute):
		t.Fatal("neither waits nor gives up")
	}
	if err := c.StartNode(ctx, node); err != nil {
		t.Fatal(err)
	}
	if waiting {
		if err := <-given; err != nil && !IsRetriable(err) {
			t.Fatal(err)
		}
	}
	s.onBlocked = nil
	putUntil(t, s, three[500:])
	testenv.AssertAtLeastOnce(t, two, c.ReadAll(t, "two"))
	testenv.AssertAtLeastOnce(t, three, c.ReadAll(t, "three"))

	c.CreateTopic(t, "moves", 1, 3, nil)
	moves := testenv.Records("moves", 1, 20_000, 42)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for recs := range slices.Chunk(moves, 100) {
			putUntil(t, s, recs)
		}
	}()
	for _, to := range c.Nodes() {
		c.MoveLeader(t, "moves", 0, to)
	}
	<-done
	testenv.AssertExactlyOnce(t, moves, c.ReadAll(t, "moves"))
}
