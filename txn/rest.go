package txn

import "time"

// rest is a pause between transactions of protocol v2. A produce request that
// comes before the markers of the transaction before are written is held back by
// the broker for add.partitions.to.txn.retry.backoff.ms (20 ms), which is
// several times what the markers take: to wait a little is faster. How little is
// learnt from how long first answers take.
type rest struct {
	pause time.Duration
	until time.Time
	began time.Time // of the first request after the pause; zero when answered
}

const (
	firstRest = 4 * time.Millisecond
	leastRest = 2 * time.Millisecond
	mostRest  = 16 * time.Millisecond
	// heldBack is how long a first answer takes that the broker has held back.
	heldBack = 18 * time.Millisecond
)

// ended: a transaction has ended.
func (r *rest) ended(now time.Time) {
	if r.pause == 0 {
		r.pause = firstRest
	}
	r.until = now.Add(r.pause)
	r.began = time.Time{}
}

// sent: the first request of a transaction goes out. early tells that it did not
// come long after the end of the one before.
func (r *rest) sent(now time.Time) {
	if r.began.IsZero() && !r.until.IsZero() && now.Sub(r.until) < mostRest {
		r.began = now
	}
	r.until = time.Time{}
}

// answered: the first answer is there.
func (r *rest) answered(now time.Time) {
	if r.began.IsZero() {
		return
	}
	if now.Sub(r.began) >= heldBack {
		r.pause = min(mostRest, r.pause*3/2)
	} else {
		r.pause = max(leastRest, r.pause*63/64)
	}
	r.began = time.Time{}
}
