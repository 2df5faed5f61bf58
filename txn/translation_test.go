package txn

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestTranslate(t *testing.T) {
	at := func(o int64) *int64 { return &o }
	// Source 10 to 19 at 100, then a transaction's marker at 110; 20 and 21
	// were dropped; 22 to 24 at 111.
	ordered := []Run{runOf(22, 24, 111), runOf(10, 19, 100)}
	// Two share workers: 10 to 14 stand behind 15 to 19.
	share := []Run{runOf(15, 19, 100), runOf(10, 14, 106), runOf(20, 20, 112)}
	elsewhere := []Run{runOf(10, 10, 0), runOf(11, 11, 0)}
	elsewhere[1].TargetPartition++
	recreated := []Run{runOf(10, 10, 0), runOf(11, 11, 1)}
	recreated[1].TargetTopicID = idOf(9)

	for _, tt := range []struct {
		name     string
		m        Mapping
		position int64
		offset   int64
		label    string
	}{
		{"the very record", Mapping{Runs: ordered, Frontier: 25}, 13, 103, "exact"},
		{"the first", Mapping{Runs: ordered, Frontier: 25}, 10, 100, "exact"},
		{"a hole: the next mirrored", Mapping{Runs: ordered, Frontier: 25}, 20, 111, "exact"},
		{"the last", Mapping{Runs: ordered, Frontier: 25}, 24, 113, "exact"},
		{"all read", Mapping{Runs: ordered, Frontier: 25}, 25, 114, "exact"},
		{"all read, holes at the end", Mapping{Runs: ordered, Frontier: 30}, 28, 114, "exact"},
		{"at the frontier", Mapping{Runs: ordered, Frontier: 30}, 30, 114, "exact"},
		{"beyond the frontier", Mapping{Runs: ordered, Frontier: 25}, 32, 114, "early by 7"},
		{"below the first, log start", Mapping{Runs: ordered, Frontier: 25, TargetLogStart: 40}, 9, 40, "below 10, the first record in the offset map"},
		{"below the first, other start", Mapping{Runs: ordered, Frontier: 25, TargetLogStart: 40, Start: at(8)}, 9, 40, "below 10, the first record in the offset map"},
		{"below the first ever", Mapping{Runs: ordered, Frontier: 25, TargetLogStart: 40, Start: at(10)}, 9, 100, "below 10, the first record ever mirrored"},
		{"at the first ever", Mapping{Runs: ordered, Frontier: 25, TargetLogStart: 40, Start: at(10)}, 10, 100, "exact"},
		{"gone from the target", Mapping{Runs: ordered, Frontier: 25, TargetLogStart: 105}, 13, 105, "offset 103 is below the target's log start"},
		{"the first left on the target", Mapping{Runs: ordered, Frontier: 25, TargetLogStart: 105}, 15, 105, "exact"},
		{"first ever, gone from the target", Mapping{Runs: ordered, Frontier: 25, TargetLogStart: 105, Start: at(10)}, 9, 105, "offset 100 is below the target's log start"},
		{"share, others first", Mapping{Runs: share, Frontier: 21}, 12, 100, "early by 2"},
		{"share, all behind", Mapping{Runs: share, Frontier: 21}, 15, 100, "early by 5"},
		{"share, in the middle", Mapping{Runs: share, Frontier: 21}, 17, 102, "early by 5"},
		{"share, order regained", Mapping{Runs: share, Frontier: 21}, 20, 112, "exact"},
		{"share, the floor is behind", Mapping{Runs: share, Frontier: 15}, 20, 112, "exact"},
		{"share, a hole above the floor", Mapping{Runs: share[:2], Frontier: 5}, 20, 111, "early by 5"},
		{"no run", Mapping{Frontier: 25, Start: at(0)}, 0, -1, "unknown: no record of the partition is in the offset map"},
		{"no position", Mapping{Runs: ordered, Frontier: 25}, -1, -1, "unknown: the group has no position"},
		{"two target partitions", Mapping{Runs: elsewhere, Frontier: 12}, 10, -1, "unknown: records of the partition go to more than one target partition"},
		{"two target topics", Mapping{Runs: recreated, Frontier: 12}, 10, -1, "unknown: records of the partition go to more than one target partition"},
		{"the last offsets", Mapping{Runs: []Run{runOf(maxOffset, maxOffset, maxOffset)}, Frontier: maxOffset}, math.MaxInt64, math.MaxInt64, "exact"},
	} {
		got := tt.m.Translate(tt.position)
		if got.Offset != tt.offset || got.String() != tt.label {
			t.Errorf("%s: %d is %d, %s; want %d, %s", tt.name, tt.position, got.Offset, got, tt.offset, tt.label)
		}
	}
}

// world is what happened to a source partition, record by record.
type world struct {
	target   map[int64]int64 // target offset by source offset
	frontier int64           // every offset below it is settled
	first    int64           // first source offset mirrored
	recs     [][]byte        // the map records, one or more a transaction
}

// drawWorld mirrors a partition in transactions, with holes on both sides.
// Share workers take offsets out of order and may leave some for later.
func drawWorld(t *rapid.T, share bool) world {
	w := world{target: map[int64]int64{}, first: math.MaxInt64}
	start := rapid.Int64Range(0, 20).Draw(t, "start")
	n := rapid.Int64Range(1, 40).Draw(t, "n")
	var queue []int64
	for o := start; o < start+n; o++ {
		queue = append(queue, o)
	}
	settled := map[int64]bool{}
	target := rapid.Int64Range(0, 100).Draw(t, "target")
	for len(queue) > 0 {
		var b MapBuilder
		for range min(len(queue), rapid.IntRange(1, 8).Draw(t, "transaction")) {
			i := 0
			if share {
				i = rapid.IntRange(0, min(len(queue)-1, 9)).Draw(t, "taken")
			}
			o := queue[i]
			queue = append(queue[:i:i], queue[i+1:]...)
			if share && rapid.IntRange(0, 9).Draw(t, "later") == 0 {
				continue
			}
			settled[o] = true
			if rapid.IntRange(0, 4).Draw(t, "hole") == 0 {
				continue
			}
			w.target[o] = target
			w.first = min(w.first, o)
			if err := b.Add(runOf(o, o, target)); err != nil {
				t.Fatal(err)
			}
			target++
		}
		target++ // the marker
		recs, err := b.Records()
		if err != nil {
			t.Fatal(err)
		}
		w.recs = append(w.recs, recs...)
	}
	for w.frontier = start; settled[w.frontier]; {
		w.frontier++
	}
	return w
}

// The answers are those of looking at each record: nothing unread is missed,
// no later answer would do, and what comes again is counted.
func TestTranslateAgainstRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Bool().Draw(t, "share")
		w := drawWorld(t, share)
		m := Mapping{Frontier: w.frontier}
		for _, rec := range rapid.Permutation(w.recs).Draw(t, "records") {
			runs, err := DecodeRuns(rec)
			if err != nil {
				t.Fatal(err)
			}
			m.Runs = append(m.Runs, runs...)
		}
		for position := int64(0); position < 70; position++ {
			got := m.Translate(position)
			if len(w.target) == 0 {
				if got.Label != LabelUnknown || got.Offset != -1 {
					t.Fatalf("%d is %+v without any record", position, got)
				}
				continue
			}
			if position < w.first {
				if got.Label != LabelBelowFirst || got.Offset != 0 {
					t.Fatalf("%d is %+v, below the first", position, got)
				}
				first := w.first
				ever := m
				ever.Start = &first
				if got = ever.Translate(position); got.Label != LabelBelowFirst {
					t.Fatalf("%d is %+v, below the first ever", position, got)
				}
			}
			want, end := int64(math.MaxInt64), int64(0)
			for source, target := range w.target {
				if source >= position {
					want = min(want, target)
				}
				end = max(end, target+1)
			}
			want = min(want, end)
			if got.Offset != want {
				t.Fatalf("%d is %+v, want %d in %v", position, got, want, w.target)
			}
			again := int64(0)
			for o := range position {
				target, mirrored := w.target[o]
				if mirrored && target >= want || !mirrored && o >= w.frontier {
					again++
				}
			}
			if position >= w.first && (got.Early != again || (got.Label == LabelExact) != (again == 0)) {
				t.Fatalf("%d is %+v, %d come again, frontier %d of %v", position, got, again, w.frontier, w.target)
			}
			if share {
				continue
			}
			// In order, it is the very record or the next one mirrored.
			for o := position; o < w.frontier; o++ {
				if target, ok := w.target[o]; ok {
					if position >= w.first && got != (Translation{Offset: target, Label: LabelExact}) {
						t.Fatalf("%d is %+v, want %d at %d", position, got, o, target)
					}
					break
				}
			}
		}
	})
}
