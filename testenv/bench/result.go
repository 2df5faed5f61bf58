package main

import (
	"cmp"
	"slices"
)

// result is one run, or what several come to. What a mode does not measure
// stays zero.
type result struct {
	Name string `json:"name"`
	Run  int    `json:"run,omitempty"`
	// Of is the statistic where it stands for several runs.
	Of string `json:"of,omitempty"`
	// Exact: nothing may be there twice.
	Exact bool `json:"exactly_once,omitempty"`
	// PerSecond and MBPerSecond (10^6 bytes of keys and values) count from the
	// first record seen on the target to the last.
	PerSecond   float64 `json:"records_per_second,omitempty"`
	MBPerSecond float64 `json:"mb_per_second,omitempty"`
	// First and Total are seconds from the start of the process to the first
	// and to the last record.
	First float64 `json:"first_record_seconds,omitempty"`
	Total float64 `json:"total_seconds,omitempty"`
	// CPU is in seconds, until the last record. PerRecord divides it by the
	// records; Copying leaves out what was used before the first record. Both
	// are microseconds.
	CPU       float64 `json:"cpu_seconds,omitempty"`
	PerRecord float64 `json:"cpu_us_per_record,omitempty"`
	Copying   float64 `json:"copying_cpu_us_per_record,omitempty"`
	// Peak resident memory in MiB.
	Peak float64 `json:"peak_mib,omitempty"`
	// Brokers is what both brokers (and this program) used per record, in
	// microseconds; Others how many CPUs were taken by whatever else runs on
	// the machine.
	Brokers float64 `json:"brokers_us_per_record,omitempty"`
	Others  float64 `json:"other_cpus"`
	// Half to Slowest are milliseconds from sending to the source to reading
	// from the target: percentiles 50, 90 and 99, and the longest.
	Half    float64 `json:"p50_ms,omitempty"`
	Ninety  float64 `json:"p90_ms,omitempty"`
	Nine9   float64 `json:"p99_ms,omitempty"`
	Slowest float64 `json:"max_ms,omitempty"`
	// FirstNew and AllNew are seconds from the kill until a record that was
	// written since can be read, in any partition and in each.
	FirstNew float64 `json:"first_new_seconds,omitempty"`
	AllNew   float64 `json:"all_new_seconds,omitempty"`
	count
}

// figure is a column of a table.
type figure struct {
	title, format string
	of            func(*result) *float64
}

var (
	perRecord  = figure{"us/record", "%.2f", func(r *result) *float64 { return &r.PerRecord }}
	peakMiB    = figure{"peak MiB", "%.0f", func(r *result) *float64 { return &r.Peak }}
	otherCPUs  = figure{"others", "%.2f", func(r *result) *float64 { return &r.Others }}
	throughput = []figure{
		{"records/s", "%.0f", func(r *result) *float64 { return &r.PerSecond }},
		{"MB/s", "%.0f", func(r *result) *float64 { return &r.MBPerSecond }},
		{"first s", "%.2f", func(r *result) *float64 { return &r.First }},
		{"total s", "%.2f", func(r *result) *float64 { return &r.Total }},
		{"CPU s", "%.2f", func(r *result) *float64 { return &r.CPU }},
		perRecord,
		{"copying", "%.2f", func(r *result) *float64 { return &r.Copying }},
		peakMiB,
		{"brokers us", "%.2f", func(r *result) *float64 { return &r.Brokers }},
		otherCPUs,
	}
	latency = []figure{
		{"p50 ms", "%.1f", func(r *result) *float64 { return &r.Half }},
		{"p90 ms", "%.1f", func(r *result) *float64 { return &r.Ninety }},
		{"p99 ms", "%.1f", func(r *result) *float64 { return &r.Nine9 }},
		{"max ms", "%.1f", func(r *result) *float64 { return &r.Slowest }},
		perRecord, peakMiB, otherCPUs,
	}
	recovery = []figure{
		{"first new s", "%.2f", func(r *result) *float64 { return &r.FirstNew }},
		{"all new s", "%.2f", func(r *result) *float64 { return &r.AllNew }},
	}
)

// statistic makes one figure of several; they are sorted, and at least one.
type statistic struct {
	name string
	of   func(sorted []float64) float64
}

var (
	median = statistic{"median", func(v []float64) float64 { return (v[(len(v)-1)/2] + v[len(v)/2]) / 2 }}
	mean   = statistic{"mean", func(v []float64) float64 {
		var sum float64
		for _, x := range v {
			sum += x
		}
		return sum / float64(len(v))
	}}
	worst = statistic{"worst", func(v []float64) float64 { return v[len(v)-1] }}
	most  = statistic{"most", worst.of}
	least = statistic{"least", func(v []float64) float64 { return v[0] }}
)

// summary of each name, in order of appearance; the counts are sums.
func summary(runs []result, figures []figure, how ...statistic) []result {
	var all []result
	for len(runs) > 0 {
		sum := result{Name: runs[0].Name, Exact: runs[0].Exact}
		var same, rest []result
		for _, r := range runs {
			if r.Name != sum.Name {
				rest = append(rest, r)
				continue
			}
			same = append(same, r)
			sum.Missing += r.Missing
			sum.Duplicated += r.Duplicated
			sum.Changed += r.Changed
		}
		for _, s := range how {
			sum.Of = s.name
			for _, f := range figures {
				*f.of(&sum) = s.of(sorted(same, f))
			}
			all = append(all, sum)
		}
		runs = rest
	}
	return all
}

func sorted(runs []result, f figure) []float64 {
	var v []float64
	for i := range runs {
		v = append(v, *f.of(&runs[i]))
	}
	slices.SortFunc(v, cmp.Compare[float64])
	return v
}
