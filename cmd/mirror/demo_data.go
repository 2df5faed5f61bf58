package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// produce writes numbered records at a steady rate until ctx ends.
func (d *demo) produce(ctx context.Context, rate int) error {
	const slice = 50 * time.Millisecond
	ticker := time.NewTicker(slice)
	defer ticker.Stop()
	began := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		var recs []*kgo.Record
		n := d.produced.Load()
		for due := int64(time.Since(began).Seconds() * float64(rate)); n < due; n++ {
			recs = append(recs, &kgo.Record{
				Topic: demoTopic, Partition: int32(n % demoPartitions),
				Key: fmt.Appendf(nil, "customer-%d", n%100), Value: fmt.Appendf(nil, `{"order":%d}`, n),
				Headers: []kgo.RecordHeader{{Key: "demo", Value: fmt.Append(nil, n)}},
			})
		}
		// What is begun is finished: the count has to be exact.
		if err := d.from.ProduceSync(context.WithoutCancel(ctx), recs...).FirstErr(); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		d.produced.Store(n)
	}
}

// drain waits until the flow has no lag, as mirror status sees it.
func (d *demo) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the mirror did not catch up within a minute"))
	defer cancel()
	for {
		if err := d.workersAlive(); err != nil {
			return err
		}
		lag, err := d.lag(ctx)
		if err != nil {
			return err
		}
		if lag == 0 {
			return nil
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (d *demo) lag(ctx context.Context) (int64, error) {
	text, err := os.ReadFile(d.declaration())
	if err != nil {
		return 0, err
	}
	top, err := topology.Parse("flow.yaml", text, os.LookupEnv)
	if err != nil {
		return 0, err
	}
	m, err := mirror.New(mirror.Options{Topology: top})
	if err != nil {
		return 0, err
	}
	st, err := m.Status(ctx)
	if err != nil {
		return 0, err
	}
	return total(st).lag, nil
}

// compare reads both clusters and prints the verdict.
func (d *demo) compare(ctx context.Context) error {
	want, err := readTopic(ctx, d.from)
	if err != nil {
		return fmt.Errorf("read east: %w", err)
	}
	got, err := readTopic(ctx, d.to)
	if err != nil {
		return fmt.Errorf("read west: %w", err)
	}
	diff := testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}}.Diff(want, got)
	d.out("\nEvery record that was committed, compared by key, value, headers, time, partition and order:\n")
	d.out("  at east      %8s", count(int64(len(want))))
	d.out("  at west      %8s", count(int64(len(got))))
	d.out("  missing      %8s", count(int64(len(diff.Missing))))
	d.out("  changed      %8s", count(int64(len(diff.Changed)+len(diff.Unexpected))))
	d.out("  duplicated   %8s", count(int64(len(diff.Duplicated))))
	d.out("  out of order %8s\n", count(int64(len(diff.Misordered))))
	if text := diff.String(); text != "" {
		return fmt.Errorf("the copy is not what it should be:\n%s", text)
	}
	d.out("Exactly once and in order: the copies and how far they go are committed at west in one transaction. Of the one\n" +
		"that the killed worker left open nothing counts, and it began again where the last committed one ended.")
	return nil
}

// readTopic reads what is committed of the demo's topic at present.
func readTopic(ctx context.Context, like *kgo.Client) ([]*kgo.Record, error) {
	ends, err := kadm.NewClient(like).ListCommittedOffsets(ctx, demoTopic)
	if err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	left := map[int32]bool{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			from[o.Partition], left[o.Partition] = kgo.NewOffset().AtStart(), true
		}
	})
	cl, err := kgo.NewClient(append(like.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{demoTopic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...) // the last may be one
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var recs []*kgo.Record
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, _ := ends.Lookup(demoTopic, r.Partition); r.Offset < end.Offset {
				if !r.Attrs.IsControl() {
					recs = append(recs, r)
				}
				if r.Offset == end.Offset-1 {
					delete(left, r.Partition)
				}
			}
		})
	}
	return recs, nil
}
