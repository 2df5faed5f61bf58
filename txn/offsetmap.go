package txn

import (
	"fmt"
	"math"
)

// mapVersion is the form of map records that this version writes, and the
// highest that it reads.
const mapVersion = 1

// MaxMapRecord is the most bytes that the value of a map record has (ledger
// section 7).
const MaxMapRecord = 256 << 10

const (
	// minRun is the fewest bytes that a run takes in a record.
	minRun = 3
	// countSize is the most bytes that the number of runs takes in a record.
	countSize = 3
)

// Run says that consecutive records of a source partition are consecutive
// records of a target partition (ledger section 7). It can be compared.
type Run struct {
	// Source is where the records come from.
	Source SourcePartition
	// First and Last are source offsets, both part of the run.
	First, Last int64
	// TargetTopicID is the id of the target topic: in a recreated one it
	// differs.
	TargetTopicID   [16]byte
	TargetPartition int32
	// TargetFirst is the target offset of the record at First.
	TargetFirst int64
}

// targetLast is the target offset of the record at Last.
func (r *Run) targetLast() int64 { return r.TargetFirst + r.Last - r.First }

// way is what the runs of one group in a record have in common.
type way struct {
	source    SourcePartition
	topicID   [16]byte
	partition int32
}

func (r *Run) way() way { return way{r.Source, r.TargetTopicID, r.TargetPartition} }

// MapBuilder gathers the runs of one transaction in one shard. The zero value
// is empty. Not safe for concurrent use.
type MapBuilder struct {
	groups []mapGroup
	at     map[way]int
	recent int // index of the group that was added to last
	size   int
}

// mapGroup has the runs of one way in the order in which they were added.
type mapGroup struct {
	way  way
	head int // bytes before the runs
	runs []Run
}

// Add takes what a produce answer told: a single record is a run with First
// equal to Last. Records of a source partition are added in their order. A
// run that goes on where the last one of the same source and target partition
// ended, on both sides, lengthens that one; a hole on either side begins a
// new one. A run out of bounds is [ErrMalformed] and is left out.
func (b *MapBuilder) Add(r Run) error {
	if r.First < 0 || r.Last < r.First || r.Last > maxOffset ||
		r.TargetFirst < 0 || r.TargetFirst > maxOffset-(r.Last-r.First) {
		return fmt.Errorf("map run of %s, source %d to %d, target from %d: %w", r.Source, r.First, r.Last, r.TargetFirst, ErrMalformed)
	}
	g, err := b.group(r.way())
	if err != nil {
		return fmt.Errorf("map run of %s: %w", r.Source, err)
	}
	var prev *Run
	if n := len(g.runs); n > 0 {
		prev = &g.runs[n-1]
		if r.First == prev.Last+1 && r.TargetFirst == prev.targetLast()+1 {
			b.size -= varintSize(prev.Last - prev.First)
			prev.Last = r.Last
			b.size += varintSize(prev.Last - prev.First)
			return nil
		}
	}
	b.size += runSize(prev, &r)
	g.runs = append(g.runs, r)
	return nil
}

// group returns the group of w, a new one if need be.
func (b *MapBuilder) group(w way) (*mapGroup, error) {
	if b.recent < len(b.groups) && b.groups[b.recent].way == w {
		return &b.groups[b.recent], nil
	}
	i, ok := b.at[w]
	if !ok {
		c := codec{}
		c.way(&w)
		if c.err != nil {
			return nil, c.err
		}
		if b.at == nil {
			b.at = make(map[way]int)
		}
		i = len(b.groups)
		b.at[w] = i
		b.groups = append(b.groups, mapGroup{way: w, head: len(c.b) + countSize})
		b.size += len(c.b) + countSize
	}
	b.recent = i
	return &b.groups[i], nil
}

// Size is how many bytes the records would have in all, but for what it takes
// to begin a second and later ones: a transaction ends early when it reaches
// 1 MiB (ledger section 7).
func (b *MapBuilder) Size() int { return b.size }

// Records returns the values of the map records: each of MaxMapRecord bytes at
// most and complete in itself, in the order in which the runs were added per
// source and target partition. The builder stays as it is; none for an empty
// one.
func (b *MapBuilder) Records() ([][]byte, error) {
	var out [][]byte
	var batch []Run
	size := 1
	flush := func() error {
		rec, err := encodeRuns(batch)
		out, batch, size = append(out, rec), batch[:0], 1
		return err
	}
	for _, g := range b.groups {
		var prev *Run
		for i := range g.runs {
			r := &g.runs[i]
			need := runSize(prev, r)
			if prev == nil {
				need += g.head
			}
			if size+need > MaxMapRecord {
				if err := flush(); err != nil {
					return nil, err
				}
				need = g.head + runSize(nil, r)
			}
			size += need
			batch, prev = append(batch, *r), r
		}
	}
	if len(batch) > 0 {
		if err := flush(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// encodeRuns writes one record. Neighbours of the same way share a group.
func encodeRuns(runs []Run) ([]byte, error) {
	c := codec{}
	c.version(mapVersion)
	for from := 0; from < len(runs); {
		to := from + 1
		for to < len(runs) && runs[to].way() == runs[from].way() {
			to++
		}
		c.group(runs[from:to])
		from = to
	}
	if c.err != nil {
		return nil, fmt.Errorf("encode map record: %w", c.err)
	}
	return c.b, nil
}

// DecodeRuns reads the value of a map record. Anything that [MapBuilder] does
// not write is refused, with [ErrFutureVersion] or [ErrMalformed]; nothing is
// guessed. The runs keep no part of the bytes.
func DecodeRuns(record []byte) ([]Run, error) {
	if len(record) > MaxMapRecord {
		return nil, fmt.Errorf("decode map record: %d bytes, at most %d: %w", len(record), MaxMapRecord, ErrMalformed)
	}
	c := codec{b: record, reading: true}
	c.version(mapVersion)
	var out []Run
	for c.err == nil && (out == nil || len(c.b) > 0) {
		runs := c.group(nil)
		if c.err == nil && out != nil && out[len(out)-1].way() == runs[0].way() {
			c.malformed("a group was cut in two")
		}
		out = append(out, runs...)
	}
	if c.err != nil {
		return nil, fmt.Errorf("decode map record: %w", c.err)
	}
	return out, nil
}

func (c *codec) way(w *way) {
	c.partition(&w.source)
	c.raw("target topic id", &w.topicID)
	number(c, "target partition", &w.partition, 0, math.MaxInt32)
}

// group writes runs, or reads and returns them. A run is written as its
// distance from the one before, its length, and the distance on the target.
func (c *codec) group(runs []Run) []Run {
	var w way
	if !c.reading {
		w = runs[0].way()
	}
	c.way(&w)
	n := len(runs)
	c.count("number of runs", &n, MaxMapRecord/minRun, minRun)
	if c.err != nil {
		return nil
	}
	if c.reading {
		runs = make([]Run, n)
	}
	var next, target int64
	for i := range runs {
		r := &runs[i]
		gap, length, shift := r.First-next, r.Last-r.First, r.TargetFirst-target
		number(c, "distance of run", &gap, -next, maxOffset-next)
		number(c, "length of run", &length, 0, maxOffset-next-gap)
		number(c, "target distance of run", &shift, -target, maxOffset-length-target)
		if c.err != nil {
			return nil
		}
		if c.reading {
			*r = Run{w.source, next + gap, next + gap + length, w.topicID, w.partition, target + shift}
		}
		next, target = r.Last+1, r.targetLast()+1
	}
	return runs
}

// runSize is the number of bytes that r takes after prev, nil for none.
func runSize(prev, r *Run) int {
	var next, target int64
	if prev != nil {
		next, target = prev.Last+1, prev.targetLast()+1
	}
	return varintSize(r.First-next) + varintSize(r.Last-r.First) + varintSize(r.TargetFirst-target)
}
