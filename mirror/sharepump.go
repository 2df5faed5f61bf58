package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	pace  pace
	fails int
	pause time.Time     // no fetch before
	rest  respites[tip] // partitions that failed

	mu   sync.Mutex
	want map[tip]bool
	acks map[tip][]ackRange
	wake chan struct{}
}

func newPump(r *shareReader, node int32) *pump {
	return &pump{
		r: r, node: node, ses: newShareSession(), pace: newPace(r.cfg.records),
		want: map[tip]bool{}, acks: map[tip][]ackRange{}, wake: make(chan struct{}, 1), rest: respites[tip]{},
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

// take returns the acknowledgements to send, and looks what is to be fetched.
func (p *pump) take() map[tip][]ackRange {
	p.mu.Lock()
	want, acks := p.want, p.acks
	if len(acks) > 0 {
		p.acks = map[tip][]ackRange{}
	}
	p.mu.Unlock()
	p.ses.want = want
	for t := range p.rest {
		switch {
		case !want[t]:
			p.recovered(t) // no longer of this broker
		case p.rest.resting(t):
			p.ses.want = without(p.ses.want, t)
		}
	}
	if len(want) == 0 && p.fails > 0 {
		// The broker has nothing for this member any more, as when it went
		// down and others lead: nobody waits for it.
		p.fails, p.pause = 0, time.Time{}
		p.r.cfg.board.trouble(p.name(), nil)
	}
	return acks
}

func without(tips map[tip]bool, t tip) map[tip]bool {
	tips = maps.Clone(tips)
	delete(tips, t)
	return tips
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
	for t, r := range p.rest {
		if p.rest.resting(t) {
			d = min(d, time.Until(r.until))
		}
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
	req.MaxRecords, req.BatchSize = int32(p.pace.now), int32(p.r.cfg.records)
	if !p.pace.full() {
		req.ShareAcquireMode = acquireExactly
	}
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
	bad := map[tip]bool{}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			t := tip{resp.Topics[i].TopicID, rp.Partition}
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				bad[t] = true
				p.failed(t, withMessage(err, rp.ErrorMessage))
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
	for t := range p.rest {
		if p.ses.known[t] && !bad[t] {
			p.recovered(t)
		}
	}
	p.fails = 0
	p.r.cfg.board.trouble(p.name(), nil)
}

// failed leaves a partition alone for a while.
func (p *pump) failed(t tip, err error) {
	p.rest.failed(t)
	p.r.partitionFailed(t, err)
}

func (p *pump) recovered(t tip) {
	delete(p.rest, t)
	p.r.cfg.board.hindered(p.r.topicName(t.id), t.partition, nil)
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
		n := int64(0)
		for _, g := range a.unread {
			n += g.Len()
		}
		kind := ackRelease
		if p.r.cfg.unreadable(topic, t.partition, a.unread[0].First, n, a.err) {
			kind = ackReject
		}
		for _, g := range a.unread {
			back[t] = append(back[t], ackRange{first: g.First, last: g.Last, kind: kind})
		}
	}
	limit := p.r.cfg.deliveryLimit
	not := p.claim(t, a.items, back)
	for _, it := range a.items {
		if not.Has(it.rec.Offset) {
			continue
		}
		it.src = t
		it.last = it.delivery >= limit
		if it.delivery > limit/2 {
			p.pace.slow()
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

// claim takes items for the lane and returns those that are not for it: what is
// on the target already is acknowledged, and what a lane is writing right now
// is left to that lane.
func (p *pump) claim(t tip, items []item, back map[tip][]ackRange) (not txn.RangeSet) {
	for len(items) > 0 {
		r := txn.Range{First: items[0].rec.Offset, Last: items[0].rec.Offset}
		for items = items[1:]; len(items) > 0 && items[0].rec.Offset == r.Last+1; items = items[1:] {
			r.Last++
		}
		done, own, foreign := p.r.cfg.written.claim(t, r, p)
		for _, d := range done {
			back[t] = append(back[t], ackRange{first: d.First, last: d.Last, kind: ackAccept})
			not.Add(d.First, d.Last)
		}
		for _, o := range own {
			not.Add(o.First, o.Last) // its acknowledgement will use the new lock
		}
		for _, o := range foreign {
			// Not renewed: it comes again, and by then its fate is known.
			p.ses.settled(t, o)
			not.Add(o.First, o.Last)
		}
	}
	return not
}

// lost ends the session after a failed request: the broker releases, or has
// released, what was held.
func (p *pump) lost(err error) {
	p.ses.reset()
	p.pace.slow()
	p.drop()
	p.backOff()
	switch {
	case errors.Is(err, kerr.ShareSessionNotFound), errors.Is(err, kerr.InvalidShareSessionEpoch), errors.Is(err, kerr.GroupIDNotFound):
		// A broker that restarted, or cleaned up, or the group is gone; the
		// next fetch opens anew.
		p.r.cfg.log.Info("share session reset", "group", p.r.cfg.group, "broker", p.node, "reason", err)
		p.r.doubt()
	case errors.Is(err, kerr.ShareSessionLimitReached):
		// As long as this lane is a member, partitions are assigned to it
		// that it can't read: it leaves them to others, and tries again later.
		p.r.fail(fmt.Errorf("share group %s: %w", p.r.cfg.group, p.r.explain(err)))
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
	p.drop()
	if len(back) > 0 {
		p.ack(back)
	}
}

// drop forgets what the lane has not taken.
func (p *pump) drop() {
	for _, b := range p.ready {
		for i := range b.items {
			at := b.items[i].rec.Offset
			p.r.cfg.written.free(b.items[i].src, txn.Range{First: at, Last: at}, p)
		}
	}
	p.ready = nil
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
