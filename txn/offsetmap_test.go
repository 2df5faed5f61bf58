package txn

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// runOf is a run of somePartition into partition 2 of a topic.
func runOf(first, last, target int64) Run {
	return Run{somePartition, first, last, idOf(0xcc), 2, target}
}

func built(t testing.TB, runs ...Run) *MapBuilder {
	t.Helper()
	b := new(MapBuilder)
	for _, r := range runs {
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func records(t testing.TB, b *MapBuilder) [][]byte {
	t.Helper()
	recs, err := b.Records()
	if err != nil {
		t.Fatal(err)
	}
	return recs
}

func runsIn(t testing.TB, recs [][]byte) []Run {
	t.Helper()
	var out []Run
	for _, rec := range recs {
		runs, err := DecodeRuns(rec)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, runs...)
	}
	return out
}

func TestMapBuilderBreaks(t *testing.T) {
	elsewhere := func(first, last, target int64) Run {
		r := runOf(first, last, target)
		r.TargetPartition = 3
		return r
	}
	other := func(first, last, target int64) Run {
		r := runOf(first, last, target)
		r.Source.Partition++
		return r
	}
	for _, tt := range []struct {
		name      string
		add, want []Run
	}{
		{"nothing", nil, nil},
		{"one record", []Run{runOf(5, 5, 0)}, []Run{runOf(5, 5, 0)}},
		{"neighbours", []Run{runOf(5, 5, 7), runOf(6, 6, 8), runOf(7, 9, 9), runOf(10, 10, 12)}, []Run{runOf(5, 10, 7)}},
		{"a hole in the source", []Run{runOf(5, 5, 7), runOf(7, 7, 8)}, []Run{runOf(5, 5, 7), runOf(7, 7, 8)}},
		{"a hole on the target", []Run{runOf(5, 5, 7), runOf(6, 6, 9)}, []Run{runOf(5, 5, 7), runOf(6, 6, 9)}},
		{"the same hole on both", []Run{runOf(5, 5, 7), runOf(7, 7, 9)}, []Run{runOf(5, 5, 7), runOf(7, 7, 9)}},
		{"backwards", []Run{runOf(5, 5, 7), runOf(4, 4, 8), runOf(5, 5, 9)}, []Run{runOf(5, 5, 7), runOf(4, 5, 8)}},
		{"the same again", []Run{runOf(5, 5, 7), runOf(5, 5, 7)}, []Run{runOf(5, 5, 7), runOf(5, 5, 7)}},
		{
			"source partitions in turn",
			[]Run{runOf(5, 5, 7), other(5, 5, 0), runOf(6, 6, 8), other(6, 6, 1)},
			[]Run{runOf(5, 6, 7), other(5, 6, 0)},
		},
		{
			"target partitions in turn",
			[]Run{runOf(5, 5, 7), elsewhere(5, 5, 0), runOf(6, 6, 8), elsewhere(7, 7, 1)},
			[]Run{runOf(5, 6, 7), elsewhere(5, 5, 0), elsewhere(7, 7, 1)},
		},
		{"the last offsets", []Run{runOf(maxOffset, maxOffset, maxOffset)}, []Run{runOf(maxOffset, maxOffset, maxOffset)}},
	} {
		if got := runsIn(t, records(t, built(t, tt.add...))); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestMapBuilderRefuses(t *testing.T) {
	change := func(f func(*Run)) Run {
		r := runOf(5, 6, 7)
		f(&r)
		return r
	}
	for name, r := range map[string]Run{
		"negative source":         runOf(-1, 0, 0),
		"negative target":         runOf(0, 0, -1),
		"empty":                   runOf(5, 4, 0),
		"no next source offset":   runOf(5, math.MaxInt64, 0),
		"no next target offset":   runOf(5, 6, maxOffset),
		"wraps":                   runOf(0, maxOffset, 2),
		"no cluster":              change(func(r *Run) { r.Source.Cluster = "" }),
		"no topic id":             change(func(r *Run) { r.Source.TopicID = [16]byte{} }),
		"negative partition":      change(func(r *Run) { r.Source.Partition = -1 }),
		"negative target number":  change(func(r *Run) { r.TargetPartition = -1 }),
		"cluster beyond the most": change(func(r *Run) { r.Source.Cluster = strings.Repeat("x", MaxText+1) }),
	} {
		b := built(t, runOf(1, 1, 1))
		size := b.Size()
		if err := b.Add(r); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if got := runsIn(t, records(t, b)); !slices.Equal(got, []Run{runOf(1, 1, 1)}) || b.Size() != size {
			t.Errorf("%s: left %+v, size %d", name, got, b.Size())
		}
		if rec, err := encodeRuns([]Run{runOf(1, 1, 1), r}); !errors.Is(err, ErrMalformed) || rec != nil {
			t.Errorf("%s: written as %x, %v", name, rec, err)
		}
	}
}

// Runs of many transactions in one: no record is beyond the bound, none is
// far below it but the last, and Size tells what they come to.
func TestMapRecordsAreBounded(t *testing.T) {
	var want []Run
	b := new(MapBuilder)
	for i := range int64(300_000) {
		r := runOf(3*i, 3*i+1, 5*i)
		if i >= 150_000 {
			r.Source.Partition++
		}
		want = append(want, r)
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	recs := records(t, b)
	total := 0
	for i, rec := range recs {
		total += len(rec)
		if len(rec) > MaxMapRecord {
			t.Errorf("record %d has %d bytes", i, len(rec))
		}
		if i < len(recs)-1 && len(rec) < MaxMapRecord-64 {
			t.Errorf("record %d has %d bytes only", i, len(rec))
		}
	}
	if len(recs) < 4 || total < b.Size()-64 || total > b.Size()+64*len(recs) {
		t.Errorf("%d records of %d bytes, Size says %d", len(recs), total, b.Size())
	}
	if !slices.Equal(runsIn(t, recs), want) {
		t.Error("runs differ")
	}
}

func TestVarintSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Int64().Draw(t, "x")
		if got, want := varintSize(x), len(binary.AppendVarint(nil, x)); got != want {
			t.Fatalf("varintSize(%d) = %d, want %d", x, got, want)
		}
	})
}

var goldenMaps = map[string][]Run{
	"one": {runOf(300, 300, 0)},
	"two": {runOf(0, 99, 1000), runOf(101, 101, 1101), runOf(40, 41, 7)},
	"groups": {
		runOf(0, 4, 0),
		{SourcePartition{"src-1", idOf(0xaa), 6}, 0, 4, idOf(0xcc), 2, 5},
		{SourcePartition{"src-1", idOf(0xaa), 6}, 5, 5, idOf(0xcc), 1, 0},
	},
}

// Map topics hold these bytes. A change of form takes a new version and
// leaves these lines as they are.
func TestMapGolden(t *testing.T) {
	golden := readGolden(t, "testdata/map.golden")
	for name, runs := range goldenMaps {
		recs := records(t, built(t, runs...))
		if len(recs) != 1 {
			t.Fatalf("%s: %d records", name, len(recs))
		}
		want := golden[name]
		if got := hex.EncodeToString(recs[0]); !reflect.DeepEqual([]string{got}, want) {
			t.Errorf("bytes of %s differ\n got %s\nwant %s", name, got, strings.Join(want, " "))
			continue
		}
		if back := runsIn(t, [][]byte{unhex(t, want[0])}); !slices.Equal(back, runs) {
			t.Errorf("%s is read as %+v", name, back)
		}
	}
	if len(golden) != len(goldenMaps) {
		t.Errorf("%d golden lines, %d maps", len(golden), len(goldenMaps))
	}
}

func TestMapRefusesBytes(t *testing.T) {
	head := "0a" + hex.EncodeToString([]byte("src-1")) + strings.Repeat("aa", 16) + "0a" + strings.Repeat("cc", 16) + "04"
	for _, tt := range []struct {
		name, record string
		err          error
		text         string
	}{
		{"nothing", "", ErrMalformed, "version ends early"},
		{"a later version", "02" + head, ErrFutureVersion, "version 2, known up to 1"},
		{"version 0", "00" + head, ErrMalformed, "version 0"},
		{"no group", "01", ErrMalformed, "source cluster length is not a number"},
		{"no run", "01" + head + "00", ErrMalformed, "number of runs is 0"},
		{"more runs than bytes", "01" + head + "04000000", ErrMalformed, "number of runs is 2, not within 1 to 1"},
		{"too long a list to allocate", "01" + head + "feffffffffffffffff01000000", ErrMalformed, "number of runs"},
		{"negative source", "01" + head + "02010000", ErrMalformed, "distance of run is -1"},
		{"negative length", "01" + head + "02000100", ErrMalformed, "length of run is -1"},
		{"negative target", "01" + head + "02000001", ErrMalformed, "target distance of run is -1"},
		{"beyond the last offset", "01" + head + "0202fcffffffffffffffff0100", ErrMalformed, "length of run is 9223372036854775806"},
		{"target beyond the last offset", "01" + head + "020002fcffffffffffffffff01", ErrMalformed, "target distance of run is 9223372036854775806"},
		{"a number in a longer form", "01" + head + "0280000000", ErrMalformed, "distance of run is not a number"},
		{"a byte more", "01" + head + "0200000000", ErrMalformed, "source cluster is empty"},
		{"one group in two", "01" + head + "02000000" + head + "02040000", ErrMalformed, "a group was cut in two"},
		{"beyond the bound", strings.Repeat("01", MaxMapRecord+1), ErrMalformed, "262145 bytes"},
	} {
		if got, err := DecodeRuns(unhex(t, tt.record)); !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: read as %+v, %v; want %q and %v", tt.name, got, err, tt.text, tt.err)
		}
	}
	rec := records(t, built(t, goldenMaps["two"]...))[0]
	for n := range rec {
		if got, err := DecodeRuns(rec[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("cut to %d: read as %+v, %v", n, got, err)
		}
	}
}

// What was added comes back record by record, and is written the same again.
func mapRoundTrip(t *rapid.T) {
	type pair struct {
		way            way
		source, target int64
	}
	ways := []way{{drawPartition(t), idOf(1), 0}, {drawPartition(t), idOf(1), 0}, {drawPartition(t), idOf(2), 7}}
	ways[1].source = ways[0].source
	ways[1].partition = 1
	b := new(MapBuilder)
	next := make([]Run, len(ways))
	want := map[pair]int{}
	for range rapid.IntRange(0, 60).Draw(t, "adds") {
		i := rapid.IntRange(0, len(ways)-1).Draw(t, "way")
		n := &next[i]
		first := max(0, n.First+rapid.SampledFrom([]int64{0, 0, 0, 1, 90, 1 << 40, -3}).Draw(t, "hole"))
		target := n.TargetFirst + rapid.SampledFrom([]int64{0, 0, 0, 1, 1 << 40}).Draw(t, "target hole")
		length := rapid.Int64Range(0, 5).Draw(t, "length")
		r := Run{ways[i].source, first, first + length, ways[i].topicID, ways[i].partition, target}
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
		for o := range length + 1 {
			want[pair{ways[i], first + o, target + o}]++
		}
		n.First, n.TargetFirst = first+length+1, target+length+1
	}
	recs, err := b.Records()
	if err != nil {
		t.Fatal(err)
	}
	got, total := map[pair]int{}, 0
	for _, rec := range recs {
		total += len(rec)
		runs, err := DecodeRuns(rec)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			for o := r.First; o <= r.Last; o++ {
				got[pair{r.way(), o, r.TargetFirst + o - r.First}]++
			}
		}
		if again, err := encodeRuns(runs); err != nil || !bytes.Equal(again, rec) {
			t.Fatalf("%x is written as %x, %v", rec, again, err)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("added %v, got %v", want, got)
	}
	// The count of runs takes one byte of three here, in three groups at most.
	if over := b.Size() + len(recs) - total; over < 0 || over > 6 {
		t.Fatalf("Size is %d, %d records have %d bytes", b.Size(), len(recs), total)
	}
}

func TestMapRoundTrip(t *testing.T) { rapid.Check(t, mapRoundTrip) }

func FuzzMapBuilder(f *testing.F) {
	addDraws(f)
	f.Fuzz(rapid.MakeFuzz(mapRoundTrip))
}

// Whatever the bytes are, they are refused or are the only form of what they
// are read as.
func FuzzDecodeRuns(f *testing.F) {
	for _, runs := range goldenMaps {
		f.Add(records(f, built(f, runs...))[0])
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		runs, err := DecodeRuns(record)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrFutureVersion) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if again, err := encodeRuns(runs); err != nil || !bytes.Equal(again, record) {
			t.Fatalf("%x is read as %+v and written as %x, %v", record, runs, again, err)
		}
	})
}
