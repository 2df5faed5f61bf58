package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn"
)

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

// confirmed: the broker took r's acknowledgement.
func (r *shareReader) confirmed(t tip, a ackRange) {
	if a.kind == ackRelease {
		return
	}
	r.cfg.board.settled(t, txn.Range{First: a.first, Last: a.last})
	if a.records > 0 {
		r.cfg.written.counted(t, txn.Range{First: a.first, Last: a.last})
		r.cfg.board.copied(r.topicName(t.id), t.partition, a.records, a.bytes)
	}
}

// refused: the broker refused, or never saw, an acknowledgement.
func (r *shareReader) refused(t tip, a ackRange, err error) {
	if a.kind != ackAccept && a.kind != ackReject {
		return // it comes again, which is all that was wanted
	}
	if a.records > 0 {
		r.cfg.written.owe(t, txn.Range{First: a.first, Last: a.last})
	}
	r.cfg.board.refused(r.topicName(t.id), t.partition, int(a.last-a.first+1), err)
}
