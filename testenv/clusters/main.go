// Command clusters starts two clusters to try a mirror on by hand and keeps
// them up until it is interrupted:
//
//	go run ./testenv/clusters -source 4.4.0 -target 3.9.2
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
)

func main() {
	source := flag.String("source", "4.4.0", `Kafka version of the source, or "embedded"`)
	target := flag.String("target", "4.4.0", `Kafka version of the target, or "embedded"`)
	nodes := flag.Int("nodes", 1, "nodes of each cluster: 1 or 3")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Stdout, *source, *target, *nodes); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, source, target string, nodes int) (err error) {
	src, err := start(ctx, source, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := start(ctx, target, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()

	const topic, records = "orders", 1000
	if err := fill(ctx, src, topic, records); err != nil {
		return err
	}
	from, to := strings.Join(src.Bootstrap(), ","), strings.Join(dst.Bootstrap(), ",")
	_, err = fmt.Fprintf(out, `source  %s  %s  (%d records in topic %s)
target  %s  %s

  go run ./cmd/mirror run --from %s --to %s --topics %s

Interrupt to stop both and remove their data.
`, from, src.Name(), records, topic, to, dst.Name(), from, to, topic)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func start(ctx context.Context, version string, nodes int) (*testenv.Cluster, error) {
	if version == "embedded" {
		return testenv.StartEmbedded(testenv.EmbeddedOptions{Nodes: nodes})
	}
	if ok, why := testenv.RealAvailable(); !ok {
		return nil, fmt.Errorf(`start Kafka %s: %s; "embedded" needs nothing`, version, why)
	}
	return testenv.StartReal(ctx, testenv.RealOptions{Version: version, Nodes: nodes})
}

func fill(ctx context.Context, c *testenv.Cluster, topic string, records int) error {
	const partitions = 4
	cl, err := kgo.NewClient(append(c.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return fmt.Errorf("fill topic %s: %w", topic, err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, -1, nil, topic); err != nil {
		return fmt.Errorf("fill topic %s: %w", topic, err)
	}
	if err := cl.ProduceSync(ctx, testenv.Records(topic, partitions, records, 1)...).FirstErr(); err != nil {
		return fmt.Errorf("fill topic %s: %w", topic, err)
	}
	return nil
}
