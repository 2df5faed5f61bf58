package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn"
)

// pump is one broker's share session: it fetches, acknowledges and renews, one
// request at a time, since the session epoch orders them. Its run goroutine
// owns ses and ready; what others hand it stands under mu.
type pump struct {
	r     *shareReader
	node  int32
	ses   *shareSession
	ready []*batch // fetched, not yet taken by the lane
	fails int
	pause time.Time // no fetch before

	mu   sync.Mutex
	want map[tip]bool
	acks map[tip][]ackRange
	wake chan struct{}
}

func newPump(r *shareReader, node int32) *pump {
	return &pump{
		r: r, node: node, ses: newShareSession(),
		want: map[tip]bool{}, acks: map[tip][]ackRange{}, wake: make(chan struct{}, 1),
	}
}

func (p *pump) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// setWant replaces the partitions to fetch.
func (p *pump) setWant(want map[tip]bool) {
	p.mu.Lock()
	p.want = want
	p.mu.Unlock()
	p.nudge()
}

// ack queues acknowledgements.
func (p *pump) ack(acks map[tip][]ackRange) {
	p.mu.Lock()
	for t, rs := range acks {
		p.acks[t] = append(p.acks[t], rs...)
	}
	p.mu.Unlock()
	p.nudge()
}

func (p *pump) take() map[tip][]ackRange {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ses.want = p.want
	acks := p.acks
	if len(acks) > 0 {
		p.acks = map[tip][]ackRange{}
	}
	return acks
}

// run works until ctx ends, then closes the session. Requests run under io,
// so that a fetch that waits at the broker is not cut off when ctx ends: what
// it acquires would be locked with nobody to give it back.
func (p *pump) run(ctx, io context.Context) {
	defer p.finish(io)
	for ctx.Err() == nil {
		if acks := p.take(); len(acks) > 0 {
			p.acknowledge(io, acks)
		}
		p.renew(io)
		if len(p.ready) == 0 && (len(p.ses.want) > 0 || len(p.ses.known) > 0) && !time.Now().Before(p.pause) {
			p.fetch(io)
			continue
		}
		var (
			out   chan *batch
			first *batch
		)
		if len(p.ready) > 0 {
			out, first = p.r.out, p.ready[0]
		}
		timer := time.NewTimer(p.idleFor())
		select {
		case out <- first:
			p.ready = p.ready[1:]
		case <-p.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// idleFor is how long the pump may sleep before a renewal or the end of a
// back-off is due.
func (p *pump) idleFor() time.Duration {
	d := time.Minute
	if next := p.ses.nextDeadline(); !next.IsZero() {
		d = min(d, time.Until(next.Add(-p.r.lock()/2)))
	}
	if wait := time.Until(p.pause); wait > 0 {
		d = min(d, wait)
	}
	return max(d, 10*time.Millisecond)
}

// fetch asks for records and files what comes.
func (p *pump) fetch(ctx context.Context) {
	add, forget := p.ses.fetchPlan()
	req := p.ses.fetchRequest(add, forget, p.r.cfg.partitionBytes)
	req.GroupID, req.MemberID = &p.r.cfg.group, &p.r.member
	req.MaxWaitMillis = int32(p.r.cfg.maxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = p.r.cfg.minBytes, int32(p.r.cfg.bytes)
	req.MaxRecords, req.BatchSize = int32(p.r.cfg.records), int32(p.r.cfg.records)
	sent := time.Now()
	kresp, err := p.r.cl.Broker(int(p.node)).Request(ctx, req)
	if err != nil {
		p.lost(fmt.Errorf("fetch from broker %d: %w", p.node, err))
		return
	}
	resp := kresp.(*kmsg.ShareFetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		p.lost(fmt.Errorf("fetch from broker %d: %w", p.node, withMessage(err, resp.ErrorMessage)))
		return
	}
	p.ses.fetched(add, forget)
	if resp.AcquisitionLockTimeoutMillis > 0 {
		p.r.setLock(time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond)
	}
	// The lock began after the request was sent: this deadline is never late.
	deadline := sent.Add(p.r.lock())
	b := &batch{from: p}
	var single []*batch
	back := map[tip][]ackRange{}
	bad := 0
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			t := tip{resp.Topics[i].TopicID, rp.Partition}
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				bad++
				p.r.partitionFailed(t, withMessage(err, rp.ErrorMessage))
				continue
			}
			p.acquire(t, rp, deadline, back, b, &single)
		}
	}
	if len(back) > 0 {
		p.ack(back)
	}
	if len(b.items) > 0 {
		p.ready = append(p.ready, b)
	}
	p.ready = append(p.ready, single...)
	if bad == 0 {
		p.fails = 0
		p.r.cfg.board.trouble(p.name(), nil)
	} else if len(p.ready) == 0 {
		p.backOff()
	}
}

// acquire files one partition's acquired offsets: records into b, those near
// their last delivery alone into single, the rest into back.
func (p *pump) acquire(t tip, rp *kmsg.ShareFetchResponseTopicPartition, deadline time.Time, back map[tip][]ackRange, b *batch, single *[]*batch) {
	topic := p.r.topicName(t.id)
	a := decodeAcquisition(topic, rp)
	for _, ar := range rp.AcquiredRecords {
		p.ses.acquired(t, txn.Range{First: ar.FirstOffset, Last: ar.LastOffset}, deadline)
	}
	for _, g := range a.gaps {
		back[t] = append(back[t], ackRange{first: g.First, last: g.Last, kind: ackGap})
	}
	for _, g := range a.back {
		back[t] = append(back[t], ackRange{first: g.First, last: g.Last, kind: ackRelease})
	}
	if len(a.unread) > 0 {
		kind := ackRelease
		if p.r.cfg.unreadable(topic, t.partition, a.unread[0].First, a.err) {
			kind = ackReject
		}
		for _, g := range a.unread {
			back[t] = append(back[t], ackRange{first: g.First, last: g.Last, kind: kind})
		}
	}
	limit := p.r.cfg.deliveryLimit
	for _, it := range a.items {
		it.src = t
		it.last = it.delivery >= limit
		if p.r.cfg.written.has(t, it.rec.Offset) {
			// On the target already; only its acknowledgement was refused.
			back[t] = append(back[t], ackRange{first: it.rec.Offset, last: it.rec.Offset, kind: ackAccept})
			continue
		}
		if it.last {
			p.r.cfg.board.lastDelivery(topic, t.partition, it.rec.Offset)
		}
		if it.delivery >= limit-2 {
			*single = append(*single, &batch{items: []item{it}, from: p})
			continue
		}
		b.items = append(b.items, it)
	}
}

// lost ends the session after a failed request: the broker releases, or has
// released, what was held.
func (p *pump) lost(err error) {
	p.ses.reset()
	p.ready = nil
	p.backOff()
	switch {
	case errors.Is(err, kerr.ShareSessionNotFound), errors.Is(err, kerr.InvalidShareSessionEpoch):
		// A broker that restarted, or cleaned up; the next fetch opens anew.
		p.r.cfg.log.Info("share session reset", "group", p.r.cfg.group, "broker", p.node, "reason", err)
	case errors.Is(err, context.Canceled):
	default:
		p.r.cfg.board.trouble(p.name(), p.r.explain(err))
	}
	p.r.refreshSoon()
}

func (p *pump) backOff() {
	p.fails++
	p.pause = time.Now().Add(backoff(p.fails, 100*time.Millisecond, 5*time.Second))
}

func (p *pump) name() string { return fmt.Sprintf("%s broker %d", p.r.cfg.lane, p.node) }

// acknowledge sends acks and reports what became of them.
func (p *pump) acknowledge(ctx context.Context, acks map[tip][]ackRange) {
	for t, rs := range acks {
		var held []ackRange
		for _, r := range mergeAcks(rs) {
			if p.ses.holding(t, txn.Range{First: r.first, Last: r.last}) {
				held = append(held, r)
			} else {
				p.r.refused(t, r, errHoldLost)
			}
		}
		if acks[t] = held; len(held) == 0 {
			delete(acks, t)
		}
	}
	if len(acks) == 0 {
		return
	}
	results, err := p.sendAcks(ctx, acks, false)
	if err != nil {
		for t, rs := range acks {
			for _, r := range rs {
				p.r.refused(t, r, err)
			}
		}
		p.lost(fmt.Errorf("acknowledge at broker %d: %w", p.node, err))
		return
	}
	for t, rs := range acks {
		budget := 64
		for _, r := range rs {
			p.ses.settled(t, txn.Range{First: r.first, Last: r.last})
		}
		p.conclude(ctx, t, rs, results[t], &budget)
	}
}

// conclude reports the result of a partition's acks. The broker refuses all of
// a partition's ranges when one offset is in the wrong state, so they are
// halved until the guilty ones are alone, or the budget of requests is spent.
func (p *pump) conclude(ctx context.Context, t tip, rs []ackRange, err error, budget *int) {
	if err == nil {
		for _, r := range rs {
			p.r.confirmed(t, r)
		}
		return
	}
	if errors.Is(err, kerr.InvalidRecordState) && *budget > 0 {
		if halves := split(rs); halves != nil {
			for _, half := range halves {
				*budget--
				res, err := p.sendAcks(ctx, map[tip][]ackRange{t: half}, false)
				if err != nil {
					for _, r := range half {
						p.r.refused(t, r, err)
					}
					p.lost(fmt.Errorf("acknowledge at broker %d: %w", p.node, err))
					*budget = 0
					continue
				}
				p.conclude(ctx, t, half, res[t], budget)
			}
			return
		}
	}
	for _, r := range rs {
		p.r.refused(t, r, err)
	}
	if !errors.Is(err, kerr.InvalidRecordState) {
		p.r.refreshSoon() // most likely the leader moved
	}
}

// split halves a list of ranges, or the one range in it; nil for one offset.
func split(rs []ackRange) [][]ackRange {
	if len(rs) > 1 {
		return [][]ackRange{rs[:len(rs)/2], rs[len(rs)/2:]}
	}
	r := rs[0]
	n := r.last - r.first + 1
	if n < 2 {
		return nil
	}
	a, b := r, r
	a.last = r.first + n/2 - 1
	b.first = a.last + 1
	// Counters are spread in proportion; a range has a record per offset.
	a.records = int(int64(r.records) * (n / 2) / n)
	a.bytes = r.bytes * (n / 2) / n
	b.records, b.bytes = r.records-a.records, r.bytes-a.bytes
	return [][]ackRange{{a}, {b}}
}

// sendAcks sends one ShareAcknowledge and returns the result per partition. An
// error means that the session is gone and nothing is known.
func (p *pump) sendAcks(ctx context.Context, acks map[tip][]ackRange, final bool) (map[tip]error, error) {
	req := p.ses.ackRequest(acks)
	req.GroupID, req.MemberID = &p.r.cfg.group, &p.r.member
	if final {
		req.ShareSessionEpoch = finalEpoch
	} else if p.ses.epoch == 0 {
		return nil, errHoldLost
	}
	kresp, err := p.r.cl.Broker(int(p.node)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, withMessage(err, resp.ErrorMessage)
	}
	if !final {
		p.ses.raise()
	}
	if resp.AcquisitionLockTimeoutMillis > 0 {
		p.r.setLock(time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond)
	}
	results := make(map[tip]error, len(acks))
	for t := range acks {
		results[t] = errNoAnswer
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			results[tip{resp.Topics[i].TopicID, rp.Partition}] = withMessage(kerr.ErrorForCode(rp.ErrorCode), rp.ErrorMessage)
		}
	}
	return results, nil
}

// renew extends the locks that have less than half of their time left. Without
// RENEW (before 4.2) what the lane has not taken yet is given back instead; what
// it has taken runs into the deadline.
func (p *pump) renew(ctx context.Context) {
	lock := p.r.lock()
	due := p.ses.due(time.Now().Add(lock / 2))
	if len(due) == 0 {
		return
	}
	if !p.r.cfg.renew {
		p.giveBack()
		return
	}
	acks := make(map[tip][]ackRange, len(due))
	for t, hs := range due {
		for _, h := range hs {
			acks[t] = append(acks[t], ackRange{first: h.First, last: h.Last, kind: ackRenew})
		}
	}
	sent := time.Now()
	results, err := p.sendAcks(ctx, acks, false)
	if err != nil {
		p.lost(fmt.Errorf("renew locks at broker %d: %w", p.node, err))
		return
	}
	for t, hs := range due {
		if err := results[t]; err != nil {
			p.r.cfg.log.Warn("record locks not renewed", "topic", p.r.topicName(t.id), "partition", t.partition, "reason", err)
		}
		for _, h := range hs {
			p.ses.settled(t, h.Range)
			if results[t] == nil {
				p.ses.acquired(t, h.Range, sent.Add(p.r.lock()))
			}
		}
	}
}

// giveBack releases what was fetched and not yet taken by the lane.
func (p *pump) giveBack() {
	back := map[tip][]ackRange{}
	for _, b := range p.ready {
		for i := range b.items {
			it := &b.items[i]
			back[it.src] = append(back[it.src], ackRange{first: it.rec.Offset, last: it.rec.Offset, kind: ackRelease})
		}
	}
	p.ready = nil
	if len(back) > 0 {
		p.ack(back)
	}
}

// finish sends what is settled, releases the rest and closes the session.
func (p *pump) finish(ctx context.Context) {
	p.giveBack()
	acks := p.take()
	if p.ses.epoch == 0 {
		for t, rs := range acks {
			for _, r := range rs {
				p.r.refused(t, r, errHoldLost)
			}
		}
		return
	}
	if len(acks) > 0 {
		p.acknowledge(ctx, acks)
	}
	if p.ses.epoch == 0 {
		return
	}
	if _, err := p.sendAcks(ctx, nil, true); err != nil && !errors.Is(err, context.Canceled) {
		p.r.cfg.log.Info("share session not closed; the broker releases its records when their locks end",
			"group", p.r.cfg.group, "broker", p.node, "reason", err)
	}
}
