package txn

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// idOf returns an id that is easily told apart in a dump.
func idOf(b byte) (id [16]byte) {
	for i := range id {
		id[i] = b
	}
	return id
}

var somePartition = SourcePartition{"src-1", idOf(0xaa), 5}

// goldenEntries has one entry of each kind, and a tombstone, by their names in
// testdata/ledger.golden.
var goldenEntries = map[string]Entry{
	"flow": {Key{Kind: KindFlow}, &Flow{
		K: 8, SourceCluster: "src-1", TargetCluster: "tgt-1", LedgerTopicID: idOf(0xbb), Fingerprint: "f00d",
		Reader: ReaderPartition, Generation: 2, Time: 1_790_000_000_000,
	}},
	"suspend":   {Key{Kind: KindSuspend}, &Suspend{Reason: "asked for", Time: 1_790_000_000_000}},
	"start":     {Key{Kind: KindStart, Source: somePartition}, &Start{Position: 300, Prior: true, Reason: "latest", Time: 1_790_000_000_000}},
	"frontier":  {Key{Kind: KindFrontier, Source: somePartition}, (*Frontier)(goldenMark())},
	"floor":     {Key{Kind: KindFloor, Source: somePartition}, goldenMark()},
	"claim":     {Key{Kind: KindClaim, Source: somePartition, Nonce: idOf(0xdd)}, goldenClaim()},
	"gap":       {Key{Kind: KindGap, Source: somePartition, First: 40}, &Gap{Last: 44, Reason: "skipped", Time: 1_790_000_000_000}},
	"tombstone": {Key{Kind: KindClaim, Source: somePartition, Nonce: idOf(0xdd)}, nil},
}

func goldenMark() *Floor {
	return &Floor{
		Next: 70_000, LeaderEpoch: -1, TargetTopicID: idOf(0xcc), TargetNext: 900, SourceTopic: "orders", TargetTopic: "east.orders",
		TxnID: "onceover.a.3", ProducerEpoch: 4, Time: 1_790_000_000_000,
	}
}

func goldenClaim() *Claim {
	return &Claim{
		Ranges: []ClaimRange{
			{Range{10, 10}, FateCopied}, {Range{11, 11}, FateDropped}, {Range{12, 500}, FateRejected}, {Range{1000, 1001}, FateGap},
		},
		TxnID: "onceover.a.w.h-0.1", ProducerID: 4_000, Epoch: 7, Generation: 1,
	}
}

// readGolden returns the fields of each line of a golden file by the first.
func readGolden(t testing.TB, path string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 0 && f[0] != "#" {
			out[f[0]] = f[1:]
		}
	}
	return out
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	if s == "null" {
		return nil
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Ledgers hold these bytes. A change of form takes a new version and leaves
// these lines as they are.
func TestLedgerGolden(t *testing.T) {
	golden := readGolden(t, "testdata/ledger.golden")
	for name, e := range goldenEntries {
		key, value, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		want := golden[name]
		got := []string{hex.EncodeToString(key), hex.EncodeToString(value)}
		if value == nil {
			got[1] = "null"
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("bytes of %s differ\n got %s\nwant %s", name, strings.Join(got, " "), strings.Join(want, " "))
			continue
		}
		if back, err := DecodeEntry(unhex(t, want[0]), unhex(t, want[1])); err != nil || !reflect.DeepEqual(back, e) {
			t.Errorf("%s is read as %+v, %v", name, back, err)
		}
	}
	if len(golden) != len(goldenEntries) {
		t.Errorf("%d golden lines, %d entries", len(golden), len(goldenEntries))
	}
}

// Cut anywhere, lengthened, or under another entry's key, no record is read.
func TestLedgerRefusesDamage(t *testing.T) {
	for name, e := range goldenEntries {
		key, value, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		refuse := func(key, value []byte, what string) {
			t.Helper()
			if got, err := DecodeEntry(key, value); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s, %s: read as %+v, %v", name, what, got, err)
			}
		}
		for n := range key {
			refuse(key[:n], value, fmt.Sprintf("key cut to %d", n))
		}
		for n := range value {
			refuse(key, value[:n], fmt.Sprintf("value cut to %d", n))
		}
		refuse(append(bytes.Clone(key), 0), value, "key with a byte more")
		if value == nil {
			continue
		}
		refuse(key, append(bytes.Clone(value), 0), "value with a byte more")
		for other, o := range goldenEntries {
			if o.Key.Kind != e.Key.Kind {
				otherKey, _, err := o.Encode()
				if err != nil {
					t.Fatal(err)
				}
				refuse(otherKey, value, "under the key of "+other)
			}
		}
	}
}

func TestLedgerRefusesBytes(t *testing.T) {
	part := "0a" + hex.EncodeToString([]byte("src-1")) + strings.Repeat("aa", 16)
	start := "0106" + part + "0a"
	claim := "010c" + part + "0a" + strings.Repeat("dd", 16)
	by := "010c" + "0278" + "00" + "00" + "02" // by x, producer 0, epoch 0, generation 1
	for _, tt := range []struct {
		name, key, value string
		err              error
		text             string
	}{
		{"key of a later version", "02ffff", "", ErrFutureVersion, "version 2, known up to 1"},
		{"key of version 255", "ff", "", ErrFutureVersion, "version 255"},
		{"key of version 0", "0002", "", ErrMalformed, "version 0"},
		{"key of a later kind", "0110", "", ErrUnknownKind, "kind 8"},
		{"key of kind 0", "0100", "", ErrUnknownKind, "kind 0"},
		{"key of a negative kind", "0101", "", ErrUnknownKind, "kind -1"},
		{"kind beyond a byte", "018002", "", ErrMalformed, "kind is 128"},
		{"no key", "", "", ErrMalformed, "version ends early"},
		{"kind in a longer form", "018200", "", ErrMalformed, "kind is not a number"},
		{"no source cluster", "010600" + strings.Repeat("aa", 16) + "0a", "", ErrMalformed, "source cluster is empty"},
		{"no source topic id", "01060278" + strings.Repeat("00", 16) + "0a", "", ErrMalformed, "source topic id is empty"},
		{"negative partition", "0106" + part + "01", "", ErrMalformed, "source partition is -1"},
		{"partition beyond 31 bits", "0106" + part + "8080808010", "", ErrMalformed, "source partition is 2147483648"},
		{"length beyond the bytes", "0106c03e", "", ErrMalformed, "source cluster ends early"},
		{"length beyond the bound", "0106ffffffffffffffffff01", "", ErrMalformed, "source cluster length is -9223372036854775808"},
		{"length above the bound", "01068240" + strings.Repeat("61", 4097), "", ErrMalformed, "source cluster length is 4097"},
		{"empty value", start, "", ErrMalformed, "version ends early"},
		{"value of a later version", start, "03", ErrFutureVersion, "version 3"},
		{"value of a later kind", start, "0112", ErrUnknownKind, "kind 9"},
		{"value of another kind", start, "0108", ErrMalformed, "a value of frontier"},
		{"negative position", start, "0106010000", ErrMalformed, "position is -1"},
		{"position without a next one", start, "0106feffffffffffffffff010000", ErrMalformed, "position is 9223372036854775807"},
		{"number beyond 64 bits", start, "0106ffffffffffffffffff020000", ErrMalformed, "position is not a number"},
		{"no range", claim, by + "00", ErrMalformed, "number of ranges is 0"},
		{"more ranges than bytes", claim, by + "04" + "000002", ErrMalformed, "number of ranges is 2, not within 1 to 1"},
		{"a list too long to allocate", claim, by + "feffffffffffffffff01" + "000002", ErrMalformed, "number of ranges"},
		{"ranges that overlap", claim, by + "04" + "000002" + "010002", ErrMalformed, "distance of range is -1"},
		{"a range that ends before it begins", claim, by + "02" + "000102", ErrMalformed, "length of range is -1"},
		{"a later fate", claim, by + "02" + "00000a", ErrMalformed, "fate is 5"},
		{"no fate", claim, by + "02" + "000000", ErrMalformed, "fate is 0"},
		{"a flag that is neither", start, "0106000400", ErrMalformed, "prior is 2"},
		{"generation 0", claim, "010c" + "0278" + "000000" + "02000002", ErrMalformed, "generation is 0"},
	} {
		got, err := DecodeEntry(unhex(t, tt.key), unhex(t, tt.value))
		if !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: read as %+v, %v; want %q and %v", tt.name, got, err, tt.text, tt.err)
		}
	}
}

// What could not be read again is not written.
func TestLedgerRefusesToWrite(t *testing.T) {
	key := Key{Kind: KindClaim, Source: somePartition, Nonce: idOf(1)}
	claimOf := func(rs ...ClaimRange) Entry {
		m := goldenClaim()
		m.Ranges = rs
		return Entry{key, m}
	}
	frontier := func(change func(*Frontier)) Entry {
		f := (*Frontier)(goldenMark())
		change(f)
		return Entry{Key{Kind: KindFrontier, Source: somePartition}, f}
	}
	for name, e := range map[string]Entry{
		"no kind":                   {Key{}, nil},
		"unknown kind":              {Key{Kind: lastKind + 1}, nil},
		"flow with a partition":     {Key{Kind: KindFlow, Source: somePartition}, nil},
		"start with a first":        {Key{Kind: KindStart, Source: somePartition, First: 1}, nil},
		"start with a nonce":        {Key{Kind: KindStart, Source: somePartition, Nonce: idOf(1)}, nil},
		"start without partition":   {Key{Kind: KindStart}, nil},
		"no topic id":               {Key{Kind: KindStart, Source: SourcePartition{Cluster: "c"}}, nil},
		"value of another kind":     {Key{Kind: KindFlow}, &Start{}},
		"flow without shards":       {Key{Kind: KindFlow}, &Flow{SourceCluster: "a", TargetCluster: "b", Fingerprint: "f", Reader: ReaderShare, Generation: 1}},
		"flow without reader":       {Key{Kind: KindFlow}, &Flow{K: 1, SourceCluster: "a", TargetCluster: "b", Fingerprint: "f", Generation: 1}},
		"negative next":             frontier(func(f *Frontier) { f.Next = -1 }),
		"leader epoch -2":           frontier(func(f *Frontier) { f.LeaderEpoch = -2 }),
		"no transactional id":       frontier(func(f *Frontier) { f.TxnID = "" }),
		"a name beyond the bound":   frontier(func(f *Frontier) { f.SourceTopic = strings.Repeat("x", MaxText+1) }),
		"no ranges":                 claimOf(),
		"ranges out of order":       claimOf(ClaimRange{Range{5, 6}, FateCopied}, ClaimRange{Range{3, 3}, FateCopied}),
		"ranges that overlap":       claimOf(ClaimRange{Range{5, 6}, FateCopied}, ClaimRange{Range{6, 7}, FateCopied}),
		"no fate":                   claimOf(ClaimRange{Range{5, 6}, 0}),
		"a difference that wraps":   claimOf(ClaimRange{Range{5, 6}, FateCopied}, ClaimRange{Range{math.MinInt64, 7}, FateCopied}),
		"a length that wraps":       claimOf(ClaimRange{Range{5, math.MinInt64}, FateCopied}),
		"a range without a next":    claimOf(ClaimRange{Range{5, math.MaxInt64}, FateCopied}),
		"more ranges than the most": claimOf(make([]ClaimRange, MaxClaimRanges+1)...),
	} {
		if k, v, err := e.Encode(); !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknownKind) || k != nil || v != nil {
			t.Errorf("%s: written as %x %x, %v", name, k, v, err)
		}
	}
}

func drawPartition(t *rapid.T) SourcePartition {
	return SourcePartition{
		Cluster:   rapid.StringN(1, 30, MaxText).Draw(t, "cluster"),
		TopicID:   [16]byte(rapid.SliceOfN(rapid.ByteRange(1, 255), 16, 16).Draw(t, "topic id")),
		Partition: rapid.Int32Range(0, math.MaxInt32).Draw(t, "partition"),
	}
}

func drawEntry(t *rapid.T) Entry {
	id := func(name string) [16]byte { return [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)) }
	name := func(what string) string { return rapid.StringN(1, 40, MaxText).Draw(t, what) }
	e := Entry{Key: Key{Kind: rapid.Custom(func(t *rapid.T) Kind { return Kind(rapid.Int8Range(1, int8(lastKind)).Draw(t, "kind")) }).Draw(t, "kind")}}
	now := rapid.Int64Range(0, math.MaxInt64).Draw(t, "time")
	offset := rapid.Int64Range(0, maxOffset)
	if e.Key.Kind != KindFlow && e.Key.Kind != KindSuspend {
		e.Key.Source = drawPartition(t)
	}
	switch e.Key.Kind {
	case KindFlow:
		e.Value = &Flow{
			K: rapid.Int32Range(1, math.MaxInt32).Draw(t, "k"), SourceCluster: name("source"), TargetCluster: name("target"),
			LedgerTopicID: id("ledger"), Fingerprint: name("fingerprint"), Reader: rapid.SampledFrom([]Reader{ReaderPartition, ReaderShare}).Draw(t, "reader"),
			Generation: rapid.Int64Range(1, math.MaxInt64).Draw(t, "generation"), Time: now,
		}
	case KindSuspend:
		e.Value = &Suspend{Reason: rapid.String().Draw(t, "reason"), Time: now}
	case KindStart:
		e.Value = &Start{Position: offset.Draw(t, "position"), Prior: rapid.Bool().Draw(t, "prior"), Reason: rapid.String().Draw(t, "reason"), Time: now}
	case KindFrontier, KindFloor:
		f := &Frontier{
			Next: offset.Draw(t, "next"), LeaderEpoch: rapid.Int32Range(-1, math.MaxInt32).Draw(t, "leader epoch"),
			TargetTopicID: id("target topic"), TargetNext: rapid.Int64Range(-1, maxOffset).Draw(t, "target next"), SourceTopic: name("source topic"), TargetTopic: name("target topic"),
			TxnID: name("txn"), ProducerEpoch: rapid.Int16Range(0, math.MaxInt16).Draw(t, "epoch"), Time: now,
		}
		e.Value = f
		if e.Key.Kind == KindFloor {
			e.Value = (*Floor)(f)
		}
	case KindClaim:
		e.Key.Nonce = id("nonce")
		m := &Claim{
			TxnID: name("txn"), ProducerID: rapid.Int64Range(0, math.MaxInt64).Draw(t, "producer"),
			Epoch: rapid.Int16Range(0, math.MaxInt16).Draw(t, "epoch"), Generation: rapid.Int64Range(1, math.MaxInt64).Draw(t, "generation"),
		}
		next := int64(0)
		for range rapid.IntRange(1, 8).Draw(t, "ranges") {
			first := rapid.Int64Range(next, next+(maxOffset-next)/2).Draw(t, "first")
			last := rapid.Int64Range(first, first+(maxOffset-first)/2).Draw(t, "last")
			m.Ranges = append(m.Ranges, ClaimRange{Range{first, last}, Fate(rapid.Int8Range(1, int8(FateGap)).Draw(t, "fate"))})
			next = last + 1
		}
		e.Value = m
	case KindGap:
		e.Key.First = offset.Draw(t, "first")
		e.Value = &Gap{Last: offset.Draw(t, "last"), Reason: rapid.String().Draw(t, "reason"), Time: now}
	}
	if rapid.IntRange(0, 9).Draw(t, "tombstone") == 0 {
		e.Value = nil
	}
	return e
}

// What is written is read as it was, and written the same again.
func ledgerRoundTrip(t *rapid.T) {
	e := drawEntry(t)
	key, value, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeEntry(key, value)
	if err != nil || !reflect.DeepEqual(back, e) {
		t.Fatalf("%+v is read as %+v, %v", e, back, err)
	}
	k, v, err := back.Encode()
	if err != nil || !bytes.Equal(k, key) || !bytes.Equal(v, value) {
		t.Fatalf("%+v is written as %x %x, then as %x %x, %v", e, key, value, k, v, err)
	}
}

func TestLedgerRoundTrip(t *testing.T) { rapid.Check(t, ledgerRoundTrip) }

func FuzzEncodeEntry(f *testing.F) {
	addDraws(f)
	f.Fuzz(rapid.MakeFuzz(ledgerRoundTrip))
}

// addDraws gives a property enough to draw from: on shorter inputs it ends
// before it has tested anything.
func addDraws(f *testing.F) {
	for seed := range byte(8) {
		draws := make([]byte, 8<<10)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(draws) // never an error
		f.Add(draws)
	}
}

// Whatever the bytes are, they are refused or are the only form of what they
// are read as.
func FuzzDecodeEntry(f *testing.F) {
	for _, e := range goldenEntries {
		key, value, err := e.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		e, err := DecodeEntry(key, value)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrFutureVersion) && !errors.Is(err, ErrUnknownKind) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		k, v, err := e.Encode()
		if err != nil || !bytes.Equal(k, key) || !bytes.Equal(v, value) {
			t.Fatalf("%x %x is read as %+v and written as %x %x, %v", key, value, e, k, v, err)
		}
	})
}
