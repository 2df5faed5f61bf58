// Package share is the state of the records of one share partition (KIP-932),
// with acknowledgements that are staged in a producer's transaction (KIP-1289).
// It is pure: no clock, no I/O, no goroutine. What it does is what Kafka 4.4 was
// seen to do, and for transactions what the KIP's drafts mean.
package share

import (
	"fmt"
	"time"
)

// State of a record. The numbers are those that brokers persist.
type State int8

// The states (KIP-932, KIP-1191, KIP-1289).
const (
	// Available can be acquired.
	Available State = 0
	// Acquired is locked by a member until a deadline.
	Acquired State = 1
	// Acknowledged is done.
	Acknowledged State = 2
	// Archiving is on its way to a dead-letter queue; nothing here stays in it.
	Archiving State = 3
	// Archived is never handed out again.
	Archived State = 4
	// TxPending waits for the end of a transaction, which alone changes it.
	TxPending State = 5
)

// String names the state as Kafka does.
func (s State) String() string {
	switch s {
	case Available:
		return "AVAILABLE"
	case Acquired:
		return "ACQUIRED"
	case Acknowledged:
		return "ACKNOWLEDGED"
	case Archiving:
		return "ARCHIVING"
	case Archived:
		return "ARCHIVED"
	case TxPending:
		return "TX_PENDING"
	}
	return fmt.Sprintf("State(%d)", int8(s))
}

// final reports whether nothing will happen to the record any more.
func (s State) final() bool { return s == Acknowledged || s == Archived }

// AckType is what an acknowledgement says (KIP-932; Renew: KIP-1222).
type AckType int8

// The acknowledgement types.
const (
	Gap     AckType = 0
	Accept  AckType = 1
	Release AckType = 2
	Reject  AckType = 3
	Renew   AckType = 4
)

// Error codes of acknowledgements.
const (
	// InvalidRequest: a batch that makes no sense, or past what was acquired.
	InvalidRequest int16 = 42
	// InvalidRecordState: a record that is not in this member's hands.
	InvalidRecordState int16 = 121
)

// Range is a run of offsets, both ends included.
type Range struct {
	// First and Last offset.
	First, Last int64
}

// Config are the settings of the group, as of a call.
type Config struct {
	// Lock is how long a member holds what it acquires.
	Lock time.Duration
	// Deliveries is how often a record is handed out at most.
	Deliveries int16
	// MaxLocks bounds the offsets from the start to the last one acquired.
	MaxLocks int
	// Renew permits acknowledgements of type Renew.
	Renew bool
	// ArchiveOnAbort archives a record at its delivery limit when its
	// transaction aborts. The drafts make it available again.
	ArchiveOnAbort bool
	// BelowStartOK takes a staged acknowledgement below the start offset for
	// done, as the drafts say.
	BelowStartOK bool
}

// Grant is a run that was handed out, with its delivery count.
type Grant struct {
	Range
	// Delivery is 1 for the first time.
	Delivery int16
}

// Batch is a run to be acknowledged.
type Batch struct {
	// First and Last offset, both included.
	First, Last int64
	// Types has one entry for the whole run, or one for each offset.
	Types []AckType
}

// at is the type of an offset of b.
func (b *Batch) at(offset int64) AckType {
	if len(b.Types) == 1 {
		return b.Types[0]
	}
	return b.Types[offset-b.First]
}

// fits reports whether there are as many types as there have to be.
func (b *Batch) fits() bool {
	return b.Last >= b.First && (len(b.Types) == 1 || int64(len(b.Types)) == b.Last-b.First+1)
}

// Txn is a producer as it was when it staged something.
type Txn struct {
	// ID and Epoch of the producer.
	ID    int64
	Epoch int16
}

// Run is a run of offsets that have everything in common.
type Run struct {
	Range
	// State of the records.
	State State
	// Delivery is how often they were handed out.
	Delivery int16
	// Member that holds them: Acquired, and TxPending unless a restart has made
	// that forgotten.
	Member string
	// Deadline of the lock of Acquired.
	Deadline time.Time
	// Txn and Planned are those of TxPending: who staged them, and what they
	// become by a commit. Kind is the type that was staged.
	Txn     Txn
	Planned State
	Kind    AckType
}

// same reports whether two runs differ in their offsets alone.
func (r Run) same(o Run) bool {
	o.Range = r.Range
	return r == o
}
