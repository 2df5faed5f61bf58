package transform_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/onceover-mirror/onceover/transform"
)

func marks(rec *kgo.Record) []string {
	var ids []string
	for _, h := range rec.Headers {
		if h.Key == transform.ProvenanceHeader {
			ids = append(ids, string(h.Value))
		}
	}
	return ids
}

func TestProvenance(t *testing.T) {
	mark := func(id string) kgo.RecordHeader {
		return kgo.RecordHeader{Key: transform.ProvenanceHeader, Value: []byte(id)}
	}
	other := kgo.RecordHeader{Key: "other", Value: []byte("B")}
	for _, tc := range []struct {
		name    string
		headers []kgo.RecordHeader
		want    []kgo.RecordHeader // nil: dropped
	}{
		{"no headers", nil, []kgo.RecordHeader{mark("A")}},
		{"another header", []kgo.RecordHeader{other}, []kgo.RecordHeader{other, mark("A")}},
		{"comes from the target", []kgo.RecordHeader{other, mark("B")}, nil},
		{"was at the target on its way", []kgo.RecordHeader{mark("C"), mark("B")}, nil},
		{"origin stays", []kgo.RecordHeader{mark("C")}, []kgo.RecordHeader{mark("C"), mark("A")}},
		{"marked already", []kgo.RecordHeader{mark("A"), other}, []kgo.RecordHeader{mark("A"), other}},
		{"empty mark", []kgo.RecordHeader{{Key: transform.ProvenanceHeader}}, []kgo.RecordHeader{{Key: transform.ProvenanceHeader}, mark("A")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec, verdict, reason := transform.Provenance("A", "B").Apply(&kgo.Record{Topic: "t", Headers: tc.headers})
			switch {
			case tc.want == nil:
				if verdict != transform.Drop || rec != nil || reason == "" {
					t.Errorf("got %v, %v, %q", rec, verdict, reason)
				}
			case verdict != transform.Keep || reason != "" || fmt.Sprint(rec.Headers) != fmt.Sprint(tc.want):
				t.Errorf("got %v %q %v, want %v", verdict, reason, rec.Headers, tc.want)
			}
		})
	}
}

// Case 57: whatever the clusters and flows, mirroring under unchanged names
// comes to rest, and each cluster that can be reached has each record.
func TestCase57NoEchoes(t *testing.T) {
	for name, flows := range map[string][]string{
		"two ways":                     {"AB", "BA"},
		"ring of three":                {"AB", "BC", "CA"},
		"ring of three, the other way": {"AC", "CB", "BA"},
		"into a pair":                  {"AB", "BC", "CB"},
		"star, both ways":              {"AB", "BA", "AC", "CA", "AD", "DA"},
		"all to all":                   {"AB", "BA", "AC", "CA", "BC", "CB"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, foreign := range []string{"", "X"} { // a record that carries a mark of elsewhere
				first := &kgo.Record{Topic: "d8", Value: []byte("v")}
				if foreign != "" {
					first.Headers = []kgo.RecordHeader{{Key: transform.ProvenanceHeader, Value: []byte(foreign)}}
				}
				at := map[string][]*kgo.Record{"A": {first}}
				moved := [][2]any{{"A", first}}
				for steps := 0; len(moved) > 0; steps++ {
					if steps > 100 {
						t.Fatalf("no rest: %d copies at A", len(at["A"]))
					}
					here, rec := moved[0][0].(string), moved[0][1].(*kgo.Record)
					moved = moved[1:]
					for _, f := range flows {
						if f[:1] != here {
							continue
						}
						out, verdict, _ := transform.Provenance(f[:1], f[1:]).Apply(rec)
						if verdict == transform.Keep {
							at[f[1:]] = append(at[f[1:]], out)
							moved = append(moved, [2]any{f[1:], out})
						}
					}
				}
				if len(at["A"]) != 1 {
					t.Errorf("%d copies where it was produced: %v", len(at["A"]), at["A"])
				}
				for _, f := range flows {
					if len(at[f[1:]]) == 0 {
						t.Errorf("nothing at %s", f[1:])
					}
				}
				for _, rec := range at["B"] {
					if want := strings.TrimSpace(foreign + " A"); !strings.HasPrefix(strings.Join(marks(rec), " "), want) {
						t.Errorf("the origin is lost: %v", marks(rec))
					}
				}
			}
		})
	}
}

func TestRename(t *testing.T) {
	prefix := transform.Rename(func(topic string) string {
		if topic == "nowhere" {
			return ""
		}
		return "east." + topic
	})
	out, verdict, _ := prefix.Apply(&kgo.Record{Topic: "orders", Partition: 3})
	if verdict != transform.Keep || out.Topic != "east.orders" || out.Partition != 3 {
		t.Errorf("got %v %v", verdict, out)
	}
	if out, verdict, reason := prefix.Apply(&kgo.Record{Topic: "nowhere"}); verdict != transform.Reject || out != nil || reason == "" {
		t.Errorf("got %v, %v, %q", out, verdict, reason)
	}
}

type stop struct{ verdict transform.Verdict }

func (s stop) Apply(*kgo.Record) (*kgo.Record, transform.Verdict, string) {
	return nil, s.verdict, "stopped"
}

func TestChainEnds(t *testing.T) {
	never := transform.Rename(func(string) string { t.Error("called after the end"); return "" })
	for _, v := range []transform.Verdict{transform.Drop, transform.Reject} {
		out, verdict, reason := transform.Chain{stop{v}, never}.Apply(&kgo.Record{})
		if out != nil || verdict != v || reason != "stopped" {
			t.Errorf("got %v, %v, %q", out, verdict, reason)
		}
	}
	if got := fmt.Sprint(transform.Keep, transform.Drop, transform.Reject); got != "keep drop reject" {
		t.Error(got)
	}
}

func record(t *rapid.T) *kgo.Record {
	octets := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte()))
	name := rapid.OneOf(rapid.Just(transform.ProvenanceHeader), rapid.String())
	value := rapid.OneOf(rapid.SampledFrom([][]byte{[]byte("A"), []byte("B"), []byte("C"), nil}), octets)
	headers := make([]kgo.RecordHeader, 0, rapid.IntRange(0, 8).Draw(t, "room"))
	for range rapid.IntRange(0, 5).Draw(t, "headers") {
		headers = append(headers, kgo.RecordHeader{Key: name.Draw(t, "name"), Value: value.Draw(t, "value")})
	}
	return &kgo.Record{
		Topic: rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "topic"), Partition: rapid.Int32Min(0).Draw(t, "partition"),
		Key: octets.Draw(t, "key"), Value: octets.Draw(t, "value"), Headers: headers,
		Timestamp: time.UnixMilli(rapid.Int64().Draw(t, "timestamp")),
		Offset:    rapid.Int64Min(0).Draw(t, "offset"), LeaderEpoch: 7, ProducerID: 8, ProducerEpoch: 9,
	}
}

// all is a record with what stands in the room behind its headers.
func all(rec *kgo.Record) string {
	return fmt.Sprintf("%#v %#v", *rec, rec.Headers[:cap(rec.Headers)])
}

func TestChainIsPure(t *testing.T) {
	chain := transform.Chain{transform.Provenance("A", "B"), transform.Rename(func(s string) string { return "x." + s })}
	for name, c := range map[string]transform.Chain{"built in": chain, "first": chain[:1], "second": chain[1:], "empty": nil} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				rec := record(t)
				before := all(rec)
				out, verdict, reason := c.Apply(rec)
				again, verdict2, reason2 := c.Apply(rec)
				if all(rec) != before {
					t.Fatalf("the input changed:\n from %s\n to   %s", before, all(rec))
				}
				if verdict != verdict2 || reason != reason2 || fmt.Sprintf("%#v", out) != fmt.Sprintf("%#v", again) {
					t.Fatalf("two results: %v %q %#v\n%v %q %#v", verdict, reason, out, verdict2, reason2, again)
				}
				if dropped := len(c) > 0 && name != "second" && slices.Contains(marks(rec), "B"); dropped != (verdict == transform.Drop) {
					t.Fatalf("verdict %v", verdict)
				}
				if verdict != transform.Keep {
					return
				}
				if out == rec {
					t.Fatal("the input came out")
				}
				topic := strings.TrimPrefix(out.Topic, "x.")
				if topic != rec.Topic || out.Partition != rec.Partition || !out.Timestamp.Equal(rec.Timestamp) ||
					fmt.Sprintf("%#v %#v", out.Key, out.Value) != fmt.Sprintf("%#v %#v", rec.Key, rec.Value) {
					t.Fatalf("changed: %#v", out)
				}
				if out.Offset != 0 || out.LeaderEpoch != 0 || out.ProducerID != 0 || out.ProducerEpoch != 0 {
					t.Fatalf("places of the source are kept: %#v", out)
				}
				if len(out.Headers) < len(rec.Headers) || fmt.Sprintf("%#v", out.Headers[:len(rec.Headers)]) != fmt.Sprintf("%#v", rec.Headers[:len(rec.Headers):len(rec.Headers)]) && len(rec.Headers) > 0 {
					t.Fatalf("headers changed: %#v", out.Headers)
				}
				// What is done to the result does not reach the input.
				out.Headers = append(out.Headers, kgo.RecordHeader{Key: "more"})
				if all(rec) != before {
					t.Fatal("the result's headers have room in the input's")
				}
			})
		})
	}
}

func BenchmarkChain(b *testing.B) {
	chain := transform.Chain{transform.Provenance("A", "B"), transform.Rename(func(s string) string { return s })}
	rec := &kgo.Record{Topic: "t", Value: make([]byte, 1024), Headers: []kgo.RecordHeader{{Key: "a"}, {Key: "b"}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, verdict, _ := chain.Apply(rec); verdict != transform.Keep {
			b.Fatal(verdict)
		}
	}
}
