package robust

import (
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// Leaders of source partitions move under load. The long form does it on three
// real brokers, too, of which one is killed and comes back.
func TestLeaderMoves(t *testing.T) {
	t.Parallel()
	t.Run("Embedded", func(t *testing.T) {
		c := begin(t, *seed, setting{source: embeddedSource(t, 3), target: testenv.Embedded(t), reader: topology.ReaderShare})
		moves := times(20, 100)
		c.moveLeaders(moves)
		c.finish(map[fault]int{faultLeader: moves})
	})
	if !long {
		return
	}
	t.Run("Real", func(t *testing.T) {
		source := realSource(t, 3)
		for _, reader := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
			t.Run(string(reader), func(t *testing.T) {
				c := begin(t, *seed, setting{source: source, target: testenv.Embedded(t), reader: reader, replicas: 3})
				c.moveLeaders(20)
				for range 3 {
					c.restartNode(source, int32(c.rng.IntN(3)), faultSourceKill)
					c.moveLeaders(5)
				}
				c.finish(map[fault]int{faultLeader: 35, faultSourceKill: 3})
			})
		}
		t.Run("Case10Stops", func(t *testing.T) {
			testStops(t, setting{source: source, target: testenv.Embedded(t), reader: topology.ReaderShare, replicas: 3}, 20)
		})
	})
}

// moveLeaders moves n leaders one after the other, and sees that both processes
// copy after every fifth.
func (c *campaign) moveLeaders(n int) {
	c.t.Helper()
	for i := range n {
		time.Sleep(time.Duration(c.rng.Int64N(int64(200 * time.Millisecond))))
		c.moveLeader(c.source.Running())
		if i%5 == 4 {
			for slot := range c.procs {
				c.copying(slot)
			}
		}
	}
}

// Twenty orderly stops, each while a leader moves: the wait for outstanding
// acknowledgements is bounded (case 10).
func testStops(t *testing.T, s setting, stops int) {
	c := begin(t, *seed, s)
	var worst time.Duration
	for range stops {
		slot := c.rng.IntN(c.processes)
		n := c.hit(slot, 200*time.Millisecond)
		var took time.Duration
		stopped := make(chan error, 1)
		go func() {
			var err error
			took, err = c.procs[slot].terminate()
			stopped <- err
		}()
		c.moveLeader(c.source.Nodes())
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		c.history.fire(faultStop, "w%d, which had copied %d records, within %v", slot, n, took.Round(time.Millisecond))
		worst = max(worst, took)
		c.start(slot)
		c.copying(slot)
	}
	t.Logf("the longest of %d stops took %v", stops, worst.Round(time.Millisecond))
	c.finish(map[fault]int{faultStop: stops, faultLeader: stops})
}

func TestCase10StopsEmbedded(t *testing.T) {
	t.Parallel()
	testStops(t, setting{source: embeddedSource(t, 3), target: testenv.Embedded(t), reader: topology.ReaderShare}, times(8, 20))
}
