package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// judge takes from each queue what its run has decided.
func (s *kafkaSink) judge(ctx context.Context, queues []*queue, errs []error, failed map[int]error) {
	var reasons map[*queue]error
	for _, q := range queues {
		run, rest := q.todo[:q.run], q.todo[q.run:]
		bad := slices.DeleteFunc(slices.Clone(run), func(i int) bool { return errs[i] == nil })
		if len(bad) < len(run) {
			delete(s.absentAt, q.topic)
		}
		if len(bad) == 0 {
			q.todo, q.most = rest, q.most*2
			continue
		}
		err := errs[bad[0]]
		v := classify(err)
		switch {
		case v == verdictRecord && len(bad) > 1:
			// The broker refuses batches; the client then fails everything
			// behind the batch too.
			if !errors.Is(err, kerr.MessageTooLarge) || !s.learn(ctx, q.topic) {
				q.most = len(bad) / 2
			}
			q.todo = slices.Concat(bad, rest)
			continue
		case v == verdictRecord:
			failed[bad[0]] = refused(err)
			q.todo = rest
			if s.ordered {
				// Whether the rest may follow is not for the sink to say.
				for _, i := range rest {
					failed[i] = Retriable(errBehind)
				}
				q.todo = nil
			}
			if !q.alone {
				q.most = 1 // what is refused often comes in a row
			}
			continue
		case ctx.Err() != nil:
			err = Retriable(context.Cause(ctx))
		case errors.Is(err, context.DeadlineExceeded):
			if reasons == nil {
				reasons = s.reasons(ctx, queues)
			}
			err = fmt.Errorf("not accepted within %v: %w", s.patience, reasons[q])
			if v = classify(err); v != verdictTopic && v != verdictMissing {
				v = verdictAgain // the producer is as good as before
			}
			err = s.failure(q.topic, v, err)
		default:
			err = s.failure(q.topic, v, err)
		}
		// What comes behind must not be written before it.
		for _, i := range slices.Concat(bad, rest) {
			failed[i] = err
		}
		q.todo = nil
	}
}

// errBehind: an ordered sink did not try a record, because one before it in its
// partition was refused.
var errBehind = errors.New("an earlier record of the partition was refused")

// failure is the error of a Put for a verdict that is not about one record.
func (s *kafkaSink) failure(topic string, v verdict, err error) error {
	s.stale = s.stale || v != verdictAgain
	switch v {
	case verdictTopic:
		return &topicError{Topic: topic, Err: err, Hint: topicHint(err)}
	case verdictMissing:
		// Brokers learn of a new topic one after the other.
		since, known := s.absentAt[topic]
		if !known {
			since = time.Now()
			s.absentAt[topic] = since
		}
		if time.Since(since) >= s.missing {
			return &topicError{Topic: topic, Err: err, Hint: topicHint(err)}
		}
	case verdictAgain, verdictAnew, verdictRecord:
	}
	return Retriable(err)
}

// limit is what a batch of the topic may take before compression.
func (s *kafkaSink) limit(topic string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.limits[topic]; ok {
		return n
	}
	return s.batch
}

// learn asks for the topic's own limit after a batch was too large for it, and
// reports whether batches are smaller from now on. The right to ask may be
// missing; then it is not.
func (s *kafkaSink) learn(ctx context.Context, topic string) bool {
	ctx, cancel := context.WithTimeout(ctx, s.notice)
	defer cancel()
	answer, err := kadm.NewClient(s.small).DescribeTopicConfigs(ctx, topic)
	if err != nil || len(answer) != 1 || answer[0].Err != nil {
		return false
	}
	for _, c := range answer[0].Configs {
		if c.Key != "max.message.bytes" || c.Value == nil {
			continue
		}
		n, err := strconv.ParseInt(*c.Value, 10, 32)
		const least = 512 // of the client
		if limit := max(int32(n), least); err == nil && limit < s.limit(topic) {
			s.mu.Lock()
			s.limits[topic] = limit
			s.mu.Unlock()
			s.stale = true // a producer asks for a topic's limit only once
			return true
		}
	}
	return false
}

// probe bounds how long a look at a target that does not answer takes.
const probe = 2 * time.Second

// reasons says for each queue why it may not move, as far as the target tells.
func (s *kafkaSink) reasons(ctx context.Context, queues []*queue) map[*queue]error {
	ctx, cancel := context.WithTimeout(ctx, probe)
	defer cancel()
	var topics []string
	for _, q := range queues {
		if !slices.Contains(topics, q.topic) {
			topics = append(topics, q.topic)
		}
	}
	meta, err := kadm.NewClient(s.small).Metadata(ctx, topics...)
	reasons := map[*queue]error{}
	for _, q := range queues {
		if err != nil {
			reasons[q] = s.unreachable(err)
			continue
		}
		reasons[q] = state(meta.Topics[q.topic], q.partition)
	}
	return reasons
}

// unreachable prefers why no connection can be made to the error of a request
// that waited for one.
func (s *kafkaSink) unreachable(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialErr != nil {
		err = s.dialErr
	}
	return fmt.Errorf("target not reachable: %w", err)
}

// state says what about a partition keeps it from taking records.
func state(t kadm.TopicDetail, partition int32) error {
	at := fmt.Sprintf("target %s[%d]", t.Topic, partition)
	p, ok := t.Partitions[partition]
	switch {
	case t.Err != nil:
		return fmt.Errorf("target topic %s: %w", t.Topic, t.Err)
	case !ok:
		return fmt.Errorf("%s does not exist", at)
	case p.Err != nil:
		return fmt.Errorf("%s: %w", at, p.Err)
	case len(p.ISR) < len(p.Replicas):
		return fmt.Errorf("%s has %d of %d replicas in sync; it refuses records below min.insync.replicas", at, len(p.ISR), len(p.Replicas))
	}
	return fmt.Errorf("the leader of %s, broker %d, does not answer", at, p.Leader)
}
