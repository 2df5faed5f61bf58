package main

import (
	"cmp"
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
	"text/tabwriter"
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
	Medians  []result `json:"medians"`
	Runs     []result `json:"runs"`
}

// figures are the columns of the table and what medians are taken of.
var figures = []struct {
	title, format string
	of            func(*result) *float64
}{
	{"records/s", "%.0f", func(r *result) *float64 { return &r.PerSecond }},
	{"MB/s", "%.0f", func(r *result) *float64 { return &r.MBPerSecond }},
	{"first s", "%.2f", func(r *result) *float64 { return &r.First }},
	{"total s", "%.2f", func(r *result) *float64 { return &r.Total }},
	{"CPU s", "%.2f", func(r *result) *float64 { return &r.CPU }},
	{"us/record", "%.2f", func(r *result) *float64 { return &r.PerRecord }},
	{"copying", "%.2f", func(r *result) *float64 { return &r.Copying }},
	{"peak MiB", "%.0f", func(r *result) *float64 { return &r.Peak }},
	{"brokers us", "%.2f", func(r *result) *float64 { return &r.Brokers }},
	{"others", "%.2f", func(r *result) *float64 { return &r.Others }},
}

// medians of each name, in order of appearance; the counts are sums.
func medians(runs []result) []result {
	var all []result
	for len(runs) > 0 {
		name := runs[0].Name
		mid := result{Name: name}
		var same, rest []result
		for _, r := range runs {
			if r.Name != name {
				rest = append(rest, r)
				continue
			}
			same = append(same, r)
			mid.Missing += r.Missing
			mid.Duplicated += r.Duplicated
			mid.Changed += r.Changed
		}
		for _, f := range figures {
			*f.of(&mid) = median(same, f.of)
		}
		all, runs = append(all, mid), rest
	}
	return all
}

func median(runs []result, of func(*result) *float64) float64 {
	var v []float64
	for i := range runs {
		v = append(v, *of(&runs[i]))
	}
	slices.SortFunc(v, cmp.Compare[float64])
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// table writes the medians, below them each run where there are several.
func (r *report) table(out io.Writer) error {
	r.Medians = medians(r.Runs)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")+"\t") }
	head := []string{"", "run"}
	for _, f := range figures {
		head = append(head, f.title)
	}
	row(append(head, "missing", "twice", "changed")...)
	line := func(x *result, run string) {
		cells := []string{x.Name, run}
		for _, f := range figures {
			cells = append(cells, fmt.Sprintf(f.format, *f.of(x)))
		}
		row(append(cells, fmt.Sprint(x.Missing), fmt.Sprint(x.Duplicated), fmt.Sprint(x.Changed))...)
	}
	if r.Settings.Runs > 1 {
		for i := range r.Runs {
			line(&r.Runs[i], fmt.Sprint(r.Runs[i].Run))
		}
	}
	for i := range r.Medians {
		line(&r.Medians[i], "median")
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
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
		if x.Missing > 0 || x.Changed > 0 {
			errs = append(errs, fmt.Errorf("run %d of %s: %d records missing, %d changed", x.Run, x.Name, x.Missing, x.Changed))
		}
	}
	return errors.Join(errs...)
}
