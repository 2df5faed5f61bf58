package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// glance is how often the end offsets of the copy are looked at.
	glance = 20 * time.Millisecond
	// quiet is how long nothing more may come for a copy to be whole: copies
	// that are there twice would make it look whole too early.
	quiet = time.Second
	// stall ends a run in which nothing moves. MirrorMaker 2 takes up to half
	// a minute to start.
	stall = 90 * time.Second
)

// sight is one look at the copy.
type sight struct {
	at time.Time
	// sum of the end offsets: the records, and the ends of transactions.
	sum  int64
	cpu  time.Duration
	ends map[int32]int64
}

// taken is what was seen of one run.
type taken struct {
	began, ended  time.Time
	first, last   sight
	before, after load
	peak          int64
}

// measure runs j until its copy is whole.
func (w *world) measure(ctx context.Context, c contender, j job) (t taken, err error) {
	if t.before, err = lookAtLoad(); err != nil {
		return t, err
	}
	t.began = time.Now()
	p, err := c.start(ctx, j)
	if err != nil {
		return t, err
	}
	defer func() {
		if serr := p.stop(); err == nil {
			err = serr
		}
	}()
	if t.first, t.last, err = w.watch(ctx, p, j.topic()); err != nil {
		return t, err
	}
	t.ended = time.Now()
	if t.after, err = lookAtLoad(); err != nil {
		return t, err
	}
	t.peak, err = peakOf(p.pid())
	return t, err
}

// figures of a run over n records, early of which were there at the first look.
func (t taken) figures(n, early int) (result, error) {
	all, later := float64(n), float64(n-early)
	took := t.last.at.Sub(t.first.at).Seconds()
	if took <= 0 || later <= 0 {
		return result{}, fmt.Errorf("all %d records came between two looks: take more of them", n)
	}
	family := t.after.family - t.before.family
	return result{
		PerSecond: later / took, MBPerSecond: later * (keySize + valueSize) / took / 1e6,
		First: t.first.at.Sub(t.began).Seconds(), Total: t.last.at.Sub(t.began).Seconds(),
		CPU: t.last.cpu.Seconds(), PerRecord: t.last.cpu.Seconds() * 1e6 / all,
		Copying: (t.last.cpu - t.first.cpu).Seconds() * 1e6 / later,
		Peak:    float64(t.peak) / (1 << 20),
		Brokers: (family - t.last.cpu).Seconds() * 1e6 / all,
		Others:  others(t.before, t.after, t.ended.Sub(t.began)),
	}, nil
}

// others is how many CPUs went to anything but this program and its children.
func others(before, after load, during time.Duration) float64 {
	return max(0, (after.all-before.all)-(after.family-before.family)).Seconds() / during.Seconds()
}

// watch returns the looks at the first and the last record.
func (w *world) watch(ctx context.Context, p process, topic string) (first, last sight, err error) {
	ticker := time.NewTicker(glance)
	defer ticker.Stop()
	moved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return first, last, context.Cause(ctx)
		case <-p.gone():
			return first, last, endedEarly(p)
		case <-ticker.C:
		}
		s, err := w.look(ctx, p, topic)
		if errors.Is(err, fs.ErrNotExist) { // it went between the two
			return first, last, endedEarly(p)
		}
		if err != nil {
			return first, last, err
		}
		if s.sum != last.sum {
			if first.sum == 0 {
				first = s
			}
			last, moved = s, s.at
			continue
		}
		whole := last.sum >= int64(w.Records)
		if whole && s.at.Sub(moved) >= quiet {
			return first, last, nil
		}
		if s.at.Sub(moved) >= stall {
			return first, last, fmt.Errorf("nothing came for %v: the end offsets sum up to %d of %d", stall, last.sum, w.Records)
		}
	}
}

// look reads the end offsets up to which everything is committed.
func (w *world) look(ctx context.Context, p process, topic string) (s sight, err error) {
	if s.ends, err = w.endsOf(ctx, topic, committed); err != nil {
		return sight{}, err
	}
	s.at = time.Now()
	for _, end := range s.ends {
		s.sum += end
	}
	s.cpu, err = p.cpu()
	return s, err
}

// Isolation levels of a question for offsets.
const (
	uncommitted int8 = iota
	committed
)

// endsOf reads the end offsets of a topic on the target. It asks the one
// broker itself: the client's own way would repeat the question until a topic
// that is not made yet is there.
func (w *world) endsOf(ctx context.Context, topic string, isolation int8) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for i := range w.Partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = int32(i), -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	kresp, err := w.cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("look at the copy: %w", err)
	}
	ends := map[int32]int64{}
	for _, rt := range kresp.(*kmsg.ListOffsetsResponse).Topics {
		for _, rp := range rt.Partitions {
			// Without a partition, or its leader, there is nothing yet.
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil && !kerr.IsRetriable(err) {
				return nil, fmt.Errorf("look at partition %d of the copy: %w", rp.Partition, err)
			} else if err == nil {
				ends[rp.Partition] = rp.Offset
			}
		}
	}
	return ends, nil
}
