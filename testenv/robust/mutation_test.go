package robust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
)

// mutation is a fault put into the program on purpose: pieces of files are
// replaced by others before it is built.
type mutation struct {
	name  string
	edits []edit
	// world makes the clusters, ordeal is what shows the fault.
	world  func(t *testing.T) setting
	ordeal func(c *campaign)
	// loses: records are missing. Default: some come twice. The other kind
	// proves nothing: a program that stands still has not copied everything.
	loses bool
}

// edit replaces what is once in a file; imports are added to it.
type edit struct {
	file, old, new string
	imports        []string
}

// noPlaceCheck takes out that an entry has to come to stand where the ledger was
// read up to, which notices most of what goes wrong before it does harm.
var noPlaceCheck = edit{file: "txn/session_commit.go", old: `if r.first != s.due {`, new: `if false {`}

// mutations are what exactly-once rests on, taken out one by one.
var mutations = []mutation{
	{
		name: "NoFence",
		edits: []edit{{
			file:    "txn/id.go",
			old:     `func ShardTxnID(flow string, shard int) string { return fmt.Sprintf("onceover.%s.%d", flow, shard) }`,
			new:     `func ShardTxnID(flow string, shard int) string { return fmt.Sprintf("onceover.%s.%d.%d", flow, shard, os.Getpid()) }`,
			imports: []string{"os"},
		}, noPlaceCheck},
		world: longTransactions, ordeal: backLater,
	},
	{
		// The pause makes the gap between the two wide enough to be hit.
		name: "ReadBeforeFence",
		edits: []edit{{
			file: "txn/session.go",
			old: `			id, err := s.p.init(ctx)
			if err != nil {`,
			new: `			early := &Ledger{}
			if err := early.Read(ctx, s.cfg.Client, LedgerTopic(s.cfg.Flow), int32(s.cfg.Shard)); err != nil {
				return nil, err
			}
			if err := wait(ctx, 3*time.Second); err != nil {
				return nil, err
			}
			id, err := s.p.init(ctx)
			if err == nil {
				s.on(evInitOK{id})
				s.on(evLedgerRead{early.Positions()})
				return early, nil
			}
			if err != nil {`,
		}, noPlaceCheck},
		world: longTransactions, ordeal: backAtOnce,
	},
	{
		name: "PositionNotWritten",
		edits: []edit{{
			file: "mirror/shard_txn.go",
			old: `	l.committing(out)
	return out
`,
			new: `	l.committing(out)
	for i, e := range out {
		if f, ok := e.Value.(*txn.Frontier); ok {
			was := *f
			was.Next = l.bySrc[e.Key.Source].committed
			out[i].Value = &was
		}
	}
	return out
`,
		}},
		world: realPair, ordeal: kills,
	},
	{
		name: "PositionOutsideOfTransaction",
		edits: []edit{{
			file: "mirror/shard_lane.go",
			old: `	outcome, err := l.session.Commit(work, l.entries)
`,
			new: `	var later []txn.Entry
	outcome, err := l.session.Commit(work, func(last map[txn.SourcePartition]int64) []txn.Entry {
		later = l.entries(last)
		var stale []txn.Entry
		for _, e := range later {
			if f, ok := e.Value.(*txn.Frontier); ok {
				was := *f
				was.Next = l.bySrc[e.Key.Source].committed
				stale = append(stale, txn.Entry{Key: e.Key, Value: &was})
			}
		}
		return stale
	})
	if outcome == txn.Committed {
		l.session.Begin()
		outcome, err = l.session.Commit(work, func(map[txn.SourcePartition]int64) []txn.Entry { return later })
	}
`,
		}},
		world: realPair, ordeal: kills,
	},
	{
		name: "LostAnswerTakenForCommit",
		edits: []edit{{
			file: "mirror/shard_lane.go",
			old:  givenUp, new: fmt.Sprintf(takenForCommit, "Unknown") + givenUp,
		}},
		world: embeddedPair, ordeal: endsLost, loses: true,
	},
	{
		name: "AbortTakenForCommit",
		edits: []edit{{
			file: "mirror/shard_lane.go",
			old:  givenUp, new: fmt.Sprintf(takenForCommit, "Aborted") + givenUp,
		}},
		world: embeddedPair, ordeal: writesFail, loses: true,
	},
}

const (
	givenUp = `	if bad != nil {
		return l.given(bad)
	}
	l.settle()
`
	takenForCommit = `	if bad != nil && l.session.Resolved() == txn.%s {
		if _, err := l.session.Own(work); err != nil {
			return err
		}
		for _, p := range l.parts {
			p.committed, p.gaps, p.records, p.bytes = p.next, nil, 0, 0
		}
		return nil
	}
`
)

// longTransactions outlive the session of a frozen owner.
func longTransactions(t *testing.T) setting {
	s := realPair(t)
	s.transaction = 20 * time.Second
	return s
}

func realPair(t *testing.T) setting {
	s := pair(t, "4.4.0", "4.4.0", testenv.RealOptions{})
	s.rate = 800
	return s
}

// embeddedPair has transactions from before KIP-890, where a lost answer to
// EndTxn can't be asked for again.
func embeddedPair(t *testing.T) setting {
	s := setting{source: testenv.Embedded(t), target: testenv.Embedded(t), exactly: true, partitions: 8, rate: 800}
	s.target.SetTransactionVersion(t, 1)
	return s
}

func kills(c *campaign) {
	for range 6 {
		c.killOwner(true)
	}
}

// backLater has an owner back when another has copied in its place for a while,
// backAtOnce when the other has only just got its shards.
func backLater(c *campaign)  { c.comeBack(2 * time.Second) }
func backAtOnce(c *campaign) { c.comeBack(500 * time.Millisecond) }

func (c *campaign) comeBack(after time.Duration) {
	c.t.Helper()
	slot := c.freezeOpen()
	c.await(patience, "the shards move", func(context.Context) error {
		for other, p := range c.procs {
			if other != slot && len(p.shards()) == c.flow.Ledger.Shards {
				return nil
			}
		}
		return errors.New("they did not")
	})
	time.Sleep(after)
	c.resume(slot)
	c.history.fire(faultZombie, "w%d", slot)
	time.Sleep(c.transaction / 2) // what it does with what it has in hand
}

// endsLost cuts connections before commits are handled.
func endsLost(c *campaign) {
	for i := range 5 {
		a := c.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.EndTxn}, Do: testenv.CutBefore, Nth: 3 * (i + 1),
			Match: func(r kmsg.Request) bool { return r.(*kmsg.EndTxnRequest).Commit },
		})
		c.reached(a)
	}
}

// writesFail has brokers answer copies with an error that leaves open what
// happened.
func writesFail(c *campaign) {
	for i := range 5 {
		a := c.target.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Do: testenv.AlterAnswer, Nth: 3 * (i + 1),
			Alter: func(_ kmsg.Request, r kmsg.Response) bool {
				for _, topic := range r.(*kmsg.ProduceResponse).Topics {
					for i := range topic.Partitions {
						topic.Partitions[i].ErrorCode = kerr.UnknownServerError.Code
					}
				}
				return true
			},
		})
		c.reached(a)
	}
}

func (c *campaign) reached(a *testenv.Armed) {
	c.t.Helper()
	select {
	case <-a.Reached():
		c.history.note("a fault of the front has acted")
	case <-time.After(patience):
		c.t.Fatal("a fault of the front was not reached")
	}
}

// Each mutation makes records miss or come twice, and the same ordeal does
// nothing to the program as it is.
func TestMutations(t *testing.T) {
	if !long {
		return
	}
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.world(t)
			s.binary = m.build(t)
			c := begin(t, *seed, s)
			m.ordeal(c)
			v := c.wreck()
			t.Log(c.report(v))
			code, said := c.verify()
			t.Logf("%d missing, %d too many; mirror verify ends with %d:\n%s", len(v.copies.Missing), v.duplicates(), code, said)
			if m.loses && len(v.copies.Missing) == 0 || !m.loses && v.duplicates() == 0 {
				t.Errorf("the mutation %s was not noticed", m.name)
			}
		})
		t.Run(m.name+"Not", func(t *testing.T) {
			t.Parallel()
			c := begin(t, *seed, m.world(t))
			m.ordeal(c)
			c.finish(nil)
		})
	}
}

// build builds the program with the mutation and returns its path.
func (m mutation) build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for i, e := range m.edits {
		file, err := filepath.Abs(filepath.Join("../..", e.file))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if n := strings.Count(text, e.old); n != 1 {
			t.Fatalf("the mutation %s has to be written anew: what it replaces is %d times in %s", m.name, n, e.file)
		}
		text = strings.Replace(text, e.old, e.new, 1)
		for _, path := range e.imports {
			text = strings.Replace(text, "import (\n", fmt.Sprintf("import (\n\t%q\n", path), 1)
		}
		replace[file] = filepath.Join(dir, fmt.Sprintf("mutant%d.go", i))
		if err := os.WriteFile(replace[file], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, out := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mirror")
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := build(&said, "-overlay", overlay, "-o", out); err != nil {
		t.Fatalf("build with the mutation %s: %v\n%s", m.name, err, &said)
	}
	return out
}

// wreck ends a campaign of a program that need not work any more: it waits until
// nothing comes any more, and judges.
func (c *campaign) wreck() verdict {
	c.t.Helper()
	acked := c.traffic.finish(c.t)
	c.await(2*patience, "nothing comes any more", func(context.Context) error {
		if q := c.watch.quiet(); q < c.transaction+3*time.Second {
			return fmt.Errorf("the last record came %v ago", q)
		}
		return nil
	})
	for _, p := range c.procs {
		p.abandon()
	}
	v := judge(acked, c.source.ReadAll(c.t, c.topic), c.target.ReadStable(c.t, c.topic), true)
	v.exactly = true
	return v
}
