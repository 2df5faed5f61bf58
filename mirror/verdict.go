package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
)

// topicError is why a topic can't be written at all, whatever the record. It
// is not retriable by itself and no fault of the record: on_error does not
// apply. It heals when a person grants the right or creates the topic.
type topicError struct {
	// Topic on the target.
	Topic string
	Err   error
	// Hint says what to change.
	Hint string
}

// Error names the topic and the broker's reason.
func (e *topicError) Error() string { return fmt.Sprintf("target topic %s: %v", e.Topic, e.Err) }

// Unwrap gives the broker's error together with the hint.
func (e *topicError) Unwrap() error { return &hinted{e.Err, e.Hint} }

// verdict is what a failed produce means for what is to be done.
type verdict int8

const (
	// verdictAgain: passes by itself; the producer is sound.
	verdictAgain verdict = iota
	// verdictAnew: passes by itself, but not with this producer: its id, its
	// sequence or what it knows of the topic is of no more use.
	verdictAnew
	// verdictRecord: the broker refuses a batch for good because of what is
	// in it.
	verdictRecord
	// verdictTopic: the topic can't be written with these rights.
	verdictTopic
	// verdictMissing: the topic does not exist, or not yet everywhere.
	verdictMissing
)

// refusals are the answers that are about the records of a batch, with what
// can be done (org.apache.kafka.common.protocol.Errors; LogValidator and
// UnifiedLog say when). Trying the same bytes again can't help.
var refusals = []struct {
	err  *kerr.Error
	hint string
}{
	// 2: also how brokers before 2.4 refuse a record without key on a compacted topic.
	{kerr.CorruptMessage, "a compacted target topic takes no record without key"},
	{kerr.MessageTooLarge, "raise max.message.bytes of the target topic (or producer.override.max.request.size, where it is set)"}, // 10
	{kerr.RecordListTooLarge, "raise segment.bytes of the target topic"},                                                           // 18
	{kerr.InvalidRequiredAcks, ""}, // 21
	{kerr.InvalidTimestamp, "widen message.timestamp.before.max.ms or message.timestamp.after.max.ms of the target topic"}, // 32
	{kerr.UnsupportedForMessageFormat, "raise message.format.version of the target topic: it can't hold headers"},          // 43
	{kerr.PolicyViolation, "see the policies of the target cluster"},                                                       // 44
	{kerr.UnsupportedCompressionType, "choose another producer.override.compression.type"},                                 // 76
	{kerr.InvalidRecord, "a compacted target topic takes no record without key"},                                           // 87
}

// classify says what an error of a produced record means. An error that
// nobody foresaw counts as one that passes by itself: a stall can be seen and
// undone, a record that was skipped for it is lost.
func classify(err error) verdict {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return verdictRecord
		}
	}
	var network net.Error
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), // 29
		errors.Is(err, kerr.ClusterAuthorizationFailed), // 31: no IdempotentWrite, before Kafka 3.0
		errors.Is(err, kerr.InvalidTopicException):      // 17
		return verdictTopic
	case errors.Is(err, kerr.UnknownTopicOrPartition), // 3
		errors.Is(err, kerr.UnknownTopicID): // 100: deleted and created again
		return verdictMissing
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &network), errors.Is(err, io.EOF),
		// Time-outs, not enough replicas, leader moves, storage errors.
		kerr.IsRetriable(err):
		return verdictAgain
	}
	// Among them, and recovered from by a new producer: 45 OUT_OF_ORDER_SEQUENCE_NUMBER,
	// 47 INVALID_PRODUCER_EPOCH, 49 INVALID_PRODUCER_ID_MAPPING,
	// 59 UNKNOWN_PRODUCER_ID, 90 PRODUCER_FENCED; a partition that the client
	// has not heard of; a closed client.
	return verdictAnew
}

// refused is err, a verdictRecord, with its hint.
func refused(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return &hinted{err, r.hint}
		}
	}
	return err
}

// topicHint is the advice that goes with a verdictTopic or verdictMissing.
func topicHint(err error) string {
	switch {
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		return "grant IdempotentWrite on the cluster (needed before Kafka 3.0)"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "grant Write and Describe on the topic"
	case errors.Is(err, kerr.InvalidTopicException):
		return "choose another rename: the broker refuses the name"
	}
	return "create the topic, or let the flow create it"
}
