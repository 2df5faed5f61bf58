package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// weak is the flow of exact, asked for at-least-once through a reader.
func (w *world) weak(name string, read topology.Reader, topics ...string) *topology.Flow {
	f := w.exact(name, topics...)
	f.Guarantee, f.Read = topology.GuaranteeAtLeastOnce, read
	return f
}

// more adds records to a source topic.
func (w *world) more(topic string, partitions, n int, seed int64) {
	w.Helper()
	w.source.Produce(w.T, testenv.Records(topic, partitions, n, seed)...)
}

// runs copies with a flow until the target has n records in all, and ends in order.
func (w *world) runs(f *topology.Flow, topic string, n int) {
	w.Helper()
	p := w.start(f)
	w.arrived(topic, n)
	p.Stop()
}

// change makes a change to the ledger, and checks that looking at it first
// changes nothing.
func (w *world) change(f *topology.Flow, c mirror.LedgerChange) (mirror.LedgerPlan, error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), within)
	defer cancel()
	c.Flow = f.Name
	m := w.asked(f)
	before := w.ledgerEnds(f.Name)
	planned, err := m.PlanLedger(ctx, c)
	if after := w.ledgerEnds(f.Name); before != after {
		w.Errorf("the plan wrote to the ledger: %s, then %s", before, after)
	}
	if err != nil {
		return planned, err
	}
	done, err := m.ChangeLedger(ctx, c)
	if err == nil && fmt.Sprint(planned.Places) != fmt.Sprint(done.Places) && !says(strings.Join(planned.Steps, "\n"), "share group") {
		w.Errorf("planned %v, done %v", planned.Places, done.Places)
	}
	return done, err
}

func (w *world) ledgerEnds(flow string) string {
	w.Helper()
	ends, err := w.target.Admin(w.T).ListEndOffsets(w.Context(), txn.LedgerTopic(flow))
	if err != nil {
		return "none"
	}
	var out []string
	ends.Each(func(o kadm.ListedOffset) { out = append(out, fmt.Sprint(o.Partition, o.Offset)) })
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// refused fails unless the error is a refusal with every word.
func (w *world) refused(err error, words ...string) {
	w.Helper()
	var r *mirror.Refusal
	if !errors.As(err, &r) || !says(r.Error(), words...) {
		w.Errorf("error %v, want a refusal with %q", err, words)
	}
}

// stops fails unless a run of the flow ends with a refusal that has every word.
func (w *world) stops(f *topology.Flow, words ...string) {
	w.Helper()
	m := w.asked(f)
	ctx, cancel := context.WithTimeout(w.Context(), within)
	defer cancel()
	w.refused(m.Run(ctx), words...)
}

// From exactly-once to at-least-once and back, twice, with records before, in and
// after each: every record is there once.
func TestLedgerSuspendAndResume(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderPartition, topology.ReaderShare} {
		t.Run(string(read), func(t *testing.T) {
			w := newWorld(t, testenv.EmbeddedOptions{})
			strong, weak := w.exact("both", "t"), w.weak("both", read, "t")
			w.fill("t", 3, 90, 1)
			total := 90
			w.runs(strong, "t", total)
			for turn := range int64(2) {
				w.more("t", 3, 60, 10*turn+2)
				total += 60
				p := w.start(weak)
				w.arrived("t", total)
				w.more("t", 3, 30, 10*turn+3)
				total += 30
				w.arrived("t", total)
				if r := w.ledger(strong); r.Suspended == nil || !says(r.Suspended.Reason, "at-least-once") {
					t.Errorf("suspended: %+v", r.Suspended)
				} else {
					w.sound(r)
				}
				_, err := w.change(strong, mirror.LedgerChange{Action: mirror.LedgerResume})
				w.refused(err, "members", "stop all of its processes")
				p.Stop()
				w.stops(strong, "suspended", "mirror ledger resume --flow both")

				w.more("t", 3, 60, 10*turn+4)
				total += 60
				suite.Eventually(t, within, "members are gone", func() (bool, string) {
					plan, err := w.change(strong, mirror.LedgerChange{Action: mirror.LedgerResume})
					if err == nil && len(plan.Places) != 3 {
						t.Errorf("plan %+v", plan)
					}
					return err == nil, fmt.Sprint(err)
				})
				for _, row := range w.ledger(strong).Positions {
					if row.Start == nil || !row.Start.Prior || !says(row.Start.Reason, "resumed") || row.Frontier != nil {
						t.Errorf("row %+v start %+v", row, row.Start)
					}
				}
				if plan, err := w.change(strong, mirror.LedgerChange{Action: mirror.LedgerResume}); err != nil || len(plan.Steps) > 0 {
					t.Errorf("resumed twice: %+v, %v", plan, err)
				}
				w.runs(strong, "t", total)
				w.sound(w.ledger(strong))
			}
			w.same("t", unordered)
		})
	}
}

// A suspension and a resumption that end between any two steps are completed by
// the next process, whichever way it goes.
func TestLedgerChangesLeftHalfWay(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	strong, weak := w.exact("half", "t"), w.weak("half", topology.ReaderPartition, "t")
	w.fill("t", 4, 80, 1)
	total := 80
	next := func(f *topology.Flow, seed int64) {
		t.Helper()
		w.more("t", 4, 40, seed)
		total += 40
		w.runs(f, "t", total)
	}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.runs(strong, "t", total)
	// Told to the source and not suspended: exactly-once goes on.
	step(mirror.CarryShard(t.Context(), w.asked(weak), "half", 0))
	next(strong, 2)
	// One of two suspended.
	step(mirror.SuspendShard(t.Context(), w.asked(weak), "half", 0))
	w.found(w.ledger(strong), "1 of 2 shards are suspended")
	w.stops(strong, "suspended")
	next(weak, 3)
	// One of two resumed, and back to at-least-once.
	step(mirror.ResumeShard(t.Context(), w.asked(strong), "half", 0))
	w.found(w.ledger(strong), "1 of 2 shards are suspended")
	next(weak, 4)
	// One of two resumed, and on from there.
	step(mirror.ResumeShard(t.Context(), w.asked(strong), "half", 1))
	w.stops(strong, "suspended")
	if _, err := w.change(strong, mirror.LedgerChange{Action: mirror.LedgerResume}); err != nil {
		t.Fatal(err)
	}
	next(strong, 5)
	w.sound(w.ledger(strong))
	w.same("t", testenv.Compare{})
}

// A process that copies exactly-once while the flow is suspended is fenced, and
// says why it ends.
func TestLedgerSuspendFencesTheRunning(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	strong, weak := w.exact("fence", "t"), w.weak("fence", topology.ReaderPartition, "t")
	w.fill("t", 2, 40, 1)
	one := w.start(strong)
	w.arrived("t", 40)
	two := w.start(weak)
	w.drained(two, "fence", 2)
	w.more("t", 2, 40, 2) // both have the records to copy
	w.until(one, "fence", "it stops", func(st mirror.FlowState) bool {
		return st.Phase == mirror.FlowStopped && says(st.Reason, "suspended")
	})
	w.arrived("t", 80)
	w.drained(two, "fence", 2)
	two.Stop()
	w.same("t", testenv.Compare{})
}

// Where the group at the source has forgotten its positions nobody knows how far
// the at-least-once run got.
func TestLedgerResumeWithoutPositions(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	strong, weak := w.exact("lost", "t"), w.weak("lost", topology.ReaderPartition, "t")
	w.fill("t", 2, 40, 1)
	w.runs(strong, "t", 40)
	w.more("t", 2, 20, 3)
	w.runs(weak, "t", 60)
	set, err := w.topologyOf(weak).Resolve(weak)
	if err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, within, "the group goes", func() (bool, string) {
		_, err := w.source.Admin(t).DeleteGroup(t.Context(), set.GroupID)
		return err == nil, fmt.Sprint(err)
	})
	_, err = w.change(strong, mirror.LedgerChange{Action: mirror.LedgerResume})
	w.refused(err, "no position", "t[0]", "t[1]", "--reset-offsets")
}

// A flow that never had a ledger gets none from being asked for at-least-once.
func TestLedgerNoneToSuspend(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	f := w.weak("none", topology.ReaderPartition, "t")
	w.fill("t", 2, 40, 1)
	w.runs(f, "t", 40)
	if r := w.ledger(f); r.Exists {
		t.Errorf("ledger %+v", r)
	}
	for _, a := range []mirror.LedgerAction{mirror.LedgerResume, mirror.LedgerAccept} {
		_, err := w.change(f, mirror.LedgerChange{Action: a})
		w.refused(err, "no ledger")
	}
}

// Another declaration is refused until it is accepted, and then whoever runs with
// the old one is, also when accepting ended half-way.
func TestLedgerAccept(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	old, now := w.exact("accept", "t"), w.exact("accept", "t")
	now.Rename = "new.{topic}"
	w.fill("t", 4, 40, 1)
	one := w.start(old)
	w.arrived("t", 40)
	w.stops(now, "declaration has changed", "mirror ledger accept --flow accept")
	if err := mirror.AcceptShard(t.Context(), w.asked(now), "accept", 0); err != nil {
		t.Fatal(err)
	}
	w.found(w.ledger(now), "shard 1", "declaration has changed")
	w.more("t", 4, 40, 2)
	w.until(one, "accept", "it stops", func(st mirror.FlowState) bool {
		return st.Phase == mirror.FlowStopped && says(st.Reason, "declaration has changed")
	})
	plan, err := w.change(now, mirror.LedgerChange{Action: mirror.LedgerAccept})
	if err != nil || len(plan.Steps) == 0 || !says(plan.Steps[0], "shards 1 of", "generation 2") {
		t.Errorf("plan %+v, %v", plan, err)
	}
	w.stops(old, "declaration has changed")
	w.runs(now, "new.t", 20) // at least those of shard 0
	r := w.ledger(now)
	w.sound(r)
	if r.Generation != 2 || !r.Declared {
		t.Errorf("generation %d, declared %t", r.Generation, r.Declared)
	}
	if plan, err := w.change(now, mirror.LedgerChange{Action: mirror.LedgerAccept}); err != nil || len(plan.Steps) > 0 {
		t.Errorf("accepted twice: %+v, %v", plan, err)
	}
	if got := len(w.target.ReadAll(t, "t")) + len(w.target.ReadAll(t, "new.t")); got != 80 {
		t.Errorf("%d records under both names", got)
	}
}

// A ledger that was lost is founded anew on request alone, and where it is told
// to begin.
func TestLedgerInit(t *testing.T) {
	lost := func(t *testing.T, group bool) (*world, *topology.Flow) {
		w := newWorld(t, testenv.EmbeddedOptions{})
		f := w.exact("init", "t")
		w.fill("t", 2, 40, 1)
		w.runs(f, "t", 40)
		if _, err := w.target.Admin(t).DeleteTopics(t.Context(), txn.LedgerTopic("init")); err != nil {
			t.Fatal(err)
		}
		if !group {
			set, err := w.topologyOf(f).Resolve(f)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.source.Admin(t).DeleteGroup(t.Context(), set.GroupID); err != nil {
				t.Fatal(err)
			}
		}
		w.stops(f, "the ledger was lost", "mirror ledger init --accept --flow init")
		w.more("t", 2, 20, 2)
		return w, f
	}
	for name, c := range map[string]struct {
		from          mirror.LedgerFrom
		group         bool
		why, meaning  string
		arrive, total int
	}{
		"committed": {mirror.LedgerFromCommitted, true, "position of group", "goes on", 60, 60},
		"from map":  {"", false, "offset map", "goes on", 60, 60},
		"earliest":  {mirror.LedgerFromEarliest, true, "earliest", "AGAIN", 100, 100},
		"latest":    {mirror.LedgerFromLatest, true, "latest", "SKIPPED", 50, 50},
	} {
		t.Run(name, func(t *testing.T) {
			w, f := lost(t, c.group)
			plan, err := w.change(f, mirror.LedgerChange{Action: mirror.LedgerInit, From: c.from})
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.Places) != 2 {
				t.Errorf("plan %+v", plan)
			}
			for _, p := range plan.Places {
				if !says(p.Why, c.why) || !says(p.Meaning(), c.meaning) {
					t.Errorf("%s[%d] from %d: %s, %s", p.Topic, p.Partition, p.From, p.Why, p.Meaning())
				}
			}
			if plan, err := w.change(f, mirror.LedgerChange{Action: mirror.LedgerInit, From: c.from}); err != nil || len(plan.Steps) > 0 {
				t.Errorf("founded twice: %+v, %v", plan, err)
			}
			if name == "latest" {
				w.more("t", 2, 10, 3)
			}
			w.runs(f, "t", c.arrive)
			if got := len(w.target.ReadAll(t, "t")); got != c.total {
				t.Errorf("%d records on the target, want %d", got, c.total)
			}
			for _, row := range w.ledger(f).Positions {
				if row.Start == nil || !says(row.Start.Reason, "mirror ledger init") {
					t.Errorf("row %+v start %+v", row, row.Start)
				}
			}
			if c.total == 60 {
				w.same("t", testenv.Compare{})
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		w, f := lost(t, true)
		_, err := w.change(f, mirror.LedgerChange{Action: mirror.LedgerInit, From: "yesterday"})
		w.refused(err, "yesterday", "committed, earliest or latest")
	})
}

// A process that joins while the ledger is being resumed would copy outside of
// it: the ledger stays suspended.
func TestLedgerResumeMeetsAJoiner(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	strong, weak := w.exact("join", "t"), w.weak("join", topology.ReaderPartition, "t")
	w.fill("t", 2, 40, 1)
	w.runs(strong, "t", 40)
	w.more("t", 2, 20, 2)
	w.runs(weak, "t", 60)
	set, err := w.topologyOf(weak).Resolve(weak)
	if err != nil {
		t.Fatal(err)
	}
	fake := w.target.Fake()
	var joined atomic.Bool
	fake.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if !joined.Swap(true) {
			fake.SleepControl(func() {
				cl := w.source.Client(t, kgo.ConsumerGroup(set.GroupID), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit())
				suite.Eventually(t, within, "it is a member", func() (bool, string) {
					_, generation := cl.GroupMetadata()
					return generation >= 0, ""
				})
			})
		}
		return nil, nil, false
	})
	_, err = w.change(strong, mirror.LedgerChange{Action: mirror.LedgerResume})
	w.refused(err, "1 members")
	if !joined.Load() {
		t.Fatal("nobody joined")
	}
	if r := w.ledger(strong); r.Suspended == nil {
		t.Error("the ledger is not suspended")
	} else {
		w.sound(r)
	}
}

// A position that somebody set back at the source does not take the ledger back.
func TestLedgerResumeNeverGoesBack(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	strong, weak := w.exact("back", "t"), w.weak("back", topology.ReaderPartition, "t")
	w.fill("t", 2, 40, 1)
	w.runs(strong, "t", 40)
	w.more("t", 2, 20, 3)
	w.runs(weak, "t", 60)
	set, err := w.topologyOf(weak).Resolve(weak)
	if err != nil {
		t.Fatal(err)
	}
	var os kadm.Offsets
	os.AddOffset("t", 0, 3, -1)
	if err := w.source.Admin(t).CommitAllOffsets(t.Context(), set.GroupID, os); err != nil {
		t.Fatal(err)
	}
	plan, err := w.change(strong, mirror.LedgerChange{Action: mirror.LedgerResume})
	if err != nil || len(plan.Places) != 1 || plan.Places[0].Partition != 1 {
		t.Errorf("plan %+v, %v", plan, err)
	}
	// Partition 0 goes on at 20, where the ledger has it; the 10 since come again.
	w.runs(strong, "t", 70)
	if got := len(w.target.ReadAll(t, "t")); got != 70 {
		t.Errorf("%d records on the target, want 70", got)
	}
}
