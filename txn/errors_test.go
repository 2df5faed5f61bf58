package txn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// strangers are the codes that none of our requests is answered with, by what
// they belong to. They get the default. A code that is in neither place is a
// new one: look up who gives it, then put it into one of them.
var strangers = map[string][]*kerr.Error{
	"fetch and metadata of clients": {
		kerr.InvalidFetchSize, kerr.ListenerNotFound, kerr.RebootstrapRequired, kerr.OffsetMovedToTieredStorage, kerr.UnknownSubscriptionID,
		kerr.TelemetryTooLarge, kerr.ThrottlingQuotaExceeded, kerr.SecurityDisabled, kerr.LogDirNotFound,
	},
	"groups": {
		kerr.OffsetMetadataTooLarge, kerr.IllegalGeneration, kerr.InconsistentGroupProtocol, kerr.InvalidGroupID,
		kerr.InvalidSessionTimeout, kerr.RebalanceInProgress, kerr.InvalidCommitOffsetSize, kerr.NonEmptyGroup,
		kerr.MemberIDRequired, kerr.GroupMaxSizeReached, kerr.FencedInstanceID, kerr.GroupSubscribedToTopic,
		kerr.UnstableOffsetCommit, kerr.UnreleasedInstanceID, kerr.UnsupportedAssignor,
		kerr.GroupDeletionFailed, kerr.StreamsInvalidTopology, kerr.StreamsInvalidTopologyEpoch, kerr.StreamsTopologyFenced,
		kerr.StreamsTopologyDescriptionUpdateFailed,
	},
	"share groups": {
		kerr.ShareSessionNotFound, kerr.InvalidShareSessionEpoch, kerr.ShareSessionLimitReached,
	},
	"administration": {
		kerr.TopicAlreadyExists, kerr.InvalidPartitions, kerr.InvalidReplicationFactor, kerr.InvalidReplicaAssignment, kerr.InvalidConfig,
		kerr.NotController, kerr.ReassignmentInProgress, kerr.NoReassignmentInProgress, kerr.TopicDeletionDisabled, kerr.PreferredLeaderNotAvailable,
		kerr.EligibleLeadersNotAvailable, kerr.ElectionNotNeeded, kerr.ResourceNotFound, kerr.DuplicateResource, kerr.UnacceptableCredential,
		kerr.FeatureUpdateFailed, kerr.MismatchedEndpointType, kerr.UnsupportedEndpointType,
	},
	"delegation tokens": {
		kerr.DelegationTokenAuthDisabled, kerr.DelegationTokenNotFound, kerr.DelegationTokenOwnerMismatch, kerr.DelegationTokenRequestNotAllowed,
		kerr.DelegationTokenAuthorizationFailed, kerr.DelegationTokenExpired, kerr.InvalidPrincipalType,
	},
	"brokers among themselves": {
		kerr.StaleControllerEpoch, kerr.StaleBrokerEpoch, kerr.InconsistentVoterSet, kerr.InvalidUpdateVersion, kerr.PrincipalDeserializationFailure,
		kerr.SnapshotNotFound, kerr.PositionOutOfRange, kerr.DuplicateBrokerRegistration, kerr.BrokerIDNotRegistered, kerr.InconsistentClusterID,
		kerr.IneligibleReplica, kerr.NewLeaderElected, kerr.UnknownControllerID, kerr.InvalidRegistration, kerr.InvalidVoterKey,
		kerr.DuplicateVoter, kerr.VoterNotFound, kerr.ControllerIDNotRegistered,
	},
}

// kafkaCodes are all errors that the client knows.
func kafkaCodes() []*kerr.Error {
	var all []*kerr.Error
	for code := int16(-1); code < 1000; code++ {
		if e := kerr.TypedErrorForCode(code); e != nil && e.Code == code {
			all = append(all, e)
		}
	}
	return all
}

func TestEachCodeIsKnown(t *testing.T) {
	foreign := map[int16]string{}
	for what, es := range strangers {
		for _, e := range es {
			foreign[e.Code] = what
		}
	}
	known := kafkaCodes()
	if len(known) < 130 {
		t.Fatalf("only %d codes", len(known))
	}
	for _, e := range known {
		row, ok := table[e.Code]
		what, stranger := foreign[e.Code]
		if ok == stranger {
			t.Errorf("%s (%d): in the table %v, a stranger of %q: want exactly one", e.Message, e.Code, ok, what)
		}
		if ok && row.actions == (actions{}) {
			t.Errorf("%s: a row without an action", e.Message)
		}
		for r := range Request(requests) {
			got := Classify(r, fmt.Errorf("commit: %w", e))
			want := row.actions[r]
			if want == 0 {
				want = RestartLane
			}
			if got != want || got < Retry || got > Stop {
				t.Errorf("%v after %v: %v, want %v", e.Message, r, got, want)
			}
			switch hint := Hint(r, e); {
			case got != Stop && hint != "":
				t.Errorf("%v after %v: a hint without a stop: %q", e.Message, r, hint)
			case strings.HasSuffix(hint, "."):
				t.Errorf("%v: hint %q is no clause", e.Message, hint)
			}
		}
	}
}

// Rules of the protocol that no single row may break.
func TestTableRules(t *testing.T) {
	for _, e := range kafkaCodes() {
		if a := Classify(EndTxnV1, e); a == Retry || a == Abort {
			t.Errorf("EndTxn v1, %s: %v: a commit is sent once, and after it nothing but the ledger tells the outcome", e.Message, a)
		}
		if a := Classify(EndTxnV2, e); a == Abort {
			t.Errorf("EndTxn v2, %s: an abort after a commit", e.Message)
		}
		for _, r := range []Request{InitProducerID, EndTxnV1, EndTxnV2, Inspect, ReadLedger} {
			if Classify(r, e) == Abort {
				t.Errorf("%v, %s: there is no transaction to abort", r, e.Message)
			}
		}
		for _, r := range []Request{Inspect, ReadLedger} {
			if Classify(r, e) == Yield {
				t.Errorf("%v, %s: only a producer can be fenced", r, e.Message)
			}
		}
	}
	for _, e := range []*kerr.Error{kerr.ProducerFenced, kerr.InvalidProducerEpoch} {
		for r := InitProducerID; r <= EndTxnV2; r++ {
			if a := Classify(r, e); a != Yield {
				t.Errorf("%v, %s: %v, want yield", r, e.Message, a)
			}
		}
	}
}

// Cases in which other tools took the wrong turn.
func TestClassify(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, tc := range []struct {
		r    Request
		want Action
		errs []error
	}{
		// Case 17: no success is made of an unknown error of a commit.
		{EndTxnV1, RestartLane, []error{kerr.UnknownServerError, kerr.InvalidTxnState, kerr.InvalidProducerIDMapping, kerr.TransactionAbortable}},
		{EndTxnV2, RestartLane, []error{kerr.UnknownServerError, kerr.InvalidTxnState}},
		// Case 18 and the lost answer: unknown, whichever protocol.
		{EndTxnV1, RestartLane, []error{context.Canceled, context.DeadlineExceeded, io.EOF, reset, dial}},
		{EndTxnV2, RestartLane, []error{context.Canceled, context.DeadlineExceeded, io.EOF, reset, dial}},
		{EndTxnV1, RestartLane, []error{kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress}},
		{EndTxnV2, Retry, []error{kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress}},
		// Case 22: an id that the broker has forgotten.
		{Produce, RestartLane, []error{kerr.UnknownProducerID, kerr.InvalidProducerIDMapping, kerr.OutOfOrderSequenceNumber}},
		{AddPartitions, RestartLane, []error{kerr.InvalidProducerIDMapping}},
		// Case 23: the predecessor's transaction is being aborted.
		{InitProducerID, Retry, []error{kerr.ConcurrentTransactions, kerr.NotCoordinator, io.EOF, reset, dial, context.DeadlineExceeded}},
		// Case 24, 25: what the partition's leader could not do.
		{Produce, Retry, []error{kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition, kerr.ConcurrentTransactions}},
		{Produce, RestartLane, []error{kgo.ErrRecordTimeout, kgo.ErrRecordRetries, kgo.ErrAborting, io.EOF, context.Canceled, kerr.DuplicateSequenceNumber}},
		{Produce, Abort, []error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.TopicAuthorizationFailed}},
		{Produce, RestartLane, []error{kerr.TransactionAbortable}},
		{AddPartitions, Abort, []error{kerr.OperationNotAttempted, kerr.TopicAuthorizationFailed}},
		// Case 27.
		{InitProducerID, Stop, []error{kerr.InvalidTransactionTimeout, kerr.TransactionalIDAuthorizationFailed}},
		{EndTxnV1, Stop, []error{kerr.TransactionalIDAuthorizationFailed, kgo.ErrClientClosed}},
		// The end of the ledger on a new leader.
		{ReadLedger, Retry, []error{kerr.OffsetNotAvailable, kerr.NotLeaderForPartition, io.EOF}},
		{ReadLedger, RestartLane, []error{kerr.OffsetOutOfRange}},
		{Inspect, RestartLane, []error{kerr.TransactionalIDNotFound}},
		// Never heard of.
		{Produce, RestartLane, []error{errors.New("what"), &kerr.Error{Message: "NEW", Code: 999}}},
		{InitProducerID, RestartLane, []error{errors.New("what"), &kerr.Error{Message: "NEW", Code: 999}}},
	} {
		for _, err := range tc.errs {
			if got := Classify(tc.r, fmt.Errorf("wrapped: %w", err)); got != tc.want {
				t.Errorf("%v after %v: %v, want %v", err, tc.r, got, tc.want)
			}
		}
	}
	if h := Hint(InitProducerID, kerr.InvalidTransactionTimeout); !strings.Contains(h, "transaction.max.timeout.ms") {
		t.Errorf("hint %q", h)
	}
	defer func() {
		if recover() == nil {
			t.Error("no error was classified")
		}
	}()
	Classify(Produce, nil)
}

func TestOutcome(t *testing.T) {
	a, b := SourcePartition{Cluster: "a"}, SourcePartition{Cluster: "a", Partition: 1}
	for _, tc := range []struct {
		wrote, ledger Positions
		want          Outcome
	}{
		{nil, Positions{a: 5}, Unknown},
		{Positions{a: 5}, nil, Aborted},
		{Positions{a: 5}, Positions{a: 4}, Aborted},
		{Positions{a: 5}, Positions{a: 5}, Committed},
		{Positions{a: 5}, Positions{a: 9, b: 1}, Committed},
		{Positions{a: 5, b: 2}, Positions{a: 5, b: 2}, Committed},
		{Positions{a: 5, b: 2}, Positions{a: 5}, Aborted},
		{Positions{a: 5, b: 2}, Positions{a: 9, b: 1}, Aborted},
		// A position of 0 (a start entry) is not one that is absent.
		{Positions{a: 0}, Positions{a: 0}, Committed},
		{Positions{a: 0}, Positions{b: 0}, Aborted},
	} {
		if got := Resolve(tc.wrote, tc.ledger); got != tc.want {
			t.Errorf("Resolve(%v, %v) = %v, want %v", tc.wrote, tc.ledger, got, tc.want)
		}
	}
	var zero Outcome
	if zero != Unknown || Unknown.String() != "unknown" || Outcome(9).String() != "Outcome(9)" {
		t.Error("the zero Outcome is not Unknown")
	}
}
