package testenv

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Provenance is the header with which a mirror marks a record's origin, to be
// ignored when a copy is compared with its original.
const Provenance = "onceover.source.cluster"

// Compare says what makes two records the same. The zero value wants equal
// partition, key, value, headers (order and repeats, too) and time in
// milliseconds, a null being no empty value; topic and offset never matter.
type Compare struct {
	// IgnoreHeaders are the names of headers that are left out.
	IgnoreHeaders []string
	// Unordered does not look at the order, as of a mirror that reads through
	// a share group. Default: first copies have to be in the order of the
	// originals, per partition.
	Unordered bool
}

// Difference is how what is there differs from what should be. Each list has
// one line a record, naming partition and offset.
type Difference struct {
	// Missing are not there.
	Missing []string
	// Duplicated are there more often than they should be, one line a copy
	// too many.
	Duplicated []string
	// Changed are there with another partition, key, value, header or time.
	Changed []string
	// Unexpected are there, and nothing like them should be.
	Unexpected []string
	// Misordered come after one that should follow them.
	Misordered []string
}

// String lists counts and the first few of each kind, "" when all is well.
func (d *Difference) String() string {
	var b strings.Builder
	for _, kind := range []struct {
		name  string
		lines []string
	}{
		{"missing", d.Missing},
		{"duplicated", d.Duplicated},
		{"changed", d.Changed},
		{"unexpected", d.Unexpected},
		{"out of order", d.Misordered},
	} {
		const few = 5
		if len(kind.lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%d %s\n", len(kind.lines), kind.name)
		for _, line := range kind.lines[:min(few, len(kind.lines))] {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	return b.String()
}

// AssertExactlyOnce fails the test unless got is want: every record once,
// nothing else, in order.
func AssertExactlyOnce(t T, want, got []*kgo.Record, c ...Compare) {
	t.Helper()
	if d := compareWith(c).Diff(want, got); d.String() != "" {
		t.Errorf("not exactly once: %d records wanted, %d there\n%s", len(want), len(got), d)
	}
}

// AssertAtLeastOnce is [AssertExactlyOnce], but copies may be there more than
// once.
func AssertAtLeastOnce(t T, want, got []*kgo.Record, c ...Compare) {
	t.Helper()
	d := compareWith(c).Diff(want, got)
	duplicated := len(d.Duplicated)
	d.Duplicated = nil
	if d.String() != "" {
		t.Errorf("not at least once: %d records wanted, %d there, %d of them copies too many\n%s", len(want), len(got), duplicated, d)
	}
}

func compareWith(c []Compare) Compare {
	if len(c) == 0 {
		return Compare{}
	}
	return c[0]
}

// Diff compares what should be there with what is.
func (c Compare) Diff(want, got []*kgo.Record) *Difference {
	var d Difference
	// The places in want of each identity that are still to be found. Equal
	// records stand in for each other in turn.
	open := make(map[string][]int, len(want))
	for i, r := range want {
		id := c.identity(r)
		open[id] = append(open[id], i)
	}
	last := make(map[int32]int) // per partition, the furthest place found
	var strange []*kgo.Record
	for _, r := range got {
		places, known := open[c.identity(r)]
		switch {
		case !known:
			strange = append(strange, r)
		case len(places) == 0:
			d.Duplicated = append(d.Duplicated, where(r))
		default:
			place := places[0]
			open[c.identity(r)] = places[1:]
			if l, seen := last[r.Partition]; seen && place < l && !c.Unordered {
				d.Misordered = append(d.Misordered, fmt.Sprintf("%s came after %s", where(r), where(want[l])))
			} else {
				last[r.Partition] = place
			}
		}
	}
	var missing []int
	for _, places := range open {
		missing = append(missing, places...)
	}
	slices.Sort(missing)
	c.pair(&d, want, missing, strange)
	return &d
}

// pair takes a missing and a strange record with the same value, or else the
// same key, for one that was changed.
func (c Compare) pair(d *Difference, want []*kgo.Record, missing []int, strange []*kgo.Record) {
	byPart := make(map[string][]*kgo.Record, 2*len(strange))
	parts := func(r *kgo.Record) []string { return []string{"v" + string(r.Value), "k" + string(r.Key)} }
	for _, r := range strange {
		for _, p := range parts(r) {
			byPart[p] = append(byPart[p], r)
		}
	}
	taken := make(map[*kgo.Record]bool, len(strange))
	for _, i := range missing {
		w := want[i]
		var match *kgo.Record
		for _, p := range parts(w) {
			if len(p) == 1 {
				continue // null or empty says nothing
			}
			for len(byPart[p]) > 0 && taken[byPart[p][0]] {
				byPart[p] = byPart[p][1:]
			}
			if match == nil && len(byPart[p]) > 0 {
				match = byPart[p][0]
			}
		}
		if match == nil {
			d.Missing = append(d.Missing, where(w))
			continue
		}
		taken[match] = true
		d.Changed = append(d.Changed, fmt.Sprintf("%s: %s", where(match), c.changes(w, match)))
	}
	for _, r := range strange {
		if !taken[r] {
			d.Unexpected = append(d.Unexpected, where(r))
		}
	}
}

func (c Compare) changes(w, g *kgo.Record) string {
	var out []string
	add := func(what string, w, g any) {
		if a, b := fmt.Sprint(w), fmt.Sprint(g); a != b {
			out = append(out, fmt.Sprintf("%s %s instead of %s", what, b, a))
		}
	}
	add("partition", w.Partition, g.Partition)
	add("key", show(w.Key), show(g.Key))
	add("value", show(w.Value), show(g.Value))
	add("headers", c.headers(w), c.headers(g))
	add("time", w.Timestamp.UnixMilli(), g.Timestamp.UnixMilli())
	return strings.Join(out, ", ")
}

func (c Compare) headers(r *kgo.Record) string {
	var out []string
	for _, h := range r.Headers {
		if !slices.Contains(c.IgnoreHeaders, h.Key) {
			out = append(out, fmt.Sprintf("%q=%s", h.Key, show(h.Value)))
		}
	}
	return "[" + strings.Join(out, " ") + "]"
}

func where(r *kgo.Record) string {
	return fmt.Sprintf("%s/%d@%d key %s value %s", r.Topic, r.Partition, r.Offset, show(r.Key), show(r.Value))
}

func show(b []byte) string {
	const most = 40
	switch {
	case b == nil:
		return "null"
	case len(b) > most:
		return fmt.Sprintf("%q... (%d bytes)", b[:most], len(b))
	default:
		return fmt.Sprintf("%q", b)
	}
}

// identity encodes all that makes two records the same; lengths keep fields
// apart, -1 is null.
func (c Compare) identity(r *kgo.Record) string {
	var b bytes.Buffer
	num := func(n int64) { b.Write(binary.AppendVarint(nil, n)) }
	field := func(p []byte) {
		if p == nil {
			num(-1)
			return
		}
		num(int64(len(p)))
		b.Write(p)
	}
	num(int64(r.Partition))
	num(r.Timestamp.UnixMilli())
	field(r.Key)
	field(r.Value)
	for _, h := range r.Headers {
		if !slices.Contains(c.IgnoreHeaders, h.Key) {
			field([]byte(h.Key))
			field(h.Value)
		}
	}
	return b.String()
}
