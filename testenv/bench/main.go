// Command bench measures Onceover beside MirrorMaker 2 on real brokers, one
// after the other on the same records, see docs/BENCHMARKS.md:
//
//	go run ./testenv/bench -records 1000000 -runs 3
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
	only := flag.String("only", strings.Join(names(contenders), ","), "which to run")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o, strings.Split(*only, ","))
	cancel()
	if err != nil {
		log.Fatal(err)
	}
}

// run starts the clusters and writes the results to out and to o.Out.
func run(ctx context.Context, out io.Writer, o options, only []string) (err error) {
	list, err := pick(only)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
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
	defer func() {
		if cerr := w.close(); err == nil {
			err = cerr
		}
	}()
	rep := report{Machine: lookAround(ctx), Settings: o}
	if _, err := fmt.Fprintf(out, "%s\n%s\n\n", rep.Machine, o); err != nil {
		return err
	}
	if rep.Runs, err = w.rounds(ctx, list); err != nil {
		return err
	}
	if err := rep.table(out); err != nil {
		return err
	}
	if err := rep.save(o.Out); err != nil {
		return err
	}
	return rep.verdict()
}
