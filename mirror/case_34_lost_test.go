package mirror_test

import (
	"testing"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// init founds the ledger anew.
func (w *fakeWorld) init(from mirror.LedgerFrom) {
	w.Helper()
	m, err := mirror.New(mirror.Options{Topology: w.topologyOf(w.flow), Dial: w.network.DialContext})
	if err == nil {
		_, err = m.ChangeLedger(w.Context(), mirror.LedgerChange{Flow: "eo", Action: mirror.LedgerInit, From: from})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// forget deletes the group in which people see the flow's positions.
func (w *fakeWorld) forget() {
	w.Helper()
	set, err := w.topologyOf(w.flow).Resolve(w.flow)
	if err == nil {
		_, err = w.source.Admin(w.T).DeleteGroup(w.Context(), set.GroupID)
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *fakeWorld) remove(topics ...string) {
	w.Helper()
	if _, err := w.target.Admin(w.T).DeleteTopics(w.Context(), topics...); err != nil {
		w.Fatal(err)
	}
}

// The target is built anew: nothing is skipped on the word of what the source
// was told about the old one. The choice to start over copies everything.
func TestCase34TargetRebuilt(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 100, 34)
		l := w.live()
		w.copied(l)
		l.Stop()
		w.target = testenv.Embedded(w.T, testenv.EmbeddedOptions{Network: w.network})
		w.more("t", 2, 10, 340)
		l = w.live()
		w.refusedWith(l, "the ledger was lost", "mirror ledger init --accept")
		w.init(mirror.LedgerFromEarliest)
		l = w.live()
		w.copied(l)
		if n := len(w.target.ReadAll(w.T, "t")); n != 110 {
			w.Errorf("%d records, want 110", n)
		}
		w.once(l)
	})
}

// Positions at the source are for people: without them nothing is copied again.
// Without the ledger the flow refuses to guess, whatever else is left of it.
func TestCase35PositionsLost(t *testing.T) {
	for name, lose := range map[string]func(*fakeWorld){
		"group":            func(w *fakeWorld) { w.forget() },
		"ledger":           func(w *fakeWorld) { w.remove(txn.LedgerTopic("eo")) },
		"ledger and group": func(w *fakeWorld) { w.remove(txn.LedgerTopic("eo")); w.forget() },
		"ledger and map":   func(w *fakeWorld) { w.remove(txn.LedgerTopic("eo"), txn.MapTopic("eo")) },
		"all but the copies": func(w *fakeWorld) {
			w.remove(txn.LedgerTopic("eo"), txn.MapTopic("eo"))
			w.forget()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.give(3, 51, 35)
				l := w.live()
				w.copied(l)
				l.Stop()
				lose(w)
				w.more("t", 3, 6, 350)
				l = w.live()
				if name != "group" {
					w.refusedWith(l, "the ledger was lost", "mirror ledger init --accept")
					if n := len(w.target.ReadAll(w.T, "t")); n != 51 {
						w.Errorf("%d records were copied", n-51)
					}
					return
				}
				w.copied(l)
				w.once(l)
			})
		})
	}
}
