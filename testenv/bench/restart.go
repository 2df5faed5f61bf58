package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"time"
)

const (
	// fresh is how old the newest copy of a partition may be at most, and
	// settled for how long that holds, before a process is killed.
	fresh   = 3 * time.Second
	settled = 10 * time.Second
	// patience bounds a recovery: MirrorMaker 2's workers may wait five
	// minutes for one that is gone.
	patience = 6 * time.Minute
)

// restarts kills a process of each of list, as often as asked for: one that is
// restarted at once, and for Onceover then one of two that is not.
func (w *world) restarts(ctx context.Context, list []contender) ([]result, error) {
	var all []result
	for _, c := range list {
		for workers := 1; workers == 1 || workers == 2 && !c.external; workers++ {
			name := c.name + "-restart"
			if workers == 2 {
				name = c.name + "-takeover"
			}
			log.Print(name)
			runs, err := w.crashes(ctx, c, name, workers)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, runs...)
		}
	}
	return all, nil
}

// crashes has workers copy a stream while one after the other is killed. What
// is missing or twice in all is told with the last.
func (w *world) crashes(ctx context.Context, c contender, name string, workers int) (all []result, err error) {
	j := job{world: w, alias: name, from: "live-" + name}
	s, err := w.openStream(ctx, j)
	if err != nil {
		return nil, err
	}
	defer closing(&err, func() error { return s.close(ctx) })
	var crew []process
	defer closing(&err, func() error {
		for _, p := range crew {
			if err := p.stop(); err != nil {
				return err
			}
		}
		return nil
	})
	starts := 0
	start := func() error {
		j.again = fmt.Sprintf("-%d", starts)
		starts++
		p, err := c.start(ctx, j)
		if err == nil {
			crew = append(crew, p)
		}
		return err
	}
	for range workers {
		if err := start(); err != nil {
			return nil, err
		}
	}
	s.begin(ctx)
	for run := 1; run <= w.Kills; run++ {
		if err := s.settle(ctx, crew); err != nil {
			return nil, err
		}
		victim := crew[0].(*program) // nothing runs inside in this mode
		crew = slices.Delete(crew, 0, 1)
		r, err := s.crash(ctx, victim, func() ([]process, error) {
			if workers > 1 {
				return crew, nil
			}
			err := start()
			return crew, err
		})
		if err != nil {
			return nil, fmt.Errorf("kill %d: %w", run, err)
		}
		r.Name, r.Run, r.Exact = name, run, c.exact
		log.Printf("%s, kill %d: new records after %.2f s, in all partitions after %.2f s", name, run, r.FirstNew, r.AllNew)
		all = append(all, r)
		if workers > 1 {
			if err := start(); err != nil {
				return nil, err
			}
		}
	}
	all[len(all)-1].count, err = s.finish(ctx, crew)
	return all, err
}

// settle waits until each partition has been copied without delay for a while.
func (s *stream) settle(ctx context.Context, crew []process) error {
	since := s.now()
	return s.await(ctx, "a steady stream", patience, crew, func() bool {
		if s.now()-slices.Min(s.newest) > fresh {
			since = s.now()
		}
		return s.now()-since > settled
	})
}

// crash kills victim, lets next do what follows, and measures until there are
// new records in all partitions: those behind what the target's log held when
// the process was gone, be it committed or not.
func (s *stream) crash(ctx context.Context, victim *program, next func() ([]process, error)) (r result, err error) {
	s.mu.Lock()
	earlier := len(s.arrivals)
	s.mu.Unlock()
	at := s.now()
	if err := victim.kill(); err != nil {
		return r, err
	}
	ends, err := s.endsOf(ctx, s.topic(), uncommitted)
	if err != nil {
		return r, err
	}
	crew, err := next()
	if err != nil {
		return r, err
	}
	err = s.await(ctx, "recovery", patience, crew, func() bool {
		first, last, ok := recovered(s.arrivals[earlier:], ends)
		r.FirstNew, r.AllNew = (first - at).Seconds(), (last - at).Seconds()
		return ok
	})
	return r, err
}

// recovered says when the first copy from ends on was seen in the first and
// in the last partition, and whether all have one.
func recovered(arrivals []arrival, ends map[int32]int64) (first, last time.Duration, ok bool) {
	seen := map[int32]bool{}
	for _, a := range arrivals {
		if a.offset < ends[a.partition] || seen[a.partition] {
			continue
		}
		if seen[a.partition] = true; len(seen) == 1 {
			first = a.seen
		}
		last = a.seen
	}
	return first, last, len(seen) == len(ends)
}
