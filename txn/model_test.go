package txn_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// searchShard tries every interleaving. It returns how many states there are, and
// the shortest way to one that breaks the promise.
func searchShard(r *shardRules) (states int, trace []string) {
	type from struct {
		prev int
		step string
	}
	start := newShardWorld(r)
	seen := map[shardWorld]struct{}{start: {}}
	worlds := []shardWorld{start}
	froms := []from{{-1, ""}}
	path := func(i int, last string) []string {
		var out []string
		for ; i > 0; i = froms[i].prev {
			out = append(out, froms[i].step)
		}
		for a, b := 0, len(out)-1; a < b; a, b = a+1, b-1 {
			out[a], out[b] = out[b], out[a]
		}
		return append(out, "=> "+last)
	}
	for i := 0; i < len(worlds); i++ {
		w := worlds[i]
		if what := w.broken(); what != "" {
			return len(seen), path(i, what)
		}
		quiet := true
		for _, s := range w.steps(r) {
			quiet = quiet && s.luck
			if _, ok := seen[s.to]; ok {
				continue
			}
			seen[s.to] = struct{}{}
			worlds = append(worlds, s.to)
			froms = append(froms, from{i, s.String()})
		}
		if what := w.incomplete(); quiet && what != "" {
			return len(seen), path(i, what)
		}
	}
	return len(seen), nil
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
				r.crashes, r.losses = 2, 2
			}
			begun := time.Now()
			states, trace := searchShard(&r)
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
		states, trace := searchShard(&r)
		r.unfolded = false
		folded, _ := searchShard(&r)
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
		shardRules
	}{
		{"no fencing", shardRules{noFence: true}},
		{"reading before fencing", shardRules{readFirst: true}},
		{"position before the transaction", shardRules{outsideBefore: true}},
		{"position after the transaction", shardRules{outsideAfter: true}},
		{"undecided is aborted", shardRules{unverified: true, undecidedGone: true}},
		{"lost answer is aborted", shardRules{lostAborted: true}},
		{"lost answer is committed", shardRules{lostCommitted: true}},
		{"no start entry, from zero", shardRules{fromZero: true}},
		{"no start entry, from the group", shardRules{fromGroup: true}},
		{"no start entry, from the latest", shardRules{latest: true, fromLatest: true}},
		{"markers of the same epoch only", shardRules{exactMarkers: true}},
		{"lagging high watermark as the end", shardRules{lagTaken: true}},
		{"commits repeated", shardRules{repeats: true}},
		{"abort over an unanswered produce", shardRules{endOverUnclean: true}},
	} {
		for _, v2 := range []bool{false, true} {
			if v2 && (mutation.unverified || mutation.repeats || mutation.endOverUnclean) {
				continue // Brokers with v2 verify, and its epochs tell late requests apart.
			}
			t.Run(fmt.Sprintf("%s/v%d", mutation.name, map[bool]int{false: 1, true: 2}[v2]), func(t *testing.T) {
				r := faulty(mutation.shardRules)
				r.v2 = v2
				states, trace := searchShard(&r)
				if trace == nil {
					t.Fatalf("no violation in %d states", states)
				}
				t.Logf("%d states\n  %s", states, strings.Join(trace, "\n  "))
			})
		}
	}
}
