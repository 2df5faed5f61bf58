package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumer is an application at west: it reads the copies as they are committed,
// read_committed, and notes when they came. Safe for concurrent use.
type consumer struct {
	mu      sync.Mutex
	n       int64
	wanted  map[int32]int64 // partition: the offset from which a record is the first
	arrived chan time.Time  // of the first
}

// run reads until ctx ends.
func (c *consumer) run(ctx context.Context, like *kgo.Client) error {
	// The mirror makes the topic.
	for adm := kadm.NewClient(like); ; pauseFor(ctx, 50*time.Millisecond) {
		topics, err := adm.ListTopics(ctx, demoTopic)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list topics of west: %w", err)
		}
		if topics.Has(demoTopic) {
			break
		}
	}
	cl, err := kgo.NewClient(append(like.Opts(), kgo.ConsumeTopics(demoTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read west: %w", err)
		}
		c.take(fetches.Records(), time.Now())
	}
}

func (c *consumer) take(recs []*kgo.Record, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += int64(len(recs))
	for _, r := range recs {
		if from, ok := c.wanted[r.Partition]; ok && r.Offset >= from {
			c.wanted = nil
			c.arrived <- now // has room for one
			return
		}
	}
}

// count is how many records there were so far.
func (c *consumer) count() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// first waits for the first record at or behind an offset in one of the
// partitions, and returns when it came. Called once at a time.
func (c *consumer) first(ctx context.Context, from map[int32]int64) (time.Time, error) {
	arrived := make(chan time.Time, 1)
	c.mu.Lock()
	c.wanted, c.arrived = from, arrived
	c.mu.Unlock()
	select {
	case at := <-arrived:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}
