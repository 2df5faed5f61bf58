package robust

import (
	"fmt"
)

// point is a request at which a process kills itself: the program is built with
// the tag failpoint for that (cmd/mirror/failpoint.go).
type point struct {
	role, key, moment string
	// most is the highest number of the request that is tried; they are counted
	// over all clients of the role.
	most int
}

func (p point) fault() fault {
	return fault(fmt.Sprintf("killed when %s %s was %s", p.role, p.key, p.moment))
}

// points are the named points: both sides of every request of a lane's life.
// Of AddPartitionsToTxn there are some only where transactions are not those of
// KIP-890.
func points(announced bool) []point {
	requests := []point{
		{role: "target", key: "FindCoordinator", most: 2},
		{role: "target", key: "InitProducerID", most: 2},
		{role: "target", key: "ListOffsets", most: 3},
		{role: "target", key: "Fetch", most: 2},
		{role: "source", key: "OffsetForLeaderEpoch", most: 1},
		{role: "source", key: "Fetch", most: 20},
		{role: "target", key: "Produce", most: 12},
		{role: "target", key: "EndTxn", most: 6},
	}
	if announced {
		requests = append(requests, point{role: "target", key: "AddPartitionsToTxn", most: 6})
	}
	var all []point
	for _, p := range requests {
		for _, p.moment = range []string{"written", "read"} {
			all = append(all, p)
		}
	}
	return all
}

// killAt starts a slot's process, whose predecessor is gone, with a point, and
// returns when it has killed itself there.
func (c *campaign) killAt(slot int, p point) {
	c.t.Helper()
	n := 1 + c.rng.IntN(p.most)
	c.launch(slot, pointed, fmt.Sprintf("ONCEOVER_FAILPOINT=%s %s %s %d", p.role, p.key, p.moment, n))
	proc := c.procs[slot]
	if !proc.ended(patience) {
		c.t.Fatalf("%s did not get to point %q, no. %d, within %v:\n%s", proc.name, p.fault(), n, patience, proc.out.tail(20))
	}
	if !proc.killed() {
		c.t.Fatalf("%s ended with %v at point %q:\n%s", proc.name, proc.cmd.ProcessState, p.fault(), proc.out.tail(20))
	}
	c.history.fire(p.fault(), "no. %d, w%d", n, slot)
	if c.exactly {
		c.left(proc)
	}
}
