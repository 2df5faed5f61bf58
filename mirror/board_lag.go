package mirror

import (
	"cmp"
	"time"
)

// lagged sets what the monitor found for one partition.
func (b *board) lagged(topic string, partition int32, lag, end int64, seconds float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	at := place{topic, partition}
	p := b.part(topic, partition)
	if lag <= 0 || p.Lag <= 0 || end-lag > p.EndOffset-p.Lag {
		b.moved[at] = now // nothing to do, or lag has just appeared, or it went on, here or in another process
	}
	p.Lag, p.EndOffset, p.LagSeconds = lag, end, seconds
	b.place(at, p, now)
}

// place puts a partition into the phase that its lag and its last progress
// call for.
func (b *board) place(at place, p *PartitionState, now time.Time) {
	switch {
	case p.Phase == PartitionStopped:
	case p.Lag <= 0 && b.holders[at] != nil:
		b.enter(p, PartitionWaiting, b.holders[at].reason(), b.holders[at].hint(at, now))
	case p.Lag <= 0:
		b.enter(p, PartitionIdle, "", "")
	case b.outside:
		b.enter(p, PartitionLagging, "", "")
	case now.Sub(b.moved[at]) >= StallAfter:
		reason, hint := "records wait and nothing moves", "see the flow's troubles and the source's group"
		if err := cmp.Or(b.hurdles[at], b.anyTrouble()); err != nil {
			reason, hint = reasonOf(err), hintOf(err)
		}
		b.enter(p, PartitionStalled, reason, hint)
	case b.hurdles[at] != nil:
		b.enter(p, PartitionCopying, reasonOf(b.hurdles[at]), hintOf(b.hurdles[at]))
	default:
		b.enter(p, PartitionCopying, "", "")
	}
}
