package txn

import "fmt"

// event is something that has happened to a session: an answer, or a wish of
// its caller. Events are given to [step] one at a time by the one goroutine
// that owns the session.
type event interface{ event() }

type (
	// evAssigned: the group gave us the shard. In Fenced it has to be a
	// heartbeat answer to one that was sent after the fence.
	evAssigned struct{}
	// evInitOK: InitProducerID was answered with this id.
	evInitOK struct{ id producerID }
	// evInitErr: it was refused, or got no answer.
	evInitErr struct{ action Action }
	// evLedgerRead: the ledger was read to its end.
	evLedgerRead struct{ positions Positions }
	// evReadErr: it could not be, or an entry has no marker before the end.
	// When DescribeTransactions tells of a transaction under a later epoch than
	// ours, another process has set its fence between ours and the read: Yield.
	// Otherwise it hangs: Stop.
	evReadErr struct{ action Action }
	// evBegin: there is output. v2 is what the brokers finalised as of now; it
	// holds for the whole transaction. share: share acknowledgements stand in it
	// for positions and map (KIP-1289).
	evBegin struct{ v2, share bool }
	// evSent: n copies were handed to the producer; in Flushing, n records of
	// ledger and map, or the acknowledgements of n source partitions to their
	// leaders.
	evSent struct{ n int }
	// evProduced: n copies were answered well, under this id.
	evProduced struct {
		n  int
		id producerID
	}
	// evProduceErr: a record of the transaction, of whatever kind, was not.
	// It is final: the client tries no more.
	evProduceErr struct{ action Action }
	// evPositionWritten: the n ledger entries were answered well. Positions,
	// which are among them, cover every copy of the transaction; there are none
	// where it only says something about the ledger itself.
	evPositionWritten struct {
		n         int
		positions Positions
		id        producerID
	}
	// evMapWritten: the n map records were answered well. They cover every
	// copy that has a place in the map; n may be 0.
	evMapWritten struct {
		n  int
		id producerID
	}
	// evStaged: the acknowledgements of n source partitions are staged under
	// this id, and these are all that the transaction has.
	evStaged struct {
		n  int
		id producerID
	}
	// evFlushOK: the client holds no unanswered record.
	evFlushOK struct{}
	// evFlushErr: it still does, and the time for it is over.
	evFlushErr struct{ action Action }
	// evCommit and evAbort are the caller's wish.
	evCommit struct{}
	evAbort  struct{}
	// evEndOK: EndTxn was answered well. Under v1 id is the one at hand (the
	// client's, which may have asked for another), under v2 the answer's.
	evEndOK struct{ id producerID }
	// evEndErr: it was refused, or got no answer.
	evEndErr struct{ action Action }
	// evLost: the group took the shard away.
	evLost struct{}
	// evClose: the session is to end for good.
	evClose struct{}
)

func (evAssigned) event()        {}
func (evInitOK) event()          {}
func (evInitErr) event()         {}
func (evLedgerRead) event()      {}
func (evReadErr) event()         {}
func (evBegin) event()           {}
func (evSent) event()            {}
func (evProduced) event()        {}
func (evProduceErr) event()      {}
func (evPositionWritten) event() {}
func (evMapWritten) event()      {}
func (evStaged) event()          {}
func (evFlushOK) event()         {}
func (evFlushErr) event()        {}
func (evCommit) event()          {}
func (evAbort) event()           {}
func (evEndOK) event()           {}
func (evEndErr) event()          {}
func (evLost) event()            {}
func (evClose) event()           {}

// effect is something that [step] wants done, in the order given.
type effect int8

const (
	// sendInit: send InitProducerID, without an id of one's own: one with an
	// expected epoch is answered PRODUCER_FENCED after it has aborted an open
	// transaction, because that abort has moved the epoch on. Repeated ones
	// are spaced by a back-off with jitter.
	sendInit effect = iota
	// reinit: the same, over a transaction that may be open; InitProducerID
	// ends it. No EndTxn: it might pass produce requests that are under way.
	reinit
	// readLedger: ask the leader for the end of the ledger partition, now, and
	// read up to it (ledger section 2).
	readLedger
	// sendCommit and sendAbort: send EndTxn, once. Never by a client that
	// repeats it by itself.
	sendCommit
	sendAbort
	// dropBuffered: forget the records of the transaction and what was read
	// ahead. When this is done no answer to one of them becomes an event any
	// more, and nothing of them is sent again.
	dropBuffered
	// deliverCommitted, deliverAborted, deliverUnknown: tell the caller the
	// outcome of the transaction that he began. Once for each.
	deliverCommitted
	deliverAborted
	deliverUnknown

	effects = iota
)

var effectNames = [effects]string{
	"sendInit", "reinit", "readLedger", "sendEnd(commit)", "sendEnd(abort)", "dropBuffered",
	"deliver(committed)", "deliver(aborted)", "deliver(unknown)",
}

// String names the effect.
func (e effect) String() string {
	if e < 0 || int(e) >= effects {
		return fmt.Sprintf("effect(%d)", int8(e))
	}
	return effectNames[e]
}

// deliver is the effect that tells o.
func deliver(o Outcome) effect {
	switch o {
	case Committed:
		return deliverCommitted
	case Aborted:
		return deliverAborted
	case Unknown:
	}
	return deliverUnknown
}
