package robust

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/topology"
)

// A process that is frozen for longer than the record lock keeps nothing from
// being copied: another takes over what it holds. When it goes on, it does so
// with locks that it has lost.
func TestPauseReal(t *testing.T) {
	t.Parallel()
	c := begin(t, *seed, setting{source: realSource(t, 1), target: realTarget(t), reader: topology.ReaderShare})
	pauses := times(1, 3)
	for range pauses {
		slot := c.rng.IntN(c.processes)
		c.hit(slot, 500*time.Millisecond)
		c.pause(slot)
		began := time.Now()
		// The broker goes on to hand records to the frozen process's fetches.
		c.copying(1 - slot)
		c.traffic.paused.Store(true)
		held := c.settledLag()
		if held == 0 {
			t.Fatalf("w%d was frozen and holds no record", slot)
		}
		c.history.note("w%d holds %d records", slot, held)
		c.drained(patience)
		c.history.note("w%d has taken over %v after the pause", 1-slot, time.Since(began).Round(time.Millisecond))
		if d := lock + time.Second - time.Since(began); d > 0 {
			time.Sleep(d)
		}
		c.traffic.paused.Store(false)
		c.resume(slot)
		c.copying(slot)
	}
	c.finish(map[fault]int{faultPause: pauses})
}

// settledLag returns the lag once it has not changed for two seconds.
func (c *campaign) settledLag() int64 {
	c.t.Helper()
	last, since := int64(-1), time.Now()
	c.await(patience, "a lag that stays", func(ctx context.Context) error {
		lag, err := c.lag(ctx)
		if err != nil {
			return err
		}
		if lag != last {
			last, since = lag, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("the lag was %d %v ago", lag, time.Since(since))
		}
		return nil
	})
	return last
}

// A target that stands still for longer than the record lock: the locks are
// renewed meanwhile, so that no other process gets the same records (case 4).
func TestSlowTargetReal(t *testing.T) {
	t.Parallel()
	c := begin(t, *seed, setting{source: realSource(t, 1), target: realTarget(t), reader: topology.ReaderShare})
	c.hit(0, 500*time.Millisecond)
	if err := c.target.PauseNode(0); err != nil {
		t.Fatal(err)
	}
	c.history.fire(faultTargetPause, "for %v, the lock time is %v", lock+5*time.Second, lock)
	// Let each process run into the target, then see that it stands still.
	time.Sleep(2 * time.Second)
	before := c.copied()
	time.Sleep(lock + 3*time.Second)
	if now := c.copied(); now != before {
		t.Fatalf("the target was frozen and %d records were copied", now-before)
	}
	if err := c.target.ResumeNode(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	c.history.note("target resumed")
	for slot := range c.procs {
		c.copying(slot)
	}
	// A lock that had run out would show as a refused acknowledgement.
	for _, p := range c.procs {
		s, err := p.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.RefusedAcks > 0 {
			t.Errorf("%s: %d acknowledgements refused; locks ran out although they could have been renewed", p.name, s.RefusedAcks)
		}
	}
	c.finish(map[fault]int{faultTargetPause: 1})
}

// copied is what all processes have copied.
func (c *campaign) copied() int64 {
	c.t.Helper()
	var n int64
	for _, p := range c.procs {
		s, err := p.state(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		n += s.Records
	}
	return n
}
