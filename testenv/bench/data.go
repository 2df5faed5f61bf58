package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	keySize   = 8
	valueSize = 1024
	// chunk is half of what repeats in a value: 32 random bytes, 32 fixed
	// ones, and so on. lz4 makes about half of that.
	chunk = 32
)

var filler = []byte("a fixed text of thirty-two bytes")

// value fills b with the value of the record at a position. It follows from
// seed and position alone, so that a copy can be checked without the original.
func value(b []byte, seed, position uint64) []byte {
	rng := rand.NewPCG(seed, position)
	b = b[:0]
	for len(b) < valueSize {
		for range chunk / 8 {
			b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
		}
		b = append(b, filler...)
	}
	return b
}

// produce writes n records, their position as key, dealt out over the
// partitions in turn.
func produce(ctx context.Context, cl *kgo.Client, topic string, partitions, n int, seed uint64) error {
	var (
		once  sync.Once
		first error
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now().Truncate(time.Millisecond)
	for i := range n {
		cl.Produce(ctx, &kgo.Record{
			Topic: topic, Partition: int32(i % partitions), Timestamp: began.Add(time.Duration(i/1000) * time.Millisecond),
			Key:   binary.BigEndian.AppendUint64(nil, uint64(i)),
			Value: value(make([]byte, 0, valueSize), seed, uint64(i)),
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	err := cl.Flush(ctx)
	if first != nil {
		err = first
	}
	if err != nil {
		return fmt.Errorf("produce to topic %s: %w", topic, err)
	}
	return nil
}

// count is what was found in a copy.
type count struct {
	Missing    int `json:"missing"`
	Duplicated int `json:"duplicated"`
	// Changed records have another value or partition, or are not from the
	// source at all.
	Changed int `json:"changed"`
}

// verify reads all of a copy that is committed, up to the end offsets. Early
// says how many of the records were below the earlier end offsets already.
func verify(ctx context.Context, opts []kgo.Opt, topic string, earlier, ends map[int32]int64, n int, seed uint64) (c count, early int, err error) {
	from := map[int32]kgo.Offset{}
	left := map[int32]bool{}
	for p, end := range ends {
		if from[p] = kgo.NewOffset().AtStart(); end > 0 {
			left[p] = true
		}
	}
	cl, err := kgo.NewClient(append(opts,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// The last offset of a partition may be the end of a transaction.
		kgo.KeepControlRecords())...)
	if err != nil {
		return count{}, 0, fmt.Errorf("verify topic %s: %w", topic, err)
	}
	defer cl.Close()
	seen := make([]bool, n)
	want := make([]byte, 0, valueSize)
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return count{}, 0, fmt.Errorf("verify topic %s: %w", topic, err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if rec.Offset >= ends[rec.Partition]-1 {
				delete(left, rec.Partition)
			}
			if rec.Attrs.IsControl() || rec.Offset >= ends[rec.Partition] {
				return
			}
			if rec.Offset < earlier[rec.Partition] {
				early++
			}
			i := uint64(n)
			if len(rec.Key) == keySize {
				i = binary.BigEndian.Uint64(rec.Key)
			}
			if i >= uint64(n) || int(rec.Partition) != int(i)%len(ends) || !bytes.Equal(rec.Value, value(want, seed, i)) {
				c.Changed++
				return
			}
			if seen[i] {
				c.Duplicated++
			}
			seen[i] = true
		})
	}
	for _, s := range seen {
		if !s {
			c.Missing++
		}
	}
	return c, early, nil
}
