package txn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

const flowName = "a"

var src = txn.SourcePartition{Cluster: "src", TopicID: [16]byte{1}, Partition: 0}

// desk is a target with a ledger of one shard, and sessions on it.
type desk struct {
	t  *testing.T
	c  *testenv.Cluster
	id [16]byte
}

func newDesk(t *testing.T, c *testenv.Cluster) *desk {
	t.Helper()
	adm := kadm.NewClient(newClient(t, c))
	for _, topic := range []string{"out", txn.LedgerTopic(flowName), txn.MapTopic(flowName)} {
		if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	list, err := adm.ListTopics(t.Context(), "out")
	if err != nil {
		t.Fatal(err)
	}
	return &desk{t, c, list["out"].ID}
}

func newClient(t *testing.T, c *testenv.Cluster) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(c.Opts()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func (d *desk) session() *txn.Session {
	d.t.Helper()
	s, err := txn.NewSession(txn.SessionConfig{Client: newClient(d.t, d.c), Flow: flowName, Shard: 0, Timeout: 20 * time.Second})
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func (d *desk) own(s *txn.Session) *txn.Ledger {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer cancel()
	l, err := s.Own(ctx)
	if err != nil {
		d.t.Fatal(err)
	}
	return l
}

// copy adds n records from offset on to a new transaction.
func (d *desk) copy(s *txn.Session, from int64, n int) {
	d.t.Helper()
	s.Begin()
	for i := range n {
		o := from + int64(i)
		s.Add(src, o, &kgo.Record{Topic: "out", Value: fmt.Appendf(nil, "v%d", o), Timestamp: time.UnixMilli(1_790_000_000_000 + o)})
	}
	if err := s.Send(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// commit commits with a frontier.
func (d *desk) commit(s *txn.Session, next int64) (txn.Outcome, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), 20*time.Second)
	defer cancel()
	return s.Commit(ctx, func(last map[txn.SourcePartition]int64) []txn.Entry {
		return []txn.Entry{{Key: txn.Key{Kind: txn.KindFrontier, Source: src}, Value: &txn.Frontier{
			Next: next, LeaderEpoch: -1, TargetTopicID: d.id, TargetNext: last[src], SourceTopic: "in", TargetTopic: "out",
			TxnID: s.TxnID(), ProducerEpoch: s.Epoch(), Time: time.Now().UnixMilli(),
		}}}
	})
}

func (d *desk) mustCommit(s *txn.Session, next int64) {
	d.t.Helper()
	if o, err := d.commit(s, next); o != txn.Committed || err != nil {
		d.t.Fatalf("outcome %v, %v", o, err)
	}
}

// values are those that a read_committed reader of the target sees.
func (d *desk) values() []string {
	d.t.Helper()
	var out []string
	for _, r := range d.c.ReadAll(d.t, "out") {
		out = append(out, string(r.Value))
	}
	return out
}

func TestSessionCommits(t *testing.T)              { sessionCommits(t, testenv.Embedded(t)) }
func TestSessionFencesThePredecessor(t *testing.T) { sessionFences(t, testenv.Embedded(t)) }

// The same on brokers with protocol v2 and v1.
func TestRealSession(t *testing.T) {
	for _, version := range []string{"4.4.0", "3.9.2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, *testenv.Cluster){"commits": sessionCommits, "fences": sessionFences} {
				t.Run(name, func(t *testing.T) { test(t, testenv.Real(t, version)) })
			}
		})
	}
}

func sessionCommits(t *testing.T, c *testenv.Cluster) {
	d := newDesk(t, c)
	s := d.session()
	if l := d.own(s); !l.Empty() {
		t.Errorf("a new ledger says %+v", l.Positions())
	}
	d.copy(s, 0, 3)
	d.mustCommit(s, 3)
	d.copy(s, 5, 2)
	d.mustCommit(s, 7)
	s.Begin()
	d.mustCommit(s, 9) // nothing but holes
	s.Close(t.Context())
	if got := fmt.Sprint(d.values()); got != "[v0 v1 v2 v5 v6]" {
		t.Errorf("the target has %s", got)
	}
	l := d.own(d.session())
	m := l.Mark(src)
	if at, ok := m.Position(); !ok || at != 9 {
		t.Errorf("position %d, %v", at, ok)
	}
}

func sessionFences(t *testing.T, c *testenv.Cluster) {
	d := newDesk(t, c)
	one, two := d.session(), d.session()
	d.own(one)
	d.copy(one, 0, 3)
	d.mustCommit(one, 3)
	d.copy(one, 3, 3)
	l := d.own(two)
	if at := l.Positions()[src]; at != 3 {
		t.Errorf("position %d", at)
	}
	o, err := d.commit(one, 6)
	if o != txn.Aborted || !errors.Is(err, txn.ErrFenced) && err == nil {
		t.Errorf("the fenced session: %v, %v", o, err)
	}
	if _, err := one.Own(t.Context()); err != nil {
		t.Errorf("a session that the group has confirmed: %v", err)
	}
	d.copy(two, 3, 1)
	if o, _ := d.commit(two, 4); o == txn.Committed {
		t.Error("the second was fenced by the first")
	}
	if got := fmt.Sprint(d.values()); got != "[v0 v1 v2]" {
		t.Errorf("the target has %s", got)
	}
}
