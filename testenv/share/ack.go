package share

import (
	"slices"
	"time"
)

// Acknowledge is a plain acknowledgement: all of it is done, or nothing. It
// returns 0 or an error code. renew tells that the request says so (KIP-1222);
// other types may come with it.
//
// Below the start offset anybody may acknowledge anything: it is done already.
func (p *Partition) Acknowledge(c Config, now time.Time, member string, batches []Batch, renew bool) int16 {
	if code := ordered(batches); code != 0 {
		return code
	}
	for i := range batches {
		b := &batches[i]
		for _, t := range b.Types {
			switch {
			case t < Gap || t > Renew, t == Renew && !renew:
				return InvalidRequest
			case t == Renew && !c.Renew:
				return InvalidRecordState
			}
		}
		if code := p.held(b, func(r Run) bool { return r.State == Acquired && r.Member == member }); code != 0 {
			return code
		}
	}
	for i := range batches {
		p.each(&batches[i], func(r Run, t AckType) Run {
			switch t {
			case Accept:
				return Run{State: Acknowledged, Delivery: r.Delivery}
			case Gap, Reject:
				return Run{State: Archived, Delivery: r.Delivery}
			case Release:
				return freed(c, r)
			case Renew:
				r.Deadline = now.Add(c.Lock)
			}
			return r
		})
	}
	return 0
}

// Stage is a transactional acknowledgement: all of it is pending afterwards, or
// nothing. It returns 0 or an error code. gaps tells that type 0 is permitted
// (the third draft). What the same transaction has staged in the same way is
// passed by, also when a restart has made its member forgotten.
func (p *Partition) Stage(c Config, now time.Time, member string, t Txn, batches []Batch, gaps bool) int16 {
	for i := range batches {
		for _, k := range batches[i].Types {
			if k != Accept && k != Reject && (k != Gap || !gaps) {
				return InvalidRequest
			}
		}
	}
	if code := ordered(batches); code != 0 {
		return code
	}
	for i := range batches {
		b := batches[i]
		if b.First < p.start {
			if !c.BelowStartOK {
				return InvalidRecordState
			}
			if b.Last < p.start {
				continue
			}
		}
		if code := p.held(&b, func(r Run) bool {
			switch r.State {
			case Acquired:
				return r.Member == member && now.Before(r.Deadline)
			case TxPending:
				return r.Txn == t && (r.Member == member || r.Member == "") && agrees(&b, r)
			case Available, Acknowledged, Archiving, Archived:
			}
			return false
		}); code != 0 {
			return code
		}
	}
	for i := range batches {
		p.each(&batches[i], func(r Run, k AckType) Run {
			if r.State != Acquired {
				return r
			}
			r.State, r.Txn, r.Kind, r.Planned = TxPending, t, k, Archived
			if k == Accept {
				r.Planned = Acknowledged
			}
			return r // its deadline is for Unstage
		})
	}
	return 0
}

// agrees reports whether what is pending was staged as b says.
func agrees(b *Batch, r Run) bool {
	for at := max(r.First, b.First); at <= min(r.Last, b.Last); at++ {
		if b.at(at) != r.Kind {
			return false
		}
	}
	return true
}

// Unstage takes back a stage that could not be persisted: to the lock that was
// there before, or to available if that is over.
func (p *Partition) Unstage(c Config, now time.Time, t Txn, batches []Batch) {
	for i := range batches {
		p.each(&batches[i], func(r Run, _ AckType) Run {
			if r.State != TxPending || r.Txn != t {
				return r
			}
			r.State, r.Txn, r.Kind, r.Planned = Acquired, Txn{}, 0, 0
			if !now.Before(r.Deadline) {
				return freed(c, r)
			}
			return r
		})
	}
}

// Settle ends what a transaction has pending; exactly that one's, by id and
// epoch. It reports whether there was any.
func (p *Partition) Settle(c Config, t Txn, commit bool) bool {
	return p.change(everything, func(r Run) (Run, bool) {
		next := Run{State: Available, Delivery: r.Delivery}
		switch {
		case commit:
			next.State = r.Planned
		case c.ArchiveOnAbort && r.Delivery >= c.Deliveries:
			next.State = Archived
		}
		return next, r.State == TxPending && r.Txn == t
	})
}

// Pending are the transactions that have something pending.
func (p *Partition) Pending() []Txn {
	var out []Txn
	for _, r := range p.runs {
		if r.State == TxPending && !slices.Contains(out, r.Txn) {
			out = append(out, r.Txn)
		}
	}
	return out
}

// ordered checks batches by themselves: the right number of types, and no
// overlap.
func ordered(batches []Batch) int16 {
	next := int64(-1 << 62)
	for i := range batches {
		b := &batches[i]
		if !b.fits() {
			return InvalidRequest
		}
		if b.First < next {
			return InvalidRecordState
		}
		next = b.Last + 1
	}
	return 0
}

// held checks that is holds for every record of b from the start offset on.
func (p *Partition) held(b *Batch, is func(Run) bool) int16 {
	next := max(b.First, p.start)
	if next > b.Last {
		return 0
	}
	if b.Last >= p.End() {
		return InvalidRequest
	}
	for _, r := range p.runs {
		if r.Last < next || r.First > b.Last {
			continue
		}
		if r.First > next || !is(r) {
			return InvalidRecordState
		}
		next = r.Last + 1
	}
	if next <= b.Last {
		return InvalidRecordState
	}
	return 0
}

// each gives do every part of b, from the start offset on, that has one type.
func (p *Partition) each(b *Batch, do func(Run, AckType) Run) {
	for first := max(b.First, p.start); first <= b.Last; {
		last := b.Last
		if len(b.Types) > 1 {
			for last = first; last < b.Last && b.at(last+1) == b.at(first); {
				last++
			}
		}
		kind := b.at(first)
		p.change(Range{first, last}, func(r Run) (Run, bool) { return do(r, kind), true })
		first = last + 1
	}
}
