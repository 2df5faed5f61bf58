package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn"
)

// book is a flow with a ledger that a test writes by hand, to be verified: topic
// orders with one partition, one shard.
type book struct {
	*world
	f        *topology.Flow
	s        *txn.Session
	src      txn.SourcePartition
	dst      [16]byte
	from, to string // cluster ids
	next     int64  // frontier
	recs     []*kgo.Record
}

const bookTopic = "orders"

// newBook makes topics and a ledger of which the flow entry is as given (zero
// fields are filled in), and n records at the source.
func newBook(t *testing.T, n int, source, target map[string]*string, entry txn.Flow) *book {
	t.Helper()
	return openBook(newWorld(t, testenv.EmbeddedOptions{}), n, source, target, entry)
}

// openBook is newBook on given clusters.
func openBook(w *world, n int, source, target map[string]*string, entry txn.Flow) *book {
	w.Helper()
	t := w.T
	b := &book{world: w, f: w.flow("book", bookTopic)}
	w.source.CreateTopic(t, bookTopic, 1, 1, source)
	w.target.CreateTopic(t, bookTopic, 1, 1, target)
	w.target.CreateTopic(t, txn.LedgerTopic(b.f.Name), 1, 1, nil)
	w.target.CreateTopic(t, txn.MapTopic(b.f.Name), 1, 1, nil)
	b.from, b.to = b.clusterID(w.source), b.clusterID(w.target)
	b.src = txn.SourcePartition{Cluster: b.from, TopicID: b.topicID(w.source, bookTopic)}
	b.dst = b.topicID(w.target, bookTopic)
	s, err := txn.NewSession(txn.SessionConfig{Client: w.target.Client(t), Flow: b.f.Name, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.s = s
	entry.K, entry.Generation, entry.Fingerprint = max(entry.K, 1), 1, "f"
	if entry.LedgerTopicID == [16]byte{} {
		entry.LedgerTopicID = b.topicID(w.target, txn.LedgerTopic(b.f.Name))
	}
	if entry.Reader == 0 {
		entry.Reader = txn.ReaderPartition
	}
	if entry.SourceCluster == "" {
		entry.SourceCluster = b.from
	}
	entry.TargetCluster = b.to
	b.enter(txn.Entry{Key: txn.Key{Kind: txn.KindFlow}, Value: &entry})
	b.produce(n)
	return b
}

// usual is a book with 20 records and a start entry at 0.
func usual(t *testing.T) *book {
	t.Helper()
	b := newBook(t, 20, nil, nil, txn.Flow{})
	b.start(txn.Start{})
	return b
}

func (b *book) clusterID(c *testenv.Cluster) string {
	b.Helper()
	m, err := c.Admin(b.T).BrokerMetadata(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return m.Cluster
}

func (b *book) topicID(c *testenv.Cluster, topic string) [16]byte {
	b.Helper()
	list, err := c.Admin(b.T).ListTopics(b.Context(), topic)
	if err != nil {
		b.Fatal(err)
	}
	return list[topic].ID
}

// produce writes n records to the source and takes note of all that are there.
func (b *book) produce(n int) {
	b.Helper()
	if n > 0 {
		b.source.Produce(b.T, testenv.Records(bookTopic, 1, n, 7)...)
	}
	b.recs = b.source.ReadAll(b.T, bookTopic)
}

// enter commits entries, without copies.
func (b *book) enter(entries ...txn.Entry) {
	b.Helper()
	b.s.Begin()
	b.commit(entries...)
}

func (b *book) commit(entries ...txn.Entry) {
	b.Helper()
	_, err := b.s.Commit(b.Context(), func(last map[txn.SourcePartition]int64) []txn.Entry {
		if b.next > 0 && entries == nil {
			entries = append(entries, txn.Entry{Key: txn.Key{Kind: txn.KindFrontier, Source: b.src}, Value: &txn.Frontier{
				Next: b.next, LeaderEpoch: -1, TargetTopicID: b.dst, TargetNext: last[b.src], SourceTopic: bookTopic, TargetTopic: bookTopic, TxnID: "t",
			}})
		}
		return entries
	})
	if err != nil {
		b.Fatalf("commit: %v", err)
	}
}

func (b *book) start(s txn.Start) {
	b.Helper()
	b.enter(txn.Entry{Key: txn.Key{Kind: txn.KindStart, Source: b.src}, Value: &s})
	b.next = s.Position
}

func (b *book) gap(first, last int64) {
	b.Helper()
	b.enter(txn.Entry{Key: txn.Key{Kind: txn.KindGap, Source: b.src, First: first}, Value: &txn.Gap{Last: last, Reason: "by hand"}})
}

// clone is what a flow writes for a record.
func (b *book) clone(rec *kgo.Record) *kgo.Record {
	b.Helper()
	out, _, _ := transform.Provenance(b.from, b.to).Apply(rec)
	if out == nil {
		b.Fatalf("record %d is an echo", rec.Offset)
	}
	return out
}

// copy copies records in one transaction, changed on the way unless change is nil.
func (b *book) copy(recs []*kgo.Record, change func(*kgo.Record)) {
	b.Helper()
	b.s.Begin()
	for _, rec := range recs {
		out := b.clone(rec)
		if change != nil {
			change(out)
		}
		b.s.Add(b.src, rec.Offset, out)
		b.next = max(b.next, rec.Offset+1)
	}
	b.commit()
}

// passTo moves the frontier on, without copies.
func (b *book) passTo(next int64) {
	b.Helper()
	b.next = next
	b.s.Begin()
	b.commit()
}

// mapped writes runs into the map that no session wrote.
func (b *book) mapped(runs ...txn.Run) {
	b.Helper()
	var m txn.MapBuilder
	for _, r := range runs {
		r.Source, r.TargetTopicID = b.src, b.dst
		if err := m.Add(r); err != nil {
			b.Fatal(err)
		}
	}
	values, err := m.Records()
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range values {
		b.target.Produce(b.T, &kgo.Record{Topic: txn.MapTopic(b.f.Name), Value: v})
	}
}

// end is the end of the target's log.
func (b *book) end() int64 {
	b.Helper()
	list, err := b.target.Admin(b.T).ListEndOffsets(b.Context(), bookTopic)
	if err != nil {
		b.Fatal(err)
	}
	o, _ := list.Lookup(bookTopic, 0)
	return o.Offset
}

// cut deletes what stands below an offset.
func (b *book) cut(c *testenv.Cluster, topic string, before int64) {
	b.Helper()
	os := kadm.Offsets{}
	os.AddOffset(topic, 0, before, -1)
	if _, err := c.Admin(b.T).DeleteRecords(b.Context(), os); err != nil {
		b.Fatal(err)
	}
}

func (b *book) mirror() *mirror.Mirror {
	b.Helper()
	m, err := mirror.New(mirror.Options{Topology: b.topologyOf(b.f)})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func (b *book) report(o mirror.VerifyOptions) mirror.VerifyReport {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	r, err := b.mirror().Verify(ctx, b.f.Name, o)
	if err != nil {
		b.Fatalf("verify: %v", err)
	}
	return r
}

// wants verifies, and compares the counts.
func (b *book) wants(want mirror.VerifyCounts, findings ...string) mirror.VerifyReport {
	b.Helper()
	r := b.report(mirror.VerifyOptions{})
	if r.VerifyCounts != want {
		b.Errorf("counts\n%+v, want\n%+v", r.VerifyCounts, want)
	}
	var got []string
	for _, p := range r.Partitions {
		for _, f := range p.Findings {
			got = append(got, fmt.Sprintf("%s %d %d", f.Kind, f.Source, f.Target))
		}
	}
	if findings != nil && !slices.Equal(got, findings) {
		b.Errorf("findings %q, want %q", got, findings)
	}
	return r
}

// A clean flow is found to be clean: several transactions on both sides,
// aborted ones among them.
func TestVerifyClean(t *testing.T) {
	b := usual(t)
	cl := b.source.Client(t, kgo.TransactionalID("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), testenv.Records(bookTopic, 1, 5, 3)...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	b.produce(5)
	if len(b.recs) != 30 {
		t.Fatalf("%d records at the source", len(b.recs))
	}
	b.copy(b.recs[:7], nil)
	b.s.Begin() // an aborted transaction of the flow
	b.s.Add(b.src, b.recs[7].Offset, b.clone(b.recs[7]))
	if err := b.s.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.s.Abort(t.Context())
	if _, err := b.s.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.copy(b.recs[7:8], nil)
	b.copy(b.recs[8:29], nil)
	r := b.wants(mirror.VerifyCounts{Compared: 29}, []string{}...)
	if p := r.Partitions[0]; p.First != 0 || p.End != b.next || p.Behind != 1 || p.Target != bookTopic {
		t.Errorf("partition %+v", p)
	}
	if r.Found() != 0 || r.Ended.Before(r.Frozen) {
		t.Errorf("report %+v", r)
	}
}

func TestVerifyFinds(t *testing.T) {
	type counts = mirror.VerifyCounts
	header := func(k, v string) kgo.RecordHeader { return kgo.RecordHeader{Key: k, Value: []byte(v)} }
	changed := func(change func(*kgo.Record)) func(*book) {
		return func(b *book) {
			b.copy(b.recs[:5], nil)
			b.copy(b.recs[5:6], change)
			b.copy(b.recs[6:], nil)
		}
	}
	one := []string{"changed 5 6"}
	for name, tc := range map[string]struct {
		do       func(b *book)
		want     counts
		findings []string
	}{
		"never copied": {func(b *book) {
			b.copy(b.recs[:5], nil)
			b.copy(b.recs[6:], nil)
		}, counts{Compared: 19, Missing: 1}, []string{"missing 5 -1"}},
		"nothing copied": {func(b *book) { b.passTo(20) }, counts{Missing: 20}, nil},
		"the last not copied": {func(b *book) {
			b.copy(b.recs[:18], nil)
			b.passTo(20)
		}, counts{Compared: 18, Missing: 2}, []string{"missing 18 -1", "missing 19 -1"}},
		"in the map alone": {func(b *book) { // where the map has it stands a marker
			b.copy(b.recs[:19], nil)
			b.mapped(txn.Run{First: 19, Last: 19, TargetFirst: 19})
			b.passTo(20)
		}, counts{Compared: 19, Missing: 1}, []string{"missing 19 19"}},
		"behind the target's end": {func(b *book) {
			b.copy(b.recs[:19], nil)
			b.mapped(txn.Run{First: 19, Last: 19, TargetFirst: 500})
			b.passTo(20)
		}, counts{Compared: 19, Missing: 1}, []string{"missing 19 500"}},
		"copied twice": {func(b *book) {
			b.copy(b.recs[:10], nil)
			b.copy(b.recs[3:5], nil)
			b.copy(b.recs[10:], nil)
		}, counts{Compared: 20, Duplicated: 2}, []string{"duplicated 3 11", "duplicated 4 12"}},
		"a copy that is not in the map": {func(b *book) {
			b.copy(b.recs[:10], nil)
			b.target.Produce(b.T, b.clone(b.recs[3]))
			b.copy(b.recs[10:], nil)
		}, counts{Compared: 20, Duplicated: 1}, []string{"duplicated -1 11"}},
		"such a copy at the end": {func(b *book) {
			b.copy(b.recs, nil)
			b.target.Produce(b.T, b.clone(b.recs[3]))
		}, counts{Compared: 20, Duplicated: 1}, []string{"duplicated -1 21"}},
		"another writer": {func(b *book) {
			b.copy(b.recs[:10], nil)
			b.target.Produce(b.T, testenv.Records(bookTopic, 1, 2, 9)...)
			b.copy(b.recs[10:], nil)
			b.target.Produce(b.T, testenv.Records(bookTopic, 1, 1, 9)...)
		}, counts{Compared: 20, Foreign: 3}, []string{"foreign -1 11", "foreign -1 12", "foreign -1 24"}},
		"order": {func(b *book) {
			b.copy(b.recs[:5], nil)
			b.copy([]*kgo.Record{b.recs[6], b.recs[5], b.recs[7]}, nil)
			b.copy(b.recs[8:], nil)
		}, counts{Compared: 20, OutOfOrder: 1}, []string{"out of order 6 6"}},
		"order of transactions": {func(b *book) {
			b.copy(b.recs[:5], nil)
			b.copy(b.recs[7:9], nil)
			b.copy(b.recs[5:7], nil)
			b.copy(b.recs[9:], nil)
		}, counts{Compared: 20, OutOfOrder: 2}, []string{"out of order 7 6", "out of order 8 7"}},
		"an aborted record": {func(b *book) {
			cl := b.source.Client(b.T, kgo.TransactionalID("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err := errors.Join(cl.BeginTransaction(), cl.ProduceSync(b.Context(), testenv.Records(bookTopic, 1, 1, 3)...).FirstErr(),
				cl.EndTransaction(b.Context(), kgo.TryAbort)); err != nil {
				b.Fatal(err)
			}
			ghost := *b.recs[0]
			ghost.Offset = 20
			b.copy(append(slices.Clone(b.recs), &ghost), nil)
		}, counts{Compared: 20, Unexpected: 1}, []string{"unexpected 20 20"}},
		"behind the source's end": {func(b *book) {
			ghost := *b.recs[0]
			ghost.Offset = 20
			b.copy(append(slices.Clone(b.recs), &ghost), nil)
		}, counts{Compared: 20, Unexpected: 1}, []string{"unexpected 20 20"}},
		"another partition": {func(b *book) {
			b.copy(b.recs[:19], nil)
			b.mapped(txn.Run{First: 19, Last: 19, TargetPartition: 3, TargetFirst: 0})
			b.passTo(20)
		}, counts{Compared: 19, Missing: 1, Unexpected: 1}, nil},

		"key":                  {changed(func(r *kgo.Record) { r.Key = []byte("other") }), counts{Compared: 20, Changed: 1}, one},
		"null key":             {changed(func(r *kgo.Record) { r.Key = nil }), counts{Compared: 20, Changed: 1}, one},
		"value":                {changed(func(r *kgo.Record) { r.Value = append(slices.Clone(r.Value), 'x') }), counts{Compared: 20, Changed: 1}, one},
		"value to a tombstone": {changed(func(r *kgo.Record) { r.Value = nil }), counts{Compared: 20, Changed: 1}, one},
		"time":                 {changed(func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(time.Millisecond) }), counts{Compared: 20, Changed: 1}, one},
		"header value": {changed(func(r *kgo.Record) {
			r.Headers = append([]kgo.RecordHeader{header("position", "x")}, r.Headers[1:]...)
		}), counts{Compared: 20, Changed: 1}, one},
		"header more":  {changed(func(r *kgo.Record) { r.Headers = append(r.Headers, header("more", "")) }), counts{Compared: 20, Changed: 1}, one},
		"header twice": {changed(func(r *kgo.Record) { r.Headers = append(r.Headers[:1:1], r.Headers...) }), counts{Compared: 20, Changed: 1}, one},
		"headers gone": {changed(func(r *kgo.Record) { r.Headers = nil }), counts{Compared: 20, Changed: 1}, one},
		"mark alone gone": {changed(func(r *kgo.Record) { // a flow may be without provenance
			r.Headers = r.Headers[:len(r.Headers)-1]
		}), counts{Compared: 20}, nil},
		"another's mark": {changed(func(r *kgo.Record) {
			r.Headers = append(r.Headers[:1:1], header(transform.ProvenanceHeader, "elsewhere"))
		}), counts{Compared: 20, Changed: 1}, one},
	} {
		t.Run(name, func(t *testing.T) {
			b := usual(t)
			tc.do(b)
			b.wants(tc.want, tc.findings...)
		})
	}
}

// Header bytes of all kinds (case 41), nulls, and times (case 39).
func TestVerifyEqual(t *testing.T) {
	b := newBook(t, 0, nil, nil, txn.Flow{})
	b.start(txn.Start{})
	h := func(kv ...string) (out []kgo.RecordHeader) {
		for i := 0; i < len(kv); i += 2 {
			out = append(out, kgo.RecordHeader{Key: kv[i], Value: []byte(kv[i+1])})
		}
		return out
	}
	many := make([]kgo.RecordHeader, 300)
	for i := range many {
		many[i] = kgo.RecordHeader{Key: "k", Value: []byte{byte(i), 0, 0xff}}
	}
	for i, hs := range [][]kgo.RecordHeader{
		h("a", "\x00\xff"), h("a", "x", "a", "y", "b", "z"), {{Key: "n", Value: nil}}, h("e", ""), h("", "v"), many, nil,
	} {
		for _, ms := range []int64{0, 1, 1_700_000_000_123} {
			b.source.Produce(t, &kgo.Record{Topic: bookTopic, Headers: hs, Timestamp: time.UnixMilli(ms), Key: []byte{}, Value: [][]byte{nil, {}}[i%2]})
		}
	}
	b.produce(0)
	b.copy(b.recs, nil)
	b.wants(mirror.VerifyCounts{Compared: 21})
}

// A null header is no empty one, and the other way round (case 41).
func TestVerifyNullHeader(t *testing.T) {
	for name, values := range map[string][2][]byte{"null to empty": {nil, {}}, "empty to null": {{}, nil}} {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, 0, nil, nil, txn.Flow{})
			b.start(txn.Start{})
			b.source.Produce(t, &kgo.Record{Topic: bookTopic, Headers: []kgo.RecordHeader{{Key: "n", Value: values[0]}}})
			b.produce(0)
			b.copy(b.recs, func(r *kgo.Record) {
				r.Headers = append([]kgo.RecordHeader{{Key: "n", Value: values[1]}}, r.Headers[1:]...)
			})
			b.wants(mirror.VerifyCounts{Compared: 1, Changed: 1})
		})
	}
}

// A time that the source's broker set is carried as it is (case 39).
func TestVerifyLogAppendTime(t *testing.T) {
	b := newBook(t, 5, map[string]*string{"message.timestamp.type": kadm.StringPtr("LogAppendTime")}, nil, txn.Flow{})
	b.start(txn.Start{})
	b.copy(b.recs, nil)
	b.wants(mirror.VerifyCounts{Compared: 5})
}

// What embedded brokers don't do: a target that sets times itself, which is said
// (case 39), a cleaner that works beside the writer, and markers that come to one
// partition later than to another.
func TestRealVerify(t *testing.T) {
	t.Run("stamped", func(t *testing.T) {
		t.Parallel()
		w := &world{t, testenv.Embedded(t), testenv.Real(t, "3.9.2")}
		b := openBook(w, 5, nil, map[string]*string{"message.timestamp.type": kadm.StringPtr("LogAppendTime")}, txn.Flow{})
		b.start(txn.Start{})
		b.copy(b.recs, nil)
		r := b.wants(mirror.VerifyCounts{Compared: 5, Changed: 5})
		if d := r.Partitions[0].Findings[0].Detail; !strings.Contains(d, "LogAppendTime") {
			t.Errorf("detail %q", d)
		}
	})
	t.Run("beside the flow", func(t *testing.T) {
		t.Parallel()
		verifyBeside(&world{t, testenv.Real(t, "3.9.2"), testenv.Real(t, "4.4.0")})
	})
	t.Run("compacted", func(t *testing.T) {
		t.Parallel()
		w := &world{t, testenv.Embedded(t), testenv.Real(t, "4.4.0")}
		b := openBook(w, 0, nil, map[string]*string{
			"cleanup.policy": kadm.StringPtr("compact"), "segment.ms": kadm.StringPtr("100"),
			"min.cleanable.dirty.ratio": kadm.StringPtr("0.001"), "min.compaction.lag.ms": kadm.StringPtr("0"), "max.compaction.lag.ms": kadm.StringPtr("1"),
		}, txn.Flow{})
		b.start(txn.Start{})
		b.source.Produce(t, keyed(bookTopic, 10, 1000, 11)...)
		b.produce(0)
		for i := 0; i < 1000; i += 100 {
			b.copy(b.recs[i:i+100], nil)
		}
		var left int64
		suite.Eventually(t, time.Minute, "the log shrinks", func() (bool, string) {
			// A segment is closed by a record that comes after its time.
			b.source.Produce(t, keyed(bookTopic, 10, 1, 12)...)
			b.produce(0)
			b.copy(b.recs[len(b.recs)-1:], nil)
			left = int64(len(b.target.ReadAll(t, bookTopic)))
			return left < 500, fmt.Sprintf("%d records", left)
		})
		r := b.report(mirror.VerifyOptions{})
		if r.Found() != 0 || r.Compacted == 0 || r.Compared+r.Compacted != int64(len(b.recs)) {
			t.Errorf("counts %+v of %d records", r.VerifyCounts, len(b.recs))
		}
	})
}

// What is left out on purpose, or was there before, is no finding.
func TestVerifyLeftOut(t *testing.T) {
	type counts = mirror.VerifyCounts
	for name, tc := range map[string]struct {
		do   func(b *book)
		want counts
	}{
		"recorded gap": {func(b *book) {
			b.copy(b.recs[:5], nil)
			b.gap(5, 7)
			b.copy(b.recs[8:], nil)
		}, counts{Compared: 17, Skipped: 3}},
		"more than the recorded gap": {func(b *book) {
			b.copy(b.recs[:5], nil)
			b.gap(5, 6)
			b.copy(b.recs[8:], nil)
		}, counts{Compared: 17, Skipped: 2, Missing: 1}},
		"echo": {func(b *book) {
			echo := testenv.Records(bookTopic, 1, 1, 8)[0]
			echo.Headers = append(echo.Headers, kgo.RecordHeader{Key: transform.ProvenanceHeader, Value: []byte(b.to)})
			b.source.Produce(b.T, echo)
			b.produce(2)
			b.copy(b.recs[:20], nil)
			b.copy(b.recs[21:], nil)
		}, counts{Compared: 22, Echoes: 1}},
		"an echo that was copied": {func(b *book) { // before provenance was switched on
			echo := testenv.Records(bookTopic, 1, 1, 8)[0]
			echo.Headers = append(echo.Headers, kgo.RecordHeader{Key: transform.ProvenanceHeader, Value: []byte(b.to)})
			b.source.Produce(b.T, echo)
			b.produce(0)
			b.s.Begin()
			for _, r := range b.recs {
				b.s.Add(b.src, r.Offset, &kgo.Record{Topic: bookTopic, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
			}
			b.next = 21
			b.commit()
		}, counts{Compared: 21}},
		"expired at the target": {func(b *book) { // case 40
			b.copy(b.recs[:10], nil)
			b.copy(b.recs[10:], nil)
			b.cut(b.target, bookTopic, 13) // 11 copies, a marker, 2 copies
		}, counts{Compared: 8, ExpiredAtTarget: 12}},
		"all of it": {func(b *book) {
			b.copy(b.recs, nil)
			b.cut(b.target, bookTopic, b.end())
		}, counts{ExpiredAtTarget: 20}},
		"expired at the target, and missing": {func(b *book) {
			b.copy(b.recs[:5], nil)
			b.copy(b.recs[6:], nil)
			b.cut(b.target, bookTopic, 10)
		}, counts{Compared: 10, ExpiredAtTarget: 9, Missing: 1}},
		"expired at the source": {func(b *book) {
			b.copy(b.recs[:10], nil)
			b.copy(b.recs[10:], nil)
			b.cut(b.source, bookTopic, 12)
		}, counts{Compared: 8, ExpiredAtSource: 12}},
		"passed by retention": {func(b *book) { // case 33, on_gap: skip
			b.copy(b.recs[:10], nil)
			b.cut(b.source, bookTopic, 15)
			b.enter(
				txn.Entry{Key: txn.Key{Kind: txn.KindStart, Source: b.src}, Value: &txn.Start{Position: 15, Reason: "source gap"}},
				txn.Entry{Key: txn.Key{Kind: txn.KindGap, Source: b.src, First: 10}, Value: &txn.Gap{Last: 14, Reason: "source gap"}})
			b.next = 15
			b.copy(b.recs[15:], nil)
		}, counts{Compared: 5, ExpiredAtSource: 10}},
		"a start above the first record": {func(b *book) {
			b.start(txn.Start{Position: 12})
			b.copy(b.recs[12:], nil)
		}, counts{Compared: 8}},
		"an earlier run without a ledger": {func(b *book) {
			for _, r := range b.recs[:8] {
				b.target.Produce(b.T, b.clone(r))
			}
			b.start(txn.Start{Position: 8, Prior: true})
			b.copy(b.recs[8:], nil)
		}, counts{Compared: 12}},
		"a suspension": {func(b *book) {
			b.copy(b.recs[:5], nil)
			for _, r := range b.recs[3:10] {
				b.target.Produce(b.T, b.clone(r))
			}
			b.start(txn.Start{Position: 10, Prior: true, Reason: "resumed"})
			b.copy(b.recs[10:], nil)
		}, counts{Compared: 15, Outside: 5}},
		"suspended": {func(b *book) {
			b.copy(b.recs[:5], nil)
			b.enter(txn.Entry{Key: txn.Key{Kind: txn.KindSuspend}, Value: &txn.Suspend{Reason: "asked for"}})
			for _, r := range b.recs[3:10] {
				b.target.Produce(b.T, b.clone(r))
			}
		}, counts{Compared: 5}},
		"the map forgets": {func(b *book) {
			b.copy(b.recs[:10], nil)
			ends, err := b.target.Admin(b.T).ListEndOffsets(b.Context(), txn.MapTopic(b.f.Name))
			if err != nil {
				b.Fatal(err)
			}
			o, _ := ends.Lookup(txn.MapTopic(b.f.Name), 0)
			b.copy(b.recs[10:], nil)
			b.cut(b.target, txn.MapTopic(b.f.Name), o.Offset)
		}, counts{Compared: 10, Unmapped: 10}},
		"filled again": {func(b *book) {
			b.copy(b.recs[:10], nil)
			b.recreate(b.target)
			b.dst = b.topicID(b.target, bookTopic)
			b.start(txn.Start{Reason: "target topic was recreated"})
			b.own()
			b.copy(b.recs, nil)
		}, counts{Compared: 20}},
		"nothing yet":           {func(*book) {}, counts{}},
		"behind the frontier":   {func(b *book) { b.copy(b.recs[:5], nil) }, counts{Compared: 5}},
		"a transaction is open": {func(b *book) { b.copy(b.recs, nil); b.leaveOpen() }, counts{Compared: 20}},
	} {
		t.Run(name, func(t *testing.T) {
			b := usual(t)
			tc.do(b)
			b.wants(tc.want)
		})
	}
}

// leaveOpen has another producer write to the target and not end its transaction.
func (b *book) leaveOpen() {
	b.Helper()
	cl := b.target.Client(b.T, kgo.TransactionalID("slow"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := errors.Join(cl.BeginTransaction(), cl.ProduceSync(b.Context(), testenv.Records(bookTopic, 1, 1, 3)...).FirstErr()); err != nil {
		b.Fatal(err)
	}
}

func (b *book) recreate(c *testenv.Cluster) {
	b.Helper()
	if _, err := c.Admin(b.T).DeleteTopics(b.Context(), bookTopic); err != nil {
		b.Fatal(err)
	}
	c.CreateTopic(b.T, bookTopic, 1, 1, nil)
}

// own has a new session, which knows no topic ids of before.
func (b *book) own() {
	b.Helper()
	s, err := txn.NewSession(txn.SessionConfig{Client: b.target.Client(b.T), Flow: b.f.Name, Timeout: 20 * time.Second})
	if err == nil {
		_, err = s.Own(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.s = s
}

// A compacted topic on either side: what a newer record of its key replaced is no
// finding, and the last of a key is one.
func TestVerifyCompacted(t *testing.T) {
	now := time.Now() // or retention has them
	keyed := func(b *book, from, n int) {
		for i := from; i < from+n; i++ {
			key := fmt.Appendf(nil, "key-%d", i%4)
			if i == 0 {
				key = []byte("first") // it stays, and the log's start with it
			}
			b.source.Produce(b.T, &kgo.Record{Topic: bookTopic, Key: key, Value: fmt.Append(nil, i), Timestamp: now.Add(time.Duration(i) * time.Millisecond)})
		}
		b.produce(0)
	}
	t.Run("target", func(t *testing.T) {
		b := newBook(t, 0, nil, compacted(), txn.Flow{})
		b.start(txn.Start{})
		keyed(b, 0, 20)
		b.copy(b.recs[:10], nil)
		b.copy(b.recs[10:], nil)
		b.target.Fake().Compact()
		left := int64(len(b.target.ReadAll(t, bookTopic)))
		if left == 20 {
			t.Fatal("nothing was compacted")
		}
		b.wants(mirror.VerifyCounts{Compared: left, Compacted: 20 - left})
	})
	t.Run("newer than the range", func(t *testing.T) {
		b := newBook(t, 0, nil, compacted(), txn.Flow{})
		b.start(txn.Start{})
		keyed(b, 0, 8)
		b.copy(b.recs, nil)
		for _, r := range b.recs[4:] { // of another writer, in a transaction that the map has nothing of
			b.target.Produce(t, &kgo.Record{Topic: bookTopic, Key: r.Key, Value: []byte("newer")})
		}
		b.target.Fake().Compact()
		left := int64(len(b.target.ReadAll(t, bookTopic))) - 4
		if left >= 4 {
			t.Fatalf("%d copies are left", left)
		}
		b.wants(mirror.VerifyCounts{Compared: left, Compacted: 8 - left, Foreign: 4})
	})
	t.Run("the last of its key", func(t *testing.T) {
		b := newBook(t, 0, nil, compacted(), txn.Flow{})
		b.start(txn.Start{})
		keyed(b, 0, 8)
		b.copy(b.recs[:7], nil)
		b.mapped(txn.Run{First: 7, Last: 7, TargetFirst: 7})
		b.passTo(8)
		b.wants(mirror.VerifyCounts{Compared: 7, Missing: 1}, "missing 7 7")
	})
	t.Run("the last of two keys", func(t *testing.T) {
		b := newBook(t, 0, nil, compacted(), txn.Flow{})
		b.start(txn.Start{})
		for _, key := range []string{"first", "a", "b", "b"} {
			b.source.Produce(t, &kgo.Record{Topic: bookTopic, Key: []byte(key), Value: []byte("v")})
		}
		b.produce(0)
		b.copy(b.recs[:1], nil)
		b.copy(b.recs[2:3], nil) // older than what is gone of its key
		b.mapped(txn.Run{First: 1, Last: 1, TargetFirst: 1}, txn.Run{First: 3, Last: 3, TargetFirst: 3})
		b.passTo(4)
		b.wants(mirror.VerifyCounts{Compared: 2, Missing: 2}, "missing 1 1", "missing 3 3")
	})
	t.Run("a tombstone", func(t *testing.T) {
		b := newBook(t, 0, nil, compacted(), txn.Flow{})
		b.start(txn.Start{})
		keyed(b, 0, 4)
		b.source.Produce(t, &kgo.Record{Topic: bookTopic, Key: []byte("key-1")})
		b.produce(0)
		b.copy(b.recs[:1], nil)
		b.copy(b.recs[2:4], nil)
		// Where the map has copies stand the markers.
		b.mapped(txn.Run{First: 1, Last: 1, TargetFirst: 1}, txn.Run{First: 4, Last: 4, TargetFirst: 4})
		b.passTo(5)
		b.wants(mirror.VerifyCounts{Compared: 3, Compacted: 2})
	})
	t.Run("source", func(t *testing.T) {
		b := newBook(t, 0, compacted(), nil, txn.Flow{})
		b.start(txn.Start{})
		keyed(b, 0, 20)
		b.copy(b.recs, nil)
		b.source.Fake().Compact()
		left := int64(len(b.source.ReadAll(t, bookTopic)))
		if left == 20 {
			t.Fatal("nothing was compacted")
		}
		b.wants(mirror.VerifyCounts{Compared: left, Compacted: 20 - left})
	})
	t.Run("not compacted", func(t *testing.T) {
		b := newBook(t, 0, nil, nil, txn.Flow{})
		b.start(txn.Start{})
		keyed(b, 0, 8)
		b.copy([]*kgo.Record{b.recs[0], b.recs[1], b.recs[2]}, nil)
		b.mapped(txn.Run{First: 3, Last: 3, TargetFirst: 3})
		b.copy(b.recs[4:], nil)
		b.wants(mirror.VerifyCounts{Compared: 7, Missing: 1}, "missing 3 3")
	})
}

func TestVerifyTopicRecreated(t *testing.T) {
	t.Run("source", func(t *testing.T) {
		b := usual(t)
		b.copy(b.recs, nil)
		b.recreate(b.source)
		b.produce(3)
		r := b.wants(mirror.VerifyCounts{})
		if len(r.Partitions) != 2 || r.Partitions[0].NotCompared == "" || r.Partitions[1].NotCompared == "" {
			t.Errorf("partitions %+v", r.Partitions)
		}
		if !slices.ContainsFunc(r.Partitions, func(p mirror.VerifyPartition) bool { return strings.Contains(p.NotCompared, "recreated") }) {
			t.Errorf("partitions %+v", r.Partitions)
		}
	})
	t.Run("target", func(t *testing.T) {
		b := usual(t)
		b.copy(b.recs, nil)
		b.recreate(b.target)
		r := b.wants(mirror.VerifyCounts{Missing: 20})
		if d := r.Partitions[0].Findings; len(d) != 1 || !strings.Contains(d[0].Detail, "recreated") {
			t.Errorf("findings %+v", d)
		}
	})
	t.Run("target gone", func(t *testing.T) {
		b := usual(t)
		b.copy(b.recs, nil)
		if _, err := b.target.Admin(t).DeleteTopics(t.Context(), bookTopic); err != nil {
			t.Fatal(err)
		}
		b.wants(mirror.VerifyCounts{Missing: 20})
	})
}

func TestVerifyRefuses(t *testing.T) {
	refused := func(t *testing.T, m *mirror.Mirror, flow string, o mirror.VerifyOptions, words ...string) {
		t.Helper()
		_, err := m.Verify(t.Context(), flow, o)
		var refusal *mirror.Refusal
		if !errors.As(err, &refusal) || refusal.Flow != flow || refusal.Hint == "" || !says(refusal.Problem, words...) {
			t.Errorf("verify: %#v", err)
		}
	}
	t.Run("no ledger", func(t *testing.T) {
		w := newWorld(t, testenv.EmbeddedOptions{})
		w.fill("plain", 1, 3, 1)
		b := &book{world: w, f: w.flow("plain", "plain")}
		refused(t, b.mirror(), "plain", mirror.VerifyOptions{}, "no ledger", "target")
	})
	t.Run("another source", func(t *testing.T) {
		b := newBook(t, 1, nil, nil, txn.Flow{SourceCluster: "elsewhere"})
		refused(t, b.mirror(), b.f.Name, mirror.VerifyOptions{}, "elsewhere")
	})
	t.Run("entries of another ledger", func(t *testing.T) {
		b := newBook(t, 1, nil, nil, txn.Flow{LedgerTopicID: [16]byte{1}})
		refused(t, b.mirror(), b.f.Name, mirror.VerifyOptions{}, "recreated")
	})
	t.Run("partitions were added", func(t *testing.T) {
		b := newBook(t, 1, nil, nil, txn.Flow{K: 2})
		refused(t, b.mirror(), b.f.Name, mirror.VerifyOptions{}, "1 partitions", "2")
	})
	t.Run("ledger recreated", func(t *testing.T) {
		b := usual(t)
		name := txn.LedgerTopic(b.f.Name)
		if _, err := b.target.Admin(t).DeleteTopics(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		b.target.CreateTopic(t, name, 1, 1, nil)
		refused(t, b.mirror(), b.f.Name, mirror.VerifyOptions{}, "empty")
	})
	t.Run("no map", func(t *testing.T) {
		b := usual(t)
		if _, err := b.target.Admin(t).DeleteTopics(t.Context(), txn.MapTopic(b.f.Name)); err != nil {
			t.Fatal(err)
		}
		refused(t, b.mirror(), b.f.Name, mirror.VerifyOptions{}, txn.MapTopic(b.f.Name))
	})
	t.Run("unknown topic", func(t *testing.T) {
		b := usual(t)
		refused(t, b.mirror(), b.f.Name, mirror.VerifyOptions{Topics: []string{"nope"}}, "nope")
	})
	t.Run("unknown flow", func(t *testing.T) {
		b := usual(t)
		if _, err := b.mirror().Verify(t.Context(), "nope", mirror.VerifyOptions{}); err == nil || !strings.Contains(err.Error(), `"nope"`) {
			t.Errorf("verify: %v", err)
		}
	})
}

func TestVerifyOptions(t *testing.T) {
	b := usual(t)
	b.passTo(20)
	var last mirror.VerifyProgress
	calls := 0
	r := b.report(mirror.VerifyOptions{Findings: 3, Topics: []string{bookTopic}, Progress: func(p mirror.VerifyProgress) {
		if p.Done < last.Done || p.Total != 20 {
			t.Errorf("progress %+v after %+v", p, last)
		}
		last = p
		calls++
	}})
	if calls == 0 || last.Done != last.Total {
		t.Errorf("%d calls, the last %+v", calls, last)
	}
	if n := len(r.Partitions[0].Findings); n != 3 || r.Missing != 20 {
		t.Errorf("%d findings, %d missing", n, r.Missing)
	}
	if r := b.report(mirror.VerifyOptions{Findings: -1}); len(r.Partitions[0].Findings) != 0 || r.Missing != 20 {
		t.Errorf("report %+v", r)
	}
	b.source.CreateTopic(t, "other", 2, 1, nil)
	b.f.Topics.Include = append(b.f.Topics.Include, "other")
	f := b.flow(b.f.Name, bookTopic, "other")
	b.f = f
	r = b.report(mirror.VerifyOptions{Topics: []string{"other"}})
	if len(r.Partitions) != 2 || r.Partitions[0].Topic != "other" || r.Found() != 0 || r.Partitions[1].NotCompared == "" {
		t.Errorf("report %+v", r)
	}
}

// Runs in any order, as share workers write them, and held in pieces of any size:
// each record is compared once, and a defect is found for what it is.
func TestVerifyAnyOrder(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	b := newBook(t, 300, nil, nil, txn.Flow{Reader: txn.ReaderShare})
	b.start(txn.Start{})
	var want mirror.VerifyCounts
	var pieces [][]*kgo.Record
	for rest := b.recs; len(rest) > 0; {
		n := min(len(rest), 1+rng.IntN(8))
		piece := slices.Clone(rest[:n])
		rest = rest[n:]
		switch rng.IntN(12) {
		case 0: // missing
			want.Missing += int64(len(piece))
			continue
		case 1: // twice
			want.Duplicated += int64(len(piece))
			pieces = append(pieces, piece)
		}
		want.Compared += int64(len(piece))
		rng.Shuffle(len(piece), func(i, j int) { piece[i], piece[j] = piece[j], piece[i] })
		pieces = append(pieces, piece)
	}
	// Workers are not far apart.
	for i := range pieces {
		if j := i + rng.IntN(6); j < len(pieces) {
			pieces[i], pieces[j] = pieces[j], pieces[i]
		}
	}
	// Each transaction appends to the target, and later to the map: there they
	// stand in another order.
	var runs [][]txn.Run
	for i, piece := range pieces {
		if i > 0 && rng.IntN(10) == 0 {
			b.target.Produce(t, testenv.Records(bookTopic, 1, 1, 5)...)
			want.Foreign++
		}
		var one []txn.Run
		for _, rec := range piece {
			out := b.clone(rec)
			b.target.Produce(t, out)
			one = append(one, txn.Run{First: rec.Offset, Last: rec.Offset, TargetFirst: out.Offset})
		}
		runs = append(runs, one)
	}
	for i := 1; i < len(runs); i++ {
		if j := i + rng.IntN(6); j < len(runs) {
			runs[i], runs[j] = runs[j], runs[i]
		}
	}
	for _, one := range runs {
		b.mapped(one...)
	}
	b.passTo(300)
	for _, hold := range []int{0, 1, 2, 10, 50} {
		r := b.report(mirror.VerifyOptions{}.Holding(hold))
		if r.VerifyCounts != want {
			t.Errorf("holding %d runs (seed %d): counts\n%+v, want\n%+v", hold, seed, r.VerifyCounts, want)
		}
	}
}

// Pieces of any size make no difference where order is kept, either.
func TestVerifyPieces(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 2))
	b := newBook(t, 300, nil, nil, txn.Flow{})
	b.start(txn.Start{})
	var want mirror.VerifyCounts
	for i := 0; i < len(b.recs); {
		n := min(len(b.recs)-i, 1+rng.IntN(8))
		piece := b.recs[i : i+n]
		i += n
		kind := rng.IntN(8)
		if i == n {
			kind = 7 // what stands before the first copy is not looked at
		}
		switch kind {
		case 0:
			want.Missing += int64(n)
			continue
		case 1:
			b.copy(piece, func(r *kgo.Record) { r.Value = []byte("other") })
			want.Changed += int64(n)
		case 2:
			b.copy(piece, nil)
			b.copy(piece, nil)
			want.Duplicated += int64(n)
		case 3:
			b.target.Produce(t, b.clone(piece[0]))
			want.Duplicated++
			b.copy(piece, nil)
		case 4:
			b.target.Produce(t, testenv.Records(bookTopic, 1, 2, 5)...)
			want.Foreign += 2
			b.copy(piece, nil)
		default:
			b.copy(piece, nil)
		}
		want.Compared += int64(n)
	}
	b.passTo(300)
	for _, hold := range []int{0, 1, 3, 20} {
		r := b.report(mirror.VerifyOptions{}.Holding(hold))
		if r.VerifyCounts != want {
			t.Errorf("holding %d runs (seed %d): counts\n%+v, want\n%+v", hold, seed, r.VerifyCounts, want)
		}
	}
}

// Beside a flow that copies, with lanes that come and go: whatever the moment,
// what the ledger says is copied is there, once and unchanged.
func TestVerifyBesideTheFlow(t *testing.T) { verifyBeside(newWorld(t, testenv.EmbeddedOptions{})) }

func verifyBeside(w *world) {
	t := w.T
	f := w.flow("beside", "orders", "more")
	f.Guarantee = topology.GuaranteeExactlyOnce
	w.fill("orders", 5, 500, 1)
	w.fill("more", 3, 300, 2)
	b := &book{world: w, f: f}
	p := w.start(f)
	w.arrived("orders", 1)
	ctx, cancel := context.WithCancel(t.Context())
	produced := make(chan int, 1)
	go func() {
		n := 0
		for seed := int64(10); ctx.Err() == nil; seed++ {
			w.source.Produce(t, testenv.Records("orders", 5, 50, seed)...)
			n += 50
		}
		produced <- n
	}()
	compared := int64(0)
	for round := range 6 {
		if round == 3 { // another process takes over
			p.Stop()
			p = w.start(f)
		}
		r := b.report(mirror.VerifyOptions{})
		if r.Found() != 0 || r.Foreign != 0 || r.Compared < compared {
			t.Errorf("round %d: counts %+v after %d", round, r.VerifyCounts, compared)
		}
		compared = r.Compared
	}
	cancel()
	n := 500 + 300 + <-produced
	suite.Eventually(t, within, "all is compared", func() (bool, string) {
		r := b.report(mirror.VerifyOptions{})
		return r.Compared == int64(n) && r.Found() == 0 && len(r.Partitions) == 8, fmt.Sprintf("%+v of %d", r.VerifyCounts, n)
	})
	p.Stop()
}
