package robust

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// pair is two real clusters of one node each, for several campaigns.
func pair(t *testing.T, source, target string, o testenv.RealOptions) setting {
	t.Helper()
	return setting{
		source:  testenv.Real(t, source),
		target:  testenv.Real(t, target, o),
		exactly: true, partitions: 8, rate: times(800, 2000),
	}
}

func TestExactlyReal(t *testing.T) {
	t.Parallel()
	s := pair(t, "4.4.0", "4.4.0", testenv.RealOptions{})
	t.Run("Kill", func(t *testing.T) { t.Parallel(); testExactlyKill(t, s, times(5, 100)) })
	t.Run("Points", func(t *testing.T) { t.Parallel(); testExactlyPoints(t, s, false) })
	t.Run("Zombie", func(t *testing.T) { t.Parallel(); testExactlyZombie(t, s) })
	t.Run("Rebalance", func(t *testing.T) { t.Parallel(); testExactlyRebalance(t, s) })
}

// Brokers of 3.9, with the transactions from before KIP-890.
func TestExactlyOldReal(t *testing.T) {
	t.Parallel()
	s := pair(t, "3.9.2", "3.9.2", testenv.RealOptions{})
	t.Run("Points", func(t *testing.T) { t.Parallel(); testExactlyPoints(t, s, true) })
	if long {
		t.Run("Kill", func(t *testing.T) { t.Parallel(); testExactlyKill(t, s, 30) })
		t.Run("Zombie", func(t *testing.T) { t.Parallel(); testExactlyZombie(t, s) })
	}
}

func TestExactlyMixedReal(t *testing.T) {
	if !long {
		return
	}
	t.Parallel()
	for _, v := range [][2]string{{"3.9.2", "4.4.0"}, {"4.4.0", "3.9.2"}} {
		t.Run(v[0]+"To"+v[1], func(t *testing.T) {
			s := pair(t, v[0], v[1], testenv.RealOptions{})
			testExactlyKill(t, s, 20)
		})
	}
}

// Processes are killed at random; most start again at once, of some the others
// take over.
func testExactlyKill(t *testing.T, s setting, kills int) {
	c := begin(t, *seed, s)
	for i := range kills {
		c.killOwner(i%5 != 3)
	}
	c.finish(map[fault]int{faultKill: kills, faultOpen: kills / 5})
}

// Processes kill themselves at each named point, in any order, while another
// goes on.
func testExactlyPoints(t *testing.T, s setting, announced bool) {
	c := begin(t, *seed, s)
	want := map[fault]int{}
	all := points(announced)
	for range times(1, 3) {
		c.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, p := range all {
			slot := c.owner()
			c.hit(slot, 50*time.Millisecond)
			dead := c.procs[slot]
			c.kill(slot)
			c.history.fire(faultKill, "w%d", slot)
			c.left(dead)
			c.killAt(slot, p)
			c.start(slot)
			want[p.fault()]++
		}
	}
	want[faultOpen] = len(all) / 4
	c.finish(want)
}

// An owner is frozen in the middle of a transaction, for longer than the
// transaction and its session live, and goes on when another has its shards.
func testExactlyZombie(t *testing.T, s setting) {
	c := begin(t, *seed, s)
	zombies := times(1, 5)
	for range zombies {
		slot := c.freezeOpen()
		began := time.Now()
		r := c.watch.recovery(c.owned(slot), began)
		c.recovered("taken over from a frozen process", r)
		if time.Since(began) < c.transaction {
			t.Fatalf("taken over after %v, before the transaction timeout", time.Since(began))
		}
		c.resume(slot)
		c.history.fire(faultZombie, "w%d, frozen for %v", slot, time.Since(began).Round(time.Millisecond))
		c.copying(c.owner())
	}
	c.finish(map[fault]int{faultPause: zombies, faultZombie: zombies, faultOpen: zombies})
}

// freezeOpen freezes a process that has a transaction open and returns its slot.
func (c *campaign) freezeOpen() int {
	c.t.Helper()
	for range 50 {
		slot := c.owner()
		c.hit(slot, 300*time.Millisecond)
		c.pause(slot)
		if len(c.left(c.procs[slot])) > 0 {
			return slot
		}
		c.resume(slot)
	}
	c.t.Fatal("no process was frozen in the middle of a transaction")
	return 0
}

// Processes leave and join while all of them commit.
func testExactlyRebalance(t *testing.T, s setting) {
	s.processes = 3
	c := begin(t, *seed, s)
	moves := times(3, 15)
	for i := range moves {
		slot := c.owner()
		parts := c.owned(slot)
		c.hit(slot, 100*time.Millisecond)
		began := time.Now()
		if i%3 == 2 {
			c.kill(slot)
			c.history.fire(faultKill, "w%d", slot)
		} else {
			c.stop(slot)
			c.history.fire(faultStop, "w%d", slot)
			c.recovered("taken over in order", c.watch.recovery(parts, began))
		}
		c.start(slot)
		c.await(patience, "shards move to the one that joins", func(context.Context) error {
			if len(c.procs[slot].shards()) == 0 {
				return errors.New("it has none yet")
			}
			return nil
		})
		c.history.fire(faultJoin, "w%d got shards %v", slot, c.procs[slot].shards())
	}
	c.finish(map[fault]int{faultStop: moves - moves/3, faultKill: moves / 3, faultJoin: moves})
}

// The level of transactions is what the brokers have finalised, also when it is
// raised while transactions are open (case 26).
func TestExactlyCase26LevelsReal(t *testing.T) {
	t.Parallel()
	s := pair(t, "4.4.0", "4.4.0", testenv.RealOptions{Features: map[string]int{"transaction.version": 0}})
	c := begin(t, *seed, s)
	kills := times(1, 10)
	for _, level := range []int16{1, 2} {
		for range kills {
			c.killOwner(true)
		}
		for slot := range c.procs {
			if len(c.owned(slot)) > 0 {
				c.hit(slot, 100*time.Millisecond)
			}
		}
		c.target.SetTransactionVersion(t, level)
		c.history.fire(faultUpgrade, "to %d", level)
		c.copying(c.owner())
	}
	for range kills {
		c.killOwner(true)
	}
	c.finish(map[fault]int{faultUpgrade: 2, faultKill: 3 * kills})
}

// The target is killed under load and stays away.
func TestExactlyOutageReal(t *testing.T) {
	t.Parallel()
	c := begin(t, *seed, pair(t, "4.4.0", "4.4.0", testenv.RealOptions{}))
	outage := time.Duration(times(8, 60)) * time.Second
	rounds := times(1, 3)
	for range rounds {
		c.copying(c.owner())
		if err := c.target.KillNode(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		c.history.fire(faultTargetKill, "for %v", outage)
		time.Sleep(outage)
		began := time.Now()
		if err := c.target.StartNode(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		c.history.note("target is back after %v", time.Since(began).Round(time.Millisecond))
		c.recoveredByHand("target back", c.watch.recovery(c.all(), time.Now()))
		c.restartNode(c.source, 0, faultSourceKill)
	}
	c.finish(map[fault]int{faultTargetKill: rounds, faultSourceKill: rounds})
}

// Three nodes at the target: brokers are killed, and all restarted in turn.
func TestExactlyNodesReal(t *testing.T) {
	if !long {
		return
	}
	source := testenv.Real(t, "4.4.0")
	for _, version := range []string{"4.4.0", "3.9.2"} {
		t.Run(version, func(t *testing.T) {
			c := begin(t, *seed, setting{
				source: source, target: testenv.Real(t, version, testenv.RealOptions{Nodes: 3}),
				exactly: true, partitions: 8, rate: 2000,
			})
			for range 5 {
				c.restartNode(c.target, int32(c.rng.IntN(3)), faultTargetKill)
				c.killOwner(true)
			}
			for range 2 {
				for _, node := range c.target.Nodes() {
					if err := c.target.StopNode(t.Context(), node); err != nil {
						t.Fatal(err)
					}
					c.history.fire(faultTargetStop, "node %d", node)
					if err := c.target.StartNode(t.Context(), node); err != nil {
						t.Fatal(err)
					}
					c.copying(c.owner())
				}
			}
			c.finish(map[fault]int{faultTargetKill: 5, faultTargetStop: 6, faultKill: 5})
		})
	}
}

// What is shipped knows no named points.
func TestShippedBinaryHasNoPoints(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]bool{binary: false, pointed: true} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(b, []byte("ONCEOVER_FAILPOINT")); got != want {
			t.Errorf("%s names the variable: %v, want %v", file, got, want)
		}
	}
	c := begin(t, *seed, setting{source: embeddedSource(t, 1), target: testenv.Embedded(t), reader: topology.ReaderPartition, rate: 400})
	c.stop(0)
	c.launch(0, binary, fmt.Sprintf("ONCEOVER_FAILPOINT=source Fetch read %d", 1))
	c.copying(0)
	c.finish(nil)
}
