package txn

import (
	"fmt"
	"math"
)

// Label says how good a translated position is.
type Label int8

// The labels of a [Translation].
const (
	// LabelUnknown: there is no answer. It must not be committed anywhere.
	LabelUnknown Label = iota
	// LabelExact: a reader that goes on there reads what it has not read, and
	// nothing else.
	LabelExact
	// LabelEarly: it misses nothing, and up to Early records that it has read
	// come again.
	LabelEarly
	// LabelBelowFirst: the position is below what the map, or the target's
	// log, still holds. It misses nothing that is there.
	LabelBelowFirst
)

// Translation is a position of a group, carried over to the target.
type Translation struct {
	// Offset on the target, -1 when it is unknown.
	Offset int64
	Label  Label
	// Early is the most records that come again, for LabelEarly; else 0.
	Early int64
	// Reason for LabelUnknown and LabelBelowFirst, as people are to see it.
	Reason string
}

// String is the label as people are to see it, without the offset.
func (t Translation) String() string {
	switch t.Label {
	case LabelExact:
		return "exact"
	case LabelEarly:
		return fmt.Sprintf("early by %d", t.Early)
	case LabelBelowFirst:
		return t.Reason
	case LabelUnknown:
	}
	return "unknown: " + t.Reason
}

// Mapping is what is known of one source partition.
type Mapping struct {
	// Runs from committed map records of the partition, in any order: those
	// into the target topic as it is now, not into one that was deleted since.
	// Each source offset is in one of them at most.
	Runs []Run
	// Frontier is the next offset of the ledger's frontier, or floor, of the
	// partition, read before the runs: below it there is nothing that is still
	// to be mirrored. 0 when there is none.
	Frontier int64
	// Start is the position of the ledger's start entry, nil without one.
	Start *int64
	// TargetLogStart is the log start offset of the target partition.
	TargetLogStart int64
}

// Translate returns the target offset at which a group goes on that has
// committed position, the next source offset it would read. The rules are
// those of ledger section 7:
//
// The answer is the smallest target offset of all mapped records at or above
// the position. Where the flow kept order that is the very record, or the next
// one mirrored when the record was a hole, filtered or rejected: exact. Where
// share readers wrote, records that the group has read can stand behind it:
// early. With nothing mapped at or above the position it is the end of what
// was copied: exact up to the frontier, and early beyond it, because what the
// group has read there is still to be mirrored.
//
// Below the first run, or where the target no longer has the record, it is
// the target's log start, unless the start entry shows that nothing was
// mirrored before that run. Without any run, or with runs into more than one
// target partition, the answer is unknown, never 0.
func (m *Mapping) Translate(position int64) Translation {
	switch {
	case position < 0:
		return Translation{Offset: -1, Reason: "the group has no position"}
	case len(m.Runs) == 0:
		return Translation{Offset: -1, Reason: "no record of the partition is in the offset map"}
	}
	lowest, end, first := int64(math.MaxInt64), int64(0), int64(math.MaxInt64)
	for i := range m.Runs {
		r := &m.Runs[i]
		if r.way() != m.Runs[0].way() {
			return Translation{Offset: -1, Reason: "records of the partition go to more than one target partition"}
		}
		if r.Last >= position {
			lowest = min(lowest, r.TargetFirst+max(0, position-r.First))
		}
		end = max(end, r.targetLast()+1)
		first = min(first, r.First)
	}
	offset := min(lowest, end)
	switch {
	case position < first && (m.Start == nil || *m.Start != first):
		return Translation{
			Offset: m.TargetLogStart, Label: LabelBelowFirst,
			Reason: fmt.Sprintf("below %d, the first record in the offset map", first),
		}
	case offset < m.TargetLogStart:
		return Translation{
			Offset: m.TargetLogStart, Label: LabelBelowFirst,
			Reason: fmt.Sprintf("offset %d is below the target's log start", offset),
		}
	case position < first:
		return Translation{
			Offset: offset, Label: LabelBelowFirst,
			Reason: fmt.Sprintf("below %d, the first record ever mirrored", first),
		}
	}
	if early := m.early(position, offset); early > 0 {
		return Translation{Offset: offset, Label: LabelEarly, Early: early}
	}
	return Translation{Offset: offset, Label: LabelExact}
}

// early counts the source records below position that a reader of the target
// meets at or behind offset: those mapped there, and those from the frontier
// on that are not mapped yet and will be appended.
func (m *Mapping) early(position, offset int64) int64 {
	n := max(0, position-m.Frontier)
	for i := range m.Runs {
		r := &m.Runs[i]
		last := min(r.Last, position-1)
		n += max(0, r.TargetFirst+(last-r.First)-max(r.TargetFirst, offset)+1)
		n -= max(0, last-max(r.First, m.Frontier)+1)
	}
	return n
}
