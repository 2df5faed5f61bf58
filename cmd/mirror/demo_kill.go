package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// wound is what a worker that died in mid-transaction left behind.
type wound struct {
	at    time.Time // of the kill
	txnID string
	// held are the partitions of the topic at west that the transaction is open
	// in, and the offset that it begins at.
	held map[int32]int64
	// records that are written and not committed, of whatever transaction.
	records int64
}

// names are the partitions, for people.
func (w *wound) names() string {
	var names []string
	for _, p := range slices.Sorted(maps.Keys(w.held)) {
		names = append(names, fmt.Sprintf("%s[%d]", demoTopic, p))
	}
	return strings.Join(names, " and ")
}

// strike kills the first worker in mid-transaction. Between seeing a transaction
// and killing the process that has it, it may commit; the worker is started again
// then, and killed again.
func (d *demo) strike(ctx context.Context) (*wound, error) {
	const most = 20
	for range most {
		w := d.workers[0]
		ids, err := d.transactionsOf(ctx, w)
		if err != nil {
			return nil, err
		}
		if err := w.cmd.Process.Kill(); err != nil {
			return nil, fmt.Errorf("kill worker %d: %w", w.n, err)
		}
		at := time.Now()
		<-w.done
		w.cmd = nil
		left, err := d.leftOpen(ctx, ids, at)
		if err != nil || left != nil {
			return left, err
		}
		d.say("worker %d was killed (SIGKILL), but between two transactions: once more", w.n)
		if err := d.start(w); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("none of %d kills came in mid-transaction", most)
}

// transactionsOf waits until one of the shards that the group at west has given
// to a worker has an open transaction, and returns the transactional ids of all
// of its shards.
func (d *demo) transactionsOf(ctx context.Context, w *worker) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("worker %d has no open transaction within 30 s", w.n))
	defer cancel()
	adm := kadm.NewClient(d.to)
	for ctx.Err() == nil {
		if err := d.workersAlive(); err != nil {
			return nil, err
		}
		ids, err := d.idsOf(ctx, adm, w)
		if err != nil {
			return nil, err
		}
		// The group is asked now and then, the transactions as fast as can be.
		for until := time.Now().Add(time.Second); len(ids) > 0 && time.Now().Before(until); {
			now, err := ongoing(ctx, adm, ids)
			if err != nil || len(now) > 0 {
				return ids, err
			}
		}
		if len(ids) == 0 {
			pauseFor(ctx, 50*time.Millisecond)
		}
	}
	return nil, context.Cause(ctx)
}

// idsOf are the transactional ids of the shards of a worker.
func (d *demo) idsOf(ctx context.Context, adm *kadm.Client, w *worker) ([]string, error) {
	groups, err := adm.DescribeGroups(ctx, "onceover."+demoFlow+".shards")
	if err != nil {
		return nil, fmt.Errorf("ask west who has which shard: %w", err)
	}
	var ids []string
	for _, g := range groups {
		for _, m := range g.Members {
			assigned, ok := m.Assigned.AsConsumer()
			if !ok || m.InstanceID == nil || !strings.HasPrefix(*m.InstanceID, w.instance()+".") {
				continue
			}
			for _, t := range assigned.Topics {
				for _, k := range t.Partitions {
					ids = append(ids, fmt.Sprintf("onceover.%s.%d", demoFlow, k))
				}
			}
		}
	}
	return ids, nil
}

// ongoing are those of the transactions that are open now.
func ongoing(ctx context.Context, adm *kadm.Client, ids []string) ([]kadm.DescribedTransaction, error) {
	all, err := adm.DescribeTransactions(ctx, ids...)
	if err != nil {
		return nil, fmt.Errorf("ask west for transactions: %w", err)
	}
	return slices.DeleteFunc(all.Sorted(), func(t kadm.DescribedTransaction) bool { return t.State != "Ongoing" }), nil
}

// leftOpen looks for a transaction of a process that is dead, nil for none.
func (d *demo) leftOpen(ctx context.Context, ids []string, killed time.Time) (*wound, error) {
	// What the process had sent is dealt with by then.
	pauseFor(ctx, 100*time.Millisecond)
	adm := kadm.NewClient(d.to)
	open, err := ongoing(ctx, adm, ids)
	if err != nil {
		return nil, err
	}
	for _, t := range open {
		partitions := slices.Sorted(maps.Keys(t.Topics[demoTopic]))
		if len(partitions) == 0 || time.UnixMilli(t.StartTimestamp).After(killed) {
			continue // another process has the shard by now
		}
		stable, err := adm.ListCommittedOffsets(ctx, demoTopic)
		if err != nil {
			return nil, fmt.Errorf("ask west for its stable offsets: %w", err)
		}
		ends, err := adm.ListEndOffsets(ctx, demoTopic)
		if err != nil {
			return nil, fmt.Errorf("ask west for its end offsets: %w", err)
		}
		found := &wound{at: killed, txnID: t.TxnID, held: map[int32]int64{}}
		for _, p := range partitions {
			from, known := stable.Lookup(demoTopic, p)
			to, _ := ends.Lookup(demoTopic, p)
			if known && from.Err == nil && to.Offset > from.Offset {
				found.held[p] = from.Offset
				found.records += to.Offset - from.Offset
			}
		}
		if len(found.held) > 0 {
			return found, nil
		}
	}
	return nil, nil
}

// replace kills the first worker in mid-transaction, starts it again, and says
// how long a read_committed reader at west waits for the first new record.
func (d *demo) replace(ctx context.Context) error {
	found, err := d.strike(ctx)
	if err != nil {
		return err
	}
	w := d.workers[0]
	d.say("worker %d was killed (SIGKILL) in mid-transaction: %s is left open at west, with %s in %s that nobody may read",
		w.n, found.txnID, plural(found.records, "record"), found.names())
	if err := d.start(w); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("nothing new has come within a minute"))
	defer cancel()
	first, err := d.west.first(ctx, found.held)
	if err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	d.say("the first new record there came %.1f s after the kill; the open transaction was ended, and its records were copied again", first.Sub(found.at).Seconds())
	return nil
}

// pauseFor waits, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
