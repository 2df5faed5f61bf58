package txn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// How long the ledger and how high the epoch gets in a search without folding,
// which has no end: a process that waits for its InitProducerID and tries it
// again may end another's transaction each time.
const unfoldedLog, unfoldedEpoch = 7, 6

// shardSearch is one breadth-first search through all interleavings.
type shardSearch struct {
	rules  *shardRules
	which  harm
	index  map[shardWorld]int32
	worlds []shardWorld
	// from and by tell how each world was reached first.
	from []int32
	by   []string
	// sure are the steps that come without luck, as pairs from, to.
	sure [][2]int32
}

// harm is how the promise is broken.
type harm int8

const (
	harmAny   harm = iota
	harmTwice      // a record is there twice, or out of order
	harmLost       // it is missing, and nobody knows
	harmStuck      // it is missing, and no process goes on
)

// searchShard tries every interleaving. It returns how many states there are,
// and the shortest way to one that breaks the promise in the way looked for.
func searchShard(r *shardRules, which harm) (states int, trace []string) {
	s := shardSearch{rules: r, which: which, index: map[shardWorld]int32{}}
	s.reach(newShardWorld(r), -1, "")
	for i := int32(0); int(i) < len(s.worlds); i++ {
		if what := s.expand(i); what != "" {
			return len(s.worlds), s.path(i, what)
		}
	}
	if i := s.hopeless(); i >= 0 {
		return len(s.worlds), s.path(i, "from here the copy is never complete, whatever comes")
	}
	return len(s.worlds), nil
}

// reach returns the number of w, a new one if it was never seen.
func (s *shardSearch) reach(w shardWorld, from int32, by string) int32 {
	i, ok := s.index[w]
	if !ok {
		i = int32(len(s.worlds))
		s.index[w] = i
		s.worlds, s.from, s.by = append(s.worlds, w), append(s.from, from), append(s.by, by)
	}
	return i
}

// expand looks at world i and takes each step from it. It returns what is
// wrong with it.
func (s *shardSearch) expand(i int32) string {
	w := s.worlds[i]
	if what := w.broken(); what != "" && (s.which == harmAny || s.which == harmTwice) {
		return what
	}
	if s.rules.unfolded && (w.n >= unfoldedLog || w.txns[0].epoch >= unfoldedEpoch) {
		return ""
	}
	quiet := true
	for _, step := range w.steps(s.rules) {
		to := s.reach(step.to, i, step.String())
		if !step.luck {
			quiet = false
			s.sure = append(s.sure, [2]int32{i, to})
		}
	}
	kind := harmLost
	if w.promised == noPosition || w.owners[0].phase == ownerHalted || w.owners[1].phase == ownerHalted {
		kind = harmStuck
	}
	if quiet && (s.which == harmAny || s.which == kind) {
		return w.incomplete()
	}
	return ""
}

// hopeless returns a world from which no steps, without luck, lead to a
// complete copy; -1 when there is none. It finds what runs in circles for ever.
func (s *shardSearch) hopeless() int32 {
	if s.rules.unfolded || s.which != harmAny {
		return -1 // Cut short, its ends are none.
	}
	back := make([][]int32, len(s.worlds))
	for _, e := range s.sure {
		back[e[1]] = append(back[e[1]], e[0])
	}
	hope := make([]bool, len(s.worlds))
	var todo []int32
	mark := func(i int32) {
		if !hope[i] {
			hope[i] = true
			todo = append(todo, i)
		}
	}
	for i := range s.worlds {
		if s.worlds[i].incomplete() == "" {
			mark(int32(i))
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, before := range back[i] {
			mark(before)
		}
	}
	return int32(slices.Index(hope, false))
}

// path is how world i was reached, and what is wrong with it.
func (s *shardSearch) path(i int32, what string) []string {
	out := []string{"=> " + what}
	for ; i > 0; i = s.from[i] {
		out = append(out, s.by[i])
	}
	slices.Reverse(out)
	return out
}

// faulty adds how often things go wrong in the searches.
func faulty(r shardRules) shardRules {
	r.crashes, r.moves, r.timeouts, r.losses, r.elections = 1, 2, 1, 1, 1
	return r
}

// Whatever goes wrong, in whatever order: no record is there twice, none is
// missing once things are quiet, and they are in order.
func TestShardModel(t *testing.T) {
	for _, tc := range []struct {
		name string
		shardRules
		more bool
	}{
		{name: "v1", more: true},
		{name: "v2", shardRules: shardRules{v2: true}, more: true},
		{name: "v2 with commits repeated", shardRules: shardRules{v2: true, repeats: true}},
		{name: "v1 from the latest", shardRules: shardRules{latest: true}},
		{name: "v2 from the latest", shardRules: shardRules{v2: true, latest: true}},
		{name: "v1 unverified", shardRules: shardRules{unverified: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := faulty(tc.shardRules)
			if tc.more && !testing.Short() {
				r.crashes, r.moves, r.timeouts, r.losses = 2, 3, 2, 2
			}
			begun := time.Now()
			states, trace := searchShard(&r, harmAny)
			t.Logf("%d states in %v", states, time.Since(begun).Round(time.Millisecond))
			if trace != nil {
				t.Errorf("violation:\n  %s", strings.Join(trace, "\n  "))
			}
		})
	}
}

// Folding leaves nothing out: with fewer faults, the search without it comes
// to the same verdict.
func TestShardModelUnfolded(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		r := shardRules{v2: v2, unfolded: true, crashes: 1, moves: 1, losses: 1}
		states, trace := searchShard(&r, harmAny)
		r.unfolded = false
		folded, _ := searchShard(&r, harmAny)
		t.Logf("%d states, %d folded", states, folded)
		if trace != nil {
			t.Errorf("violation:\n  %s", strings.Join(trace, "\n  "))
		}
		if folded >= states {
			t.Error("folding folds nothing")
		}
	}
}

// Each rule of the protocol, taken out, is missed: the model finds what goes
// wrong. A mutation without a violation means a model that can't see.
func TestShardModelMutations(t *testing.T) {
	for _, mutation := range []struct {
		name string
		harm harm
		shardRules
	}{
		{"no fencing", harmTwice, shardRules{noFence: true}},
		{"reading before fencing", harmTwice, shardRules{readFirst: true}},
		{"position before the transaction", harmLost, shardRules{outsideBefore: true}},
		{"position after the transaction", harmTwice, shardRules{outsideAfter: true}},
		// Its positions then go back, which is at least seen.
		{"undecided is aborted", harmStuck, shardRules{unverified: true, undecidedGone: true}},
		{"lost answer is aborted", harmTwice, shardRules{lostAborted: true}},
		{"lost answer is committed", harmLost, shardRules{lostCommitted: true}},
		{"no start entry, from zero", harmTwice, shardRules{fromZero: true}},
		{"no start entry, from the group", harmTwice, shardRules{fromGroup: true}},
		{"no start entry, from the latest", harmLost, shardRules{latest: true, fromLatest: true}},
		{"markers of the same epoch only", harmStuck, shardRules{exactMarkers: true}},
		{"markers of the same epoch only, others aborted", harmTwice, shardRules{exactMarkers: true, undecidedGone: true}},
		{"lagging high watermark as the end", harmTwice, shardRules{lagTaken: true}},
		// Another's live one, of a process that was faster after the fence.
		{"any open transaction hangs", harmStuck, shardRules{anyHangs: true}},
		{"commits repeated", harmTwice, shardRules{repeats: true}},
		{"abort over an unanswered produce", harmTwice, shardRules{endOverUnclean: true}},
	} {
		// Brokers with v2 verify, its epochs tell late requests apart, and
		// v1 has one epoch for data and commit.
		only := map[string]int{
			"undecided is aborted": 1, "commits repeated": 1, "abort over an unanswered produce": 1,
			"markers of the same epoch only, others aborted": 2,
		}[mutation.name]
		for version := 1; version <= 2; version++ {
			if only != 0 && only != version {
				continue
			}
			t.Run(fmt.Sprintf("%s/v%d", mutation.name, version), func(t *testing.T) {
				r := faulty(mutation.shardRules)
				r.v2 = version == 2
				states, trace := searchShard(&r, mutation.harm)
				if trace == nil {
					t.Fatalf("no violation in %d states", states)
				}
				t.Logf("%d states\n  %s", states, strings.Join(trace, "\n  "))
			})
		}
	}
}
