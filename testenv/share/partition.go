package share

import (
	"slices"
	"time"
)

// Partition is the state of one share partition. Not safe for concurrent use.
type Partition struct {
	start int64
	// runs are sorted and do not touch where they are the same. What is not in
	// any has never been handed out.
	runs []Run
}

// NewPartition makes a partition of which everything below start is done.
func NewPartition(start int64) *Partition { return &Partition{start: start} }

// Start is the first offset that is not final.
func (p *Partition) Start() int64 { return p.start }

// End is the offset behind the last one that was handed out or archived.
func (p *Partition) End() int64 {
	if n := len(p.runs); n > 0 {
		return p.runs[n-1].Last + 1
	}
	return p.start
}

// Runs returns what is known from Start on, in order.
func (p *Partition) Runs() []Run { return slices.Clone(p.runs) }

// Lag is the number of offsets from Start to end, which is not included, that
// are not final.
func (p *Partition) Lag(end int64) int64 {
	lag := max(0, end-p.start)
	for _, r := range p.runs {
		if r.State.final() {
			lag -= max(0, min(r.Last, end-1)-r.First+1)
		}
	}
	return lag
}

// change replaces the part of each run within r for which do says so, and cleans
// up. do gets the part and returns what becomes of it.
func (p *Partition) change(r Range, do func(Run) (Run, bool)) (changed bool) {
	var out []Run
	for _, run := range p.runs {
		part := run
		part.First, part.Last = max(run.First, r.First), min(run.Last, r.Last)
		if part.First > part.Last {
			out = append(out, run)
			continue
		}
		next, ok := do(part)
		if !ok {
			out = append(out, run)
			continue
		}
		changed = true
		next.Range = part.Range
		if run.First < part.First {
			head := run
			head.Last = part.First - 1
			out = append(out, head)
		}
		out = append(out, next)
		if run.Last > part.Last {
			tail := run
			tail.First = part.Last + 1
			out = append(out, tail)
		}
	}
	if changed {
		p.runs = out
		p.tidy()
	}
	return changed
}

// add puts a run where there is none.
func (p *Partition) add(run Run) {
	at, _ := slices.BinarySearchFunc(p.runs, run, func(a, b Run) int { return int(a.First - b.First) })
	p.runs = slices.Insert(p.runs, at, run)
}

// tidy merges neighbours, and moves the start past what is final.
func (p *Partition) tidy() {
	for len(p.runs) > 0 && p.runs[0].First <= p.start && p.runs[0].State.final() {
		p.start = max(p.start, p.runs[0].Last+1)
		p.runs = p.runs[1:]
	}
	out := p.runs[:0:0]
	for _, r := range p.runs {
		if n := len(out); n > 0 && out[n-1].Last+1 == r.First && out[n-1].same(r) {
			out[n-1].Last = r.Last
			continue
		}
		out = append(out, r)
	}
	p.runs = out
}

var everything = Range{0, 1<<63 - 2}

// freed is a run that nobody holds any more: available, or archived at the limit.
func freed(c Config, r Run) Run {
	next := Run{Range: r.Range, State: Available, Delivery: r.Delivery}
	if r.Delivery >= c.Deliveries {
		next.State = Archived
	}
	return next
}

// Expire frees what is locked beyond its deadline.
func (p *Partition) Expire(c Config, now time.Time) {
	p.change(everything, func(r Run) (Run, bool) {
		return freed(c, r), r.State == Acquired && !now.Before(r.Deadline)
	})
}

// NextExpiry is the next deadline of a lock, false without one.
func (p *Partition) NextExpiry() (at time.Time, ok bool) {
	for _, r := range p.runs {
		if r.State == Acquired && (!ok || r.Deadline.Before(at)) {
			at, ok = r.Deadline, true
		}
	}
	return at, ok
}

// Release frees what a member has acquired: its session or connection has ended.
func (p *Partition) Release(c Config, member string) bool {
	return p.change(everything, func(r Run) (Run, bool) {
		return freed(c, r), r.State == Acquired && r.Member == member
	})
}

// Acquire hands out what is available of the batches of the log, in their order.
// With whole, a batch is handed out as a whole, and more than most records only to
// complete one (batch_optimized of KIP-1206); without, exactly most (record_limit).
// Not more than c.MaxLocks offsets from the start are in anybody's hands.
func (p *Partition) Acquire(c Config, now time.Time, member string, log []Range, most int, whole bool) []Grant {
	limit := p.start + int64(c.MaxLocks) - 1
	var got []Grant
	n := 0
	for _, b := range log {
		if n >= most {
			break
		}
		for _, free := range p.free(Range{max(b.First, p.start), min(b.Last, limit)}) {
			if !whole {
				free.Last = min(free.Last, free.First+int64(most-n)-1)
			}
			if free.First > free.Last {
				break
			}
			n += int(free.Last - free.First + 1)
			run := Run{Range: free.Range, State: Acquired, Delivery: free.Delivery + 1, Member: member, Deadline: now.Add(c.Lock)}
			if free.known {
				p.change(free.Range, func(Run) (Run, bool) { return run, true })
			} else {
				p.add(run)
			}
			if k := len(got); k > 0 && got[k-1].Last+1 == free.First && got[k-1].Delivery == run.Delivery {
				got[k-1].Last = free.Last
			} else {
				got = append(got, Grant{free.Range, run.Delivery})
			}
			if !whole && n >= most {
				break
			}
		}
	}
	p.tidy()
	return got
}

type freeRun struct {
	Range
	Delivery int16
	known    bool
}

// free are the parts of r that can be acquired.
func (p *Partition) free(r Range) []freeRun {
	var out []freeRun
	next := r.First
	for _, run := range p.runs {
		first, last := max(run.First, r.First), min(run.Last, r.Last)
		if first > last {
			continue
		}
		if next < first {
			out = append(out, freeRun{Range: Range{next, first - 1}})
		}
		if run.State == Available {
			out = append(out, freeRun{Range{first, last}, run.Delivery, true})
		}
		next = last + 1
	}
	if next <= r.Last {
		out = append(out, freeRun{Range: Range{next, r.Last}})
	}
	return out
}

// Archive makes r final unless somebody holds it: aborted data, and control
// records that nobody is to see.
func (p *Partition) Archive(r Range) {
	for _, f := range p.free(Range{max(r.First, p.start), r.Last}) {
		run := Run{Range: f.Range, State: Archived, Delivery: f.Delivery}
		if f.known {
			p.change(f.Range, func(Run) (Run, bool) { return run, true })
		} else {
			p.add(run)
		}
	}
	p.tidy()
}

// Truncate makes everything below the log's start final.
func (p *Partition) Truncate(logStart int64) {
	if logStart <= p.start {
		return
	}
	p.runs = slices.DeleteFunc(p.runs, func(r Run) bool { return r.Last < logStart })
	if len(p.runs) > 0 {
		p.runs[0].First = max(p.runs[0].First, logStart)
	}
	p.start = logStart
	p.tidy()
}

// Reset forgets everything, what is pending too, and begins at start.
func (p *Partition) Reset(start int64) { p.start, p.runs = start, nil }

// Snapshot is what brokers persist of a partition.
type Snapshot struct {
	// Start offset.
	Start int64
	// Runs without those that are acquired: locks are never persisted, and those
	// records are available with the count that they had before. Members are
	// forgotten.
	Runs []Run
}

// Snapshot returns what survives when a leader moves or a broker restarts.
func (p *Partition) Snapshot() Snapshot {
	s := Snapshot{Start: p.start}
	for _, r := range p.runs {
		if r.Member, r.Deadline = "", (time.Time{}); r.State == Acquired {
			r.State, r.Delivery = Available, max(0, r.Delivery-1)
		}
		s.Runs = append(s.Runs, r)
	}
	return s
}

// Restore makes a partition of what was persisted.
func Restore(s Snapshot) *Partition {
	p := &Partition{start: s.Start, runs: slices.Clone(s.Runs)}
	p.tidy()
	return p
}
