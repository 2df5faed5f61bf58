package main

import (
	"context"
	"fmt"
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

// result is one run, or the medians of several.
type result struct {
	Name string `json:"name"`
	Run  int    `json:"run,omitempty"`
	// PerSecond and MBPerSecond (10^6 bytes of keys and values) count from the
	// first record seen on the target to the last.
	PerSecond   float64 `json:"records_per_second"`
	MBPerSecond float64 `json:"mb_per_second"`
	// First and Total are seconds from the start of the process to the first
	// and to the last record.
	First float64 `json:"first_record_seconds"`
	Total float64 `json:"total_seconds"`
	// CPU is in seconds, until the last record. PerRecord divides it by the
	// records; Copying leaves out what was used before the first record. Both
	// are microseconds.
	CPU       float64 `json:"cpu_seconds"`
	PerRecord float64 `json:"cpu_us_per_record"`
	Copying   float64 `json:"copying_cpu_us_per_record"`
	// Peak resident memory in MiB.
	Peak float64 `json:"peak_mib"`
	// Brokers is what both brokers (and this program) used per record, in
	// microseconds; Others how many CPUs were taken by whatever else runs on
	// the machine.
	Brokers float64 `json:"brokers_us_per_record"`
	Others  float64 `json:"other_cpus"`
	count
}

// sight is one look at the copy.
type sight struct {
	at      time.Time
	records int64
	cpu     time.Duration
	ends    map[int32]int64
}

// measure runs j until its copy is whole, and returns its end offsets too.
func (w *world) measure(ctx context.Context, c contender, j job) (_ result, ends map[int32]int64, err error) {
	before, err := lookAtLoad()
	if err != nil {
		return result{}, nil, err
	}
	began := time.Now()
	p, err := c.start(ctx, j)
	if err != nil {
		return result{}, nil, err
	}
	defer func() {
		if serr := p.stop(); err == nil && serr != nil {
			err = serr
		}
	}()
	first, last, err := w.watch(ctx, p, j.topic())
	if err != nil {
		return result{}, nil, err
	}
	after, err := lookAtLoad()
	if err != nil {
		return result{}, nil, err
	}
	peak, err := peakOf(p.pid())
	if err != nil {
		return result{}, nil, err
	}
	var (
		n       = float64(w.Records)
		later   = n - float64(first.records)
		took    = last.at.Sub(first.at).Seconds()
		watched = time.Since(began).Seconds()
	)
	if took <= 0 || later <= 0 {
		return result{}, nil, fmt.Errorf("all %d records came between two looks: take more of them", w.Records)
	}
	return result{
		PerSecond: later / took, MBPerSecond: later * (keySize + valueSize) / took / 1e6,
		First: first.at.Sub(began).Seconds(), Total: last.at.Sub(began).Seconds(),
		CPU: last.cpu.Seconds(), PerRecord: last.cpu.Seconds() * 1e6 / n,
		Copying: (last.cpu - first.cpu).Seconds() * 1e6 / later,
		Peak:    float64(peak) / (1 << 20),
		Brokers: (after.family - before.family - last.cpu).Seconds() * 1e6 / n,
		Others:  max(0, (after.all-before.all)-(after.family-before.family)).Seconds() / watched,
	}, last.ends, nil
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
			return first, last, fmt.Errorf("it ended by itself: %w", p.stop())
		case <-ticker.C:
		}
		s, err := w.look(ctx, p, topic)
		if err != nil {
			return first, last, err
		}
		if s.records != last.records {
			if first.records == 0 {
				first = s
			}
			last, moved = s, s.at
			continue
		}
		whole := last.records >= int64(w.Records)
		if whole && s.at.Sub(moved) >= quiet {
			return first, last, nil
		}
		if s.at.Sub(moved) >= stall {
			return first, last, fmt.Errorf("nothing came for %v: %d of %d records are there", stall, last.records, w.Records)
		}
	}
}

// look reads the end offsets. Offsets are records: nobody writes transactions
// here. It asks the one broker itself: the client's own way would repeat the
// question until a topic that is not made yet is there.
func (w *world) look(ctx context.Context, p process, topic string) (sight, error) {
	req := kmsg.NewPtrListOffsetsRequest()
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
		return sight{}, fmt.Errorf("look at the copy: %w", err)
	}
	s := sight{at: time.Now(), ends: map[int32]int64{}}
	for _, rt := range kresp.(*kmsg.ListOffsetsResponse).Topics {
		for _, rp := range rt.Partitions {
			// Without a partition, or its leader, there is nothing yet.
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil && !kerr.IsRetriable(err) {
				return sight{}, fmt.Errorf("look at partition %d of the copy: %w", rp.Partition, err)
			} else if err == nil {
				s.ends[rp.Partition] = rp.Offset
				s.records += rp.Offset
			}
		}
	}
	s.cpu, err = p.cpu()
	return s, err
}
