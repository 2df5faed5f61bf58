package mirror

import (
	"sync"

	"github.com/onceover-mirror/onceover/txn"
)

// writtenSet remembers, for one flow in one process, records that are on the
// target although the source refused or lost their acknowledgement. When the
// source hands one out again it is acknowledged and not written a second time.
// It is a saving, not a guarantee: another process does not know.
type writtenSet struct {
	mu   sync.Mutex
	sets map[tip]*txn.RangeSet
}

// maxWrittenRuns bounds the memory of a partition's set; beyond it the set is
// dropped, at the price of possible duplicates.
const maxWrittenRuns = 10_000

func (w *writtenSet) add(t tip, first, last int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sets == nil {
		w.sets = map[tip]*txn.RangeSet{}
	}
	s := w.sets[t]
	if s == nil || len(s.Ranges()) > maxWrittenRuns {
		s = &txn.RangeSet{}
		w.sets[t] = s
	}
	s.Add(first, last)
}

func (w *writtenSet) has(t tip, offset int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.sets[t]
	return s != nil && s.Has(offset)
}

func (w *writtenSet) drop(t tip, first, last int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sets[t]; s != nil {
		s.Remove(first, last)
	}
}
