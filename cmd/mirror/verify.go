package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/onceover-mirror/onceover/mirror"
)

func verifyCommand() *cli.Command {
	flags := append(topologyFlags(),
		flowFlag("`NAME` of the flow (default: all)"),
		&cli.StringSliceFlag{Name: "topic", Usage: "compare this source `TOPIC` only, may be given again (default: all)"},
		&cli.IntFlag{Name: "findings", Value: 10, Usage: "list the first `N` findings of each kind of a partition"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"})
	return &cli.Command{
		Name:  "verify",
		Usage: "compare source and target record by record: exit code 3 when they differ",
		Description: "Reads the ledger of an exactly-once flow, and with it freezes what is to be compared: all that the ledger\n" +
			"says is copied. Then it reads both sides through the offset map. It changes nothing, needs no running\n" +
			"mirror, and may run beside one.",
		Flags:  append(flags, logFlags("")...),
		Action: verify,
	}
}

func verify(c *cli.Context) error {
	if c.Int("findings") < 0 {
		return &usageError{problem: fmt.Sprintf("--findings %d has to be 0 or above", c.Int("findings"))}
	}
	d, err := declared(c)
	if err != nil {
		return err
	}
	var names []string
	for _, f := range d.Flows {
		names = append(names, f.Name)
	}
	if c.String("flow") != "" {
		one, err := oneFlow(c, d)
		if err != nil {
			return err
		}
		names = []string{one}
	}
	m, err := connected(c, d)
	if err != nil {
		return err
	}
	screen := newScreen(c.App.Writer, c.App.ErrWriter)
	opts := mirror.VerifyOptions{Topics: c.StringSlice("topic"), Findings: c.Int("findings")}
	if opts.Findings == 0 {
		opts.Findings = -1
	}
	reports := []mirror.VerifyReport{}
	found := int64(0)
	var errs error
	for _, name := range names {
		opts.Progress = verifyProgress(screen, name)
		r, err := m.Verify(c.Context, name, opts)
		screen.progress("")
		if err != nil {
			if c.Err() != nil {
				return err
			}
			errs = errors.Join(errs, err)
			continue
		}
		found += r.Found()
		reports = append(reports, r)
		if !c.Bool("json") {
			verifyText(c.App.Writer, &r)
		}
	}
	if c.Bool("json") {
		encoder := json.NewEncoder(c.App.Writer)
		encoder.SetIndent("", "  ")
		errs = errors.Join(errs, encoder.Encode(map[string]any{"flows": reports}))
	}
	if found > 0 {
		report(c.App.ErrWriter, errs) // the differences decide on the exit code
		return errFindings
	}
	return errs
}

// verifyProgress shows on a terminal how far a flow is.
func verifyProgress(s *screen, flow string) func(mirror.VerifyProgress) {
	if s.width == nil {
		return nil
	}
	began := time.Now()
	var last time.Time
	return func(p mirror.VerifyProgress) {
		now := time.Now()
		if now.Sub(last) < 200*time.Millisecond {
			return
		}
		last = now
		rate := float64(p.Done) / now.Sub(began).Seconds()
		line := fmt.Sprintf("verify %s: %s of %s offsets, %d%%, %s/s", flow,
			short(float64(p.Done)), short(float64(p.Total)), 100*p.Done/max(p.Total, 1), short(rate))
		if rate > 0 {
			line += ", " + span(time.Duration(float64(p.Total-p.Done)/rate*float64(time.Second))) + " left"
		}
		s.progress(line)
	}
}

// verifyText prints totals, and the partitions about which there is something
// to say.
func verifyText(w io.Writer, r *mirror.VerifyReport) {
	verdict := "no difference"
	if n := r.Found(); n > 0 {
		verdict = plural(n, "difference")
	}
	fmt.Fprintf(w, "%s (%s -> %s): %s compared in %s, %s, in %s\n", r.Flow, r.From, r.To,
		plural(r.Compared, "record"), plural(int64(len(r.Partitions)), "partition"), verdict, span(r.Ended.Sub(r.Frozen)))
	fmt.Fprintf(w, "  missing %s, duplicated %s, changed %s, out of order %s, unexpected %s\n",
		count(r.Missing), count(r.Duplicated), count(r.Changed), count(r.OutOfOrder), count(r.Unexpected))
	var notes []string
	for _, n := range []struct {
		n    int64
		what string
	}{
		{r.Echoes, "echoes that were not copied back"},
		{r.Skipped, "skipped on purpose"},
		{r.Compacted, "compacted away"},
		{r.ExpiredAtSource, "expired at the source"},
		{r.ExpiredAtTarget, "expired at the target"},
		{r.Outside, "copied outside of the ledger"},
		{r.Unmapped, "older than the offset map"},
	} {
		if n.n > 0 {
			notes = append(notes, count(n.n)+" "+n.what)
		}
	}
	if len(notes) > 0 {
		fmt.Fprintf(w, "  not compared: %s\n", strings.Join(notes, ", "))
	}
	if r.Foreign > 0 {
		fmt.Fprintf(w, "  another writer: %s between the copies\n", plural(r.Foreign, "record"))
	}
	behind, parts := int64(0), int64(0)
	for i := range r.Partitions {
		if n := r.Partitions[i].Behind; n > 0 {
			behind += n
			parts++
		}
	}
	if behind > 0 {
		fmt.Fprintf(w, "  not copied yet: %s in %s\n", plural(behind, "offset"), plural(parts, "partition"))
	}
	if r.Suspended != "" {
		fmt.Fprintf(w, "  %s; what was copied since is not compared\n", r.Suspended)
	}
	for i := range r.Partitions {
		verifyPartition(w, &r.Partitions[i])
	}
}

func verifyPartition(w io.Writer, p *mirror.VerifyPartition) {
	if p.NotCompared != "" {
		fmt.Fprintf(w, "%s[%d]: not compared: %s\n", p.Topic, p.Partition, p.NotCompared)
		return
	}
	if len(p.Findings) == 0 && p.Found() == 0 {
		return
	}
	fmt.Fprintf(w, "%s[%d] -> %s, source offsets %d to %d: %s\n", p.Topic, p.Partition, p.Target, p.First, p.End-1, plural(p.Found(), "difference"))
	for _, f := range p.Findings {
		fmt.Fprintf(w, "  %s: source %s, target %s", f.Kind, findingOffset(f.Source), findingOffset(f.Target))
		if f.Detail != "" {
			fmt.Fprintf(w, ": %s", f.Detail)
		}
		fmt.Fprintln(w)
	}
}

func findingOffset(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10) // to be given to other tools
}
