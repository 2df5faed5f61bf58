package mirror_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// exact declares an exactly-once flow of two shards.
func (w *world) exact(name string, topics ...string) *topology.Flow {
	f := w.flow(name, topics...)
	f.Guarantee = topology.GuaranteeExactlyOnce
	f.Ledger.Shards = 2
	return f
}

// asked is a mirror that is asked, not run.
func (w *world) asked(f *topology.Flow) *mirror.Mirror {
	w.Helper()
	m, err := mirror.New(mirror.Options{Topology: w.topologyOf(f)})
	if err != nil {
		w.Fatal(err)
	}
	return m
}

func (w *world) ledger(f *topology.Flow) mirror.LedgerReport {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), within)
	defer cancel()
	r, err := w.asked(f).Ledger(ctx, f.Name)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// sound fails when something is found.
func (w *world) sound(r mirror.LedgerReport) {
	w.Helper()
	for _, f := range r.Findings {
		w.Errorf("found %s: %s (%s)", f.Place, f.Problem, f.Hint)
	}
}

// found fails unless a finding has every word.
func (w *world) found(r mirror.LedgerReport, words ...string) {
	w.Helper()
	for _, f := range r.Findings {
		if says(f.Place+": "+f.Problem+": "+f.Hint, words...) {
			return
		}
	}
	w.Errorf("no finding with %q among %d: %v", words, len(r.Findings), r.Findings)
}

func TestLedgerShow(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	f := w.exact("show", "orders")
	if r := w.ledger(f); r.Exists || len(r.Findings) > 0 {
		t.Errorf("before the first run: %+v", r)
	}
	w.fill("orders", 4, 400, 1)
	p := w.start(f, func(o *mirror.Options) { o.Instance = "one" })
	w.arrived("orders", 400)
	w.drained(p, "show", 4)
	running := w.ledger(f)
	w.sound(running)
	for _, s := range running.Shards {
		if s.Owner == nil || !strings.Contains(s.Owner.Instance, "one") || !s.Founded || s.LastEntry.IsZero() {
			t.Errorf("shard %+v, owner %+v", s, s.Owner)
		}
	}
	p.Stop()
	r := w.ledger(f)
	w.sound(r)
	if !r.Exists || r.K != 2 || r.Partitions != 2 || r.Reader != "partition" || r.Generation != 1 || !r.Declared || r.Fingerprint != f.Fingerprint() || r.Suspended != nil {
		t.Errorf("head %+v", r)
	}
	for _, s := range r.Shards {
		if s.Owner != nil {
			t.Errorf("shard %d is owned by %+v", s.Shard, s.Owner)
		}
	}
	if len(r.Positions) != 4 {
		t.Fatalf("%d positions", len(r.Positions))
	}
	var records int64
	for i, row := range r.Positions {
		if row.Topic != "orders" || row.Partition != int32(i) || row.Start == nil || row.Start.Reason != "start: earliest" || row.Frontier == nil {
			t.Errorf("row %+v", row)
			continue
		}
		records += row.Position
		if row.Lag != 0 || row.Position != row.End || row.Frontier.Next != row.Position || row.Frontier.TxnID != txn.ShardTxnID("show", row.Shard) || row.Frontier.Target != "orders" {
			t.Errorf("row %+v frontier %+v", row, row.Frontier)
		}
		if m := row.Map; !m.Complete || m.Runs == 0 || m.First != 0 || m.Last != row.Position-1 || m.Unmapped != 0 {
			t.Errorf("map %+v of %s[%d] up to %d", m, row.Topic, row.Partition, row.Position)
		}
	}
	if records != 400 {
		t.Errorf("%d records in all positions", records)
	}
	other := w.exact("show", "orders")
	other.Rename = "copy.{topic}"
	r = w.ledger(other)
	if r.Declared {
		t.Error("another declaration counts as the ledger's")
	}
	w.found(r, "shards 0, 1", "declaration has changed", "mirror ledger accept")
}

// What voids the promise is found from outside, and told with what to do.
func TestLedgerCheckFinds(t *testing.T) {
	ready := func(t *testing.T) (*world, *topology.Flow) {
		w := newWorld(t, testenv.EmbeddedOptions{})
		f := w.exact("check", "in")
		w.fill("in", 2, 100, 1)
		p := w.start(f)
		w.arrived("in", 100)
		p.Stop()
		w.sound(w.ledger(f))
		return w, f
	}
	for name, c := range map[string]struct {
		spoil func(w *world, f *topology.Flow)
		words []string
	}{
		"source recreated": {func(w *world, _ *topology.Flow) { w.replace("in", 10, 2) }, []string{"in[0]", "created again", "on_recreate"}},
		"source gap": {func(w *world, _ *topology.Flow) {
			w.source.Produce(w.T, testenv.Records("in", 2, 50, 3)...)
			var os kadm.Offsets
			os.AddOffset("in", 0, 60, -1)
			if _, err := w.source.Admin(w.T).DeleteRecords(w.Context(), os); err != nil {
				w.Fatal(err)
			}
		}, []string{"in[0]", "went from the source", "on_gap: skip"}},
		"target recreated": {func(w *world, _ *topology.Flow) {
			if _, err := w.target.Admin(w.T).DeleteTopics(w.Context(), "in"); err != nil {
				w.Fatal(err)
			}
			w.target.CreateTopic(w.T, "in", 2, -1, nil)
		}, []string{"in[1]", "target topic in was deleted and created again", "refill"}},
		"target missing": {func(w *world, _ *topology.Flow) {
			if _, err := w.target.Admin(w.T).DeleteTopics(w.Context(), "in"); err != nil {
				w.Fatal(err)
			}
		}, []string{"in[1]", "target topic in is missing", "refill"}},
		"ledger recreated": {func(w *world, f *topology.Flow) {
			name := txn.LedgerTopic(f.Name)
			if _, err := w.target.Admin(w.T).DeleteTopics(w.Context(), name); err != nil {
				w.Fatal(err)
			}
			compact := "compact"
			w.target.CreateTopic(w.T, name, 2, -1, map[string]*string{"cleanup.policy": &compact})
		}, []string{"shard", "entries were lost", "mirror ledger init"}},
		"more partitions": {func(w *world, f *topology.Flow) {
			if _, err := w.target.Admin(w.T).UpdatePartitions(w.Context(), 3, txn.LedgerTopic(f.Name)); err != nil {
				w.Fatal(err)
			}
		}, []string{"3 partitions and began with 2"}},
		"not compacted": {func(w *world, f *topology.Flow) {
			policy := "delete"
			if _, err := w.target.Admin(w.T).AlterTopicConfigs(w.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}}, txn.LedgerTopic(f.Name)); err != nil {
				w.Fatal(err)
			}
		}, []string{txn.LedgerTopic("check"), "cleanup.policy=delete"}},
		"foreign entry": {func(w *world, f *topology.Flow) {
			w.target.Produce(w.T, &kgo.Record{Topic: txn.LedgerTopic(f.Name), Partition: 1, Key: []byte("who"), Value: []byte("knows")})
		}, []string{"shard 1", "outside of a transaction", "damaged"}},
		"map lost": {func(w *world, f *topology.Flow) {
			name := txn.MapTopic(f.Name)
			if _, err := w.target.Admin(w.T).DeleteTopics(w.Context(), name); err != nil {
				w.Fatal(err)
			}
			w.target.CreateTopic(w.T, name, 2, -1, nil)
		}, []string{"in[0]", "the offset map ends at -1", "lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := ready(t)
			c.spoil(w, f)
			w.found(w.ledger(f), c.words...)
		})
	}
}

// Positions above the source's end, and copies above the target's, say that a log
// was cut. No embedded log can be, so the ledger is given such positions.
func TestLedgerCheckFindsCuts(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	f := w.exact("cut", "in")
	f.Ledger.Shards = 1
	w.fill("in", 1, 20, 1)
	p := w.start(f)
	w.arrived("in", 20)
	p.Stop()
	s, err := txn.NewSession(txn.SessionConfig{Client: w.target.Client(t), Flow: "cut", Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	src := l.Partitions()[0]
	fr := *l.Mark(src).Frontier
	fr.Next, fr.TargetNext = 1000, 2000
	s.Begin()
	if out, err := s.Commit(t.Context(), func(map[txn.SourcePartition]int64) []txn.Entry {
		return []txn.Entry{{Key: txn.Key{Kind: txn.KindFrontier, Source: src}, Value: &fr}}
	}); out != txn.Committed {
		t.Fatal(out, err)
	}
	s.Close(t.Context())
	r := w.ledger(f)
	w.found(r, "in[0]", "1000 is above the end of the source's log, 20")
	w.found(r, "in[0]", "target's log was cut", "copies up to 2000")
}

// A look at a ledger while its owner is in the middle of a transaction shows
// entries that wait, and nothing to worry about.
func TestLedgerShowUndecided(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	f := w.exact("open", "in")
	f.Ledger.Shards = 1
	w.fill("in", 1, 20, 1)
	p := w.start(f)
	w.arrived("in", 20)
	p.Stop()
	// The same transactional id writes an entry and does not end.
	cl := w.target.Client(t, kgo.TransactionalID(txn.ShardTxnID("open", 0)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	key, value, err := (txn.Entry{Key: txn.Key{Kind: txn.KindSuspend}, Value: &txn.Suspend{Reason: "test"}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: txn.LedgerTopic("open"), Key: key, Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r := w.ledger(f)
	w.sound(r)
	if r.Shards[0].Undecided != 1 || r.Suspended != nil {
		t.Errorf("shard %+v, suspended %v", r.Shards[0], r.Suspended)
	}
}

// A transaction that no coordinator knows is told from one that goes on, with the
// command that ends it.
func TestLedgerCheckFindsHangingTransactions(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	f := w.exact("hang", "in")
	f.Ledger.Shards = 1
	w.fill("in", 1, 20, 1)
	p := w.start(f)
	w.arrived("in", 20)
	p.Stop()
	fired := answer(w.target, kmsg.DescribeProducers, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, t := range req.(*kmsg.DescribeProducersRequest).Topics {
			rt := kmsg.NewDescribeProducersResponseTopic()
			rt.Topic = t.Topic
			for _, n := range t.Partitions {
				rp := kmsg.NewDescribeProducersResponseTopicPartition()
				rp.Partition = n
				if t.Topic == "in" {
					pr := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
					pr.ProducerID, pr.CurrentTxnStartOffset = 4242, 7
					rp.ActiveProducers = append(rp.ActiveProducers, pr)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	})
	r := w.ledger(f)
	w.found(r, "in[0]", "hanging transaction of producer 4242 at offset 7",
		"kafka-transactions.sh --bootstrap-server "+w.target.Bootstrap()[0]+" abort --topic in --partition 0 --start-offset 7")
	if fired.Load() < 2 {
		t.Errorf("asked %d times, want a second look", fired.Load())
	}
	going := answer(w.target, kmsg.ListTransactions, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
		one := kmsg.NewListTransactionsResponseTransactionState()
		one.TransactionalID, one.ProducerID, one.TransactionState = "somebody", 4242, "Ongoing"
		resp.TransactionStates = append(resp.TransactionStates, one)
		return resp
	})
	w.sound(w.ledger(f))
	if going.Load() == 0 {
		t.Error("transactions were not listed")
	}
}
