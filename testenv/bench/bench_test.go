package main

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
)

func TestValueFollowsFromSeedAndPosition(t *testing.T) {
	of := func(seed, position uint64) string { return string(value(nil, seed, position)) }
	if len(of(1, 7)) != valueSize {
		t.Errorf("%d bytes, want %d", len(of(1, 7)), valueSize)
	}
	if first, again := of(1, 7), of(1, 7); first != again {
		t.Error("one position has two values")
	}
	if of(1, 7) == of(1, 8) || of(1, 7) == of(2, 7) {
		t.Error("two positions, or seeds, have one value")
	}
}

func TestValuesCompressToHalf(t *testing.T) {
	var all []byte
	for i := range uint64(64) {
		all = append(all, value(nil, 1, i)...)
	}
	lz4, err := kgo.DefaultCompressor(kgo.Lz4Compression())
	if err != nil {
		t.Fatal(err)
	}
	out, _ := lz4.Compress(new(bytes.Buffer), all)
	if ratio := float64(len(all)) / float64(len(out)); ratio < 1.7 || ratio > 2.2 {
		t.Errorf("compressed by %.2f, want about 2", ratio)
	}
}

// TestVerifyCounts: a copy with a record twice, one missing, one with another
// value, one in another partition and a stranger.
func TestVerifyCounts(t *testing.T) {
	const partitions, n, seed = 4, 100, 3
	c := testenv.Embedded(t)
	produced := func(topic string) []*kgo.Record {
		c.CreateTopic(t, topic, partitions, 1, nil)
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := produce(t.Context(), cl, topic, partitions, n, seed); err != nil {
			t.Fatal(err)
		}
		return c.ReadAll(t, topic)
	}
	w := &world{options: options{Partitions: partitions}, cl: c.Client(t)}
	check := func(topic string, earlier map[int32]int64, early int, want count) {
		t.Helper()
		ends, err := w.endsOf(t.Context(), topic, committed)
		if err != nil || len(ends) != partitions {
			t.Fatalf("topic %s: ends %v, %v", topic, ends, err)
		}
		got, there, err := verify(t.Context(), c.Opts(), topic, earlier, ends, n, seed)
		if err != nil {
			t.Fatal(err)
		}
		if got != want || there != early {
			t.Errorf("topic %s: %+v and %d early, want %+v and %d", topic, got, there, want, early)
		}
	}
	all := produced("whole")
	check("whole", map[int32]int64{1: 2}, 2, count{})

	bad := make([]*kgo.Record, 0, n)
	for _, rec := range all {
		bad = append(bad, &kgo.Record{Topic: "bad", Partition: rec.Partition, Key: rec.Key, Value: rec.Value})
	}
	bad[10].Value = slices.Concat(bad[10].Value[:20], []byte("x"), bad[10].Value[21:])
	bad[20].Partition = (bad[20].Partition + 1) % partitions
	bad = append(bad[1:], bad[1], &kgo.Record{Topic: "bad", Key: []byte("stranger")})
	c.CreateTopic(t, "bad", partitions, 1, nil)
	c.Produce(t, bad...)
	check("bad", nil, 0, count{Missing: 3, Duplicated: 1, Changed: 3})

	// Aborted, then committed, then left open: only the second counts.
	c.CreateTopic(t, "transactions", partitions, 1, nil)
	cl := c.Client(t, kgo.TransactionalID("bench"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, end := range []func() error{
		func() error { return cl.EndTransaction(t.Context(), kgo.TryAbort) },
		func() error { return cl.EndTransaction(t.Context(), kgo.TryCommit) },
		func() error { return nil },
	} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		var recs []*kgo.Record
		for _, rec := range all {
			recs = append(recs, &kgo.Record{Topic: "transactions", Partition: rec.Partition, Key: rec.Key, Value: rec.Value})
		}
		if err := errors.Join(cl.ProduceSync(t.Context(), recs...).FirstErr(), end()); err != nil {
			t.Fatal(err)
		}
	}
	check("transactions", nil, 0, count{})
}

func TestParseStat(t *testing.T) {
	line := "4711 (a) b (c) S 17 4711 4711 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 100 1000 50"
	parent, cpu, err := parseStat([]byte(line))
	if err != nil || parent != 17 || cpu != 3*time.Second {
		t.Errorf("parent %d, %v, %v; want 17, 3s", parent, cpu, err)
	}
	if _, _, err := parseStat([]byte("1 (x) S 1")); err == nil {
		t.Error("a short line is taken")
	}
}

func TestParseBusyLeavesOutIdle(t *testing.T) {
	busy, err := parseBusy([]byte("cpu  100 1 50 99999 88888 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	if err != nil || busy != 1600*time.Millisecond {
		t.Errorf("%v, %v; want 1.6s", busy, err)
	}
}

func TestSummaryOfEachName(t *testing.T) {
	runs := []result{
		{Name: "b", PerSecond: 10, count: count{Duplicated: 1}},
		{Name: "a", PerSecond: 7},
		{Name: "b", PerSecond: 90},
		{Name: "b", PerSecond: 20, count: count{Duplicated: 2}},
		{Name: "a", PerSecond: 8},
	}
	got := summary(runs, throughput, median, mean, worst)
	want := []struct {
		name, of string
		per      float64
	}{{"b", "median", 20}, {"b", "mean", 40}, {"b", "worst", 90}, {"a", "median", 7.5}, {"a", "mean", 7.5}, {"a", "worst", 8}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if g := got[i]; g.Name != w.name || g.Of != w.of || math.Abs(g.PerSecond-w.per) > 1e-9 {
			t.Errorf("%s of %s is %v, want %+v", g.Of, g.Name, g.PerSecond, w)
		}
	}
	if got[0].Duplicated != 3 {
		t.Errorf("%d duplicates, want the sum 3", got[0].Duplicated)
	}
}

// TestRatiosPairByPair: the order within a pair changes, its ratio does not.
func TestRatiosPairByPair(t *testing.T) {
	runs := []result{
		{Name: "a", Run: 1, PerSecond: 100},
		{Name: "b", Run: 1, PerSecond: 50},
		{Name: "b", Run: 2, PerSecond: 90},
		{Name: "a", Run: 2, PerSecond: 100},
		{Name: "a", Run: 3, PerSecond: 200},
		{Name: "b", Run: 3, PerSecond: 160},
	}
	r := report{Runs: runs, figures: throughput, how: []statistic{median}, Settings: options{Runs: 3, Pairs: 3}}
	var out bytes.Buffer
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, x := range r.Ratios {
		got = append(got, x.PerSecond)
	}
	if !slices.Equal(got, []float64{0.5, 0.8, 0.9}) || r.Ratios[1].Of != "median" {
		t.Errorf("least, median, most: %v", got)
	}
	if !strings.Contains(out.String(), "| b / a | median |") {
		t.Errorf("no ratio in\n%s", &out)
	}
}

func TestSpread(t *testing.T) {
	var arrivals []arrival
	for i := range 200 {
		sent := time.Duration(i) * time.Second
		// 1 to 100 ms within the stretch from 100 s on, in a mixed order.
		arrivals = append(arrivals, arrival{sent: sent, seen: sent + time.Duration(i*7%100+1)*time.Millisecond})
	}
	var r result
	if err := r.spread(arrivals, 100*time.Second, 200*time.Second); err != nil {
		t.Fatal(err)
	}
	if r.Half != 50 || r.Ninety != 90 || r.Nine9 != 99 || r.Slowest != 100 {
		t.Errorf("%+v", r)
	}
	if err := r.spread(arrivals, time.Hour, 2*time.Hour); err == nil {
		t.Error("nothing arrived, and there is a latency")
	}
}

// TestRecovered: what was in the log before the kill is not new, whenever it
// is read, and each partition counts once.
func TestRecovered(t *testing.T) {
	ends := map[int32]int64{0: 10, 1: 20}
	arrivals := []arrival{
		{partition: 0, offset: 9, seen: 1 * time.Second},
		{partition: 1, offset: 20, seen: 2 * time.Second},
		{partition: 1, offset: 21, seen: 3 * time.Second},
	}
	if first, _, ok := recovered(arrivals, ends); ok || first != 2*time.Second {
		t.Errorf("first after %v, all there: %v", first, ok)
	}
	arrivals = append(arrivals, arrival{partition: 0, offset: 10, seen: 4 * time.Second}, arrival{partition: 0, offset: 11, seen: 5 * time.Second})
	if first, last, ok := recovered(arrivals, ends); !ok || first != 2*time.Second || last != 4*time.Second {
		t.Errorf("first after %v, last after %v, all there: %v", first, last, ok)
	}
}

func TestModesExcludeEachOther(t *testing.T) {
	good := options{Records: 1, Runs: 1, Lanes: 1, Rate: 1, Kills: 1, Codec: "lz4", Measure: time.Second}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*options){
		"latency and restart": func(o *options) { o.Latency, o.Restart = true, true },
		"pairs and restart":   func(o *options) { o.Pairs, o.Restart = 1, true },
		"restart inside":      func(o *options) { o.Restart, o.Profile = true, true },
		"no time":             func(o *options) { o.Measure = 0 },
		"no rate":             func(o *options) { o.Rate = 0 },
	} {
		bad := good
		change(&bad)
		if err := bad.check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestVerdictRefusesLossAndChange(t *testing.T) {
	for _, test := range []struct {
		result
		bad bool
	}{
		{result{}, false},
		{result{count: count{Duplicated: 5}}, false},
		{result{count: count{Duplicated: 5}, Exact: true}, true},
		{result{count: count{Missing: 1}}, true},
		{result{count: count{Changed: 1}}, true},
	} {
		r := report{Runs: []result{test.result}}
		if err := r.verdict(); (err != nil) != test.bad {
			t.Errorf("%+v: %v", test.result, err)
		}
	}
}

func TestPickRefusesUnknown(t *testing.T) {
	list, err := pick([]string{"mm2", "share"})
	if err != nil || !slices.Equal(names(list), []string{"share", "mm2"}) {
		t.Errorf("%v, %v", names(list), err)
	}
	if _, err := pick([]string{"shares"}); err == nil || !strings.Contains(err.Error(), "share, partition, exactly-once, mm2") {
		t.Errorf("%v, want the names there are", err)
	}
}
