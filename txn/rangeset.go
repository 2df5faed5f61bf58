package txn

import (
	"slices"
	"sort"
)

// Range is a run of offsets.
type Range struct {
	// First and Last are both part of it.
	First, Last int64
}

// Len is the number of offsets in r.
func (r Range) Len() int64 { return r.Last - r.First + 1 }

// RangeSet is a set of offsets kept as sorted, disjoint, non-adjacent runs.
// The zero value is empty. Not safe for concurrent use.
type RangeSet struct{ rs []Range }

// Add puts first..last (both included) into the set. An empty run
// (last < first) changes nothing.
func (s *RangeSet) Add(first, last int64) {
	if last < first {
		return
	}
	i := sort.Search(len(s.rs), func(i int) bool { return s.rs[i].Last >= first-1 })
	j := i
	for j < len(s.rs) && s.rs[j].First <= last+1 {
		first, last = min(first, s.rs[j].First), max(last, s.rs[j].Last)
		j++
	}
	s.rs = slices.Replace(s.rs, i, j, Range{first, last})
}

// Remove takes first..last (both included) out of the set.
func (s *RangeSet) Remove(first, last int64) {
	if last < first {
		return
	}
	i := sort.Search(len(s.rs), func(i int) bool { return s.rs[i].Last >= first })
	var keep []Range
	j := i
	for ; j < len(s.rs) && s.rs[j].First <= last; j++ {
		if r := s.rs[j]; r.First < first {
			keep = append(keep, Range{r.First, first - 1})
		}
		if r := s.rs[j]; r.Last > last {
			keep = append(keep, Range{last + 1, r.Last})
		}
	}
	s.rs = slices.Replace(s.rs, i, j, keep...)
}

// Has reports whether offset is in the set.
func (s *RangeSet) Has(offset int64) bool {
	i := sort.Search(len(s.rs), func(i int) bool { return s.rs[i].Last >= offset })
	return i < len(s.rs) && s.rs[i].First <= offset
}

// Missing returns the runs of first..last that are not in the set, in order.
func (s *RangeSet) Missing(first, last int64) []Range {
	var out []Range
	i := sort.Search(len(s.rs), func(i int) bool { return s.rs[i].Last >= first })
	for ; i < len(s.rs) && s.rs[i].First <= last; i++ {
		if s.rs[i].First > first {
			out = append(out, Range{first, s.rs[i].First - 1})
		}
		first = s.rs[i].Last + 1
	}
	if first <= last {
		out = append(out, Range{first, last})
	}
	return out
}

// Ranges returns a copy of the runs, in order.
func (s *RangeSet) Ranges() []Range { return slices.Clone(s.rs) }

// Len is the number of runs.
func (s *RangeSet) Len() int { return len(s.rs) }

// Count is the number of offsets in the set.
func (s *RangeSet) Count() int64 {
	var n int64
	for _, r := range s.rs {
		n += r.Len()
	}
	return n
}
