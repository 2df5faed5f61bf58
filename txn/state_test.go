package txn

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Not "update": other tests of the package may have a flag of that name.
var updateScripts = flag.Bool("update-scripts", false, "rewrite the expectations in testdata/session; change only what you can explain")

// Each script is a session's life: an event a line, and after the arrow the
// state and effects that follow. "reset" begins another life.
func TestSessionScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/session/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	seen := map[State]bool{}
	did := map[effect]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var m machine
			var out bytes.Buffer
			for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
				text, want, _ := strings.Cut(line, "=>")
				text, want = strings.TrimSpace(text), strings.TrimSpace(want)
				switch {
				case text == "" || text[0] == '#':
					fmt.Fprintln(&out, line)
					continue
				case text == "reset":
					m = machine{}
					fmt.Fprintln(&out, text)
					continue
				}
				ev, err := parseEvent(text)
				if err != nil {
					t.Fatalf("%s:%d: %v", file, i+1, err)
				}
				next, did1, complaint := tryStep(m, ev)
				got := complaint
				if complaint == "" {
					m = next
					got = m.state.String()
					if len(did1) > 0 {
						got += ": " + effectList(did1)
					}
					seen[m.state] = true
					for _, e := range did1 {
						did[e] = true
					}
				}
				fmt.Fprintf(&out, "%-34s => %s\n", text, got)
				if got != want && !*updateScripts {
					t.Errorf("%s:%d: %s\n got %s\nwant %s", file, i+1, text, got, want)
				}
			}
			if *updateScripts {
				if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for s := range State(states) {
		if !seen[s] {
			t.Errorf("no script reaches %v", s)
		}
	}
	for e := range effect(effects) {
		if !did[e] {
			t.Errorf("no script has %v", e)
		}
	}
}

// tryStep is step with its panic as a text.
func tryStep(m machine, ev event) (next machine, did []effect, complaint string) {
	defer func() {
		if r := recover(); r != nil {
			complaint = "panic: " + strings.TrimPrefix(fmt.Sprint(r), "txn: ")
		}
	}()
	next, did = step(m, ev)
	return next, did, ""
}

func effectList(es []effect) string {
	var out []string
	for _, e := range es {
		out = append(out, e.String())
	}
	return strings.Join(out, " ")
}

// parseEvent reads what the scripts write: a name and its arguments.
func parseEvent(text string) (event, error) {
	f := strings.Fields(text)
	arg := func(i int) string {
		if i+1 < len(f) {
			return f[i+1]
		}
		return ""
	}
	var bad error
	number := func(i int) int {
		n, err := strconv.Atoi(arg(i))
		if err != nil {
			bad = err
		}
		return n
	}
	id := func(i int) producerID {
		var p producerID
		if _, err := fmt.Sscanf(arg(i), "%d/%d", &p.id, &p.epoch); err != nil {
			bad = err
		}
		return p
	}
	action := func() Action {
		a := Action(slices.Index(actionNames[:], strings.ReplaceAll(arg(0), "-", " ")))
		if a <= 0 {
			bad = fmt.Errorf("no action %q", arg(0))
		}
		return a
	}
	positions := func() Positions {
		out := Positions{}
		for _, part := range strings.Split(arg(0), ",") {
			if part == "none" {
				break
			}
			name, at, _ := strings.Cut(part, "=")
			n, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				bad = err
			}
			out[SourcePartition{Cluster: name}] = n
		}
		return out
	}
	if len(f) == 0 {
		return nil, fmt.Errorf("no event in %q", text)
	}
	var ev event
	switch f[0] {
	case "assigned":
		ev = evAssigned{}
	case "initOK":
		ev = evInitOK{id(0)}
	case "initErr":
		ev = evInitErr{action()}
	case "ledgerRead":
		ev = evLedgerRead{positions()}
	case "readErr":
		ev = evReadErr{action()}
	case "begin":
		ev = evBegin{v2: arg(0) == "v2", share: arg(1) == "share"}
	case "sent":
		ev = evSent{number(0)}
	case "produced":
		ev = evProduced{number(0), id(1)}
	case "produceErr":
		ev = evProduceErr{action()}
	case "positionWritten":
		at := positions()
		ev = evPositionWritten{max(len(at), 1), at, id(1)} // "none" is one record about the ledger
	case "mapWritten":
		ev = evMapWritten{number(0), id(1)}
	case "flushOK":
		ev = evFlushOK{}
	case "flushErr":
		ev = evFlushErr{action()}
	case "commit":
		ev = evCommit{}
	case "abort":
		ev = evAbort{}
	case "endOK":
		ev = evEndOK{id(0)}
	case "endErr":
		ev = evEndErr{action()}
	case "lost":
		ev = evLost{}
	case "close":
		ev = evClose{}
	default:
		return nil, fmt.Errorf("no event %q", f[0])
	}
	return ev, bad
}

// life is a session under exhaustive search, with what a witness outside of
// the machine has noted.
type life struct {
	m machine
	// told is that the transaction begun last was told its outcome.
	told bool
	// begun counts the transactions, as far as the search goes.
	begun int
	// handed and answered count its records; failed is that one was not
	// answered well, or under another id; placed that its positions were.
	handed, answered int
	failed, placed   bool
	// fenced is that InitProducerID was answered, read that the ledger was
	// read after it, and nothing unclean has come since.
	fenced, read bool
	// ends counts the EndTxns of the transaction, up to 2, dead is that one had no
	// clean answer at this id.
	ends int
	dead bool
	// asked is that a commit went out for the transaction.
	asked bool
}

// All that can happen to a session, in any order, in two transactions: what step
// promises is checked by a witness that does not trust its states.
func TestStepKeepsItsPromises(t *testing.T) {
	at := SourcePartition{Cluster: "a"}
	pos := Positions{at: 5}
	id := producerID{7, 3}
	other := producerID{7, 9}
	var events []event
	for _, a := range []Action{Retry, Abort, RestartLane, Yield, Stop} {
		events = append(events, evInitErr{a}, evReadErr{a}, evProduceErr{a}, evFlushErr{a}, evEndErr{a})
	}
	events = append(events,
		evAssigned{}, evInitOK{id}, evLedgerRead{pos}, evLedgerRead{Positions{at: 4}}, evBegin{v2: true}, evBegin{v2: false},
		evSent{1}, evSent{2}, evProduced{1, id}, evProduced{1, other}, evPositionWritten{1, pos, id}, evPositionWritten{1, pos, other}, evPositionWritten{1, Positions{}, id},
		evMapWritten{1, id}, evMapWritten{0, producerID{}}, evFlushOK{}, evCommit{}, evAbort{},
		evEndOK{id}, evEndOK{producerID{7, 4}}, evEndOK{other}, evLost{}, evClose{})

	start := life{told: true}
	seen := map[string]bool{}
	queue := []life{start}
	steps := 0
	for len(queue) > 0 {
		l := queue[0]
		queue = queue[1:]
		for _, ev := range events {
			if l.m.copies+l.m.entries > 3 && isA[evSent](ev) || l.begun == 2 && isA[evBegin](ev) {
				continue
			}
			// The answers are for the id at hand, whatever it has become.
			ev := withID(ev, l.m.id, id)
			next, did, complaint := tryStep(l.m, ev)
			if complaint != "" {
				if !strings.Contains(complaint, "in state "+l.m.state.String()) || !strings.Contains(complaint, "event "+eventName(ev)) {
					t.Fatalf("a panic without names: %s", complaint)
				}
				continue
			}
			steps++
			n, wrong := l.witness(next, ev, did)
			if wrong != "" {
				t.Fatalf("%s\nin %+v\nafter %T %+v: %v", wrong, l, ev, ev, did)
			}
			if key := fmt.Sprintf("%+v", n); !seen[key] {
				seen[key] = true
				queue = append(queue, n)
			}
		}
	}
	t.Logf("%d states, %d steps", len(seen), steps)
	if len(seen) < 1000 {
		t.Errorf("only %d states: the search goes nowhere", len(seen))
	}
}

func isA[E event](ev event) bool { _, ok := ev.(E); return ok }

// withID is ev with the id that the search writes for "ours" replaced by the one
// at hand, and with its successor for the one that follows it.
func withID(ev event, have, ours producerID) event {
	swap := func(p producerID) producerID {
		switch p {
		case ours:
			return have
		case producerID{ours.id, ours.epoch + 1}:
			return producerID{have.id, have.epoch + 1}
		}
		return p
	}
	switch e := ev.(type) {
	case evProduced:
		e.id = swap(e.id)
		return e
	case evPositionWritten:
		e.id = swap(e.id)
		return e
	case evMapWritten:
		e.id = swap(e.id)
		return e
	case evEndOK:
		e.id = swap(e.id)
		return e
	}
	return ev
}

// witness is l after the event, or what is wrong with it.
func (l life) witness(next machine, ev event, did []effect) (life, string) {
	wasV2 := l.m.v2
	switch ev := ev.(type) {
	case evInitOK:
		// Whatever went wrong is over.
		l.fenced, l.read, l.dead, l.failed = true, false, false, false
	case evLedgerRead:
		if !l.fenced {
			return l, "the ledger counts although it was not read behind a fence"
		}
		l.read = true
	case evBegin:
		if !l.fenced || !l.read {
			return l, "a transaction begins without fence and ledger"
		}
		if !l.told {
			return l, "a transaction begins before the one before was told its outcome"
		}
		l.told, l.begun = false, l.begun+1
		l.handed, l.answered, l.ends = 0, 0, 0
		l.failed, l.placed, l.asked = false, false, false
	case evSent:
		l.handed += ev.n
	case evProduced:
		l.answered += ev.n
		l.failed = l.failed || ev.id != l.m.id
	case evPositionWritten:
		l.answered += ev.n
		l.placed, l.failed = true, l.failed || ev.id != l.m.id
	case evMapWritten:
		l.answered += ev.n
		l.failed = l.failed || ev.n > 0 && ev.id != l.m.id
	case evProduceErr, evFlushErr:
		l.failed = true
	case evEndErr:
		l.dead = l.dead || !wasV2
		if ev.action != Retry || !wasV2 {
			l.fenced, l.read = false, false
		}
	case evEndOK:
		if want := (producerID{l.m.id.id, l.m.id.epoch + 1}); wasV2 && ev.id != want || !wasV2 && ev.id != l.m.id {
			l.fenced, l.read, l.dead = false, false, true
		}
	case evLost, evClose:
		l.fenced, l.read = false, false
	}
	if l.failed {
		l.fenced, l.read = false, false
	}
	for _, e := range did {
		switch e {
		case sendCommit, sendAbort:
			l.ends = min(l.ends+1, 2)
			switch {
			case l.dead:
				return l, "EndTxn at an epoch at which one was not answered cleanly"
			case !wasV2 && l.ends > 1:
				return l, "a second EndTxn of v1 for one transaction"
			case l.failed || l.answered != l.handed:
				return l, "EndTxn over produce requests that failed or are under way"
			case e == sendCommit && !l.placed:
				return l, "a commit without positions"
			case e == sendAbort && l.asked:
				return l, "an abort after a commit"
			}
			l.asked = l.asked || e == sendCommit
		case deliverCommitted, deliverAborted, deliverUnknown:
			if l.told {
				return l, "an outcome for nothing, or a second one"
			}
			l.told = true
			_, read := ev.(evLedgerRead)
			_, ended := ev.(evEndOK)
			switch {
			case e == deliverCommitted && (!l.asked || !read && !ended):
				return l, "committed, although nobody says so"
			case e == deliverAborted && l.asked && !read:
				return l, "aborted, although it may have committed"
			}
		case readLedger:
			if !l.fenced {
				return l, "reads the ledger before the fence"
			}
		case sendInit, reinit, dropBuffered:
		}
	}
	if next.state == Closed && !l.told && l.m.state != Ending {
		return l, "closed with a transaction that was told no outcome"
	}
	l.m = next
	return l, ""
}
