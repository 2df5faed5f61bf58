package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/onceover-mirror/onceover/mirror"
)

func TestPatterns(t *testing.T) {
	for _, tc := range []struct {
		in   []string
		want []string
	}{
		{[]string{"orders"}, []string{"orders"}},
		{[]string{"orders, payments", "more"}, []string{"orders", "payments", "more"}},
		{[]string{"a{1,3},b"}, []string{"a{1,3}", "b"}},
		{[]string{"[a,b]x,(c|d{2,})"}, []string{"[a,b]x", "(c|d{2,})"}},
		{[]string{`a\(,b`}, []string{`a\(`, "b"}},
		{[]string{`a\`}, []string{`a\`}},
		{[]string{",,"}, nil},
	} {
		if got := patterns(tc.in); !slices.Equal(got, tc.want) {
			t.Errorf("patterns(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestParseProperties(t *testing.T) {
	got, err := parseProperties([]byte("# comment\r\n! another\n\n" +
		"a=1\nb : 2\nc 3\n  d\t=\t4  \nempty=\nalone\n" +
		"long=one, \\\n    two\\\\\nesc\\=aped\\ key=\\u00e9\\t\\:x\nlatin=\xe9\nsmile=\\uD83D\\uDE00\na=last\nend=x\\"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"a": "last", "b": "2", "c": "3", "d": "4  ", "empty": "", "alone": "",
		"long": `one, two\`, "esc=aped key": "é\t:x", "latin": "é", "smile": "😀", "end": "x",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, bad := range []string{"ok=1\nx=\\u12", "ok=1\nx=\\u00zz", "ok=1\nx=\\u"} {
		if _, err := parseProperties([]byte(bad)); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
			t.Errorf("parseProperties(%q) = %v, want an error in line 2", bad, err)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for got, want := range map[string]string{
		short(0): "0", short(950): "950", short(999.7): "1.0k", short(12_345): "12.3k", short(4_500_000): "4.5M", short(0.25): "0.2", short(123_456): "123k",
		size(0): "0 B", size(12): "12 B", size(4_500_000): "4.5 MB", size(2e15): "2.0 PB",
		count(0): "0", count(-1234): "-1,234", count(999): "999", count(1_234_567): "1,234,567",
		plural(1, "record"): "1 record", plural(2000, "record"): "2,000 records",
		span(1530 * time.Millisecond): "1.5s", span(2 * time.Second): "2s", span(95 * time.Second): "1m35s",
		span(125 * time.Minute): "2h05m", span(50 * time.Hour): "2d02h", span(-1): "unknown",
		lagText(-1): "unknown", lagTime(-1): "unknown", lagTime(0): "0s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestMeter(t *testing.T) {
	state := func(records, bytes int64) mirror.State {
		return mirror.State{Flows: []mirror.FlowState{{Name: "a", Records: records, Bytes: bytes}}}
	}
	var m meter
	if got := m.rate("a"); got != (rate{}) {
		t.Errorf("rate of nothing = %v", got)
	}
	for i := range 20 { // 100 records a second, then none for longer than the span
		m.add(sampleNow.Add(time.Duration(i)*time.Second), state(int64(100*min(i, 10)), int64(1000*min(i, 10))))
		want := rate{100, 1000}
		switch {
		case i == 0, i >= 15:
			want = rate{}
		case i > 10:
			continue // falling
		}
		if got := m.rate("a"); got != want {
			t.Errorf("second %d: rate %v, want %v", i, got, want)
		}
	}
	if len(m.samples) > 8 {
		t.Errorf("%d samples are kept", len(m.samples))
	}
}

func TestScreenKeepsLinesApart(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, err: &out, width: func() int { return 10 }}
	s.progress("0123456789abc")
	s.say("hello")
	fmt.Fprint(s, "log\n")
	s.progress("")
	want := "012345678" + "\r\x1b[K" + "hello\n" + "012345678" + "\r\x1b[K" + "log\n" + "012345678" + "\r\x1b[K"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
	out.Reset()
	s = newScreen(&out, &out) // no terminal
	s.progress("nothing")
	if out.Len() > 0 {
		t.Errorf("progress without a terminal: %q", out.String())
	}
}

func TestProgressAndFlowLine(t *testing.T) {
	w := newWatcher(nil, &meter{})
	s := sampleState()
	w.meter.add(sampleNow, mirror.State{})
	w.meter.add(sampleNow.Add(time.Second), mirror.State{Flows: []mirror.FlowState{{Name: "east-to-west", Records: 1500, Bytes: 2_000_000}}})
	want := "2 running | 1 waiting | 1.5k records/s | 2.0 MB/s | lag 51.2k+ | 3 of 8 shards | 1 partition stopped | 1 partition stalled | 1 partition waiting"
	if got := w.progress(s); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	want = "east-to-west (east -> west): at-least-once, share reader, order not kept: the source has share groups and nothing needs order"
	if got := flowLine(s.Flows[0]); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestSummary(t *testing.T) {
	s := sampleState()
	for want, flows := range map[string][]mirror.FlowState{
		"copied 12,345,678 records (9.9 GB) in 2s, skipped 3, 7 acknowledgements refused, 1 partition stopped": s.Flows[:1],
		"copied 2,000 records (1.0 MB) in 2s, 150 transactions, 2 aborted, skipped 0":                          s.Flows[1:2],
	} {
		if got := summary(total(mirror.State{Flows: flows}), 2*time.Second); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestReport(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"nothing", nil, exitOK, ""},
		{"plain", errors.New("boom"), exitFailed, "mirror: boom\n"},
		{"refusal", fmt.Errorf("start: %w", &mirror.Refusal{Flow: "a", Problem: "no permission", Hint: "grant it"}), exitFailed, "mirror: flow a: no permission\n  hint: grant it\n"},
		{"several", errors.Join(errors.New("one"), errors.New("two")), exitFailed, "mirror: one\nmirror: two\n"},
		{"usage", &usageError{problem: "bad flag", hint: "see help"}, exitUsage, "mirror: bad flag\n  hint: see help\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out strings.Builder
			if code := report(&out, tc.err); code != tc.code || out.String() != tc.want {
				t.Errorf("code %d, %q; want %d, %q", code, out.String(), tc.code, tc.want)
			}
		})
	}
}

func TestWarningsAreCountedByFlow(t *testing.T) {
	var out strings.Builder
	registry := prometheus.NewRegistry()
	logged := newLoggedCounter(registry)
	log := slog.New(counting{Handler: slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}), count: logged.count})
	log.With("flow", "a").Warn("not shown, but counted")
	log.With("flow", "a").With("lane", 1).Error("shown")
	log.Error("other", "flow", "b")
	log.Info("not counted")
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("%d lines logged, want 2:\n%s", got, out.String())
	}
	err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP onceover_errors_total Warnings and errors logged, whatever the log level, by flow and level (warn, error).
# TYPE onceover_errors_total counter
onceover_errors_total{flow="a",level="error"} 1
onceover_errors_total{flow="a",level="warn"} 1
onceover_errors_total{flow="b",level="error"} 1
`))
	if err != nil {
		t.Error(err)
	}
}
