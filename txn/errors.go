package txn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Request is what an error is the answer to: the same code means different
// things to different requests.
type Request int8

const (
	// InitProducerID: harmless to repeat, each one fences anew.
	InitProducerID Request = iota
	// AddPartitions is AddPartitionsToTxn, of protocol v1 only; harmless to
	// repeat.
	AddPartitions
	// Produce is a transactional produce request. The same bytes with the same
	// sequence number are harmless to repeat.
	Produce
	// EndTxnV1 is EndTxn up to version 4 (KIP-98): the epoch stays as it is,
	// so that a repeated one can't be told from the next transaction's.
	EndTxnV1
	// EndTxnV2 is EndTxn from version 5 (KIP-890, transaction.version 2): the
	// epoch goes up with each end, so that a repeated one is recognised.
	EndTxnV2
	// Inspect is ListTransactions, DescribeTransactions or DescribeProducers.
	Inspect
	// ReadLedger is ListOffsets or Fetch on a ledger partition.
	ReadLedger
	// StageShare is TxnShareAcknowledge (KIP-1289). The same acknowledgements
	// under the same producer epoch are harmless to repeat.
	StageShare

	requests = iota
)

var requestNames = [requests]string{
	"InitProducerID", "AddPartitionsToTxn", "Produce", "EndTxn v1", "EndTxn v2", "inspect transactions", "read ledger", "TxnShareAcknowledge",
}

// String names the request.
func (r Request) String() string {
	if r < 0 || int(r) >= requests {
		return fmt.Sprintf("Request(%d)", int8(r))
	}
	return requestNames[r]
}

// Action is what an error obliges a lane to do. None of them is success: an
// error never means that something has worked.
type Action int8

const (
	// Retry sends the same request again after a pause, within the time that
	// the caller gives it: as far as the answer tells, it was not carried out
	// or may be carried out twice.
	Retry Action = iota + 1
	// Abort gives the transaction up; the id is sound. The cause is in the
	// batch (a record or a topic that the target refuses) or in the
	// transaction. The former comes again until the caller has dealt with it.
	Abort
	// RestartLane drops what is buffered and begins again at InitProducerID
	// and the ledger. The same records may be tried again. After EndTxn the
	// outcome is [Unknown] until the ledger was read.
	RestartLane
	// Yield is RestartLane for a producer that was fenced: somebody else may
	// have the shard by right. First the group has to confirm, by a heartbeat
	// sent after the error, that it is still this process's (ledger section
	// 4); a transaction that timed out gives the same error.
	Yield
	// Stop ends the lane with the error as its reason: a person has to change
	// something, see [Hint].
	Stop
)

var actionNames = [...]string{"none", "retry", "abort", "restart lane", "yield", "stop"}

// String names the action.
func (a Action) String() string {
	if a < 0 || int(a) >= len(actionNames) {
		return fmt.Sprintf("Action(%d)", int8(a))
	}
	return actionNames[a]
}

// Classify says what err, the outcome of a request of kind r, obliges to. err
// is an error of kerr, of kgo or of the network, wrapped or not; nil is a
// programming error and panics, for there is nothing to classify.
//
// A code that the table has no entry for gives [RestartLane], whatever the
// request: brokers learn new errors, and beginning again from the ledger is
// right after any of them. Where no answer came at all, a request that is
// harmless to repeat is repeated. Produce and EndTxn are not: the client has
// used its own retries up by then, and a commit that is sent again under v1
// may end the next transaction.
func Classify(r Request, err error) Action {
	if err == nil {
		panic("txn: Classify of no error, after " + r.String())
	}
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		if row, ok := table[ke.Code]; ok && row.actions[r] != 0 {
			return row.actions[r]
		}
		return RestartLane
	}
	if errors.Is(err, kgo.ErrClientClosed) {
		return Stop
	}
	switch r {
	case InitProducerID, AddPartitions, Inspect, ReadLedger, StageShare:
		if unanswered(err) {
			return Retry
		}
	case Produce, EndTxnV1, EndTxnV2:
	}
	return RestartLane
}

// unanswered reports whether err is of the network, or of a caller who did not
// wait for the answer.
func unanswered(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || kgo.IsRetryableBrokerErr(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Hint says what a person can change where [Classify] gives [Stop]; empty
// where it does not, and where there is no advice.
func Hint(r Request, err error) string {
	if ke, ok := errors.AsType[*kerr.Error](err); ok && Classify(r, err) == Stop {
		return table[ke.Code].hint
	}
	return ""
}
