package mirror

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/txn"
)

// compare looks at the records of a run.
func (p *verifyPair) compare(ctx context.Context, r mappedRun) error {
	last := min(r.last, p.high-1)
	n := last - r.first + 1
	switch {
	case n <= 0:
		return nil
	case p.lost != "":
		if p.rep.Missing == 0 {
			p.find(VerifyMissing, r.first, r.target, p.lost)
			n--
		}
		p.rep.Missing += n
		return nil
	case last < p.src.start:
		p.rep.ExpiredAtSource += n
		return nil
	case r.target+n <= p.dst.start:
		p.rep.ExpiredAtTarget += n
		return nil
	}
	passed := p.at
	p.src.seek(r.first)
	p.dst.seek(r.target)
	nextSource := func() (*kgo.Record, error) { return p.src.next(ctx, min(last+1, p.sourceEnd)) }
	nextTarget := func() (*kgo.Record, error) { return p.dst.next(ctx, min(r.target+n, p.targetEnd)) }
	want, err := nextSource()
	if err != nil {
		return err
	}
	have, err := nextTarget()
	if err != nil {
		return err
	}
	for o, t := r.first, r.target; o <= last; o, t = o+1, t+1 {
		w, h := want, have
		if w != nil && w.Offset != o {
			w = nil
		}
		if h != nil && h.Offset != t {
			h = nil
		}
		again := o < passed && o >= p.low && !p.missing.Has(o)
		p.missing.Remove(o, o)
		p.one(o, t, w, h, again)
		if w != nil {
			if want, err = nextSource(); err != nil {
				return err
			}
		}
		if h != nil {
			if have, err = nextTarget(); err != nil {
				return err
			}
		}
	}
	return nil
}

// one judges a source record (nil: gone) and its copy (nil: gone). again: an
// earlier run has the same source record.
func (p *verifyPair) one(o, t int64, want, have *kgo.Record, again bool) {
	if have != nil {
		p.extra.Remove(t, t)
		p.foreign.Remove(t, t)
		p.newer(have)
	}
	switch {
	case have != nil && again:
		p.find(VerifyDuplicated, o, t, "copied by a transaction before")
	case again: // nor is it there
	case want != nil && have != nil:
		p.rep.Compared++
		if detail := difference(want, have, p.v.sourceID); detail != "" {
			p.find(VerifyChanged, o, t, detail)
		}
		if p.ordered && t < p.highest {
			p.find(VerifyOutOfOrder, o, t, fmt.Sprintf("an earlier record is at target offset %d", p.highest))
		}
		p.highest = max(p.highest, t)
	case want != nil:
		p.absent(want, t)
	case o < p.src.start:
		p.rep.ExpiredAtSource++
	case t < p.dst.start:
		p.rep.ExpiredAtTarget++
	case p.sourceCompact:
		p.rep.Compacted++
	case o >= p.sourceEnd:
		p.find(VerifyUnexpected, o, t, fmt.Sprintf("the source's log ends at %d: it was cut back", p.sourceEnd))
	default:
		p.find(VerifyUnexpected, o, t, "the source has no committed record there")
	}
}

// absent decides on a source record whose copy is not where the map has it.
func (p *verifyPair) absent(want *kgo.Record, t int64) {
	switch {
	case t < p.dst.start:
		p.rep.ExpiredAtTarget++
	case t >= p.targetEnd:
		p.find(VerifyMissing, want.Offset, t, fmt.Sprintf("the target's log ends at %d: it was cut back", p.targetEnd))
	case p.toCompact && want.Key != nil:
		p.wait(want, t)
	default:
		p.find(VerifyMissing, want.Offset, t, "the map has a copy, and the target has none")
	}
}

// find counts a finding, and lists it unless there are enough of its kind.
func (p *verifyPair) find(k VerifyKind, source, target int64, detail string) {
	n := p.rep.of(k)
	*n++
	if *n <= int64(p.v.listed) {
		p.rep.Findings = append(p.rep.Findings, VerifyFinding{Kind: k, Source: source, Target: target, Detail: detail})
	}
}

// findAll is find for every offset of a set, which it empties.
func (p *verifyPair) findAll(s *txn.RangeSet, k VerifyKind, spot func(o int64) (source, target int64), detail string) {
	n := p.rep.of(k)
	for _, r := range s.Ranges() {
		for o := r.First; o <= r.Last; o++ {
			if *n >= int64(p.v.listed) {
				*n += r.Last - o + 1
				break
			}
			source, target := spot(o)
			p.find(k, source, target, detail)
		}
	}
	*s = txn.RangeSet{}
}

// settleTarget decides on the target's records that no run had: in a flow that
// keeps order none will come for them.
func (p *verifyPair) settleTarget() {
	onTarget := func(o int64) (int64, int64) { return -1, o }
	p.findAll(&p.extra, VerifyDuplicated, onTarget, "it came from the source, and no transaction of the flow has it in the map")
	p.findAll(&p.foreign, VerifyForeign, onTarget, "")
}
