package robust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/onceover-mirror/onceover/txn"
)

// openStates are those of a transaction that somebody still has to end.
var openStates = []string{"Ongoing", "PrepareCommit", "PrepareAbort"}

// shards are those that the process holds, or held when it ended, as its log
// says.
func (p *process) shards() []int {
	owned := map[int]bool{}
	for line := range strings.Lines(p.out.tail(1 << 20)) {
		var l struct {
			Msg    string `json:"msg"`
			Shards []int  `json:"shards"`
		}
		if json.Unmarshal([]byte(line), &l) != nil {
			continue
		}
		for _, k := range l.Shards {
			switch l.Msg {
			case "shards gained":
				owned[k] = true
			case "shards lost":
				delete(owned, k)
			}
		}
	}
	return slices.Sorted(maps.Keys(owned))
}

// owned are the partitions of the topic that the shards of a slot's process
// have.
func (c *campaign) owned(slot int) []int32 {
	c.t.Helper()
	shards := c.procs[slot].shards()
	var ps []int32
	for p, k := range c.shardOf {
		if slices.Contains(shards, k) {
			ps = append(ps, int32(p))
		}
	}
	return ps
}

// findShards notes the shard of each partition of the topic.
func (c *campaign) findShards() {
	c.t.Helper()
	meta, err := c.adm.Metadata(c.t.Context(), c.topic)
	if err != nil {
		c.t.Fatal(err)
	}
	for p := range c.partitions {
		src := txn.SourcePartition{Cluster: meta.Cluster, TopicID: meta.Topics[c.topic].ID, Partition: p}
		c.shardOf = append(c.shardOf, src.Shard(c.flow.Ledger.Shards))
	}
}

// owner returns a random slot whose process has partitions to copy.
func (c *campaign) owner() int {
	c.t.Helper()
	var slots []int
	c.await(patience, "a process that has partitions", func(context.Context) error {
		slots = nil
		for slot, p := range c.procs {
			if p != nil && !p.ended(0) && len(c.owned(slot)) > 0 {
				slots = append(slots, slot)
			}
		}
		if len(slots) == 0 {
			return errors.New("none has any")
		}
		return nil
	})
	return slots[c.rng.IntN(len(slots))]
}

// open are the transactions of shards of a process that are not ended, with
// their states.
func (c *campaign) open(ctx context.Context, p *process, shards []int) ([]string, error) {
	all, err := kadm.NewClient(c.targetClient).ListTransactions(ctx, nil, openStates)
	if err != nil {
		return nil, fmt.Errorf("list transactions: %w", err)
	}
	var open []string
	for _, k := range shards {
		id := txn.ShardTxnID(c.flow.Name, k)
		// A mutation has the process's number behind it.
		for _, id := range []string{id, fmt.Sprintf("%s.%d", id, p.cmd.Process.Pid)} {
			if t, ok := all[id]; ok {
				open = append(open, id+" "+t.State)
			}
		}
	}
	return open, nil
}

// left looks what a process that is dead, or frozen, has left open.
func (c *campaign) left(p *process) []string {
	c.t.Helper()
	var open []string
	shards := p.shards()
	// A broker may be on its way back.
	c.await(patience, "the states of transactions", func(ctx context.Context) (err error) {
		open, err = c.open(ctx, p, shards)
		return err
	})
	if len(open) > 0 {
		c.history.fire(faultOpen, "%s by %s", strings.Join(open, ", "), p.name)
	}
	return open
}

// killOwner kills a process that has partitions while it copies, and returns
// when all that it had is copied again: by the process itself, started again at
// once, or by the others.
func (c *campaign) killOwner(back bool) {
	c.t.Helper()
	slot := c.owner()
	c.hit(slot, 300*time.Millisecond)
	time.Sleep(time.Duration(c.rng.Int64N(int64(2 * tick))))
	dead, parts := c.procs[slot], c.owned(slot)
	began := time.Now()
	c.kill(slot)
	r := c.watch.recovery(parts, began)
	c.history.fire(faultKill, "w%d, which had partitions %v", slot, parts)
	c.left(dead)
	how := "taken over"
	if back {
		how = "restarted"
		c.start(slot)
	}
	c.recovered(how, r)
	if !back {
		c.start(slot)
	}
}

// recovered waits for the end of a recovery.
func (c *campaign) recovered(how string, r *recovery) {
	c.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		c.t.Fatalf("%s: no new record of partitions %v within %v", how, slices.Sorted(maps.Keys(r.left)), patience)
	}
	c.history.note("%s: first new record after %v, of every partition after %v", how, r.first.Round(time.Millisecond), r.all.Round(time.Millisecond))
	if c.recoveries == nil {
		c.recoveries = map[string][]*recovery{}
	}
	c.recoveries[how] = append(c.recoveries[how], r)
	const loosely = 30 * time.Second
	if r.first > loosely {
		c.t.Errorf("%s: the first new record came after %v, more than %v", how, r.first, loosely)
	}
}

// ledgerLag is the number of source offsets that the ledger has no word of yet.
func (c *campaign) ledgerLag(ctx context.Context) (int64, error) {
	meta, err := c.adm.Metadata(ctx, c.topic)
	if err != nil {
		return 0, err
	}
	ends, err := c.adm.ListCommittedOffsets(ctx, c.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("list end offsets: %w", err)
	}
	var lag int64
	for k := range c.flow.Ledger.Shards {
		if !slices.Contains(c.shardOf, k) {
			continue
		}
		var l txn.Ledger
		if err := l.Read(ctx, c.targetClient, txn.LedgerTopic(c.flow.Name), int32(k)); err != nil {
			return 0, err
		}
		for p, of := range c.shardOf {
			if of != k {
				continue
			}
			end, _ := ends.Lookup(c.topic, int32(p))
			at, _ := l.Mark(txn.SourcePartition{Cluster: meta.Cluster, TopicID: meta.Topics[c.topic].ID, Partition: int32(p)}).Position()
			lag += end.Offset - at
		}
	}
	return lag, nil
}

// settledTarget asserts what has to hold once all processes have stopped in
// order: no transaction of the flow is open, and a start with nothing to copy
// writes nothing.
func (c *campaign) settledTarget() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	c.await(10*time.Second, "no open transaction", func(ctx context.Context) error {
		all, err := kadm.NewClient(c.targetClient).ListTransactions(ctx, nil, openStates)
		if err != nil {
			return err
		}
		for _, id := range all.TransactionalIDs() {
			if strings.HasPrefix(id, "onceover."+c.flow.Name+".") {
				return fmt.Errorf("%s is %s", id, all[id].State)
			}
		}
		return nil
	})
	before := c.ends(ctx)
	for slot := range c.procs {
		c.start(slot)
	}
	c.await(patience, "a lane for each shard", func(ctx context.Context) error {
		lanes := 0
		for _, p := range c.procs {
			s, err := p.state(ctx)
			if err != nil {
				return err
			}
			lanes += s.Lanes
		}
		if lanes != c.flow.Ledger.Shards {
			return fmt.Errorf("%d lanes", lanes)
		}
		return nil
	})
	time.Sleep(2 * time.Second) // whatever would be written would be by then
	for slot := range c.procs {
		c.stop(slot)
	}
	if after := c.ends(ctx); !maps.Equal(before, after) {
		c.t.Errorf("an idle restart wrote to the target: end offsets were %v and are %v", before, after)
	}
}

// verify runs mirror verify and returns its exit code and what it said.
func (c *campaign) verify() (code int, said string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "verify", "-f", c.file).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("mirror verify: %v", err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(out)
}

// ends are the end offsets of what the flow writes to.
func (c *campaign) ends(ctx context.Context) map[string]int64 {
	c.t.Helper()
	list, err := kadm.NewClient(c.targetClient).ListEndOffsets(ctx, c.topic, txn.LedgerTopic(c.flow.Name), txn.MapTopic(c.flow.Name))
	if err == nil {
		err = list.Error()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]int64{}
	list.Each(func(o kadm.ListedOffset) { out[fmt.Sprintf("%s[%d]", o.Topic, o.Partition)] = o.Offset })
	return out
}
