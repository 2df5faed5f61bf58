package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/onceover-mirror/onceover/testenv"
)

func openFile(path string) (SyncWriter, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
}

func openFileSink(t *testing.T, path string, open func(string) (SyncWriter, error)) *fileSink {
	t.Helper()
	s := newFileSink(path, open)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil { //nolint:usetesting // the test's context has ended
			t.Error(err)
		}
	})
	return s
}

// readLines returns the records of a file, and the lines that are none.
func readLines(t *testing.T, path string) (recs []*kgo.Record, torn []string) {
	t.Helper()
	data, err := os.ReadFile(path) // #nosec G304 -- a file of the test
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		t.Errorf("the last line has no end: %q", data[max(0, len(data)-40):])
	}
	for text := range strings.Lines(string(data)) {
		rec, err := DecodeLine([]byte(strings.TrimSuffix(text, "\n")))
		if err != nil {
			torn = append(torn, text)
			continue
		}
		recs = append(recs, rec)
	}
	return recs, torn
}

func TestFileSink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	recs := testenv.Records("a", 2, 500, 1)
	recs = append(
		recs,
		&kgo.Record{Topic: "a", Timestamp: time.UnixMilli(-1)},
		&kgo.Record{Topic: "a", Timestamp: time.UnixMilli(0), Key: []byte{}, Value: []byte("<&>\u2028\x00\"\\\n")},
		&kgo.Record{Topic: "a", Timestamp: time.UnixMilli(math.MaxInt64), Key: []byte(`{"base64":""}`), Value: []byte{0xff, 0x00}},
		&kgo.Record{Topic: "a", Timestamp: time.UnixMilli(1), Headers: []kgo.RecordHeader{
			{Key: "b", Value: []byte{0, 0xff}}, {Key: "a"}, {Key: "b", Value: []byte{}}, {Key: "", Value: []byte("x")}, {Key: "\xff"},
		}},
	)
	for chunk := range slices.Chunk(recs, 100) { // reopened each time
		s := newFileSink(path, openFile)
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, chunk)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got, torn := readLines(t, path)
	if len(torn) > 0 {
		t.Errorf("not records: %q", torn)
	}
	testenv.AssertExactlyOnce(t, recs, got)
}

func TestLineForm(t *testing.T) {
	var b bytes.Buffer
	err := appendLine(&b, &kgo.Record{
		Topic: "orders", Partition: 3, Offset: 9, Timestamp: time.UnixMilli(1_700_000_000_123),
		Key: []byte("k<é>"), Value: []byte{0xff, 0xfe}, Headers: []kgo.RecordHeader{{Key: "n"}, {Key: "e", Value: []byte{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"topic":"orders","partition":3,"timestamp":1700000000123,"key":"k<é>","value":{"base64":"//4="},` +
		`"headers":[{"key":"n","value":null},{"key":"e","value":""}]}` + "\n"
	if b.String() != want {
		t.Errorf("\n got %s\nwant %s", b.String(), want)
	}
}

func TestLineRoundTrip(t *testing.T) {
	octets := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }))
	rapid.Check(t, func(t *rapid.T) {
		rec := &kgo.Record{
			Topic: rapid.StringMatching(`[a-zA-Z0-9._-]{1,249}`).Draw(t, "topic"), Partition: rapid.Int32Min(0).Draw(t, "partition"),
			Timestamp: time.UnixMilli(rapid.Int64Range(-1, math.MaxInt64).Draw(t, "timestamp")),
			Key:       octets.Draw(t, "key"), Value: octets.Draw(t, "value"),
		}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: string(octets.Draw(t, "name")), Value: octets.Draw(t, "header")})
		}
		var b bytes.Buffer
		if err := appendLine(&b, rec); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(b.Bytes(), []byte("\n")); n != 1 {
			t.Fatalf("%d line ends in %q", n, b.String())
		}
		got, err := DecodeLine(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
		if err != nil {
			t.Fatalf("%v: %s", err, b.String())
		}
		if d := (testenv.Compare{}).Diff([]*kgo.Record{rec}, []*kgo.Record{got}).String(); d != "" || got.Topic != rec.Topic {
			t.Fatalf("%s\n%s", d, b.String())
		}
		// No piece of a line is a line.
		if cut := rapid.IntRange(0, b.Len()-2).Draw(t, "cut"); cut > 0 {
			if _, err := DecodeLine(b.Bytes()[:cut]); err == nil {
				t.Fatalf("a piece is taken for a record: %q", b.Bytes()[:cut])
			}
		}
	})
}

func FuzzDecodeLine(f *testing.F) {
	for _, seed := range []string{
		`{"topic":"t","partition":1,"timestamp":-1,"key":null,"value":{"base64":"AA=="},"headers":[{"key":"a","value":""}]}`,
		`{"topic":"t","key":{"base64":null}}`, `{"topic":"t"}{}`, `null`, `{"topic":"t","key":{}}`, `{"topic":"t","key":1}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := DecodeLine(data)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := appendLine(&b, rec); err != nil {
			t.Fatal(err)
		}
		again, err := DecodeLine(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
		if err != nil {
			t.Fatalf("%v: %s", err, b.String())
		}
		if d := (testenv.Compare{}).Diff([]*kgo.Record{rec}, []*kgo.Record{again}).String(); d != "" {
			t.Fatal(d)
		}
	})
}

func TestDecodeLineRefuses(t *testing.T) {
	for _, bad := range []string{
		"", "null", "{}", `{"topic":""}`, `{"topic":"t"} {}`, `{"topic":"t","more":1}`, `{"topic":"t","key":{}}`,
		`{"topic":"t","key":{"base64":"?"}}`, `{"topic":"t","key":[1]}`, `{"topic":"t","partition":1.5}`,
	} {
		if rec, err := DecodeLine([]byte(bad)); err == nil {
			t.Errorf("%q gave %+v", bad, rec)
		}
	}
}

// flaky is a disk on which calls go wrong.
type flaky struct {
	rng *rand.Rand
	// fails says whether a call goes wrong.
	fails  func(call string) bool
	synced int64
}

var errDisk = errors.New("the disk is not well")

func (d *flaky) open(path string) (SyncWriter, error) {
	if d.fails("open") {
		return nil, errDisk
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600) // #nosec G304 -- a file of the test
	if err != nil {
		return nil, err
	}
	return &flakyFile{f, d}, nil
}

type flakyFile struct {
	*os.File
	disk *flaky
}

// Write writes a part when it fails, sometimes without an error.
func (f *flakyFile) Write(p []byte) (int, error) {
	if !f.disk.fails("write") {
		return f.File.Write(p)
	}
	n, err := f.File.Write(p[:f.disk.rng.IntN(len(p))])
	if err == nil && f.disk.rng.IntN(2) == 0 {
		err = errDisk
	}
	return n, err
}

// Sync loses some of what was written when it fails.
func (f *flakyFile) Sync() error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if f.disk.fails("sync") {
		if loss := info.Size() - f.disk.synced; loss > 0 {
			if err := f.Truncate(info.Size() - f.disk.rng.Int64N(loss+1)); err != nil {
				return err
			}
		}
		return errDisk
	}
	f.disk.synced = info.Size()
	return nil
}

// Call 0 goes wrong, call 1, and so on until one run needs no more: whatever
// fails, the records are there, and only a sync that lost data leaves a piece
// of a line, on a line of its own.
func TestFileSinkEachCallFails(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for bad := 0; ; bad++ {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		calls, kind := 0, ""
		d := &flaky{rng: rand.New(rand.NewPCG(seed, uint64(bad)))}
		d.fails = func(call string) bool {
			if calls++; calls-1 == bad {
				kind = call
				return true
			}
			return false
		}
		s := newFileSink(path, d.open)
		if err := s.Open(t.Context()); err != nil {
			if !errors.Is(err, errDisk) || hintOf(err) == "" {
				t.Fatal(err)
			}
			if err := s.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		recs := testenv.Records("a", 2, 50, int64(bad))
		for chunk := range slices.Chunk(recs, 10) {
			err := s.Put(t.Context(), chunk)
			for ; err != nil; err = s.Put(t.Context(), chunk) {
				if !IsRetriable(err) {
					t.Fatal(err)
				}
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, torn := readLines(t, path)
		if len(torn) > 0 && kind != "sync" {
			t.Errorf("call %d (%s) left %q", bad, kind, torn)
		}
		testenv.AssertAtLeastOnce(t, recs, got)
		if kind == "" {
			return
		}
	}
}

// Sinks of one path, as the lanes of a flow: a write of one that is cut off
// does not spoil what another writes.
func TestFileSinkShared(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	path := filepath.Join(t.TempDir(), "out.jsonl")
	d := &flaky{rng: rand.New(rand.NewPCG(seed, 0))}
	d.fails = func(call string) bool { return call == "write" && d.rng.IntN(3) == 0 } // under the file's lock
	var all []*kgo.Record
	var wg sync.WaitGroup
	for n := range 4 {
		s := openFileSink(t, path, d.open)
		recs := testenv.Records(fmt.Sprint(n), 1, 200, int64(n))
		all = append(all, recs...)
		wg.Go(func() {
			for chunk := range slices.Chunk(recs, 5) {
				for s.Put(t.Context(), chunk) != nil {
				}
			}
		})
	}
	wg.Wait()
	got, torn := readLines(t, path)
	if len(torn) > 0 {
		t.Errorf("not records: %q", torn)
	}
	testenv.AssertAtLeastOnce(t, all, got, testenv.Compare{Unordered: true})
}

// A crash leaves a piece of a line, which stays by itself. A writer that can't
// be read gets an empty line instead.
func TestFileSinkAfterCrash(t *testing.T) {
	type writeOnly struct{ SyncWriter }
	for name, open := range map[string]func(string) (SyncWriter, error){
		"readable": openFile,
		"write only": func(path string) (SyncWriter, error) {
			f, err := openFile(path)
			return writeOnly{f}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out.jsonl")
			if err := os.WriteFile(path, []byte(`{"topic":"a","par`), 0o600); err != nil {
				t.Fatal(err)
			}
			recs := testenv.Records("a", 1, 10, 2)
			mustPut(t, openFileSink(t, path, open), recs)
			got, torn := readLines(t, path)
			if len(torn) != 1 {
				t.Errorf("not records: %q", torn)
			}
			testenv.AssertExactlyOnce(t, recs, got)
		})
	}
}

func TestFileSinkEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	s := openFileSink(t, path, openFile)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, testenv.Records("a", 1, 1, 3)); !IsRetriable(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := newFileSink(filepath.Join(path, "below"), openFile).Open(t.Context()); err == nil || hintOf(err) == "" {
		t.Errorf("a path that can't be opened: %v", err)
	}
	if err := newFileSink(path, nil).Open(t.Context()); err == nil {
		t.Error("a sink without OpenFile opens")
	}
}
