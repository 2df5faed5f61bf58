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
	}{{"records", o.Records}, {"runs", o.Runs}, {"lanes", o.Lanes}} {
		if n.value < 1 {
			return fmt.Errorf("-%s %d: at least one is needed", n.flag, n.value)
		}
	}
	return nil
}

// String is the line about the settings in the report.
func (o options) String() string {
	return fmt.Sprintf("%d records of %d bytes in %d partitions, %s; %d lanes or tasks; seed %d",
		o.Records, keySize+valueSize, o.Partitions, o.Codec, o.Lanes, o.Seed)
}

// world is the source with its records, and the target.
type world struct {
	options
	source, target *testenv.Cluster
	cl             *kgo.Client // of the target
}

// newWorld starts a source and a target and fills the source.
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
	return w, w.fill(ctx)
}

// fill opens the target and makes the source's records.
func (w *world) fill(ctx context.Context) error {
	var err error
	if w.cl, err = kgo.NewClient(w.target.Opts()...); err != nil {
		return fmt.Errorf("open target: %w", err)
	}
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

// rounds runs each of list once in turn, as often as asked for, so that a
// machine that gets slower or faster does so for all.
func (w *world) rounds(ctx context.Context, list []contender) ([]result, error) {
	var all []result
	first := 1
	if w.WarmUp {
		first = 0
	}
	for round := first; round <= w.Runs; round++ {
		for _, c := range list {
			if round == 0 && c.external {
				continue
			}
			r, err := w.one(ctx, c, round)
			if err != nil {
				return nil, fmt.Errorf("run %d of %s: %w", round, c.name, err)
			}
			log.Printf("%s, run %d: %.0f records/s, others used %.2f CPUs", c.name, round, r.PerSecond, r.Others)
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
	j := job{world: w, alias: fmt.Sprintf("%s%d", c.name, round)}
	log.Printf("%s, run %d", c.name, round)
	r, ends, err := w.measure(ctx, c, j)
	if err != nil {
		return result{}, err
	}
	r.Name, r.Run = c.name, round
	if r.count, err = verify(ctx, w.target.Opts(), j.topic(), ends, w.Records, w.Seed); err != nil {
		return result{}, err
	}
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
}

// topic is where the copy goes.
func (j job) topic() string { return j.alias + "." + sourceTopic }
