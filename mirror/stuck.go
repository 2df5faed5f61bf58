package mirror

import (
	"maps"
	"time"

	"github.com/onceover-mirror/onceover/txn"
)

// stuckPart is a share partition that has records and that the group has not
// begun: assigned on paper, read by nobody, as when the coordinator's request to
// initialise it was lost.
type stuckPart struct {
	since time.Time
	next  int64 // copied by offset up to here
}

// copyStuck copies by offset what a share group has left lying for [StallAfter]
// in partitions that it never began. Should it begin one after all, the records
// are known to be written and are acknowledged. Only while every member is of
// this process, which would know if it had read them. The lag watcher's own.
func (f *flow) copyStuck(at map[place]standing, alone bool) {
	now := time.Now()
	var lost []lostRange
	for pl, s := range at {
		t := tip{s.id, pl.partition}
		if !alone || s.start >= 0 || s.end <= s.logStart {
			delete(f.stuck, t)
			continue
		}
		p := f.stuck[t]
		if p == nil {
			p = &stuckPart{since: now, next: s.logStart}
			f.stuck[t] = p
		}
		first := max(p.next, s.logStart)
		if now.Sub(p.since) < StallAfter || first >= s.end {
			continue
		}
		f.log.Warn("the share group has not begun a partition; copying it by offset", "topic", pl.topic, "partition", pl.partition,
			"first", first, "last", s.end-1, "hint", "the share coordinator at the source may have lost the partition")
		lost = append(lost, lostRange{topic: pl.topic, src: t, Range: txn.Range{First: first, Last: s.end - 1}, told: true})
		p.next = s.end
	}
	seen := map[tip]bool{}
	for pl, s := range at {
		seen[tip{s.id, pl.partition}] = true
	}
	maps.DeleteFunc(f.stuck, func(t tip, _ *stuckPart) bool { return !seen[t] })
	f.loseTrack(lost)
}
