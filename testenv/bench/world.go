package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
)

// sourceTopic holds the records that all copy.
const sourceTopic = "bench"

// options are what was asked for.
type options struct {
	Version    string `json:"kafka"`
	Records    int    `json:"records"`
	Partitions int    `json:"partitions"`
	Runs       int    `json:"runs"`
	Lanes      int    `json:"lanes"`
	Codec      string `json:"compression"`
	Seed       uint64 `json:"seed"`
	WarmUp     bool   `json:"warm_up"`
	Profile    bool   `json:"profile"`
	Binary     string `json:"binary"`
	Out        string `json:"-"`
	// Of the modes: what is measured instead of throughput, and how.
	Latency bool          `json:"latency"`
	Restart bool          `json:"restart"`
	Pairs   int           `json:"pairs"`
	Rate    int           `json:"records_per_second"`
	Warm    time.Duration `json:"latency_warm_up_ns"`
	Measure time.Duration `json:"latency_measured_ns"`
	Kills   int           `json:"kills"`
}

// codecs by the names that all contenders know them by.
var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (o options) check() error {
	if _, ok := codecs[o.Codec]; !ok {
		return fmt.Errorf("-compression %s: there are %s", o.Codec, strings.Join(slices.Sorted(maps.Keys(codecs)), ", "))
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"records", o.Records}, {"runs", o.Runs}, {"lanes", o.Lanes}, {"rate", o.Rate}, {"kills", o.Kills}} {
		if n.value < 1 {
			return fmt.Errorf("-%s %d: at least one is needed", n.flag, n.value)
		}
	}
	switch {
	case o.Pairs < 0:
		return fmt.Errorf("-pairs %d: a number of pairs is needed", o.Pairs)
	case o.Latency && o.Restart, o.Pairs > 0 && (o.Latency || o.Restart):
		return errors.New("-latency, -restart and -pairs: one at a time")
	case o.Restart && o.Profile:
		return errors.New("-restart kills processes, and -profile runs Onceover in this one")
	case o.Warm < 0 || o.Measure <= 0:
		return fmt.Errorf("-warmup %v -measure %v: times are needed", o.Warm, o.Measure)
	}
	return nil
}

// String is the line about the settings in the report.
func (o options) String() string {
	load := fmt.Sprint(o.Records, " records")
	if o.Latency || o.Restart {
		load = fmt.Sprint(o.Rate, " records/s")
	}
	return fmt.Sprintf("%s of %d bytes in %d partitions, %s; %d lanes or tasks; seed %d",
		load, keySize+valueSize, o.Partitions, o.Codec, o.Lanes, o.Seed)
}

// world is the source with its records, and the target.
type world struct {
	options
	source, target *testenv.Cluster
	cl             *kgo.Client // of the target
}

// newWorld starts a source and a target. Where all of the load comes at once,
// the source has it then.
func newWorld(ctx context.Context, o options) (_ *world, err error) {
	w := &world{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	for _, c := range []**testenv.Cluster{&w.source, &w.target} {
		if *c, err = testenv.StartReal(ctx, testenv.RealOptions{Version: o.Version, Heap: 1024, FullJIT: true}); err != nil {
			return nil, err
		}
	}
	if err := w.open(); err != nil {
		return nil, err
	}
	if w.Latency || w.Restart {
		return w, nil
	}
	return w, w.fill(ctx)
}

// open makes the client of the target.
func (w *world) open() error {
	var err error
	if w.cl, err = kgo.NewClient(w.target.Opts()...); err != nil {
		return fmt.Errorf("open target: %w", err)
	}
	return nil
}

// fill makes the source's records.
func (w *world) fill(ctx context.Context) error {
	cl, err := kgo.NewClient(append(w.source.Opts(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[w.Codec]),
		kgo.ProducerLinger(20*time.Millisecond))...)
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, int32(w.Partitions), -1, nil, sourceTopic); err != nil {
		return fmt.Errorf("create topic %s: %w", sourceTopic, err)
	}
	log.Printf("writing %d records to the source", w.Records)
	return produce(ctx, cl, sourceTopic, w.Partitions, w.Records, w.Seed)
}

func (w *world) close() error {
	if w.cl != nil {
		w.cl.Close()
	}
	var errs []error
	for _, c := range []*testenv.Cluster{w.source, w.target} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// closing undoes something at the end of a function whose error is err.
func closing(err *error, undo func() error) {
	if uerr := undo(); *err == nil {
		*err = uerr
	}
}

// throughput runs each of list as often as asked for, and before that once
// without measuring where that is wanted.
func (w *world) throughput(ctx context.Context, list []contender) ([]result, error) {
	first := 1
	if w.WarmUp {
		first = 0
	}
	return w.rounds(ctx, list, first, w.one)
}

// rounds runs each of list once in turn, as often as asked for, so that a
// machine that gets slower or faster does so for all. Of pairs it changes who
// is first. Round 0 does not count, and is for Onceover alone.
func (w *world) rounds(ctx context.Context, list []contender, first int, one func(context.Context, contender, int) (result, error)) ([]result, error) {
	var all []result
	for round := first; round <= w.Runs; round++ {
		for i := range list {
			c := list[i]
			if w.Pairs > 0 && round%2 == 0 {
				c = list[len(list)-1-i]
			}
			if round == 0 && c.external {
				continue
			}
			log.Printf("%s, run %d", c.name, round)
			r, err := one(ctx, c, round)
			if err != nil {
				return nil, fmt.Errorf("run %d of %s: %w", round, c.name, err)
			}
			r.Name, r.Run, r.Exact = c.name, round, c.exact
			if round > 0 {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// one lets c copy everything into a topic of its own, which is checked and
// deleted.
func (w *world) one(ctx context.Context, c contender, round int) (result, error) {
	j := job{world: w, alias: fmt.Sprintf("%s%d", c.name, round), from: sourceTopic}
	t, err := w.measure(ctx, c, j)
	if err != nil {
		return result{}, err
	}
	found, early, err := verify(ctx, w.target.Opts(), j.topic(), t.first.ends, t.last.ends, w.Records, w.Seed)
	if err != nil {
		return result{}, err
	}
	r, err := t.figures(w.Records, early)
	if err != nil {
		return result{}, err
	}
	r.count = found
	log.Printf("%s: %.0f records/s, others used %.2f CPUs", j.alias, r.PerSecond, r.Others)
	if _, err := kadm.NewClient(w.cl).DeleteTopic(ctx, j.topic()); err != nil {
		return result{}, fmt.Errorf("delete topic %s: %w", j.topic(), err)
	}
	return r, nil
}

// job is one run of a contender.
type job struct {
	*world
	// alias names the source cluster, and with it everything that the run
	// leaves behind on both clusters: no run finds anything of another.
	alias string
	// from is the source topic.
	from string
	// again tells the logs of processes of one run apart.
	again string
}

// topic is where the copy goes.
func (j job) topic() string { return j.alias + "." + j.from }
