package mirror_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// flowKinds are the ways to copy, by what a flow asks for.
var flowKinds = []struct {
	read      topology.Reader
	guarantee topology.Guarantee
}{
	{topology.ReaderShare, topology.GuaranteeAtLeastOnce},
	{topology.ReaderPartition, topology.GuaranteeAtLeastOnce},
	{topology.ReaderPartition, topology.GuaranteeExactlyOnce},
}

// Case 30: an open transaction at the source holds back what comes behind it. It
// is said whose it is and since when, nobody calls it lag or a stall, the other
// partition goes on, and so does this one when it ends.
func TestCase30OpenTransaction(t *testing.T) {
	for _, k := range flowKinds {
		t.Run(fmt.Sprintf("%s %s", k.guarantee, k.read), func(t *testing.T) {
			inBubble(t, func(w *world, change func(*mirror.Options)) {
				f := w.flow("held", "b13")
				f.Read, f.Guarantee = k.read, k.guarantee
				heldByTransaction(w, f, 2*mirror.StallAfter, change)
			})
		})
	}
}

func TestCase30OpenTransactionReal(t *testing.T) {
	t.Parallel()
	w := &world{t, testenv.Real(t, "4.4.0"), testenv.Embedded(t)}
	for i, k := range flowKinds {
		t.Run(fmt.Sprintf("%s %s", k.guarantee, k.read), func(t *testing.T) {
			w := &world{t, w.source, w.target}
			f := w.flow(fmt.Sprintf("held-%d", i), fmt.Sprintf("b13-%d", i))
			f.Read, f.Guarantee = k.read, k.guarantee
			heldByTransaction(w, f, 0, func(*mirror.Options) {})
		})
	}
}

// inTxn begins a transaction of that id with n records for partition 0 of a
// topic, and leaves it open.
func (w *world) inTxn(id, topic string, n int) *kgo.Client {
	w.Helper()
	cl := w.source.Client(w.T, kgo.TransactionalID(id), kgo.TransactionTimeout(5*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		w.Fatal(err)
	}
	for i := range n {
		rec := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s-%d", id, i)}
		if err := cl.ProduceSync(w.Context(), rec).FirstErr(); err != nil {
			w.Fatal(err)
		}
	}
	return cl
}

func (w *world) endTxn(cl *kgo.Client, how kgo.TransactionEndTry) {
	w.Helper()
	if err := cl.EndTransaction(w.Context(), how); err != nil {
		w.Fatal(err)
	}
}

func heldByTransaction(w *world, f *topology.Flow, wait time.Duration, change func(*mirror.Options)) {
	topic := f.Topics.Include[0]
	began := time.Now()
	w.fill(topic, 2, 20, 30)
	// Nothing that is copied comes between the records of the first and the
	// open transaction; no position can rest at the last stable offset.
	aborted := w.inTxn("app-a", topic, 2)
	open := w.inTxn("app-x", topic, 1)
	w.endTxn(aborted, kgo.TryAbort)
	w.source.Produce(w.T, testenv.Records(topic, 2, 100, 31)...)
	p := w.start(f, change)
	w.arrived(topic, 70)
	st := w.until(p, f.Name, "it waits for the transaction", func(st mirror.FlowState) bool {
		return len(st.Partitions) == 2 && st.Partitions[0].Phase == mirror.PartitionWaiting && st.Partitions[1].Phase == mirror.PartitionIdle
	})
	// One open record, the marker of the other transaction, half of the plain
	// records.
	ps := st.Partitions[0]
	if ps.Lag != 0 || ps.LagSeconds != 0 || ps.Unstable != 52 || ps.EndOffset != 12 {
		w.Errorf("lag %d, lag seconds %v, unstable %d, end %d; want 0, 0, 52, 12", ps.Lag, ps.LagSeconds, ps.Unstable, ps.EndOffset)
	}
	if !says(ps.Reason, "waiting for the source transaction of app-x (producer ", ") since ") || !says(ps.Hint, "at its timeout of 5m0s") {
		w.Errorf("reason %q, hint %q", ps.Reason, ps.Hint)
	}
	var since time.Time
	if at := ps.Reason[len(ps.Reason)-len("2006-01-02T15:04:05Z"):]; true {
		var err error
		if since, err = time.Parse(time.RFC3339, at); err != nil || since.Before(began.Add(-time.Second)) || since.After(time.Now()) {
			w.Errorf("since %q, which is not after %v (%v)", at, began, err)
		}
	}
	if st.Partitions[1].Unstable != 0 {
		w.Errorf("the other partition has %d unstable", st.Partitions[1].Unstable)
	}
	if wait > 0 { // in fake time
		time.Sleep(wait)
		if now := p.Flow(f.Name).Partitions[0]; now.Phase != mirror.PartitionWaiting || !now.Since.Equal(ps.Since) {
			w.Errorf("after %v it is %s since %v, want waiting since %v", wait, now.Phase, now.Since, ps.Since)
		}
	}
	if h := p.Mirror.Health(); !h.OK || len(h.Remarks) != 1 || !says(h.Remarks[0], topic+"[0] is waiting", "app-x") {
		w.Errorf("health %+v", h)
	}
	if seen := w.status(f, change).Partitions[0]; seen.Phase != mirror.PartitionWaiting || seen.Lag != 0 || seen.Reason != ps.Reason {
		w.Errorf("seen from outside: %+v", seen)
	}
	if n := len(w.target.ReadStable(w.T, topic)); n != 70 {
		w.Errorf("%d records are copied, want 70", n)
	}
	w.endTxn(open, kgo.TryCommit)
	w.arrived(topic, 121)
	w.until(p, f.Name, "it goes on", func(st mirror.FlowState) bool {
		ps := st.Partitions[0]
		return ps.Phase == mirror.PartitionIdle && ps.Unstable == 0 && ps.Reason == "" && ps.Lag == 0
	})
	if h := p.Mirror.Health(); !h.OK || len(h.Remarks) != 0 {
		w.Errorf("health afterwards %+v", h)
	}
	p.Stop()
	testenv.AssertExactlyOnce(w.T, w.source.ReadStable(w.T, topic), w.target.ReadStable(w.T, topic),
		testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}, Unordered: f.Read == topology.ReaderShare})
}

// A transaction that its coordinator knows nothing of hangs, and it is said how
// to end it: the hint, carried out, does.
func TestCase30HangingTransactionReal(t *testing.T) {
	t.Parallel()
	source := testenv.Real(t, "4.4.0", testenv.RealOptions{Config: map[string]string{"transaction.partition.verification.enable": "false"}})
	w := &world{t, source, testenv.Embedded(t)}
	w.fill("b13", 1, 10, 30)
	id := hang(w, "b13")
	f := w.flow("hangs", "b13")
	f.Guarantee = topology.GuaranteeExactlyOnce
	p := w.start(f)
	w.arrived("b13", 10)
	ps := w.until(p, "hangs", "it waits", func(st mirror.FlowState) bool {
		return len(st.Partitions) == 1 && st.Partitions[0].Phase == mirror.PartitionWaiting
	}).Partitions[0]
	if !says(ps.Reason, fmt.Sprintf("(producer %d) since before ", id.ProducerID)) || !says(ps.Hint, "it hangs", "abort --topic b13 --partition 0 --start-offset 10") {
		w.Errorf("reason %q, hint %q", ps.Reason, ps.Hint)
	}
	markers := kadm.TxnMarkers{ProducerID: id.ProducerID, ProducerEpoch: id.ProducerEpoch, CoordinatorEpoch: -1, Topics: kadm.TopicsSet{"b13": {0: {}}}}
	if _, err := w.source.Admin(w).WriteTxnMarkers(w.Context(), markers); err != nil {
		w.Fatal(err)
	}
	w.source.Produce(w.T, testenv.Records("b13", 1, 5, 31)...)
	w.arrived("b13", 15)
	w.until(p, "hangs", "it goes on", func(st mirror.FlowState) bool { return st.Partitions[0].Phase == mirror.PartitionIdle })
	p.Stop()
}

// hang writes a record of a transaction that the coordinator was not told of, as
// a request does that arrives after the marker. It returns the producer.
func hang(w *world, topic string) *kmsg.InitProducerIDResponse {
	w.Helper()
	cl := w.source.Client(w.T)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr("app-h"), 60_000
	init, err := req.RequestWith(w.Context(), cl)
	if err != nil {
		w.Fatal(err)
	}
	rec := kmsg.Record{Value: []byte("late")}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1)
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 1 << 4, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: init.ProducerID, ProducerEpoch: init.ProducerEpoch, NumRecords: 1, Records: rec.AppendTo(nil),
	}
	const header = 12 // what comes before what Length counts
	batch.Length = int32(len(batch.AppendTo(nil)) - header)
	bytes := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(bytes[17:], crc32.Checksum(bytes[21:], crc32.MakeTable(crc32.Castagnoli)))
	put := kmsg.NewPtrProduceRequest()
	put.TransactionID, put.Acks, put.TimeoutMillis = req.TransactionalID, -1, 10_000
	put.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: bytes}}}}
	// From version 12 on a produce request tells the coordinator by itself.
	resp, err := put.RequestWith(w.Context(), w.source.Client(w.T, kgo.MaxVersions(kversion.V3_5_0())))
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		w.Fatal(err)
	}
	return init
}
