package topology_test

import (
	"slices"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/topology"
)

// inside is a flow inside one cluster, with more keys.
func inside(more string) string {
	return "flows: [{name: f, from: a, to: a, topics: [x], rename: 'y-{topic}'" + more + "}]"
}

func TestKIP1289Defaults(t *testing.T) {
	for _, test := range []struct {
		text string
		want *topology.KIP1289
	}{
		{"", nil},
		{", kip1289: ", nil},
		{", kip1289: null", nil},
		{", kip1289: {}", &topology.KIP1289{Key: 95, Draft: 3}},
		{", kip1289: {draft: 1}", &topology.KIP1289{Key: 93, Draft: 1}},
		{", kip1289: {draft: 2}", &topology.KIP1289{Key: 94, Draft: 2}},
		{", kip1289: {key: 96}", &topology.KIP1289{Key: 96, Draft: 3}},
		{", kip1289: {key: 32767, draft: 1}", &topology.KIP1289{Key: 32767, Draft: 1}},
		{", kip1289: {key: 95, draft: 2}", &topology.KIP1289{Key: 95, Draft: 2}},
	} {
		parsed, err := parse(inside(test.text))
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		f := parsed.Flows[0]
		if got := f.KIP1289; (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%s: %+v, want %+v", test.text, got, test.want)
		}
		timeout := 30 * time.Second
		if test.want != nil {
			timeout = 15 * time.Second
		}
		if f.Transaction.Timeout != timeout {
			t.Errorf("%s: transaction.timeout %v, want %v", test.text, f.Transaction.Timeout, timeout)
		}
		// What is printed reads as the same.
		again, err := topology.Parse("printed", parsed.Canonical(), lookup)
		if err != nil {
			t.Errorf("%s: %v\n%s", test.text, err, parsed)
		} else if again.Fingerprint() != parsed.Fingerprint() || (again.Flows[0].KIP1289 == nil) != (test.want == nil) {
			t.Errorf("%s: reads differently once printed:\n%s\n%s", test.text, parsed, again)
		}
	}
	if got := *topology.NewKIP1289(); got != (topology.KIP1289{Key: 95, Draft: 3}) {
		t.Errorf("new: %+v", got)
	}
}

// TestKIP1289Reader: the flow reads through a share group without being told,
// whatever the worker's protocol.
func TestKIP1289Reader(t *testing.T) {
	for _, test := range []struct{ worker, more, read, protocol string }{
		{"", "", "read=auto (default)", "consumer.group.protocol=share (flow f, line 2)"},
		{"properties: {consumer.group.protocol: classic}\n", "", "read=auto (default)", "consumer.group.protocol=share (flow f, line 3)"},
		{"properties: {consumer.group.protocol: classic}\n", ", read: share", "read=share (flow f, line 3)", "consumer.group.protocol=share (flow f, line 3)"},
	} {
		parsed, err := parse(test.worker + inside(", kip1289: {}"+test.more))
		if err != nil {
			t.Errorf("%s: %v", test.worker+test.more, err)
			continue
		}
		r, err := parsed.Resolve(parsed.Flows[0])
		if err != nil {
			t.Fatal(err)
		}
		if r.Read != topology.ReaderShare || r.Protocol != "share" {
			t.Errorf("%s: read %s, protocol %q", test.worker+test.more, r.Read, r.Protocol)
		}
		if got, want := settings(t, parsed, 0, "read", "consumer.group.protocol"), []string{test.protocol, test.read}; !slices.Equal(got, want) {
			t.Errorf("%s: settings %q, want %q", test.worker+test.more, got, want)
		}
	}
	parsed, err := parse(inside(", kip1289: {draft: 1}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := settings(t, parsed, 0, "kip1289", "transaction.timeout"), []string{"kip1289=key 93, draft 1 (flow f, line 2)", "transaction.timeout=15s (default)"}; !slices.Equal(got, want) {
		t.Errorf("settings %q, want %q", got, want)
	}
	if parsed, err = parse(inside("")); err != nil {
		t.Fatal(err)
	}
	if got, want := settings(t, parsed, 0, "kip1289"), []string{"kip1289=off (default)"}; !slices.Equal(got, want) {
		t.Errorf("settings %q, want %q", got, want)
	}
}

// TestKIP1289Literal: a flow that a program makes is held to the same rules, and
// has the longest timeout in place of a longer one.
func TestKIP1289Literal(t *testing.T) {
	f := topology.NewFlow("f")
	f.From, f.To, f.Topics.Include, f.Rename = "a", "a", []string{"x"}, "y-{topic}"
	f.KIP1289 = topology.NewKIP1289()
	made := &topology.Topology{
		Clusters: map[string]*topology.Cluster{"a": {Name: "a", Bootstrap: []string{"a:1"}, ClientID: "x"}},
		Flows:    []*topology.Flow{f},
	}
	if err := made.Validate("made"); err != nil {
		t.Fatal(err)
	}
	again, err := topology.Parse("printed", made.Canonical(), lookup)
	if err != nil {
		t.Fatalf("%v\n%s", err, made)
	}
	if got := again.Flows[0]; got.Transaction.Timeout != topology.MaxKIP1289Timeout || *got.KIP1289 != *f.KIP1289 {
		t.Errorf("printed as\n%s", made)
	}
	f.KIP1289.Draft, f.KIP1289.Key = 4, 18
	err = made.Validate("made")
	wantFinding(t, err, "flows[0].kip1289.draft", "expected 1 to 3")
	wantFinding(t, err, "flows[0].kip1289.key", "expected 93")
}
