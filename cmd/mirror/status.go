package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/onceover-mirror/onceover/mirror"
)

// watchEvery is the pause between two looks of status --watch.
const watchEvery = 2 * time.Second

// timeoutFlag bounds commands that ask the clusters something.
func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{
		Name: "timeout", Value: 30 * time.Second, Usage: "give up when the clusters have not answered by then",
		Action: func(_ *cli.Context, limit time.Duration) error {
			if limit <= 0 {
				return &usageError{problem: fmt.Sprintf("--timeout %s has to be above zero", limit)}
			}
			return nil
		},
	}
}

func statusCommand() *cli.Command {
	flags := append(topologyFlags(),
		&cli.BoolFlag{Name: "json", Usage: "print JSON, with --watch one line each time"},
		&cli.BoolFlag{Name: "watch", Usage: "look again every 2 s until stopped"},
		timeoutFlag())
	return &cli.Command{
		Name:        "status",
		Usage:       "show positions and lag, read from the clusters",
		Description: "Needs no running mirror, and does not know whether one runs. Partitions that need attention come first.",
		Flags:       append(flags, logFlags("")...),
		Action: func(c *cli.Context) error {
			d, err := declared(c)
			if err != nil {
				return err
			}
			m, err := connected(c, d)
			if err != nil {
				return err
			}
			if c.Bool("watch") {
				return watchStatus(c, m)
			}
			s, err := timely(c, "read positions", m.Status)
			// One flow that can't be examined is no reason to hide the others.
			return errors.Join(printStatus(c, s), err)
		},
	}
}

// connected returns a mirror of the declared flows that is asked, not run.
func connected(c *cli.Context, d declaration) (*mirror.Mirror, error) {
	handler, err := newHandler(c, c.App.ErrWriter, terminal(c.App.ErrWriter) != nil)
	if err != nil {
		return nil, err
	}
	opts := d.options()
	opts.Log = slog.New(handler)
	m, err := mirror.New(opts)
	if err != nil {
		return nil, &usageError{problem: err.Error()}
	}
	return m, nil
}

// timely calls do with a context that the flag --timeout bounds.
func timely[T any](c *cli.Context, what string, do func(context.Context) (T, error)) (T, error) {
	limit := c.Duration("timeout")
	ctx, cancel := context.WithTimeout(c.Context, limit)
	defer cancel()
	v, err := do(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		return v, fmt.Errorf("%s: no answer from the clusters within %s: %w", what, limit, err)
	}
	if err != nil {
		return v, fmt.Errorf("%s: %w", what, err)
	}
	return v, nil
}

// watchStatus prints the status again and again, also while clusters can't be
// reached; a signal ends it well.
func watchStatus(c *cli.Context, m *mirror.Mirror) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		s, err := timely(c, "read positions", m.Status)
		if c.Err() != nil {
			return nil
		}
		if !c.Bool("json") {
			if terminal(c.App.Writer) != nil {
				fmt.Fprint(c.App.Writer, "\x1b[H\x1b[2J")
			}
			fmt.Fprintln(c.App.Writer, time.Now().Format(time.RFC3339))
		}
		if err := printStatus(c, s); err != nil {
			return err
		}
		report(c.App.ErrWriter, err)
		select {
		case <-c.Done():
			return nil
		case <-tick.C:
		}
	}
}

func printStatus(c *cli.Context, s mirror.State) error {
	if !c.Bool("json") {
		return statusTable(c.App.Writer, s, time.Now())
	}
	encoder := json.NewEncoder(c.App.Writer)
	if !c.Bool("watch") {
		encoder.SetIndent("", "  ")
	}
	return encoder.Encode(s)
}

// statusTable prints each flow as of now with its topics that are not copied and its
// partitions.
func statusTable(w io.Writer, s mirror.State, now time.Time) error {
	for i, f := range s.Flows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if f.Guarantee == "" { // nothing of it was decided
			fmt.Fprintf(w, "%s (%s -> %s)\n", f.Name, f.From, f.To)
		} else {
			fmt.Fprintln(w, flowLine(f))
		}
		if f.Reason != "" {
			fmt.Fprintf(w, "%s\n", because(f.Reason, f.Hint))
		}
		var sum totals
		sum.add(f)
		// Whether a process copies, nobody can tell from the clusters alone.
		fmt.Fprintf(w, "%s, lag %s, %d lagging, %d waiting, %d stopped\n",
			plural(int64(sum.partitions), "partition"), sum.lagText(), sum.lagging, sum.waiting, sum.stopped)
		if s := f.Shards; s != nil && s.Total > 0 {
			fmt.Fprintf(w, "%s, last commit %s\n", plural(int64(s.Total), "shard"), ago(now, s.LastCommit))
		}
		if len(f.Topics)+len(f.Partitions) == 0 {
			continue
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "TOPIC\tPARTITION\tTARGET\tSTATE\tLAG\tLAG TIME\tREASON")
		for _, t := range f.Topics {
			if !t.Ready {
				fmt.Fprintf(table, "%s\t-\t%s\tnot copied\t-\t-\t%s\n", t.Topic, t.Target, because(t.Reason, t.Hint))
			}
		}
		for _, p := range worstFirst(f.Partitions) {
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", p.Topic, p.Partition, p.Target, p.Phase,
				strings.TrimSpace(lagText(p.Lag)+" "+unstableText(p.Unstable)), lagTime(p.LagSeconds), because(p.Reason, p.Hint))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func because(reason, hint string) string {
	if hint == "" {
		return reason
	}
	return reason + " (" + hint + ")"
}

// lagText is a lag in records, every digit.
func lagText(lag int64) string {
	if lag < 0 {
		return "unknown"
	}
	return count(lag)
}

// unstableText is what stands behind an open transaction, beside the lag.
func unstableText(n int64) string {
	if n <= 0 {
		return ""
	}
	return "+" + count(n) + " unstable"
}

// lagTime is a lag in seconds for people.
func lagTime(seconds float64) string {
	if seconds < 0 {
		return "unknown"
	}
	return span(time.Duration(seconds * float64(time.Second)))
}
