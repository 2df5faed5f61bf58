package mirror

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn"
)

// verifyPair compares a source partition with the target partition that its
// copies are in. It is given the runs of the map piece by piece (hold, take), in
// any order, and has both logs read once where the runs are in order. One
// goroutine at a time calls it.
type verifyPair struct {
	v   *verification
	rep *VerifyPartition

	src, dst *logStream
	// sourceEnd and targetEnd are the ends of the logs; what may be read there.
	sourceEnd, targetEnd int64
	// stable is the target's last stable offset when the range was frozen: every
	// copy below it is in the map.
	stable                   int64
	sourceCompact, toCompact bool

	// From the ledger.
	begin     int64 // last start entry
	prior     bool  // copies below begin may be outside of the ledger
	ordered   bool
	suspended bool
	gaps      []txn.ClosedGap
	low, high int64    // the range
	targetID  [16]byte // of the topic that has the copies
	lost      string   // why they are gone as a whole
	copied    bool     // there were any
	mapCut    bool     // the map's beginning is gone

	runs []mappedRun
	// mapped: a run was seen. begun: one from begin on was seen.
	mapped, begun bool
	to            int32 // target partition
	at            int64 // next source offset to be looked at
	next          int64 // next target offset to be looked at
	highest       int64 // of the copies compared in order
	finishing     bool

	missing        txn.RangeSet         // source offsets that no run had so far
	extra, foreign txn.RangeSet         // target offsets that no run had so far
	waiting        map[uint64]compacted // keys whose record is gone from the target
}

// mappedRun is a [txn.Run] of a known pair.
type mappedRun struct{ first, last, target int64 }

func (r mappedRun) end() int64 { return r.target + r.last - r.first + 1 }

func (v *verification) newPair(rep *VerifyPartition, sourceTopic [16]byte, l *txn.Ledger, sp txn.SourcePartition, have kadm.TopicDetails) *verifyPair {
	mark := l.Mark(sp)
	p := &verifyPair{
		v: v, rep: rep, gaps: l.Gaps(sp), suspended: l.Suspended() != nil,
		to: sp.Partition, highest: -1, waiting: map[uint64]compacted{},
		ordered: l.Flow() == nil || l.Flow().Reader == txn.ReaderPartition,
	}
	if mark.Start != nil {
		p.begin, p.prior = mark.Start.Position, mark.Start.Prior
	}
	p.high, _ = mark.Position()
	p.low = min(p.begin, p.high)
	if f := mark.Frontier; f != nil {
		rep.Target, p.targetID, p.copied = f.TargetTopic, f.TargetTopicID, f.TargetNext >= 0
	}
	today := have[rep.Target]
	_, there := today.Partitions[sp.Partition]
	switch {
	case !there:
		p.lost = fmt.Sprintf("there is no %s[%d] on the target any more", rep.Target, sp.Partition)
	case mark.Frontier == nil:
		p.targetID = today.ID
	case today.ID != p.targetID:
		p.lost = "the topic " + rep.Target + " on the target was recreated"
	}
	p.src = newLogStream(v.src, place{rep.Topic, rep.Partition}, 0)
	p.src.id = sourceTopic
	p.dst = newLogStream(v.dst, place{rep.Target, rep.Partition}, 0)
	p.dst.id = p.targetID
	rep.First, rep.End = p.low, p.high
	return p
}

// bound sets how far the logs reach.
func (p *verifyPair) bound(src, dst bounds, sourceCompact, targetCompact bool) {
	p.src.start, p.sourceEnd = src.start, src.end
	p.dst.start, p.stable, p.targetEnd = dst.start, dst.stable, dst.end
	p.sourceCompact, p.toCompact = sourceCompact, targetCompact
}

// hold keeps a run for the next take, unless it is that of a former topic on the
// target.
func (p *verifyPair) hold(r txn.Run) bool {
	if r.TargetTopicID != p.targetID {
		return false
	}
	if r.TargetPartition != p.to {
		p.find(VerifyUnexpected, r.First, r.TargetFirst, fmt.Sprintf("the map has the copy in partition %d", r.TargetPartition))
		return false
	}
	p.runs = append(p.runs, mappedRun{r.First, r.Last, r.TargetFirst})
	return true
}

// take compares what the held runs name, in the order of the source. A run of
// another piece of the map may be below: it is read by going back.
func (p *verifyPair) take(ctx context.Context) error {
	runs := p.runs
	p.runs = nil
	if len(runs) == 0 {
		return nil
	}
	slices.SortFunc(runs, func(a, b mappedRun) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.target, b.target))
	})
	fresh := !p.mapped
	if fresh {
		p.mapped = true
		p.low = min(p.low, runs[0].first)
		p.rep.First, p.at = p.low, p.low
		p.next = slices.MinFunc(runs, func(a, b mappedRun) int { return cmp.Compare(a.target, b.target) }).target
	}
	for _, r := range runs {
		if err := p.scanSource(ctx, min(r.first, p.high), p.mapCut && fresh); err != nil {
			return err
		}
		fresh = false
		if err := p.scanTarget(ctx, r.target); err != nil {
			return err
		}
		p.begun = p.begun || r.first >= p.begin
		if err := p.compare(ctx, r); err != nil {
			return err
		}
		p.pass(min(r.last+1, p.high))
		p.next = max(p.next, r.end())
	}
	if p.ordered {
		p.settleTarget()
	}
	// One pair of many reads at a time.
	p.src.drop()
	p.dst.drop()
	return nil
}

func (p *verifyPair) pass(to int64) {
	if to > p.at {
		p.v.advance(to - p.at)
		p.at = to
	}
}

// scanSource looks at the records up to an offset that no run has.
func (p *verifyPair) scanSource(ctx context.Context, to int64, cut bool) error {
	if p.lost == "" && p.at < to {
		p.src.seek(p.at)
		for {
			rec, err := p.src.next(ctx, min(to, p.sourceEnd))
			if err != nil {
				return err
			}
			if rec == nil {
				break
			}
			p.unmapped(rec, cut)
		}
	}
	p.pass(to)
	return nil
}

// unmapped decides on a source record that no run has.
func (p *verifyPair) unmapped(rec *kgo.Record, cut bool) {
	skipped := slices.ContainsFunc(p.gaps, func(g txn.ClosedGap) bool { return g.First <= rec.Offset && rec.Offset <= g.Last })
	_, verdict, _ := p.v.chain.Apply(rec)
	switch {
	case skipped:
		p.rep.Skipped++
	case verdict == transform.Drop:
		p.rep.Echoes++
	case p.prior && rec.Offset < p.begin:
		p.rep.Outside++
	case cut:
		p.rep.Unmapped++
	default:
		p.missing.Add(rec.Offset, rec.Offset)
	}
}

// scanTarget looks at the records up to an offset that no run has.
func (p *verifyPair) scanTarget(ctx context.Context, to int64) error {
	to = min(to, p.stable)
	if p.lost != "" || p.next >= to {
		return nil
	}
	p.dst.seek(p.next)
	for {
		rec, err := p.dst.next(ctx, to)
		if err != nil {
			return err
		}
		if rec == nil {
			p.next = to
			return nil
		}
		p.newer(rec)
		switch {
		case !p.ours(rec):
			p.foreign.Add(rec.Offset, rec.Offset)
		case p.prior && !p.begun, p.suspended && p.finishing: // of a run without the ledger
		default:
			p.extra.Add(rec.Offset, rec.Offset)
		}
	}
}

// ours reports whether the last cluster that a record on the target came from is
// the source.
func (p *verifyPair) ours(rec *kgo.Record) bool {
	for _, h := range slices.Backward(rec.Headers) {
		if h.Key == transform.ProvenanceHeader {
			return string(h.Value) == p.v.sourceID
		}
	}
	return false
}

// finish decides on what is left when the map is at its end.
func (p *verifyPair) finish(ctx context.Context) error {
	if !p.mapped {
		p.at, p.next = p.low, p.stable // where copies would be, nobody can tell
	}
	if err := p.scanSource(ctx, p.high, p.mapCut && !p.mapped); err != nil {
		return err
	}
	p.finishing = true
	if err := p.scanTarget(ctx, p.stable); err != nil {
		return err
	}
	p.settleTarget()
	p.findAll(&p.missing, VerifyMissing, func(o int64) (int64, int64) { return o, -1 }, "the map has no copy")
	if err := p.settleCompacted(ctx); err != nil {
		return err
	}
	if p.lost != "" && p.copied && p.rep.Missing == 0 {
		p.find(VerifyMissing, p.low, -1, p.lost) // not even the map has them
	}
	slices.SortStableFunc(p.rep.Findings, func(a, b VerifyFinding) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Target, b.Target))
	})
	p.src.drop()
	p.dst.drop()
	return nil
}
