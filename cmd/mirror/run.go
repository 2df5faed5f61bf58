package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v2"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/topology"
)

const defaultListen = "127.0.0.1:9464"

func runCommand() *cli.Command {
	flags := append(topologyFlags(),
		&cli.BoolFlag{Name: "print-topology", Usage: "print the whole declaration as YAML, secrets as ***, and exit"},
		&cli.StringFlag{Name: "listen", Value: defaultListen, Usage: "`ADDRESS` of the status page, /metrics, /healthz and /readyz; '' for none"},
		&cli.StringFlag{Name: "instance", Usage: "`NAME` of this process, different for each and the same after a restart (default: hostname and a number)"})
	return &cli.Command{
		Name:  "run",
		Usage: "copy until stopped",
		Description: "mirror run -f flow.yaml\n" +
			"mirror run --from east:9092 --to west:9092 --topics 'orders.*,payments'",
		Flags:  append(flags, logFlags("info")...),
		Action: runFlows,
	}
}

func runFlows(c *cli.Context) error {
	d, err := declared(c)
	if err != nil {
		return err
	}
	if c.Bool("print-topology") {
		_, err := c.App.Writer.Write(d.Canonical())
		return err
	}
	screen := newScreen(c.App.Writer, c.App.ErrWriter)
	handler, err := newHandler(c, screen, screen.width != nil)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	logged := newLoggedCounter(registry)
	log := slog.New(counting{Handler: handler, count: logged.count})
	speed := &meter{}
	watch := newWatcher(screen, speed)

	opts := d.options()
	opts.Log, opts.Instance = log, c.String("instance")
	if opts.Instance == "" {
		name, release, err := claimInstance(runtimeDir())
		if err != nil {
			log.Warn("no lasting name; after a crash the source's group takes until its session timeout to notice", "reason", err, "hint", "give one with --instance")
		} else {
			defer release()
			opts.Instance = name
		}
	}
	opts.Observer.Phase, opts.Observer.Committed = watch.phase, newTxnMetrics(registry).committed
	opts.Hooks = failpoints(newClientMetrics(registry).hooks)
	m, err := mirror.New(opts)
	if err != nil {
		return &usageError{problem: err.Error()}
	}
	watch.source = m
	registry.MustRegister(stateCollector{m}, buildCollector(readBuild()))

	if address := c.String("listen"); address != "" {
		page := &page{source: m, rate: speed.rate, instance: opts.Instance, version: readBuild().version}
		stop, err := serve(c.Context, address, newServeMux(m, registry, page), log)
		if err != nil {
			return err
		}
		defer stop()
	}
	release := context.AfterFunc(c.Context, func() {
		log.Info("finishing what is in flight; a second signal stops at once",
			"reason", context.Cause(c.Context).Error(), "limit", shutdownLimit(d.Topology).String())
	})
	defer release()

	started := time.Now()
	err = watched(c.Context, m, watch)
	screen.say("%s", summary(total(m.State()), time.Since(started)))
	return err
}

// watched runs m with the watcher beside it, which outlives it so that the
// last lines are seen.
func watched(ctx context.Context, m *mirror.Mirror, w *watcher) error {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { w.run(watching) })
	defer wg.Wait()
	defer stop()
	return m.Run(ctx)
}

// shutdownLimit is how long a stop of all flows may take.
func shutdownLimit(t *topology.Topology) time.Duration {
	var limit time.Duration
	for _, f := range t.Flows {
		limit = max(limit, f.Limits.Shutdown)
	}
	return limit
}

// summary is the last line of a run.
func summary(t totals, took time.Duration) string {
	line := fmt.Sprintf("copied %s (%s) in %s", plural(t.records, "record"), size(float64(t.bytes)), span(took))
	if t.committed+t.aborted+t.pending > 0 {
		line += fmt.Sprintf(", %s, %s aborted", plural(t.committed, "transaction"), count(t.aborted))
	}
	if t.pending > 0 {
		line += ", " + count(t.pending) + " for the next owner of the shard to decide"
	}
	line += ", skipped " + count(t.skipped)
	if t.refused > 0 || t.acknowledges {
		line += ", " + plural(t.refused, "acknowledgement") + " refused"
	}
	if t.stopped > 0 {
		line += ", " + plural(int64(t.stopped), "partition") + " stopped"
	}
	return line
}
