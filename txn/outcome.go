package txn

import "fmt"

// Outcome is what became of a transaction. The zero value is Unknown, so that
// nothing is taken for committed by omission.
type Outcome int8

const (
	// Unknown: a commit was asked for and its answer was lost, or is one that
	// a broker also gives after it has carried the commit out. It is neither
	// success nor failure; the ledger decides ([Resolve]).
	Unknown Outcome = iota
	// Committed: every record of the transaction is on the target, for good.
	Committed
	// Aborted: no read_committed reader will ever see a record of it.
	Aborted
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Committed:
		return "committed"
	case Aborted:
		return "aborted"
	}
	return fmt.Sprintf("Outcome(%d)", int8(o))
}

// Positions are offsets to go on from: the next one to copy of each source
// partition. One is never changed once it was handed over.
type Positions map[SourcePartition]int64

// Resolve decides a transaction whose commit was left without a clear answer.
// wrote are the positions that were written in it; ledger are the committed
// ones, read after InitProducerID has ended whatever was open (ledger sections
// 2 and 4): read earlier, they decide nothing.
//
// Committed means that the ledger has reached every position: all that the
// transaction held is on the target, be it through this transaction or, when
// another owner has been there in between, through one of his. Aborted means
// that some of it is not; the lane goes on from ledger, which says what is.
// A position that was never written is Unknown.
func Resolve(wrote, ledger Positions) Outcome {
	if len(wrote) == 0 {
		return Unknown
	}
	for p, next := range wrote {
		if have, ok := ledger[p]; !ok || have < next {
			return Aborted
		}
	}
	return Committed
}
