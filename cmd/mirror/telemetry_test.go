package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/onceover-mirror/onceover/mirror"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it), got:\n%s", path, got)
	}
}

// sampleNow is the time of the samples.
var sampleNow = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// sampleState has one of everything.
func sampleState() mirror.State {
	since := func(d time.Duration) time.Time { return sampleNow.Add(-d) }
	return mirror.State{Started: since(26*time.Hour + 3*time.Minute), Flows: []mirror.FlowState{
		{
			Name: "east-to-west", From: "east", To: "west", Phase: mirror.FlowRunning,
			Guarantee: "at-least-once", Reader: "share", Order: "not kept", Why: "the source has share groups and nothing needs order",
			Lanes: 2, Records: 12_345_678, Bytes: 9_876_543_210, Skipped: 3, Echoed: 42, RefusedAcks: 7, Retries: 1,
			Topics: []mirror.TopicState{
				{Topic: "orders", Target: "east.orders", Ready: true},
				{Topic: "secret", Target: "east.secret", Reason: "not permitted: READ on east", Hint: "grant READ on TOPIC secret"},
			},
			Partitions: []mirror.PartitionState{
				{Topic: "orders", Partition: 0, Target: "east.orders", Phase: mirror.PartitionIdle, Since: since(time.Hour), Records: 6_000_000, Bytes: 5_000_000_000, EndOffset: 6_000_100},
				{Topic: "orders", Partition: 1, Target: "east.orders", Phase: mirror.PartitionCopying, Since: since(12 * time.Second), Records: 6_345_678, Bytes: 4_876_543_210, Lag: 1234, LagSeconds: 1.5, EndOffset: 7_000_000},
				{Topic: "orders", Partition: 2, Target: "east.orders", Phase: mirror.PartitionStalled, Since: since(95 * time.Second), Reason: "records wait and nothing moves", Hint: "see the source's group", Lag: 50_000, LagSeconds: 140, EndOffset: 50_000},
				{Topic: "payments", Partition: 0, Target: "east.payments", Phase: mirror.PartitionStopped, Since: since(2 * time.Hour), Reason: "offset 17: MESSAGE_TOO_LARGE <script>alert(1)</script>", Hint: "raise max.message.bytes of east.payments", Lag: -1, LagSeconds: -1, EndOffset: -1},
			},
		},
		{
			Name: "west-to-south", From: "west", To: "south", Phase: mirror.FlowRunning,
			Guarantee: "exactly-once", Reader: "partition", Order: "per partition", Why: "both clusters can do it",
			Lanes: 3, Records: 2_000, Bytes: 1_000_000,
			Shards: &mirror.ShardState{Total: 8, Owned: []int{0, 3, 6}, Committed: 150, Aborted: 2, InDoubt: 1, Resolved: 1, Fenced: 1, LastCommit: since(4 * time.Second)},
			Topics: []mirror.TopicState{{Topic: "bookings", Target: "bookings", Ready: true}},
			Partitions: []mirror.PartitionState{
				{
					Topic: "bookings", Partition: 0, Target: "bookings", Phase: mirror.PartitionWaiting, Since: since(time.Minute), Records: 2000, Bytes: 1_000_000, Unstable: 52, EndOffset: 2000,
					Reason: "waiting for the source transaction of app-x (producer 17) since 2026-12-01T11:58:25Z", Hint: "its application ends it",
				},
			},
		},
		{Name: "west-to-north", From: "west", To: "north", Phase: mirror.FlowWaiting, Reason: "north can't be reached: connection refused", Hint: "check its bootstrap addresses"},
	}}
}

// fakeSource is a mirror that stands still.
type fakeSource struct {
	state  mirror.State
	health mirror.Health
}

func (f fakeSource) State() mirror.State   { return f.state }
func (f fakeSource) Health() mirror.Health { return f.health }

func sampleSource() fakeSource {
	return fakeSource{sampleState(), mirror.Health{Problems: []string{
		"east-to-west: payments[0]: stopped: offset 17: MESSAGE_TOO_LARGE", "west-to-north: waiting: north can't be reached",
	}, Remarks: []string{"flow west-to-south: bookings[0] is waiting for the source transaction of app-x (producer 17) since 2026-12-01T11:58:25Z"}}}
}

func samplePage(source stateSource) *page {
	return &page{source: source, instance: "mirror-0", version: "v1.2.3", rate: func(flow string) rate {
		if flow == "east-to-west" {
			return rate{12_345, 9_876_543}
		}
		return rate{}
	}}
}

func get(t *testing.T, source stateSource, method, path string) (*http.Response, string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(stateCollector{source}, buildCollector(readBuild()))
	w := httptest.NewRecorder()
	newServeMux(source, registry, samplePage(source)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(body)
}

func TestHealthAndReadiness(t *testing.T) {
	flow := func(phase mirror.FlowPhase, reason string) mirror.State {
		return mirror.State{Flows: []mirror.FlowState{{Name: "a", Phase: mirror.FlowRunning}, {Name: "b", Phase: phase, Reason: reason}}}
	}
	for _, tc := range []struct {
		name, path string
		source     fakeSource
		code       int
		problem    string
	}{
		{"healthy", "/healthz", fakeSource{health: mirror.Health{OK: true}}, 200, ""},
		{"unhealthy", "/healthz", fakeSource{health: mirror.Health{Problems: []string{"a: b stalled"}}}, 503, "a: b stalled"},
		{"nothing runs yet", "/readyz", fakeSource{}, 503, "no flow has started"},
		{"starting", "/readyz", fakeSource{state: flow(mirror.FlowStarting, "")}, 503, "flow b: starting"},
		{"running", "/readyz", fakeSource{state: flow(mirror.FlowRunning, "")}, 200, ""},
		{"waiting", "/readyz", fakeSource{state: flow(mirror.FlowWaiting, "no topic matches")}, 200, ""},
		{"stopping", "/readyz", fakeSource{state: flow(mirror.FlowStopping, "")}, 503, "flow b: stopping"},
		{"refused", "/readyz", fakeSource{state: flow(mirror.FlowStopped, "no permission")}, 503, "flow b: stopped: no permission"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, body := get(t, tc.source, http.MethodGet, tc.path)
			var h mirror.Health
			if err := json.Unmarshal([]byte(body), &h); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			if resp.StatusCode != tc.code || h.OK != (tc.code == 200) || h.Problems == nil {
				t.Errorf("code %d (want %d), body %s", resp.StatusCode, tc.code, body)
			}
			if got := strings.Join(h.Problems, "\n"); got != tc.problem {
				t.Errorf("problems %q, want %q", got, tc.problem)
			}
		})
	}
}

func TestStateAsJSON(t *testing.T) {
	resp, body := get(t, sampleSource(), http.MethodGet, "/api/v1/state")
	if got := resp.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	var s mirror.State
	if err := json.Unmarshal([]byte(body), &s); err != nil || len(s.Flows) != 3 || s.Flows[0].Partitions[1].Lag != 1234 {
		t.Errorf("%v in %s", err, body)
	}
}

func TestServerRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, tc := range []struct {
		method, path string
		code         int
	}{
		{http.MethodPost, "/api/v1/state", http.StatusMethodNotAllowed},
		{http.MethodGet, "/nothing", http.StatusNotFound},
		{http.MethodGet, "/web/page.html", http.StatusNotFound},
		{http.MethodGet, "/web/page.css", http.StatusOK},
		{http.MethodGet, "/web/page.js", http.StatusOK},
	} {
		resp, _ := get(t, sampleSource(), tc.method, tc.path)
		if resp.StatusCode != tc.code {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, resp.StatusCode, tc.code)
		}
	}
}

func TestPage(t *testing.T) {
	var whole bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&whole, "page", samplePage(sampleSource()).view(sampleNow)); err != nil {
		t.Fatal(err)
	}
	golden(t, "page.golden.html", whole.String())
	if strings.Contains(whole.String(), "<script>alert") {
		t.Error("a reason is not escaped")
	}
	if external := strings.Count(whole.String(), "://"); external != 0 {
		t.Errorf("the page names %d external addresses", external)
	}
	resp, body := get(t, sampleSource(), http.MethodGet, "/")
	if !strings.HasPrefix(body, "<!DOCTYPE html>") || resp.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("GET / is not the page: %v", resp.Header)
	}
	if _, part := get(t, sampleSource(), http.MethodGet, "/?part=live"); !strings.HasPrefix(part, `<div id="top"`) {
		t.Errorf("the live part begins with %.40q", part)
	}
}

func TestPageIsBounded(t *testing.T) {
	s := sampleState()
	for i := range 2 * pageRows {
		s.Flows[0].Partitions = append(s.Flows[0].Partitions, mirror.PartitionState{Topic: "many", Partition: int32(i), Phase: mirror.PartitionIdle})
	}
	v := samplePage(fakeSource{state: s}).view(sampleNow)
	if f := v.Flows[0]; len(f.Rows) != pageRows || f.More != len(s.Flows[0].Partitions)-pageRows {
		t.Errorf("%d rows and %d more of %d", len(f.Rows), f.More, len(s.Flows[0].Partitions))
	}
	if first := v.Flows[0].Rows[0]; first.Phase != mirror.PartitionStopped {
		t.Errorf("the first row is %s, want the stopped one", first.Phase)
	}
}

func TestMetrics(t *testing.T) {
	problems, err := testutil.CollectAndLint(stateCollector{sampleSource()})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	_, body := get(t, sampleSource(), http.MethodGet, "/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("parse metrics: %v", err)
	}
	if families["onceover_build_info"] == nil {
		t.Error("no onceover_build_info")
	}
	wantText(t, "metrics", body,
		`onceover_records_total{flow="east-to-west",partition="1",topic="orders"} 6.345678e+06`,
		`onceover_bytes_total{flow="east-to-west",partition="0",topic="orders"} 5e+09`,
		`onceover_lag_records{flow="east-to-west",partition="1",topic="orders"} 1234`,
		`onceover_lag_seconds{flow="east-to-west",partition="1",topic="orders"} 1.5`,
		`onceover_partition_state{flow="east-to-west",partition="0",state="stopped",topic="payments"} 1`,
		`onceover_flow_phase{flow="west-to-north",phase="waiting"} 1`,
		`onceover_flow_phase{flow="west-to-north",phase="running"} 0`,
		`onceover_refused_acks_total{flow="east-to-west"} 7`,
		`onceover_skipped_total{flow="east-to-west"} 3`,
		`onceover_echo_total{flow="east-to-west"} 42`,
		`onceover_retries_total{flow="east-to-west"} 1`,
		`onceover_topic_ready{flow="east-to-west",topic="secret"} 0`,
		`onceover_partition_state{flow="west-to-south",partition="0",state="waiting",topic="bookings"} 1`,
		`onceover_unstable_records{flow="west-to-south",partition="0",topic="bookings"} 52`,
		`onceover_shards_owned{flow="west-to-south"} 3`,
		`onceover_shards{flow="west-to-south"} 8`,
		`onceover_transactions_total{flow="west-to-south",outcome="committed"} 150`,
		`onceover_transactions_total{flow="west-to-south",outcome="aborted"} 2`,
		`onceover_transactions_total{flow="west-to-south",outcome="unknown"} 1`,
		`onceover_transactions_resolved_total{flow="west-to-south"} 1`,
		`onceover_fenced_total{flow="west-to-south"} 1`,
		`onceover_commit_age_seconds{flow="west-to-south"} 0`)
	if strings.Contains(body, `onceover_shards_owned{flow="east-to-west"}`) {
		t.Error("an at-least-once flow has shards")
	}
	if strings.Contains(body, `onceover_lag_records{flow="east-to-west",partition="0",topic="payments"}`) {
		t.Error("an unknown lag is exported")
	}
}

// The age of a commit counts only while there is something to commit.
func TestIdleTime(t *testing.T) {
	f := sampleState().Flows[1]
	if got := idleTime(f, sampleNow); got != 0 {
		t.Errorf("without lag: %v", got)
	}
	f.Partitions[0].Lag = 1
	if got := idleTime(f, sampleNow); got != 4*time.Second {
		t.Errorf("with lag: %v, want 4s", got)
	}
}

func TestTxnMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newTxnMetrics(registry)
	m.committed("a", 3, 100, 20*time.Millisecond)
	m.committed("a", 4, 1, 2*time.Millisecond)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		sums[f.GetName()] = f.GetMetric()[0].GetHistogram().GetSampleSum()
	}
	if sums["onceover_transaction_records"] != 101 || sums["onceover_commit_seconds"] != 0.022 {
		t.Errorf("sums %v", sums)
	}
}

// A name that is no UTF-8 is no reason for the process to end.
func TestMetricsOfOddNames(t *testing.T) {
	s := sampleState()
	s.Flows[0].Partitions[0].Topic = "\xff"
	resp, body := get(t, fakeSource{state: s}, http.MethodGet, "/metrics")
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%d: %s", resp.StatusCode, body)
	}
}
