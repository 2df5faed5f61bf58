package mirror

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn"
)

// acquire files one partition's acquired offsets: records into b, those near
// their last delivery alone into single, the rest into back.
func (p *pump) acquire(t tip, rp *kmsg.ShareFetchResponseTopicPartition, deadline time.Time, back map[tip][]ackRange, b *batch, single *[]*batch) {
	topic := p.r.topicName(t.id)
	a := decodeAcquisition(topic, rp)
	for _, ar := range rp.AcquiredRecords {
		p.ses.acquired(t, txn.Range{First: ar.FirstOffset, Last: ar.LastOffset}, deadline)
	}
	for _, g := range a.gaps {
		if p.r.cfg.gapsBound {
			b.gaps = append(b.gaps, ownRange{t, g})
		} else {
			back[t] = append(back[t], ackRange{first: g.First, last: g.Last, kind: ackGap})
		}
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
	if p.r.cfg.bound {
		// Nothing of what was written or noted is to be known: the transaction
		// says what is done.
		for _, it := range a.items {
			if it.src = t; it.delivery >= limit-2 {
				*single = append(*single, &batch{items: []item{it}, from: p, grant: b.grant, alone: true})
			} else {
				b.items = append(b.items, it)
			}
		}
		return
	}
	not := p.claim(t, a.items, back)
	for _, it := range a.items {
		if not.Has(it.rec.Offset) {
			continue
		}
		it.src = t
		it.last = it.delivery >= limit
		if it.last {
			p.r.cfg.board.lastDelivery(topic, t.partition, it.rec.Offset)
		}
		if it.owed = it.delivery >= limit-1; it.owed {
			// One ahead: on the last one it may be too late.
			p.r.cfg.owe(p.r.ioCtx, topic, t, it.rec.Offset)
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
	all := items
	for len(items) > 0 {
		r, epoch := txn.Range{First: items[0].rec.Offset, Last: items[0].rec.Offset}, items[0].rec.LeaderEpoch
		for items = items[1:]; len(items) > 0 && items[0].rec.Offset == r.Last+1 && items[0].rec.LeaderEpoch == epoch; items = items[1:] {
			r.Last++
		}
		done, own, foreign := p.r.cfg.written.claim(t, epoch, r, p)
		for _, d := range done {
			a := ackRange{first: d.First, last: d.Last, kind: ackAccept}
			for i := range all {
				if at := all[i].rec.Offset; d.First <= at && at <= d.Last && p.r.cfg.written.owes(t, at) {
					a.records++
					a.bytes += all[i].size()
				}
			}
			back[t] = append(back[t], a)
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
