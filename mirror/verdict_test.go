package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		want verdict
		errs []error
	}{
		{verdictRecord, []error{
			kerr.CorruptMessage, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
			kerr.UnsupportedCompressionType, kerr.PolicyViolation, kerr.InvalidRequiredAcks, kerr.UnsupportedForMessageFormat,
		}},
		{verdictTopic, []error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.InvalidTopicException}},
		{verdictMissing, []error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID}},
		{verdictAgain, []error{
			kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.NotLeaderForPartition,
			kerr.LeaderNotAvailable, kerr.FencedLeaderEpoch, kerr.KafkaStorageError, kerr.BrokerNotAvailable, kerr.NetworkException,
			kerr.CoordinatorNotAvailable, kerr.ThrottlingQuotaExceeded, context.Canceled, context.DeadlineExceeded, io.EOF,
			&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
		}},
		{verdictAnew, []error{
			kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping,
			kerr.ProducerFenced, kerr.UnknownServerError, kgo.ErrClientClosed, errors.New("invalid record partitioning choice"),
		}},
	} {
		for _, err := range tc.errs {
			if got := classify(fmt.Errorf("wrapped: %w", err)); got != tc.want {
				t.Errorf("%v: verdict %d, want %d", err, got, tc.want)
			}
		}
	}
	for _, r := range refusals {
		if err := refused(r.err); !errors.Is(err, r.err) || hintOf(err) != r.hint {
			t.Errorf("%v: hint %q, want %q", r.err, hintOf(err), r.hint)
		}
	}
}

func TestTopicError(t *testing.T) {
	err := fmt.Errorf("put: %w", &topicError{Topic: "orders", Err: kerr.TopicAuthorizationFailed, Hint: "grant it"})
	var te *topicError
	if !errors.As(err, &te) || !errors.Is(err, kerr.TopicAuthorizationFailed) || hintOf(err) != "grant it" || IsRetriable(err) {
		t.Errorf("%v: hint %q", err, hintOf(err))
	}
}
