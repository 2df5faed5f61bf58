package mirror

import (
	"time"
)

// maxBlock is the longest time that a topic is left alone because of an error
// that a look at the clusters does not show.
const maxBlock = 10 * time.Minute

// blockage is why a topic left the flow although a look at the clusters finds
// nothing in its way. It holds for a while, longer each time that it comes back.
type blockage struct {
	err   error
	at    time.Time
	hold  time.Duration
	shown bool // a look has found something in the topic's way since
}

// again is the blockage that follows b, which may be nil, because of err.
func (b *blockage) again(err error, now time.Time, least time.Duration) *blockage {
	next := &blockage{err: err, at: now, hold: least}
	switch {
	case b == nil:
	case b.holding(now):
		next.at, next.hold, next.shown = b.at, b.hold, b.shown
	case now.Sub(b.at) < 3*b.hold: // it came back soon
		next.hold = max(least, min(2*b.hold, maxBlock))
	}
	return next
}

func (b *blockage) holding(now time.Time) bool { return now.Sub(b.at) < b.hold }

// holds reports whether the topic stays out although a look that began at the
// given time found it ready. When the clusters showed the trouble, its end shows
// too.
func (b *blockage) holds(began time.Time, ready bool) bool {
	if !began.After(b.at) {
		return true // it knows nothing of the blockage yet
	}
	if !ready {
		b.shown = true
	}
	return !b.shown && b.holding(began)
}
