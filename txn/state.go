package txn

import "fmt"

// State is where the session of one shard stands. What it means, what it
// forbids and how it is left is said at each; [step] is the whole of it.
type State int8

const (
	// Fresh: the shard is not ours, or no producer id was asked for yet. Not a
	// byte may be written, and the ledger may not be read: what is read before
	// the fence can be overtaken. Left by an assignment.
	Fresh State = iota
	// Fencing: InitProducerID is out; it ends what a predecessor, or this
	// session, has left open. No answer means nothing yet, it is sent again.
	// Left for Reading with the answer, for Fenced when somebody else was
	// faster.
	Fencing
	// Reading: the fence stands, and the ledger partition is read to the end
	// that its leader gave after the fence. Nothing may be fetched from the
	// source: its positions are not known. Left with the positions, which also
	// decide a transaction that was in doubt. A session without a ledger passes
	// through: what did not commit its share group hands out again.
	Reading
	// Ready: positions are known and no transaction is open. Left by the first
	// output.
	Ready
	// Open: a transaction takes copies. Nothing of it may be acknowledged.
	// Left by a commit or abort that is asked for, or by any produce that did
	// not succeed, after which this transaction can no longer commit.
	Open
	// Flushing: a commit is asked for. No further copy may be sent, for the
	// positions would not cover it; positions and map are written, and every
	// answer is waited for; in a session without a ledger the share
	// acknowledgements are staged. Left for Ending only when all of them are good.
	Flushing
	// Ending: EndTxn is out. Nothing may be written. Left for Ready by a clean
	// answer; without one for Unclear (commit) or Fencing (abort).
	Ending
	// Unclear: it is not known whether a transaction committed, and
	// InitProducerID is out over it. It must be neither repeated nor
	// acknowledged. Left, like Fencing, for Reading, where the ledger decides.
	Unclear
	// Fenced: somebody else has used the transactional id. He may be the
	// shard's owner by right, so not even InitProducerID may be sent: two that
	// fence each other copy nothing. Left by an assignment that the group
	// confirmed after the fence, or by losing the shard.
	Fenced
	// Closed: the session has ended. Nothing leaves it.
	Closed

	states = iota
)

var stateNames = [states]string{
	"Fresh", "Fencing", "Reading", "Ready", "Open", "Flushing", "Ending", "Unclear", "Fenced", "Closed",
}

// String names the state.
func (s State) String() string {
	if s < 0 || int(s) >= states {
		return fmt.Sprintf("State(%d)", int8(s))
	}
	return stateNames[s]
}

// producerID is what a broker knows a producer by. An epoch is handed out
// once.
type producerID struct {
	id    int64
	epoch int16
}

// lastEpoch is the highest that a broker hands out; after it comes a new id
// (TransactionMetadata.isEpochExhausted).
const lastEpoch = 1<<15 - 2

// succeeds reports whether p is what EndTxn turns q into: itself under v1, the
// next epoch, or a new id after the last one, under v2 (KIP-890).
func (p producerID) succeeds(q producerID, v2 bool) bool {
	switch {
	case !v2:
		return p == q
	case q.epoch >= lastEpoch:
		return p.id != q.id && p.epoch == 0
	}
	return p == producerID{q.id, q.epoch + 1}
}

// machine is a State with what belongs to it. A value: [step] returns a new
// one. The zero value is Fresh.
type machine struct {
	state State
	// id is valid from Reading to Ending.
	id producerID

	// From Open to Ending, of the transaction that is open:

	// v2 tells that its EndTxn is one of v5 or later.
	v2 bool
	// share tells that share acknowledgements stand for positions and map, and
	// staged that all of them are in the transaction.
	share, staged bool
	// copies counts the copies handed to the producer, entries the records of
	// ledger and map, or the partitions to be staged; waiting and owed those of them that were not answered
	// yet.
	copies, entries, waiting, owed int
	// mapped tells that the map is complete.
	mapped bool
	// wrote are the positions written in it; nil until then.
	wrote Positions
	// commits tells which end Ending has asked for, and leads where the state
	// after it: Ready, or Fresh or Closed when the session was told to go
	// meanwhile.
	commits bool
	leads   State

	// doubt are the positions of a transaction whose outcome is unknown, from
	// Unclear to Reading, also in Fenced. Nil when nothing is in doubt.
	doubt Positions
}

// open is m with a transaction begun.
func (m machine) open(v2, share bool) machine {
	return machine{state: Open, id: m.id, v2: v2, share: share}
}

// bound reports whether what makes the copies count once is in the transaction:
// positions and map, or the acknowledgements.
func (m machine) bound() bool {
	if m.share {
		return m.staged
	}
	return m.wrote != nil && (m.copies == 0 || m.mapped)
}

// clean reports whether every record of the transaction was answered well.
func (m machine) clean() bool { return m.waiting == 0 && m.owed == 0 }

// empty reports whether there was none.
func (m machine) empty() bool { return m.copies == 0 && m.entries == 0 }
