package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/txn"
)

func TestAuditBaseline(t *testing.T) {
	for _, tc := range []struct {
		name string
		g    glance
		want int64
	}{
		{"nothing written yet", glance{start: -1, lag: -1, logStart: 5, end: 100}, 5},
		{"nothing above the start is finished", glance{start: 20, lag: 80, end: 100}, 20},
		{"everything is finished, and the start trails", glance{start: 0, lag: 0, end: 100}, 100},
		// 0..9 open, 10..99 finished: at end-lag = 90, the finished ones above it would be named.
		{"finished out of order", glance{start: 0, lag: 10, end: 100}, 100},
		// Of 80 records above the start 10 were finished when the lag was read,
		// and 10 came until the end was.
		{"records come in between", glance{start: 20, lag: 70, end: 110}, 110},
		{"the lag is not told", glance{start: 20, lag: -1, end: 100}, 100},
		{"the end is unknown", glance{start: 20, lag: 80, end: -1}, -1},
	} {
		if got := tc.g.baseline(); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// auditScript plays looks at one partition.
type auditScript struct {
	*testing.T
	a *audit
}

var auditTip = tip{[16]byte{1}, 0}

func (s auditScript) look(what string, g glance, alone bool, want ...txn.Range) {
	s.Helper()
	sure := s.a.sure(alone)
	got := s.a.passed(auditTip, g, sure)
	s.a.look(alone, map[[16]byte]bool{auditTip.id: true})
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Errorf("%s: named %v, want %v", what, got, want)
	}
}

// Of a new group everything is judged from the first record on.
func TestAuditNewGroup(t *testing.T) {
	s := auditScript{t, newAudit()}
	s.look("before the join", glance{start: -1, lag: -1, end: 50}, true)
	s.a.settled(auditTip, txn.Range{First: 0, Last: 9})
	s.a.settled(auditTip, txn.Range{First: 15, Last: 49})
	s.look("passed", glance{start: 50, lag: 0, end: -1}, true)
	s.look("named one look late", glance{start: 50, lag: 0, end: -1}, true, txn.Range{First: 10, Last: 14})
	s.look("named once", glance{start: 50, lag: 0, end: -1}, true)
}

// An acknowledgement whose answer comes after the look that saw its effect is
// no loss.
func TestAuditLateAnswer(t *testing.T) {
	s := auditScript{t, newAudit()}
	s.look("before the join", glance{start: 0, lag: 50, end: 50}, true)
	s.look("passed", glance{start: 50, lag: 0, end: -1}, true)
	s.a.settled(auditTip, txn.Range{First: 0, Last: 49})
	s.look("answered", glance{start: 50, lag: 0, end: -1}, true)
}

// What another process finished until it left is not judged; what comes after
// is.
func TestAuditOtherProcess(t *testing.T) {
	s := auditScript{t, newAudit()}
	s.look("before the join", glance{start: -1, lag: -1, end: 0}, true)
	s.look("another joined", glance{start: 0, lag: 20, end: 20}, false)
	// It finishes 20..59 and leaves before the next look.
	s.look("it left", glance{start: 0, lag: 20, end: 60}, true)
	s.a.settled(auditTip, txn.Range{First: 60, Last: 69})
	s.look("its records are passed", glance{start: 60, lag: 20, end: -1}, true)
	s.look("none of its records is named", glance{start: 72, lag: 8, end: -1}, true)
	s.look("a later one is", glance{start: 72, lag: 8, end: -1}, true, txn.Range{First: 70, Last: 71})
}

// With another process there and the end unknown nothing is judged until there
// is a baseline again.
func TestAuditEndUnknown(t *testing.T) {
	s := auditScript{t, newAudit()}
	s.look("before the join", glance{start: -1, lag: -1, end: 0}, true)
	s.look("another joined", glance{start: 0, lag: 20, end: -1}, false)
	s.look("it left", glance{start: 30, lag: 0, end: -1}, true)
	s.look("alone", glance{start: 30, lag: 10, end: 60}, true)
	s.look("alone still", glance{start: 60, lag: 0, end: -1}, true)
	s.look("nothing named", glance{start: 60, lag: 0, end: -1}, true)
}

// Deleted topics are forgotten.
func TestAuditPrunes(t *testing.T) {
	a := newAudit()
	a.settled(auditTip, txn.Range{First: 0, Last: 9})
	a.settled(tip{[16]byte{2}, 3}, txn.Range{First: 0, Last: 9})
	a.look(true, map[[16]byte]bool{{2}: true})
	if len(a.parts) != 1 || a.parts[tip{[16]byte{2}, 3}] == nil {
		t.Errorf("%d partitions are kept", len(a.parts))
	}
}

// A reader keeps names of topics for a while after they were last shown, for
// what may still be held of them, and of what is assigned for as long as it is.
func TestReaderForgetsTopics(t *testing.T) {
	old, kept, held := [16]byte{1}, [16]byte{2}, [16]byte{3}
	r := &shareReader{
		names:    map[[16]byte]string{old: "a", kept: "a", held: "b"},
		shown:    map[[16]byte]time.Time{old: time.Unix(0, 0), kept: time.Unix(100, 0), held: time.Unix(0, 0)},
		leaders:  map[tip]int32{{old, 0}: 1, {old, 1}: 1, {kept, 0}: 1, {held, 0}: 1},
		assigned: map[tip]bool{{held, 0}: true},
	}
	r.forget(time.Unix(50, 0))
	if len(r.names) != 2 || r.names[kept] != "a" || r.names[held] != "b" || len(r.leaders) != 2 || len(r.shown) != 2 {
		t.Errorf("kept: names %v, leaders %v, shown %v", r.names, r.leaders, r.shown)
	}
}

// What a group has not finished and the source no longer has is a gap: as many
// offsets as the lag is above what is there.
func TestAuditGone(t *testing.T) {
	for _, c := range []struct {
		name string
		g    glance
		want txn.Range
		ok   bool
	}{
		{"the log's start passed unfinished records", glance{start: 0, lag: 400, logStart: 300, end: 500}, txn.Range{First: 100, Last: 299}, true},
		{"what went was finished", glance{start: 0, lag: 200, logStart: 300, end: 500}, txn.Range{}, false},
		{"nothing went", glance{start: 0, lag: 500, logStart: 0, end: 500}, txn.Range{}, false},
		{"the group has moved on", glance{start: 300, lag: 200, logStart: 300, end: 500}, txn.Range{}, false},
		{"no lag told", glance{start: 0, lag: -1, logStart: 300, end: 500}, txn.Range{}, false},
		{"nothing written yet", glance{start: -1, lag: 400, logStart: 300, end: 500}, txn.Range{}, false},
	} {
		if r, ok := c.g.gone(); ok != c.ok || ok && r != c.want {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, r, ok, c.want, c.ok)
		}
	}
}
