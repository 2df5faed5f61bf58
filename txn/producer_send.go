package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceTimeout is what a leader has for the replicas to follow.
const produceTimeout = 10 * time.Second

// add appends a record for a partition. source and offset say what it is a copy
// of; nil for records of ledger and map. It returns how many records are sealed
// by that.
func (p *producer) add(at target, rec *kgo.Record, source *SourcePartition, offset int64) (n int) {
	q := p.queues[at]
	if q == nil {
		q = &queue{at: at}
		p.queues[at] = q
	}
	if q.building.n == 0 && len(q.sealed) == 0 && !slices.Contains(p.order, q) {
		p.order = append(p.order, q)
	}
	if q.building.n > 0 && (q.building.size(rec) > p.batchBytes || q.most > 0 && q.building.n >= q.most) {
		n = p.seal(q)
	}
	if source != nil {
		last := len(q.spots) - 1
		if last >= 0 && q.spots[last].source == *source && q.spots[last].offset+int64(q.spots[last].n) == offset {
			q.spots[last].n++
		} else {
			q.spots = append(q.spots, spot{*source, offset, q.building.n, 1})
		}
	}
	q.building.add(rec)
	return n
}

// seal ends the batch that is being built for a partition.
func (p *producer) seal(q *queue) int {
	n := q.building.n
	if n == 0 {
		return 0
	}
	q.sealed = append(q.sealed, &sealed{
		at: q.at, id: p.id, n: n, spots: q.spots, bytes: q.building.seal(p.compressor, p.id, q.sequence),
	})
	q.spots = nil
	q.sequence = nextSequence(q.sequence, n)
	return n
}

// sealAll ends all batches that are being built.
func (p *producer) sealAll() (n int) {
	for _, q := range p.order {
		n += p.seal(q)
	}
	return n
}

// idle reports whether no batch is left to be sent or answered.
func (p *producer) idle() bool {
	return !slices.ContainsFunc(p.order, func(q *queue) bool { return len(q.sealed) > 0 })
}

// problem is the error of the batch that waits longest for success, and since
// when.
func (p *producer) problem() (since time.Time, err error) {
	for _, q := range p.order {
		if len(q.sealed) > 0 && q.problem != nil && (err == nil || q.since.Before(since)) {
			since, err = q.since, q.problem
		}
	}
	return since, err
}

// send sends what can be sent now. It blocks only for questions about leaders
// and, under v1, for AddPartitionsToTxn. The error is one of the requests
// named with it.
func (p *producer) send(ctx context.Context) (Request, error) {
	now := time.Now()
	if p.rest.until.After(now) {
		return Produce, nil
	}
	var ready []*queue
	for _, q := range p.order {
		if len(q.sealed) > 0 && !q.flying && !q.next.After(now) {
			ready = append(ready, q)
		}
	}
	if len(ready) == 0 {
		return Produce, nil
	}
	if err := p.know(ctx, ready); err != nil {
		return Inspect, err
	}
	if !p.v2 {
		if err := p.announce(ctx, ready); err != nil {
			return AddPartitions, err
		}
		ready = slices.DeleteFunc(ready, func(q *queue) bool { return !p.added[q.at] })
	}
	byLeader := map[int32][]*sealed{}
	sizes := map[int32]int{}
	var leaders []int32
	for _, q := range ready {
		leader, ok := p.topics[q.at.topic].leaders[q.at.partition]
		switch {
		case !ok || leader < 0:
			p.again(q, p.absence(q.at))
			continue
		case p.busy[leader]:
			continue
		}
		b := q.sealed[0]
		if sizes[leader] > 0 && sizes[leader]+len(b.bytes) > p.requestBytes/2 {
			continue
		}
		if sizes[leader] == 0 {
			leaders = append(leaders, leader)
		}
		if q.since.IsZero() {
			q.since = now
		}
		sizes[leader] += len(b.bytes)
		q.flying = true
		byLeader[leader] = append(byLeader[leader], b)
	}
	for _, leader := range leaders {
		p.rest.sent(now)
		p.fly(leader, byLeader[leader])
	}
	return Produce, nil
}

// absence says why a partition has no leader.
func (p *producer) absence(at target) error {
	if err := p.topics[at.topic].err; err != nil {
		return err
	}
	if _, ok := p.topics[at.topic].leaders[at.partition]; !ok {
		return kerr.UnknownTopicOrPartition
	}
	return kerr.LeaderNotAvailable
}

// know asks for the leaders of partitions where they are not known.
func (p *producer) know(ctx context.Context, ready []*queue) error {
	var ask []string
	for _, q := range ready {
		t, ok := p.topics[q.at.topic]
		leader, led := t.leaders[q.at.partition]
		if (!ok || !led || leader < 0) && !slices.Contains(ask, q.at.topic) {
			ask = append(ask, q.at.topic)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	found, err := topicMetadata(ctx, p.cl, ask...)
	if err != nil {
		return err
	}
	if p.topics == nil {
		p.topics = map[string]topicInfo{}
	}
	for name, t := range found {
		want := p.expect[name]
		if was, ok := p.topics[name]; ok {
			want = was.id
		}
		if t.err != nil {
			t.id = want
		} else if want != ([16]byte{}) && want != t.id {
			return fmt.Errorf("target topic %s: %w", name, ErrRecreated)
		}
		p.topics[name] = t
	}
	return nil
}

// ErrRecreated: a topic was deleted and created again while it was written to.
var ErrRecreated = errors.New("the topic was deleted and created again")

// announce tries to add partitions to a transaction of v1, and has those that
// were not added wait. The error is for the transaction; a *[RefusedError] where
// it is about a partition.
func (p *producer) announce(ctx context.Context, ready []*queue) error {
	var fresh []target
	for _, q := range ready {
		if !p.added[q.at] {
			fresh = append(fresh, q.at)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if len(p.added) == 0 {
		for _, t := range p.always {
			if !slices.Contains(fresh, t) {
				fresh = append(fresh, t)
			}
		}
	}
	refused, err := p.addPartitions(ctx, fresh)
	if err != nil && Classify(AddPartitions, err) != Retry {
		return err
	}
	for at, cause := range refused {
		if Classify(AddPartitions, cause) != Retry {
			return &RefusedError{Topic: at.topic, Partition: at.partition, Err: cause}
		}
		if slices.Contains(p.always, at) {
			err = cause // nothing goes without these
		}
	}
	for _, q := range ready {
		switch {
		case p.added[q.at]:
		case err != nil:
			p.again(q, err)
		case refused[q.at] != nil:
			p.again(q, refused[q.at])
		default: // only another one is in its way
			q.next = time.Now().Add(2 * time.Millisecond)
		}
	}
	return nil
}

// fly sends one request to a leader.
func (p *producer) fly(leader int32, batches []*sealed) {
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &p.txnID, -1, int32(produceTimeout.Milliseconds())
	byTopic := map[string]int{}
	for _, b := range batches {
		i, ok := byTopic[b.at.topic]
		if !ok {
			i = len(req.Topics)
			byTopic[b.at.topic] = i
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = b.at.topic, p.topics[b.at.topic].id
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = b.at.partition, b.bytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	most := int16(11)
	if p.v2 {
		most = req.MaxVersion()
	}
	p.busy[leader] = true
	answers, ctx := p.answers, p.ctx
	p.sending.Go(func() {
		a := answer{leader: leader, batches: batches}
		kresp, err := p.cl.Broker(int(leader)).Request(ctx, &produceRequest{req, most})
		if a.err = err; err == nil {
			a.resp = kresp.(*kmsg.ProduceResponse)
		}
		select {
		case answers <- a:
		case <-ctx.Done():
		}
	})
}

// looksFine is how large batches have become again when the search for a
// refused record is over.
const looksFine = 1 << 14

// result is what became of a batch: written from offset first on, or an error
// that the producer can't deal with by itself.
type result struct {
	*sealed
	first int64
	err   error
}

// take deals with an answer. Batches that are to be sent again are not among
// the results.
func (p *producer) take(a answer, patience time.Duration) []result {
	p.busy[a.leader] = false
	p.rest.answered(time.Now())
	said := map[target]*kmsg.ProduceResponseTopicPartition{}
	if a.err == nil {
		for i := range a.resp.Topics {
			t := &a.resp.Topics[i]
			name := t.Topic
			if name == "" {
				name = p.nameOf(t.TopicID)
			}
			for j := range t.Partitions {
				said[target{name, t.Partitions[j].Partition}] = &t.Partitions[j]
			}
		}
	}
	var out []result
	for _, b := range a.batches {
		q := p.queues[b.at]
		q.flying = false
		part, err := said[b.at], a.err
		switch {
		case err != nil:
		case part == nil:
			err = errNoAnswer
		default:
			if err = kerr.ErrorForCode(part.ErrorCode); err != nil && part.ErrorMessage != nil {
				err = fmt.Errorf("%w: %s", err, *part.ErrorMessage)
			}
		}
		if err == nil && part.BaseOffset < 0 {
			// It is there, but the broker does not remember where, and the map
			// has to know.
			err = kerr.DuplicateSequenceNumber
		}
		switch {
		case err == nil:
			q.sealed = q.sealed[1:]
			q.tries, q.since, q.problem, q.next = 0, time.Time{}, nil, time.Time{}
			if q.most *= 2; q.most > looksFine {
				q.most = 0
			}
			out = append(out, result{sealed: b, first: part.BaseOffset})
		case (unanswered(err) || Classify(Produce, err) == Retry) && time.Since(q.since) < patience:
			p.again(q, err)
		default:
			if Classify(Produce, err) == Abort && b.n > 1 {
				q.most = b.n / 2
			}
			out = append(out, result{sealed: b, err: err})
		}
	}
	return out
}

// again has the first batch of a queue sent another time, after a pause.
func (p *producer) again(q *queue, err error) {
	first, most := 20*time.Millisecond, time.Second
	if errors.Is(err, kerr.ConcurrentTransactions) {
		// The markers of the transaction before are being written.
		first, most = 2*time.Millisecond, 20*time.Millisecond
	}
	q.tries++
	q.problem = err
	if q.since.IsZero() {
		q.since = time.Now()
	}
	q.next = time.Now().Add(backoff(q.tries, first, most))
	if t, ok := p.topics[q.at.topic]; ok && !errors.Is(err, kerr.ConcurrentTransactions) {
		delete(t.leaders, q.at.partition) // to be asked for anew
	}
}

func (p *producer) nameOf(id [16]byte) string {
	for name, t := range p.topics {
		if t.id == id {
			return name
		}
	}
	return ""
}

// overdue is a partition whose first batch has been tried for longer than
// patience.
func (p *producer) overdue(patience time.Duration) *queue {
	for _, q := range p.order {
		if len(q.sealed) > 0 && !q.flying && q.problem != nil && time.Since(q.since) >= patience {
			return q
		}
	}
	return nil
}

// nextTry is when a batch may be sent that has to wait, false when none has.
func (p *producer) nextTry() (at time.Time, ok bool) {
	for _, q := range p.order {
		if len(q.sealed) > 0 && !q.flying && !q.next.IsZero() && (!ok || q.next.Before(at)) {
			at, ok = q.next, true
		}
	}
	if until := p.rest.until; !until.IsZero() && (!ok || until.After(at)) && !p.idle() {
		at, ok = until, true
	}
	return at, ok
}
