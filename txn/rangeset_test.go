package txn

import (
	"testing"

	"pgregory.net/rapid"
)

// The set behaves as a map of offsets would, and stays sorted and disjoint.
func TestRangeSetAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s RangeSet
		model := map[int64]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			first := rapid.Int64Range(0, 60).Draw(t, "first")
			last := first + rapid.Int64Range(-1, 12).Draw(t, "len")
			add := rapid.Bool().Draw(t, "add")
			if add {
				s.Add(first, last)
			} else {
				s.Remove(first, last)
			}
			for o := first; o <= last; o++ {
				model[o] = add
			}
		}
		var n int64
		for o := int64(-1); o < 80; o++ {
			if s.Has(o) != model[o] {
				t.Fatalf("Has(%d) = %v, want %v in %v", o, s.Has(o), model[o], s.Ranges())
			}
			if model[o] {
				n++
			}
		}
		if s.Count() != n {
			t.Fatalf("Count() = %d, want %d", s.Count(), n)
		}
		rs := s.Ranges()
		for i, r := range rs {
			if r.Last < r.First || i > 0 && rs[i-1].Last+1 >= r.First {
				t.Fatalf("not normal: %v", rs)
			}
		}
		for _, r := range s.Missing(5, 70) {
			for o := r.First; o <= r.Last; o++ {
				if model[o] || o < 5 || o > 70 {
					t.Fatalf("Missing names %d", o)
				}
				model[o] = true
			}
		}
		for o := int64(5); o <= 70; o++ {
			if !model[o] {
				t.Fatalf("Missing does not name %d", o)
			}
		}
	})
}
