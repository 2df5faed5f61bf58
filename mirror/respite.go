package mirror

import (
	"context"
	"time"
)

// respites are what failed and is left alone for a while, longer each time, so
// that the rest goes on as if it were not there. Not safe for concurrent use.
type respites[K comparable] map[K]*respite

type respite struct {
	fails int
	until time.Time // zero once it is tried again
}

func (rs respites[K]) failed(k K) {
	r := rs[k]
	if r == nil {
		r = &respite{}
		rs[k] = r
	}
	r.fails++
	r.until = time.Now().Add(backoff(r.fails, 100*time.Millisecond, 5*time.Second))
}

func (rs respites[K]) resting(k K) bool {
	r := rs[k]
	return r != nil && time.Now().Before(r.until)
}

// next is when the first of them is over, zero when none is resting.
func (rs respites[K]) next() time.Time {
	var first time.Time
	for _, r := range rs {
		if !r.until.IsZero() && (first.IsZero() || r.until.Before(first)) {
			first = r.until
		}
	}
	return first
}

// over returns those whose respite has ended since it was last asked.
func (rs respites[K]) over() []K {
	var ks []K
	for k, r := range rs {
		if !r.until.IsZero() && !rs.resting(k) {
			r.until = time.Time{}
			ks = append(ks, k)
		}
	}
	return ks
}

// within bounds ctx by the end of the next respite.
func (rs respites[K]) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if next := rs.next(); !next.IsZero() {
		return context.WithDeadline(ctx, next)
	}
	return ctx, func() {}
}
