package robust

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// binary is the built program, pointed the same with named points (point.go),
// long says that campaigns take their long form; all are set before the tests
// run.
var (
	binary, pointed string
	long            bool
)

// times is how often a fault is repeated in the short and the long form.
func times(short, inLong int) int {
	if long {
		return inLong
	}
	return short
}

// start starts a process in a slot.
func (c *campaign) start(slot int) {
	c.t.Helper()
	c.launch(slot, c.binary)
}

func (c *campaign) launch(slot int, binary string, env ...string) {
	c.t.Helper()
	p, err := launch(binary, "w"+strconv.Itoa(slot), c.file, env...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.procs[slot] = p
	c.history.note("%s started, pid %d", p.name, p.cmd.Process.Pid)
}

// copying returns in the moment in which the process of a slot was seen to
// have copied more than the moment before, and how much in all.
func (c *campaign) copying(slot int) int64 {
	c.t.Helper()
	p := c.procs[slot]
	first, now := int64(-1), int64(0)
	c.await(patience, p.name+" copies", func(ctx context.Context) error {
		s, err := p.state(ctx)
		if err != nil {
			return err
		}
		if now = s.Records; first < 0 {
			first = now
		}
		if now == first {
			return fmt.Errorf("it stands at %d records; phase %s, reason %q", now, s.Phase, s.Reason)
		}
		return nil
	})
	return now
}

// hit lets a random time pass, up to most, and returns while the process of the
// slot is copying.
func (c *campaign) hit(slot int, most time.Duration) int64 {
	c.t.Helper()
	c.copying(slot)
	time.Sleep(time.Duration(c.rng.Int64N(int64(most))))
	return c.copying(slot)
}

// kill ends the process of a slot with SIGKILL.
func (c *campaign) kill(slot int) {
	c.t.Helper()
	p := c.procs[slot]
	if p.ended(0) {
		c.t.Fatalf("%s ended by itself (%v):\n%s", p.name, p.cmd.ProcessState, p.out.tail(20))
	}
	p.abandon()
	if !p.killed() {
		c.t.Fatalf("%s was not killed but ended with %v:\n%s", p.name, p.cmd.ProcessState, p.out.tail(20))
	}
}

// killed reports whether a process that is gone went by SIGKILL.
func (p *process) killed() bool {
	s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && s.Signal() == syscall.SIGKILL
}

// killCopying kills the process of a slot while it copies, and starts another.
func (c *campaign) killCopying(slot int) {
	c.t.Helper()
	n := c.hit(slot, 500*time.Millisecond)
	// Progress is seen just after an acknowledgement; the next one may be about
	// to be sent, or its records be on their way to the target.
	time.Sleep(time.Duration(c.rng.Int64N(int64(tick))))
	c.kill(slot)
	c.history.fire(faultKill, "w%d, which had copied %d records", slot, n)
	began := time.Now()
	c.start(slot)
	c.copying(slot)
	c.restarts = append(c.restarts, time.Since(began))
}

// terminate ends a process with SIGTERM, which has to end well and in time.
func (p *process) terminate() (took time.Duration, err error) {
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("stop %s: %w (it said: %s)", p.name, err, p.out.tail(20))
	}
	if !p.ended(stopWithin) {
		return 0, fmt.Errorf("%s does not stop within %v", p.name, stopWithin)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		return 0, fmt.Errorf("%s ended with code %d:\n%s", p.name, code, p.out.tail(20))
	}
	return time.Since(began), nil
}

// stop terminates the process of a slot.
func (c *campaign) stop(slot int) {
	c.t.Helper()
	took, err := c.procs[slot].terminate()
	if err != nil {
		c.t.Fatal(err)
	}
	c.history.note("w%d stopped within %v", slot, took.Round(time.Millisecond))
}

// pause freezes the process of a slot: its connections stay, nothing happens.
func (c *campaign) pause(slot int) {
	c.t.Helper()
	p := c.procs[slot]
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatalf("pause %s: %v", p.name, err)
	}
	// On a busy machine the signal takes a moment.
	c.await(patience, p.name+" is frozen", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
		if _, err := p.state(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("it answers (error: %w)", err)
		}
		return nil
	})
	c.history.fire(faultPause, "%s", p.name)
}

// resume lets a paused process go on.
func (c *campaign) resume(slot int) {
	c.t.Helper()
	if err := c.procs[slot].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatalf("resume %s: %v", c.procs[slot].name, err)
	}
	c.history.note("%s resumed", c.procs[slot].name)
}

// moveLeader moves a random partition of the source to another of the nodes.
func (c *campaign) moveLeader(nodes []int32) {
	c.t.Helper()
	p := int32(c.rng.IntN(int(c.partitions)))
	was := c.leader(p)
	node := nodes[c.rng.IntN(len(nodes))]
	for node == was {
		node = nodes[c.rng.IntN(len(nodes))]
	}
	c.source.MoveLeader(c.t, c.topic, p, node)
	if now := c.leader(p); now != node {
		c.t.Fatalf("the leader of partition %d is node %d, not %d", p, now, node)
	}
	c.history.fire(faultLeader, "partition %d from node %d to %d", p, was, node)
}

// leader asks for the leader of a source partition; kadm would answer from a
// cache.
func (c *campaign) leader(partition int32) int32 {
	c.t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &c.topic
	req.Topics = append(req.Topics, rt)
	leader := int32(-1)
	c.await(patience, fmt.Sprintf("a leader of partition %d", partition), func(ctx context.Context) error {
		resp, err := req.RequestWith(ctx, c.client)
		if err != nil {
			return err
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.Partition == partition && p.ErrorCode == 0 && p.Leader >= 0 {
				leader = p.Leader
				return nil
			}
		}
		return fmt.Errorf("topic error %w, partition not led", kerr.ErrorForCode(resp.Topics[0].ErrorCode))
	})
	return leader
}
