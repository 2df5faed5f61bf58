// Command bench measures Onceover beside MirrorMaker 2 on real brokers, one
// after the other, see docs/BENCHMARKS.md: how fast they copy the same records,
// how long a record takes, and how long it takes after a crash.
//
//	go run ./testenv/bench -records 1000000 -runs 3
//	go run ./testenv/bench -pairs 5
//	go run ./testenv/bench -latency
//	go run ./testenv/bench -restart -kills 10
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/onceover-mirror/onceover/testenv"
)

func main() {
	log.SetFlags(log.Ltime)
	o := options{Version: "4.4.0", Partitions: 8}
	flag.IntVar(&o.Records, "records", 500_000, "records in the source topic")
	flag.IntVar(&o.Runs, "runs", 1, "measured runs of each; the table shows medians")
	flag.IntVar(&o.Lanes, "lanes", 2, "parallel workers: lanes of Onceover, tasks of MirrorMaker 2")
	flag.StringVar(&o.Codec, "compression", "lz4", "of the source's records and of all copies: none, gzip, snappy, lz4, zstd")
	flag.Uint64Var(&o.Seed, "seed", 1, "seed of the records")
	flag.StringVar(&o.Out, "out", "bench-out", "folder of the results, the logs and the profiles")
	flag.StringVar(&o.Binary, "binary", "", "mirror to measure; default: built from this tree")
	flag.BoolVar(&o.WarmUp, "warm", true, "first run each Onceover reader once without measuring: cold brokers are slow")
	flag.BoolVar(&o.Profile, "profile", false, "run Onceover inside this process and write its CPU profiles; no figures to compare")
	flag.BoolVar(&o.Latency, "latency", false, "measure from sending to reading, at a fixed rate")
	flag.BoolVar(&o.Restart, "restart", false, "measure from kill -9 to new records, at a fixed rate")
	flag.IntVar(&o.Pairs, "pairs", 0, "run two contenders so often in turn and show their ratio; default: partition,exactly-once")
	flag.IntVar(&o.Rate, "rate", 2000, "of -latency and -restart: records sent in a second")
	flag.DurationVar(&o.Warm, "warmup", 15*time.Second, "of -latency: copied before anything is measured")
	flag.DurationVar(&o.Measure, "measure", 30*time.Second, "of -latency: how long is measured")
	flag.IntVar(&o.Kills, "kills", 5, "of -restart: how often a process is killed")
	only := flag.String("only", "", "which to run of "+strings.Join(names(contenders), ",")+" (default: all that the mode is for)")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var list []string
	if *only != "" {
		list = strings.Split(*only, ",")
	}
	err := run(ctx, os.Stdout, o, list)
	cancel()
	if err != nil {
		log.Fatal(err)
	}
}

// mode is what a call measures.
type mode struct {
	list    []string // contenders, unless others are asked for
	run     func(*world, context.Context, []contender) ([]result, error)
	figures []figure
	how     []statistic
}

func (o options) mode() mode {
	switch {
	case o.Latency:
		return mode{[]string{"partition", "exactly-once", "mm2", "mm2-exactly-once"}, (*world).latencies, latency, []statistic{median}}
	case o.Restart:
		return mode{[]string{"exactly-once", "mm2-exactly-once"}, (*world).restarts, recovery, []statistic{mean, worst}}
	case o.Pairs > 0:
		return mode{[]string{"partition", "exactly-once"}, (*world).throughput, throughput, []statistic{median}}
	}
	return mode{names(contenders), (*world).throughput, throughput, []statistic{median}}
}

// run starts the clusters and writes the results to out and to o.Out.
func run(ctx context.Context, out io.Writer, o options, only []string) (err error) {
	m := o.mode()
	if only == nil {
		only = m.list
	}
	list, err := pick(only)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	if o.Pairs > 0 {
		if o.Runs = o.Pairs; len(list) != 2 {
			return fmt.Errorf("-pairs of %s: two are needed", strings.Join(only, ", "))
		}
	}
	if err := checkProc(); err != nil {
		return err
	}
	if ok, why := testenv.RealAvailable(); !ok {
		return fmt.Errorf("start real brokers: %s", why)
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return fmt.Errorf("make folder of results: %w", err)
	}
	if o.Binary == "" && !o.Profile {
		if o.Binary, err = build(ctx, o.Out); err != nil {
			return err
		}
	}
	w, err := newWorld(ctx, o)
	if err != nil {
		return err
	}
	defer closing(&err, w.close)
	rep := report{Machine: lookAround(ctx), Settings: o, figures: m.figures, how: m.how}
	if _, err := fmt.Fprintf(out, "%s\n%s\n\n", rep.Machine, o); err != nil {
		return err
	}
	if rep.Runs, err = m.run(w, ctx, list); err != nil {
		return err
	}
	if err := rep.write(out); err != nil {
		return err
	}
	if err := rep.save(o.Out); err != nil {
		return err
	}
	return rep.verdict()
}
