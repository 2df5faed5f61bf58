package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// latencies runs each of list in turn, as often as asked for.
func (w *world) latencies(ctx context.Context, list []contender) ([]result, error) {
	return w.rounds(ctx, list, 1, w.latency)
}

// latency has c copy a stream and looks at the records of one stretch of it,
// after a warm-up.
func (w *world) latency(ctx context.Context, c contender, round int) (r result, err error) {
	j := job{world: w, alias: fmt.Sprintf("%s%d", c.name, round)}
	j.from = "live-" + j.alias
	s, err := w.openStream(ctx, j)
	if err != nil {
		return r, err
	}
	defer closing(&err, func() error { return s.close(ctx) })
	p, err := c.start(ctx, j)
	if err != nil {
		return r, err
	}
	defer closing(&err, p.stop)
	crew := []process{p}
	s.begin(ctx)
	if err := s.await(ctx, "the first record", stall, crew, func() bool { return len(s.arrivals) > 0 }); err != nil {
		return r, err
	}
	until := func(at time.Duration) error {
		return s.await(ctx, "the load", stall+w.Warm+w.Measure, crew, func() bool { return s.now() >= at })
	}
	if err := until(s.now() + w.Warm); err != nil {
		return r, err
	}
	from := s.now()
	cpu, err := p.cpu()
	if err != nil {
		return r, err
	}
	before, err := lookAtLoad()
	if err != nil {
		return r, err
	}
	if err := until(from + w.Measure); err != nil {
		return r, err
	}
	to := s.now()
	after, err := lookAtLoad()
	if err != nil {
		return r, err
	}
	used, err := p.cpu()
	if err != nil {
		return r, err
	}
	top, err := peakOf(p.pid())
	if err != nil {
		return r, err
	}
	if r.count, err = s.finish(ctx, crew); err != nil {
		return r, err
	}
	r.Peak = float64(top) / (1 << 20)
	r.PerRecord = (used - cpu).Seconds() * 1e6 / ((to - from).Seconds() * float64(w.Rate))
	r.Others = others(before, after, to-from)
	s.mu.Lock()
	defer s.mu.Unlock()
	return r, r.spread(s.arrivals, from, to)
}

// spread fills in the latencies of what was sent in a stretch of time.
func (r *result) spread(arrivals []arrival, from, to time.Duration) error {
	var took []time.Duration
	for _, a := range arrivals {
		if a.sent >= from && a.sent < to {
			took = append(took, a.seen-a.sent)
		}
	}
	if len(took) == 0 {
		return fmt.Errorf("measure latency: nothing that was sent from %v to %v came", from, to)
	}
	slices.Sort(took)
	at := func(percent int) float64 {
		// The smallest that so many percent do not exceed.
		return took[(len(took)*percent+99)/100-1].Seconds() * 1e3
	}
	r.Half, r.Ninety, r.Nine9, r.Slowest = at(50), at(90), at(99), at(100)
	return nil
}
