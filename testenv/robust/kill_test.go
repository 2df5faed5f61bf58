package robust

import (
	"testing"

	"github.com/onceover-mirror/onceover/topology"
)

// Killed at any moment, also between the write and its acknowledgement (case
// 5), a process loses nothing.
func testKill(t *testing.T, s setting, kills int) {
	c := begin(t, *seed, s)
	for range kills {
		c.killCopying(c.rng.IntN(c.processes))
	}
	c.finish(map[fault]int{faultKill: kills})
}

func TestKillShareReal(t *testing.T) {
	t.Parallel()
	testKill(t, setting{source: realSource(t, 1), target: realTarget(t), reader: topology.ReaderShare, partitions: 12}, times(8, 25))
}

func TestKillPartitionReal(t *testing.T) {
	t.Parallel()
	testKill(t, setting{source: realSource(t, 1), target: realTarget(t), reader: topology.ReaderPartition, partitions: 12}, times(5, 25))
}

func TestKillShareEmbedded(t *testing.T) {
	t.Parallel()
	testKill(t, setting{source: embeddedSource(t, 1), target: farTarget(t), reader: topology.ReaderShare}, times(8, 25))
}

func TestKillPartitionEmbedded(t *testing.T) {
	t.Parallel()
	testKill(t, setting{source: embeddedSource(t, 1), target: farTarget(t), reader: topology.ReaderPartition}, times(8, 25))
}
