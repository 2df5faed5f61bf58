package robust

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// bound is one cluster of three nodes whose brokers take acknowledgements into
// transactions (KIP-1289).
func bound(t *testing.T, processes int) setting {
	t.Helper()
	c := testenv.Embedded(t, testenv.EmbeddedOptions{Nodes: 3, Share: &testenv.ShareOptions{
		Form: boundForm, SessionTimeout: 6 * time.Second, Heartbeat: time.Second, Deliveries: 10, MaxLocks: 4000,
	}})
	return setting{
		source: c, target: c, reader: topology.ReaderShare, bound: true,
		processes: processes, partitions: 6, rate: times(800, 1500),
	}
}

// boundPoints are both sides of every request between poll and commit. Plain
// acknowledgements are none of them: they are sent for what is given back.
func boundPoints() []point {
	requests := []point{
		{role: "target", key: "InitProducerID", most: 2},
		{role: "source", key: "ShareGroupHeartbeat", most: 3},
		{role: "source", key: "ShareFetch", most: 12},
		{role: "target", key: "Produce", most: 12},
		{role: "target", key: fmt.Sprint(boundForm.Key), most: 12},
		{role: "target", key: "EndTxn", most: 6},
	}
	var all []point
	for _, p := range requests {
		for _, p.moment = range []string{"written", "read"} {
			all = append(all, p)
		}
	}
	return all
}

// Killed at any moment, each input is in the output once, and nothing is left in
// the share group.
func TestBoundKillEmbedded(t *testing.T) {
	t.Parallel()
	c := begin(t, *seed, bound(t, 3))
	kills := times(8, 200)
	for range kills {
		c.killCopying(c.rng.IntN(c.processes))
	}
	c.finishBound(map[fault]int{faultKill: kills})
}

// Processes kill themselves at each named point, in any order, while others go
// on.
func TestBoundPointsEmbedded(t *testing.T) {
	t.Parallel()
	c := begin(t, *seed, bound(t, 2))
	want := map[fault]int{}
	all := boundPoints()
	for range times(1, 3) {
		c.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, p := range all {
			slot := c.rng.IntN(c.processes)
			c.copying(slot)
			c.kill(slot)
			c.killAt(slot, p)
			c.start(slot)
			c.copying(slot)
			want[p.fault()]++
		}
	}
	c.finishBound(want)
}

// A process is frozen in mid-work for longer than its transaction and its locks
// live, and goes on when others have its records.
func TestBoundZombieEmbedded(t *testing.T) {
	t.Parallel()
	c := begin(t, *seed, bound(t, 2))
	zombies := times(1, 5)
	for range zombies {
		slot := c.rng.IntN(c.processes)
		c.hit(slot, 300*time.Millisecond)
		c.pause(slot)
		began := time.Now()
		time.Sleep(lock + time.Second)
		c.copying(1 - slot)
		c.resume(slot)
		c.history.fire(faultZombie, "w%d, frozen for %v", slot, time.Since(began).Round(time.Millisecond))
		c.copying(slot)
	}
	c.finishBound(map[fault]int{faultPause: zombies, faultZombie: zombies})
}

// Leaders move, answers are lost on both sides, transactions are ended by the
// coordinator and brokers restart, all while three processes copy.
func TestBoundBrokersEmbedded(t *testing.T) {
	t.Parallel()
	c := begin(t, *seed, bound(t, 3))
	front := c.source.Front()
	want := map[fault]int{}
	lost := func(key kmsg.Key, do testenv.Action) {
		armed := front.Arm(testenv.Fault{Keys: []kmsg.Key{key}, Do: do, Nth: 1 + c.rng.IntN(5)})
		c.await(patience, fmt.Sprintf("%s of %d", do, key), func(context.Context) error {
			if armed.Fired() == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		f := fault(fmt.Sprintf("%s of request %d", do, key))
		c.history.fire(f, "")
		want[f]++
	}
	for range times(2, 20) {
		for _, key := range []kmsg.Key{kmsg.Key(boundForm.Key), kmsg.EndTxn, kmsg.Produce} {
			lost(key, testenv.AnswerLost)
			lost(key, testenv.CutBefore)
		}
		p := int32(c.rng.IntN(int(c.partitions)))
		node := (c.leader(p) + 1) % 3
		if err := front.MoveShareLeader(c.topic, p, node); err != nil {
			t.Fatal(err)
		}
		c.history.fire(faultLeader, "partition %d to node %d", p, node)
		want[faultLeader]++
		front.RestartShares()
		c.history.fire(faultSourceKill, "all of them, and back")
		want[faultSourceKill]++
		for slot := range c.procs {
			c.copying(slot)
		}
	}
	c.finishBound(want)
}

// finishBound is finish, and looks that no transaction is left open.
func (c *campaign) finishBound(faults map[fault]int) {
	c.t.Helper()
	c.finish(faults)
	open, err := kadm.NewClient(c.client).ListTransactions(c.t.Context(), nil, openStates)
	if err != nil {
		c.t.Fatal(err)
	}
	for id, t := range open {
		c.t.Errorf("transaction %s is left %s", id, t.State)
	}
}
