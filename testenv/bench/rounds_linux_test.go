package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/testenv"
)

// TestRoundsCopyEverything runs both readers as -profile does, between
// embedded brokers.
func TestRoundsCopyEverything(t *testing.T) {
	w := &world{
		options: options{Records: 50_000, Partitions: 4, Runs: 1, Lanes: 2, Codec: "lz4", Seed: 9, Profile: true, Out: t.TempDir()},
		source:  testenv.Embedded(t), target: testenv.Embedded(t),
	}
	if err := errors.Join(w.open(), w.fill(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cl.Close)
	list, err := pick([]string{"share", "partition"})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := w.throughput(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	r := report{Runs: runs, Settings: w.options, figures: throughput, how: []statistic{median}}
	if err := errors.Join(r.verdict(), r.save(w.Out)); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := r.write(&out); err != nil {
		t.Error(err)
	}
	t.Logf("\n%s", &out)
	if len(runs) != 2 {
		t.Fatalf("%d runs, want 2", len(runs))
	}
	for _, x := range runs {
		if x.PerSecond <= 0 || x.First <= 0 || x.Total <= x.First || x.CPU <= 0 || x.Peak <= 0 {
			t.Errorf("a figure is missing: %+v", x)
		}
		if !strings.Contains(out.String(), x.Name) {
			t.Errorf("the table does not name %s", x.Name)
		}
	}
}

// TestLatencyOfEachRecord has a mirror copy a stream between embedded brokers.
func TestLatencyOfEachRecord(t *testing.T) {
	w := &world{
		options: options{
			Partitions: 4, Runs: 1, Lanes: 2, Codec: "lz4", Seed: 9, Profile: true, Out: t.TempDir(),
			Latency: true, Rate: 500, Warm: 500 * time.Millisecond, Measure: time.Second,
		},
		source: testenv.Embedded(t), target: testenv.Embedded(t),
	}
	if err := w.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cl.Close)
	list, err := pick([]string{"partition"})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := w.latencies(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 1 || runs[0].Name != "partition" || runs[0].count != (count{}) {
		t.Fatalf("%+v", runs)
	}
	r := runs[0]
	if r.Half <= 0 || r.Ninety < r.Half || r.Nine9 < r.Ninety || r.Slowest < r.Nine9 || r.PerRecord <= 0 || r.Peak <= 0 {
		t.Errorf("a figure is missing or out of order: %+v", r)
	}
}
