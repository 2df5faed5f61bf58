package txn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// mapVersion is the form of map records that this version writes, and the
// highest that it reads.
const mapVersion = 1

// MaxMapRecord is the most bytes that one record of a map topic has (ledger
// section 7).
const MaxMapRecord = 256 << 10

// Run says that consecutive records of a source partition are consecutive
// records of a target partition (ledger section 7). It can be compared.
type Run struct {
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

// chain is what the runs of one group in a map record have in common.
type chain struct {
	source    SourcePartition
	topicID   [16]byte
	partition int32
}

func (r *Run) chain() chain { return chain{r.Source, r.TargetTopicID, r.TargetPartition} }

// last is the target offset of the record at Last.
func (r *Run) last() int64 { return r.TargetFirst + r.Last - r.First }

// check refuses what could not be read again.
func (r *Run) check() error {
	c := codec{}
	c.head(&chain{r.Source, r.TargetTopicID, r.TargetPartition})
	// Last of all: the sum is only good once its parts are.
	if c.err == nil && (r.First < 0 || r.Last < r.First || r.Last > maxOffset ||
		r.TargetFirst < 0 || r.TargetFirst > maxOffset-(r.Last-r.First)) {
		c.malformed("source %d to %d, target from %d", r.First, r.Last, r.TargetFirst)
	}
	if c.err != nil {
		return fmt.Errorf("map run of %s: %w", r.Source, c.err)
	}
	return nil
}

// MapBuilder gathers the runs of one transaction. The zero value is empty.
// Not safe for concurrent use.
type MapBuilder struct {
	chains []runs
	at     map[chain]int
	recent int // index of the chain that was added to last
	size   int
}

// runs of one chain, in the order in which they were added.
type runs struct {
	chain chain
	runs  []Run
}

// Add puts in what a produce answer told: one record is a run with First
// equal to Last. Records of a source partition are added in their order. What
// goes on where the last run of the same source and target partition ended,
// on both sides, lengthens that run; a hole on either side begins a new one.
// A run out of bounds is [ErrMalformed] and changes nothing.
func (b *MapBuilder) Add(r Run) error {
	ch := r.chain()
	if b.recent >= len(b.chains) || b.chains[b.recent].chain != ch {
		i, ok := b.at[ch]
		if !ok {
			if err := r.check(); err != nil {
				return err
			}
			if b.at == nil {
				b.at = make(map[chain]int)
			}
			i = len(b.chains)
			b.at[ch] = i
			b.chains = append(b.chains, runs{chain: ch})
			b.size += headSize(ch)
		}
		b.recent = i
	}
	if err := r.check(); err != nil {
		return err
	}
	to := &b.chains[b.recent]
	var prev *Run
	if n := len(to.runs); n > 0 {
		prev = &to.runs[n-1]
		if r.First == prev.Last+1 && r.TargetFirst == prev.last()+1 {
			b.size -= varintLen(prev.Last - prev.First)
			prev.Last = r.Last
			b.size += varintLen(prev.Last - prev.First)
			return nil
		}
	}
	b.size += runSize(prev, &r)
	to.runs = append(to.runs, r)
	return nil
}
