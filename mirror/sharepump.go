package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	pause time.Time     // no fetch before
	rest  respites[tip] // partitions that failed

	mu   sync.Mutex
	want map[tip]bool
	acks map[tip][]ackRange
	wake chan struct{}

	// renewing is held while locks are renewed: what goes into a transaction
	// must not be named by a renewal that is under way.
	renewing sync.Mutex
}

func newPump(r *shareReader, node int32) *pump {
	return &pump{
		r: r, node: node, ses: newShareSession(),
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
	p.acks = map[tip][]ackRange{} // a map that is handed out is not written to any more
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
		p.acknowledge(io, p.take())
		p.renew(io)
		if len(p.ready) == 0 && (len(p.ses.want) > 0 || len(p.ses.known) > 0) && p.r.wants() && !time.Now().Before(p.pause) {
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
	b := &batch{from: p, grant: p.ses.granted()}
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
	if len(b.items) > 0 || len(b.gaps) > 0 {
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

// lost ends the session after a failed request: the broker releases, or has
// released, what was held.
func (p *pump) lost(err error) {
	p.ses.reset()
	p.drop()
	p.backOff()
	switch {
	case errors.Is(err, kerr.ShareSessionNotFound), errors.Is(err, kerr.InvalidShareSessionEpoch), errors.Is(err, kerr.GroupIDNotFound):
		// A broker that restarted, or cleaned up, or the group is gone; the
		// next fetch opens anew.
		p.r.cfg.log.Info("share session reset", "group", p.r.cfg.group, "broker", p.node, "reason", err)
		p.r.doubt()
		p.r.robbed()
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
// RENEW (before 4.2) what waits for a lane that is busy with another broker's
// records is given back instead; what a lane has taken runs into the deadline.
func (p *pump) renew(ctx context.Context) {
	p.renewing.Lock()
	defer p.renewing.Unlock()
	lock := p.r.lock()
	due := p.ses.due(time.Now().Add(lock / 2))
	if len(due) == 0 {
		return
	}
	if !p.r.cfg.renew {
		if len(p.ready) > 0 {
			p.giveBack()
		}
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
			p.dropPartition(t)
		}
		for _, h := range hs {
			if results[t] == nil {
				p.ses.extended(t, h, sent.Add(p.r.lock()))
			} else {
				p.ses.settled(t, h.Range)
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
	p.ack(back)
}

// drop forgets what the lane has not taken.
func (p *pump) drop() {
	for _, b := range p.ready {
		for i := range b.items {
			it := &b.items[i]
			p.free(it)
			if it.last {
				p.r.cfg.lose(it.rec.Topic, it.src, it.rec.Offset)
			}
		}
	}
	p.ready = nil
}

// dropPartition forgets what of one partition the lane has not taken.
func (p *pump) dropPartition(t tip) {
	for _, b := range p.ready {
		b.items = slices.DeleteFunc(b.items, func(it item) bool {
			if it.src == t {
				p.free(&it)
			}
			return it.src == t
		})
	}
	p.ready = slices.DeleteFunc(p.ready, func(b *batch) bool { return len(b.items) == 0 })
}

func (p *pump) free(it *item) {
	p.r.cfg.written.free(it.src, txn.Range{First: it.rec.Offset, Last: it.rec.Offset}, p)
}

// finish sends what is settled and closes the session, which releases the rest.
func (p *pump) finish(ctx context.Context) {
	p.drop()
	p.acknowledge(ctx, p.take())
	if p.ses.epoch == 0 {
		return
	}
	if _, err := p.sendAcks(ctx, nil, true); err != nil && !errors.Is(err, context.Canceled) {
		p.r.cfg.log.Info("share session not closed; the broker releases its records when their locks end",
			"group", p.r.cfg.group, "broker", p.node, "reason", err)
	}
}
