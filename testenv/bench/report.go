package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// machine is where the figures come from.
type machine struct {
	When   time.Time `json:"when"`
	System string    `json:"system"`
	CPUs   int       `json:"cpus"`
	Memory float64   `json:"memory_gib"`
	Go     string    `json:"go"`
	Java   string    `json:"java"`
	Load   string    `json:"load_average"`
}

// lookAround describes this machine; what can't be found out stays empty.
func lookAround(ctx context.Context) machine {
	m := machine{When: time.Now().UTC().Truncate(time.Second), System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		n, _ := kibibytes(b, "MemTotal:")
		m.Memory = float64(n) / (1 << 30)
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(b))[:3], " ")
	}
	if b, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput(); err == nil {
		m.Java, _, _ = strings.Cut(string(b), "\n")
	}
	return m
}

// String is the line about the machine in the report.
func (m machine) String() string {
	return fmt.Sprintf("%s, %s, %d CPUs, %.1f GiB, %s, %s, load average at start %s",
		m.When.Format(time.RFC3339), m.System, m.CPUs, m.Memory, m.Go, m.Java, m.Load)
}

// report is all of what was found.
type report struct {
	Machine  machine  `json:"machine"`
	Settings options  `json:"settings"`
	Summary  []result `json:"summary"`
	Ratios   []result `json:"ratios,omitempty"`
	Runs     []result `json:"runs"`

	figures []figure
	how     []statistic
}

// table is written as markdown.
type table struct {
	figures []figure
	rows    [][]string
}

func newTable(figures []figure) *table {
	head := []string{"", "run"}
	for _, f := range figures {
		head = append(head, f.title)
	}
	return &table{figures: figures, rows: [][]string{head}}
}

func (t *table) add(r *result, run string, more ...string) {
	cells := []string{r.Name, run}
	for _, f := range t.figures {
		cells = append(cells, fmt.Sprintf(f.format, *f.of(r)))
	}
	t.rows = append(t.rows, append(cells, more...))
}

// write pads the cells, so that the table can be read as it is.
func (t *table) write(out io.Writer) error {
	width := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell))
		}
	}
	rule := make([]string, len(width))
	for i := range rule {
		rule[i] = strings.Repeat("-", max(3, width[i]))
	}
	for _, row := range slices.Insert(slices.Clone(t.rows), 1, rule) {
		for i, cell := range row {
			row[i] = fmt.Sprintf("%*s", max(3, width[i]), cell)
		}
		if _, err := fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | ")); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

// write makes the table of the summary, above it each run where there are
// several, and below it the ratios of pairs.
func (r *report) write(out io.Writer) error {
	r.Summary = summary(r.Runs, r.figures, r.how...)
	t := newTable(r.figures)
	t.rows[0] = append(t.rows[0], "missing", "twice", "changed")
	line := func(x *result, run string) {
		t.add(x, run, fmt.Sprint(x.Missing), fmt.Sprint(x.Duplicated), fmt.Sprint(x.Changed))
	}
	if r.Settings.Runs > 1 || r.Settings.Restart {
		for i := range r.Runs {
			line(&r.Runs[i], fmt.Sprint(r.Runs[i].Run))
		}
	}
	for i := range r.Summary {
		line(&r.Summary[i], r.Summary[i].Of)
	}
	if err := t.write(out); err != nil {
		return err
	}
	if r.Settings.Pairs > 0 {
		return r.writeRatios(out)
	}
	return nil
}

// save writes everything as JSON.
func (r *report) save(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bench.json"), append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// verdict is an error when a copy is not what it should be: a fast mirror that
// loses records has no speed. Duplicates are permitted at least once.
func (r *report) verdict() error {
	var errs []error
	for _, x := range r.Runs {
		if x.Missing > 0 || x.Changed > 0 || x.Exact && x.Duplicated > 0 {
			errs = append(errs, fmt.Errorf("run %d of %s: %d records missing, %d there twice, %d changed",
				x.Run, x.Name, x.Missing, x.Duplicated, x.Changed))
		}
	}
	return errors.Join(errs...)
}
