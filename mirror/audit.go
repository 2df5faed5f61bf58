package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// audit watches that a share group's start offset does not pass a record that
// this flow has not finished: the broker does that when a record reaches the
// group's delivery limit, or when retention takes it, and no client is told. It
// can judge only what was finished while every member of the group belonged to
// this process; what other processes finish it can't see. It would rather miss
// a record than name one that is on the target: what it names is written.
//
// Blind spot: a process that joins, finishes records and leaves between two
// looks goes unseen; its records may be copied a second time.
//
// Not safe for concurrent use.
type audit struct {
	parts map[tip]*auditPart
	// looked: there was a look before; alone: at that look every member was of
	// this process.
	looked, alone bool
}

type auditPart struct {
	from     int64 // judged up to here; -1 before there is a baseline
	settled  txn.RangeSet
	suspects []txn.Range // passed at the last look, unsettled then
}

// glance is what one look shows of a share partition.
type glance struct {
	// start is the group's start offset, -1 before its first write; it trails
	// what is finished. lag is what the group has not finished, -1 where the
	// broker does not tell.
	start, lag int64
	logStart   int64
	// end is the high watermark, read after the other three and after the
	// members; -1 when it was not read.
	end int64
}

// baseline is the offset below which nothing is judged.
//
//   - A group that has written nothing has finished nothing: the log's start.
//   - Its lag counts everything above the start offset: nothing above that is
//     finished, and it is the baseline. The end was read later than the lag, so
//     records that came in between make the lag look too small, never too large.
//   - Otherwise an earlier process has finished something above the start, in
//     whatever order; which offsets, nobody tells. "end - lag" would be right
//     only if it was done in order: one open record at the front, and finished
//     ones above that offset would be named. So it is the end.
func (g glance) baseline() int64 {
	switch {
	case g.start < 0:
		return g.logStart
	case g.end >= 0 && g.lag >= g.end-g.start:
		return g.start
	}
	return g.end
}

// gone are offsets that the group had not finished when they went from the
// source: it has more to finish than there is. The number is exact, or too low
// when records came in between the two questions; that they are the last ones
// before the log's start holds as long as things are finished in order.
func (g glance) gone() (r txn.Range, ok bool) {
	if g.start < 0 || g.lag < 0 || g.end < 0 || g.logStart <= g.start {
		return txn.Range{}, false
	}
	n := g.lag - (g.end - g.logStart)
	return txn.Range{First: g.logStart - n, Last: g.logStart - 1}, n > 0
}

func newAudit() *audit { return &audit{parts: map[tip]*auditPart{}} }

func (a *audit) part(t tip) *auditPart {
	p := a.parts[t]
	if p == nil {
		p = &auditPart{from: -1}
		a.parts[t] = p
	}
	return p
}

func (a *audit) settled(t tip, r txn.Range) { a.part(t).settled.Add(r.First, r.Last) }

// sure reports whether a look at which alone holds can be judged: another
// process that was there at the look before may have finished records until
// just now.
func (a *audit) sure(alone bool) bool { return alone && (a.alone || !a.looked) }

// blank reports whether t has no baseline.
func (a *audit) blank(t tip) bool {
	p := a.parts[t]
	return p == nil || p.from < 0
}

// look ends a look: topics that it did not show are forgotten.
func (a *audit) look(alone bool, topics map[[16]byte]bool) {
	a.looked, a.alone = true, alone
	maps.DeleteFunc(a.parts, func(t tip, _ *auditPart) bool { return !topics[t.id] })
}

// passed takes a glance and returns offsets below the group's start that nobody
// here settled. They are named one look late: the answer to an acknowledgement
// may still have been on its way at the last. At a look that is not sure
// nothing is named, and the end becomes the baseline.
func (a *audit) passed(t tip, g glance, sure bool) []txn.Range {
	p := a.part(t)
	var lost []txn.Range
	switch {
	case !sure:
		p.suspects = nil
		if g.end < 0 {
			p.from = -1
		} else {
			p.from = max(p.from, g.end)
		}
	case p.from < 0:
		p.from = g.baseline()
	}
	for _, s := range p.suspects {
		lost = append(lost, p.settled.Missing(s.First, s.Last)...)
	}
	p.suspects = nil
	if sure && p.from >= 0 && g.start > p.from {
		p.suspects = p.settled.Missing(p.from, g.start-1)
		p.from = g.start
	}
	keep := p.from
	if len(p.suspects) > 0 {
		keep = p.suspects[0].First
	}
	p.settled.Remove(0, keep-1)
	return lost
}

// auditLost looks for records that the group gave up on, and hands them to
// recoverLost.
func (f *flow) auditLost(ctx context.Context, at map[place]standing) error {
	if f.decision.reader != topology.ReaderShare {
		return nil
	}
	members, err := shareMembers(ctx, f.admin(), f.settings.ShareGroupID)
	if err != nil {
		return err
	}
	f.mu.Lock()
	alone := !slices.ContainsFunc(members, func(m string) bool { return !f.members[m] })
	f.mu.Unlock()
	if !f.binds() {
		f.copyStuck(at, alone)
	}

	topics, names := map[[16]byte]bool{}, map[string]bool{}
	f.board.mu.Lock()
	sure := f.board.audit.sure(alone)
	for pl, s := range at {
		topics[s.id] = true
		if !sure || f.board.audit.blank(tip{s.id, pl.partition}) {
			names[pl.topic] = true
		}
	}
	f.board.mu.Unlock()
	var ends kadm.ListedOffsets
	if len(names) > 0 {
		ends, err = f.admin().ListEndOffsets(ctx, slices.Collect(maps.Keys(names))...)
		if err != nil && len(ends) == 0 {
			return fmt.Errorf("list end offsets of %s: %w", f.def.From, err)
		}
	}
	var lost []lostRange
	gaps := map[place]txn.Range{}
	f.board.mu.Lock()
	for pl, s := range at {
		g := glance{start: s.start, lag: s.told, logStart: s.logStart, end: -1}
		if e, ok := ends.Lookup(pl.topic, pl.partition); ok && e.Err == nil {
			g.end = e.Offset
		}
		t := tip{s.id, pl.partition}
		// Above a baseline at the start the audit itself finds what went.
		if r, ok := g.gone(); ok && sure && f.board.audit.blank(t) && g.baseline() > g.start {
			gaps[pl] = r
		}
		for _, r := range f.board.audit.passed(t, g, sure) {
			lost = append(lost, lostRange{topic: pl.topic, src: t, Range: r})
		}
	}
	f.board.audit.look(alone, topics)
	f.board.mu.Unlock()
	for pl, r := range gaps {
		f.board.gap(pl.topic, pl.partition, r.First, r.Last)
	}
	f.loseTrack(lost)
	return nil
}
