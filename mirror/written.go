package mirror

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/txn"
)

// writtenSet remembers, for one flow in one process, which records are in a
// lane's hands and which are on the target. A share group hands records out
// again when their locks end, a connection is cut, or the group itself is lost:
// what this process has written is then acknowledged and not written a second
// time, and what a lane is about to write is not given to another.
//
// It is a saving, not a guarantee: other processes do not know.
type writtenSet struct {
	mu   sync.Mutex
	done map[deed]*txn.RangeSet
	hand map[tip]map[*pump]*txn.RangeSet
	// owed are written and not counted: their acknowledgement was refused.
	owed map[tip]*txn.RangeSet
}

// deed is what done offsets belong to: with another leader epoch the same offset
// is another record, after an unclean election that cut the log.
type deed struct {
	tip
	epoch int32
}

// maxWrittenRuns bounds the memory of a partition's set; beyond it the set is
// dropped, at the price of possible duplicates. One run is the rule: there are
// more only while other processes read from the same partition.
const maxWrittenRuns = 10_000

// claim takes r for the lane of p, apart from what must not be handed to it:
// done is on the target, own is in the hands of the same lane, foreign in those
// of another.
func (w *writtenSet) claim(t tip, epoch int32, r txn.Range, p *pump) (done, own, foreign []txn.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done = common(w.done[deed{t, epoch}], r)
	for q, s := range w.hand[t] {
		if q == p {
			own = common(s, r)
		} else {
			foreign = append(foreign, common(s, r)...)
		}
	}
	if w.hand == nil {
		w.hand = map[tip]map[*pump]*txn.RangeSet{}
	}
	if w.hand[t] == nil {
		w.hand[t] = map[*pump]*txn.RangeSet{}
	}
	mine := w.hand[t][p]
	if mine == nil {
		mine = &txn.RangeSet{}
		w.hand[t][p] = mine
	}
	mine.Add(r.First, r.Last)
	for _, not := range [][]txn.Range{done, foreign} {
		for _, n := range not {
			mine.Remove(n.First, n.Last)
		}
	}
	return done, own, foreign
}

// common are the parts of r that are in s, which may be nil.
func common(s *txn.RangeSet, r txn.Range) []txn.Range {
	if s == nil {
		return nil
	}
	next := r.First
	var in []txn.Range
	for _, m := range append(s.Missing(r.First, r.Last), txn.Range{First: r.Last + 1, Last: r.Last + 1}) {
		if m.First > next {
			in = append(in, txn.Range{First: next, Last: m.First - 1})
		}
		next = m.Last + 1
	}
	return in
}

// free takes r out of the hands of p's lane.
func (w *writtenSet) free(t tip, r txn.Range, p *pump) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.hand[t][p]
	if s == nil {
		return
	}
	if s.Remove(r.First, r.Last); s.Count() == 0 {
		delete(w.hand[t], p)
	}
}

// add notes which of items are final: on the target, or left out.
func (w *writtenSet) add(items []item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = map[deed]*txn.RangeSet{}
	}
	for i := range items {
		it := &items[i]
		if it.fate == fateOpen {
			continue
		}
		d := deed{it.src, it.rec.LeaderEpoch}
		s := w.done[d]
		if s == nil || s.Len() > maxWrittenRuns {
			s = &txn.RangeSet{}
			w.done[d] = s
		}
		s.Add(it.rec.Offset, it.rec.Offset)
	}
}

// owe notes that r is written, not just left out, and to be counted as copied
// once it comes again and is acknowledged.
func (w *writtenSet) owe(t tip, r txn.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owed == nil {
		w.owed = map[tip]*txn.RangeSet{}
	}
	if w.owed[t] == nil {
		w.owed[t] = &txn.RangeSet{}
	}
	w.owed[t].Add(r.First, r.Last)
}

// counted notes that nothing of r is to be counted any more.
func (w *writtenSet) counted(t tip, r txn.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.owed[t]; s != nil {
		if s.Remove(r.First, r.Last); s.Count() == 0 {
			delete(w.owed, t)
		}
	}
}

func (w *writtenSet) owes(t tip, offset int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.owed[t]
	return s != nil && s.Has(offset)
}

func (w *writtenSet) has(t tip, rec *kgo.Record) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.done[deed{t, rec.LeaderEpoch}]
	return s != nil && s.Has(rec.Offset)
}

// missing are the parts of r that are not known to be on the target, whatever
// their leader epoch: the records are gone, and can't be asked for it.
func (w *writtenSet) missing(t tip, r txn.Range) []txn.Range {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all txn.RangeSet
	for d, s := range w.done {
		if d.tip == t {
			for _, c := range common(s, r) {
				all.Add(c.First, c.Last)
			}
		}
	}
	return all.Missing(r.First, r.Last)
}
