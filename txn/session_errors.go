package txn

import (
	"errors"
	"fmt"
)

// RefusedError: the target refuses a record for good. The transaction that it
// was in is aborted; the same record comes to the same end unless somebody does
// something about it.
type RefusedError struct {
	// Topic and Partition of the target.
	Topic     string
	Partition int32
	// Source and Offset say which record it is; Source is nil when the batch
	// had several records, and it is not known yet which of them is refused:
	// they come in smaller batches next time.
	Source *SourcePartition
	Offset int64
	// Err is the broker's.
	Err error
}

// Error names the place on the target and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the target refuses a record of %s[%d]: %v", e.Topic, e.Partition, e.Err)
}

// Unwrap returns the broker's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// StuckError: a partition of the target has not taken a record for as long as a
// transaction can wait, and it is the partition that says so.
type StuckError struct {
	// Topic and Partition of the target.
	Topic     string
	Partition int32
	// Err is the broker's.
	Err error
}

// Error names the place on the target and the reason.
func (e *StuckError) Error() string {
	return fmt.Sprintf("%s[%d] of the target takes nothing: %v", e.Topic, e.Partition, e.Err)
}

// Unwrap returns the broker's error.
func (e *StuckError) Unwrap() error { return e.Err }

// Errors of a session, besides those of brokers.
var (
	// ErrFenced: somebody else has used the transactional id. [Session.Own] may
	// be called again once the group has confirmed, by a heartbeat sent after
	// this error, that the shard is this process's.
	ErrFenced = errors.New("another process has taken the shard")
	// ErrMoved: an entry went to another place in the ledger partition than the
	// one behind what was read: its leader has lost something, was not the leader
	// any more when it was asked, or somebody else writes there.
	ErrMoved = errors.New("the ledger does not go on where it was read up to")
	// ErrHanging: a transaction is open that nobody can end: a person has to. The
	// text says where and how.
	ErrHanging = errors.New("a hanging transaction")
	// errGivenUp: the owner had no entries for the transaction.
	errGivenUp = errors.New("given up by its owner")
	// errStale: the answers are for another producer id than the session's.
	errStale = errors.New("the producer id has changed")
)
