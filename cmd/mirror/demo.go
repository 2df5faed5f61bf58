package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/urfave/cli/v2"

	"github.com/onceover-mirror/onceover/testenv"
)

const (
	demoTopic      = "orders"
	demoPartitions = 4
	demoFlow       = "demo"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "two embedded clusters, a mirror, a worker killed in mid-transaction, and the count at the end",
		Description: "Starts two Kafka clusters inside this process, writes to one, mirrors it to the other exactly once with\n" +
			"two worker processes, kills one of them in mid-transaction, and compares both clusters at the end.\n" +
			"Nothing has to be installed, and nothing is left behind.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Value: 12 * time.Second, Usage: "how `LONG` to produce, at least 4s"},
			&cli.IntFlag{Name: "rate", Value: 2000, Usage: "`RECORDS` a second"},
		},
		Action: runDemo,
	}
}

// demo is one run. Its workers are processes of their own, so that killing one
// is what it is in real life.
type demo struct {
	out       func(format string, args ...any)
	src, dst  *testenv.Cluster
	from, to  *kgo.Client
	dir, self string
	workers   []*worker
	west      consumer
	produced  atomic.Int64
	began     time.Time
}

type worker struct {
	n    int
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended, with err
	err  error
}

func runDemo(c *cli.Context) error {
	length, rate := c.Duration("duration"), c.Int("rate")
	if length < 4*time.Second || rate < 1 {
		return &usageError{problem: "the demo needs --duration of 4s or more and --rate of 1 or more"}
	}
	d := &demo{out: func(format string, args ...any) { fmt.Fprintf(c.App.Writer, format+"\n", args...) }}
	defer d.close()
	if err := d.open(); err != nil {
		return fmt.Errorf("set up the demo: %w", err)
	}
	return d.run(c.Context, length, rate)
}

// open starts the clusters and writes the declaration.
func (d *demo) open() (err error) {
	if d.self, err = os.Executable(); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "onceover-demo-"); err != nil {
		return err
	}
	for _, side := range []struct {
		c  **testenv.Cluster
		cl **kgo.Client
	}{{&d.src, &d.from}, {&d.dst, &d.to}} {
		if *side.c, err = testenv.StartEmbedded(testenv.EmbeddedOptions{}); err != nil {
			return err
		}
		if *side.cl, err = kgo.NewClient(append((*side.c).Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.MetadataMinAge(100*time.Millisecond))...); err != nil {
			return err
		}
	}
	declaration := fmt.Sprintf(`clusters:
  east: {bootstrap: [%q]}
  west: {bootstrap: [%q]}
flows:
  - name: %s
    from: east
    to: west
    topics: [%s]
    guarantee: exactly-once
`, d.src.Bootstrap()[0], d.dst.Bootstrap()[0], demoFlow, demoTopic)
	d.out("The declaration, as in a file for mirror run -f:\n\n%s", declaration)
	return os.WriteFile(d.declaration(), []byte(declaration), 0o600)
}

func (d *demo) declaration() string { return filepath.Join(d.dir, "flow.yaml") }

// say prints a line with the time since the start.
func (d *demo) say(format string, args ...any) {
	d.out("%5.1fs  "+format, append([]any{time.Since(d.began).Seconds()}, args...)...)
}

func (d *demo) run(ctx context.Context, length time.Duration, rate int) error {
	if _, err := kadm.NewClient(d.from).CreateTopic(ctx, demoPartitions, 1, nil, demoTopic); err != nil {
		return fmt.Errorf("create topic %s: %w", demoTopic, err)
	}
	d.began = time.Now()
	finish, leave := d.background(ctx, rate)
	// However this ends, nothing is at work any more when the clusters close.
	defer func() { _ = leave() }()
	d.say("%s records/s go into topic %s at east, %d partitions", count(int64(rate)), demoTopic, demoPartitions)
	for range 2 {
		if err := d.spawn(); err != nil {
			return err
		}
	}
	if err := d.watch(ctx, length/3); err != nil {
		return err
	}
	if err := d.replace(ctx); err != nil {
		return err
	}
	if err := d.watch(ctx, length); err != nil {
		return err
	}
	if err := finish(); err != nil {
		return err
	}
	d.say("the producer has stopped after %s records; the mirror catches up", count(d.produced.Load()))
	if err := d.drain(ctx); err != nil {
		return err
	}
	d.say("no lag is left; the workers are asked to end")
	if err := d.end(); err != nil {
		return err
	}
	if err := leave(); err != nil {
		return err
	}
	return d.compare(ctx)
}

// background starts the producer at east and the consumer at west. finish ends
// the producer and leave both; each returns what went wrong, at every call.
func (d *demo) background(ctx context.Context, rate int) (finish, leave func() error) {
	producing, stop := context.WithCancel(ctx)
	reading, away := context.WithCancel(ctx)
	produced, read := make(chan error, 1), make(chan error, 1)
	go func() { produced <- d.produce(producing, rate) }()
	go func() { read <- d.west.run(reading, d.to) }()
	finish = sync.OnceValue(func() error {
		stop()
		return <-produced
	})
	leave = sync.OnceValue(func() error {
		away()
		return errors.Join(finish(), <-read)
	})
	return finish, leave
}

// spawn adds a worker and starts it.
func (d *demo) spawn() error {
	w := &worker{n: len(d.workers) + 1}
	d.workers = append(d.workers, w)
	return d.start(w)
}

// instance is the worker's name, before a restart and after.
func (w *worker) instance() string { return fmt.Sprintf("worker-%d", w.n) }

// start starts a worker's process.
func (d *demo) start(w *worker) error {
	w.log = filepath.Join(d.dir, w.instance()+".log")
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()                                                                                            // the worker has its own handle
	cmd := exec.Command(d.self, "run", "-f", d.declaration(), "--instance", w.instance(), "--listen", "", "--log-format", "text") //nolint:gosec,noctx // this very program; ended by d.end and d.close
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start worker %d: %w", w.n, err)
	}
	w.cmd, w.done = cmd, make(chan struct{})
	go func() {
		defer close(w.done)
		w.err = cmd.Wait()
	}()
	d.say("worker %d runs (process %d)", w.n, cmd.Process.Pid)
	return nil
}

// watch prints progress until the demo has run for that long.
func (d *demo) watch(ctx context.Context, until time.Duration) error {
	for {
		left := until - time.Since(d.began)
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(min(left, 2*time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		if err := d.workersAlive(); err != nil {
			return err
		}
		d.say("produced %s, read at west %s", count(d.produced.Load()), count(d.west.count()))
	}
}

// workersAlive reports a worker that ended by itself.
func (d *demo) workersAlive() error {
	for _, w := range d.workers {
		if w.cmd == nil {
			continue
		}
		select {
		case <-w.done:
			w.cmd = nil
			log, _ := os.ReadFile(w.log) // for the message only
			return fmt.Errorf("worker %d ended by itself: %w\n%s", w.n, cmp.Or(w.err, errors.New("without an error")), log)
		default:
		}
	}
	return nil
}

// end asks every worker to finish and waits for it.
func (d *demo) end() error {
	for _, w := range d.workers {
		if w.cmd == nil {
			continue
		}
		if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
			return fmt.Errorf("end worker %d: %w", w.n, err)
		}
		if <-w.done; w.err != nil {
			log, _ := os.ReadFile(w.log) // for the message only
			return fmt.Errorf("worker %d did not end well: %w\n%s", w.n, w.err, log)
		}
		w.cmd = nil
	}
	return nil
}

// close undoes whatever was begun.
func (d *demo) close() {
	for _, w := range d.workers {
		if w.cmd != nil {
			_ = w.cmd.Process.Kill() // it is on its way out anyhow
			<-w.done
		}
	}
	for _, cl := range []*kgo.Client{d.from, d.to} {
		if cl != nil {
			cl.Close()
		}
	}
	for _, c := range []*testenv.Cluster{d.src, d.dst} {
		if c != nil {
			_ = c.Close() // embedded: it always succeeds
		}
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir) // a temporary folder
	}
}
