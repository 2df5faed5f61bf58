package main

import (
	"bytes"
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
	check := func(topic string, records int64, want count) {
		t.Helper()
		ends := map[int32]int64{}
		for _, rec := range c.ReadAll(t, topic) {
			ends[rec.Partition] = rec.Offset + 1
		}
		var sum int64
		for _, end := range ends {
			sum += end
		}
		if len(ends) != partitions || sum != records {
			t.Fatalf("topic %s: %d records in %d partitions, want %d in %d", topic, sum, len(ends), records, partitions)
		}
		got, err := verify(t.Context(), c.Opts(), topic, ends, n, seed)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("topic %s: %+v, want %+v", topic, got, want)
		}
	}
	all := produced("whole")
	check("whole", n, count{})

	bad := make([]*kgo.Record, 0, n)
	for _, rec := range all {
		bad = append(bad, &kgo.Record{Topic: "bad", Partition: rec.Partition, Key: rec.Key, Value: rec.Value})
	}
	bad[10].Value = slices.Concat(bad[10].Value[:20], []byte("x"), bad[10].Value[21:])
	bad[20].Partition = (bad[20].Partition + 1) % partitions
	bad = append(bad[1:], bad[1], &kgo.Record{Topic: "bad", Key: []byte("stranger")})
	c.CreateTopic(t, "bad", partitions, 1, nil)
	c.Produce(t, bad...)
	check("bad", n+1, count{Missing: 3, Duplicated: 1, Changed: 3})
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

func TestMediansOfEachName(t *testing.T) {
	got := medians([]result{
		{Name: "b", PerSecond: 10, count: count{Duplicated: 1}},
		{Name: "a", PerSecond: 7},
		{Name: "b", PerSecond: 90},
		{Name: "b", PerSecond: 20, count: count{Duplicated: 2}},
		{Name: "a", PerSecond: 8},
	})
	if len(got) != 2 || got[0].Name != "b" || got[1].Name != "a" {
		t.Fatalf("%+v", got)
	}
	if got[0].PerSecond != 20 || math.Abs(got[1].PerSecond-7.5) > 1e-9 {
		t.Errorf("medians %v and %v, want 20 and 7.5", got[0].PerSecond, got[1].PerSecond)
	}
	if got[0].Duplicated != 3 {
		t.Errorf("%d duplicates, want the sum 3", got[0].Duplicated)
	}
}

func TestVerdictRefusesLossAndChange(t *testing.T) {
	for _, test := range []struct {
		count
		bad bool
	}{{count{}, false}, {count{Duplicated: 5}, false}, {count{Missing: 1}, true}, {count{Changed: 1}, true}} {
		r := report{Runs: []result{{Name: "share", count: test.count}}}
		if err := r.verdict(); (err != nil) != test.bad {
			t.Errorf("%+v: %v", test.count, err)
		}
	}
}

func TestPickRefusesUnknown(t *testing.T) {
	list, err := pick([]string{"mm2", "share"})
	if err != nil || !slices.Equal(names(list), []string{"share", "mm2"}) {
		t.Errorf("%v, %v", names(list), err)
	}
	if _, err := pick([]string{"shares"}); err == nil || !strings.Contains(err.Error(), "share, partition, mm2") {
		t.Errorf("%v, want the names there are", err)
	}
}
