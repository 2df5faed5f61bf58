package robust

import (
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// A broker that is killed and started again, at either end.
func testBrokerRestart(t *testing.T, reader topology.Reader, rounds int) {
	c := begin(t, *seed, setting{source: realSource(t, 1), target: realTarget(t), reader: reader})
	for range rounds {
		c.restartNode(c.source, 0, faultSourceKill)
		c.restartNode(c.target, 0, faultTargetKill)
	}
	c.finish(map[fault]int{faultSourceKill: rounds, faultTargetKill: rounds})
}

func TestBrokerRestartReal(t *testing.T) {
	t.Parallel()
	testBrokerRestart(t, topology.ReaderShare, times(1, 5))
}

// restartNode kills a broker while both processes copy, starts it again, and
// returns when all is copied again.
func (c *campaign) restartNode(cluster *testenv.Cluster, node int32, f fault) {
	c.t.Helper()
	if c.exactly {
		c.hit(c.owner(), 500*time.Millisecond)
	} else {
		for slot := range c.procs {
			c.hit(slot, 500*time.Millisecond)
		}
	}
	if err := cluster.KillNode(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
	c.history.fire(f, "node %d of %s", node, cluster.Name())
	began := time.Now()
	if err := cluster.StartNode(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
	c.history.note("node %d is back after %v", node, time.Since(began).Round(time.Millisecond))
	if c.exactly {
		c.recoveredByHand("broker back", c.watch.recovery(c.all(), time.Now()))
		return
	}
	for slot := range c.procs {
		c.copying(slot)
	}
	c.history.note("all copy, %v after the kill", time.Since(began).Round(time.Millisecond))
}
