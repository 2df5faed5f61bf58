package txn

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Ledger is what one ledger partition says, as far as it was read. An entry
// counts once the commit marker of its transaction was read; one without a
// marker is undecided, never aborted (ledger section 2). The zero value has
// read nothing. Not safe for concurrent use.
type Ledger struct {
	// next is the offset to read on from.
	next int64
	// open are the entries without a marker, by producer id.
	open map[int64][]pendingEntry

	flow    *Flow
	suspend *Suspend
	marks   map[SourcePartition]*Mark
	gaps    map[SourcePartition]map[int64]Gap
}

// pendingEntry is an entry whose transaction has no marker yet.
type pendingEntry struct {
	Entry
	offset int64
	epoch  int16
}

// Mark is where a source partition stands.
type Mark struct {
	// Start is the last start entry; nil where the ledger has none.
	Start *Start
	// Frontier is the last frontier after Start, nil before the first.
	Frontier *Frontier
}

// Position is the next offset to copy, and false where nothing says so.
func (m Mark) Position() (int64, bool) {
	switch {
	case m.Frontier != nil:
		return m.Frontier.Next, true
	case m.Start != nil:
		return m.Start.Position, true
	}
	return 0, false
}

// Undecided is an entry whose transaction had no marker up to the end.
type Undecided struct {
	// Key of the entry.
	Key Key
	// ProducerID and Epoch of the writer.
	ProducerID int64
	Epoch      int16
	// Offset in the ledger partition.
	Offset int64
}

// Flow is the flow entry, nil where the partition has none.
func (l *Ledger) Flow() *Flow { return l.flow }

// Suspended is the suspend entry, nil when the ledger is in use.
func (l *Ledger) Suspended() *Suspend { return l.suspend }

// Next is the offset up to which the partition was read.
func (l *Ledger) Next() int64 { return l.next }

// Mark returns where p stands.
func (l *Ledger) Mark(p SourcePartition) Mark {
	if m := l.marks[p]; m != nil {
		return *m
	}
	return Mark{}
}

// Partitions returns the source partitions that the ledger knows, in no order.
func (l *Ledger) Partitions() []SourcePartition { return slices.Collect(maps.Keys(l.marks)) }

// Positions returns the positions of all of them.
func (l *Ledger) Positions() Positions {
	out := make(Positions, len(l.marks))
	for p, m := range l.marks {
		if at, ok := m.Position(); ok {
			out[p] = at
		}
	}
	return out
}

// Gaps returns the runs of p that were passed on purpose, by their first
// offset, in order.
func (l *Ledger) Gaps(p SourcePartition) []ClosedGap {
	out := make([]ClosedGap, 0, len(l.gaps[p]))
	for _, first := range slices.Sorted(maps.Keys(l.gaps[p])) {
		out = append(out, ClosedGap{First: first, Gap: l.gaps[p][first]})
	}
	return out
}

// ClosedGap is a [Gap] with its first offset.
type ClosedGap struct {
	// First offset of the run.
	First int64
	Gap
}

// Undecided returns the entries that have no marker, in log order.
func (l *Ledger) Undecided() []Undecided {
	var out []Undecided
	for id, es := range l.open {
		for _, e := range es {
			out = append(out, Undecided{e.Key, id, e.epoch, e.offset})
		}
	}
	slices.SortFunc(out, func(a, b Undecided) int { return int(a.Offset - b.Offset) })
	return out
}

// Empty reports whether the partition has no entry that counts.
func (l *Ledger) Empty() bool {
	return l.flow == nil && l.suspend == nil && len(l.marks) == 0 && len(l.gaps) == 0
}

// add takes the next record of the partition, control records included. The
// error wraps [ErrDamaged].
func (l *Ledger) add(rec *kgo.Record) error {
	if rec.Offset < l.next {
		return nil
	}
	l.next = rec.Offset + 1
	if rec.Attrs.IsControl() {
		return l.close(rec)
	}
	if rec.ProducerID < 0 || !rec.Attrs.IsTransactional() {
		return fmt.Errorf("offset %d was written outside of a transaction: %w", rec.Offset, ErrDamaged)
	}
	e, err := DecodeEntry(rec.Key, rec.Value)
	if err != nil {
		return fmt.Errorf("offset %d: %w: %w", rec.Offset, ErrDamaged, err)
	}
	if l.open == nil {
		l.open = map[int64][]pendingEntry{}
	}
	l.open[rec.ProducerID] = append(l.open[rec.ProducerID], pendingEntry{e, rec.Offset, rec.ProducerEpoch})
	return nil
}

// close takes a control record: it closes what its producer id has open,
// whatever its epoch, since fencing and protocol v2 raise it by one.
func (l *Ledger) close(rec *kgo.Record) error {
	const key = 4 // version, type
	if len(rec.Key) < key {
		return fmt.Errorf("control record at offset %d has a key of %d bytes: %w", rec.Offset, len(rec.Key), ErrDamaged)
	}
	open := l.open[rec.ProducerID]
	switch kind := int16(rec.Key[2])<<8 | int16(rec.Key[3]); kind {
	case 0: // abort
	case 1: // commit
		for _, e := range open {
			if err := l.apply(e); err != nil {
				return err
			}
		}
	default:
		return nil // of the cluster's own log, not of transactions
	}
	delete(l.open, rec.ProducerID)
	return nil
}

// apply makes a committed entry count.
func (l *Ledger) apply(e pendingEntry) error {
	switch v := e.Value.(type) {
	case nil:
		l.takeBack(e.Key)
	case *Flow:
		if l.flow != nil && v.Generation < l.flow.Generation {
			return fmt.Errorf("offset %d: generation %d after %d: %w", e.offset, v.Generation, l.flow.Generation, ErrDamaged)
		}
		l.flow = v
	case *Suspend:
		l.suspend = v
	case *Start:
		*l.mark(e.Key.Source) = Mark{Start: v}
	case *Frontier:
		m := l.mark(e.Key.Source)
		if at, ok := m.Position(); ok && v.Next < at {
			return fmt.Errorf("offset %d: the frontier of %s goes back from %d to %d: %w", e.offset, e.Key.Source, at, v.Next, ErrDamaged)
		}
		m.Frontier = v
	case *Gap:
		if l.gaps == nil {
			l.gaps = map[SourcePartition]map[int64]Gap{}
		}
		if l.gaps[e.Key.Source] == nil {
			l.gaps[e.Key.Source] = map[int64]Gap{}
		}
		l.gaps[e.Key.Source][e.Key.First] = *v
	case *Floor, *Claim:
		return fmt.Errorf("offset %d: a %s in the ledger of a partition reader: %w", e.offset, e.Key.Kind, ErrDamaged)
	}
	return nil
}

func (l *Ledger) takeBack(k Key) {
	switch k.Kind {
	case KindSuspend:
		l.suspend = nil
	case KindGap:
		delete(l.gaps[k.Source], k.First)
	case KindFlow, KindStart, KindFrontier, KindFloor, KindClaim:
		// Nobody takes these back; what the key says goes on to count.
	}
}

func (l *Ledger) mark(p SourcePartition) *Mark {
	if l.marks == nil {
		l.marks = map[SourcePartition]*Mark{}
	}
	if l.marks[p] == nil {
		l.marks[p] = &Mark{}
	}
	return l.marks[p]
}
