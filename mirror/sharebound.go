package mirror

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceover-mirror/onceover/txn"
)

// What a share reader gives a lane whose acknowledgements go into transactions
// (KIP-1289). A lock must be known to hold from before an acknowledgement is
// staged until its answer is there: only then the broker has staged it for the
// very acquisition that the copies are of. It names none in the request, and
// would stage an offset that the same member has acquired again just as well,
// or pass by one that is finished, as the drafts say.

// errNoMember: there is no membership to acknowledge under.
var errNoMember = errors.New("not a member of the share group at the moment")

// membership is who acknowledges, as of now.
func (r *shareReader) membership() (txn.ShareMember, error) {
	epoch := r.epoch.Load()
	if epoch <= 0 {
		return txn.ShareMember{}, errNoMember
	}
	return txn.ShareMember{Group: r.cfg.group, ID: r.member, Epoch: epoch}, nil
}

// next returns a batch that is there already, nil without one.
func (r *shareReader) next() *batch {
	select {
	case b := <-r.out:
		return b
	default:
		return nil
	}
}

// margin is the part of a lock's time that is left for a stage request to be
// answered in.
func (r *shareReader) margin() time.Duration { return r.lock() / 10 }

// stage takes runs of b out of renewal, for their acknowledgement is about to be
// staged. An error says that a lock is lost, or will be soon.
func (b *batch) stage(runs []ownRange) error {
	p := b.from
	p.renewing.Lock()
	defer p.renewing.Unlock()
	if err := b.holds(runs, time.Now().Add(p.r.margin())); err != nil {
		return err
	}
	for _, r := range runs {
		p.ses.staged(r.src, r.Range, b.grant)
	}
	return nil
}

// holds reports, as an error, that the lock of one of the runs is lost, or ends
// by then.
func (b *batch) holds(runs []ownRange, by time.Time) error {
	for _, r := range runs {
		if !b.from.ses.holdingAt(r.src, r.Range, b.grant, by) {
			return fmt.Errorf("%s[%d] offsets %d to %d: %w", b.from.r.topicName(r.src.id), r.src.partition, r.First, r.Last, errHoldLost)
		}
	}
	return nil
}

// ended forgets the locks of runs: their transaction is over, whatever came of
// it.
func (b *batch) ended(runs []ownRange) {
	for _, r := range runs {
		b.from.ses.ended(r.src, r.Range, b.grant)
	}
}

// giveBack releases what b holds of runs, for another delivery.
func (b *batch) giveBack(runs []ownRange) {
	back := map[tip][]ackRange{}
	for _, r := range runs {
		if b.from.ses.holdingAt(r.src, r.Range, b.grant, time.Now()) {
			back[r.src] = append(back[r.src], ackRange{first: r.First, last: r.Last, kind: ackRelease})
		}
	}
	if len(back) > 0 {
		b.from.ack(back)
	}
}

// runsOf are the offsets of those items of b for which is says so, in runs.
func (b *batch) runsOf(is func(*item) bool) []ownRange {
	var runs []ownRange
	for i := range b.items {
		it := &b.items[i]
		if !is(it) {
			continue
		}
		at := it.rec.Offset
		if n := len(runs); n > 0 && runs[n-1].src == it.src && runs[n-1].Last+1 == at {
			runs[n-1].Last = at
		} else {
			runs = append(runs, ownRange{it.src, txn.Range{First: at, Last: at}})
		}
	}
	return runs
}
