package topology_test

import (
	"slices"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/topology"
)

// fingerprint parses one flow, with braces around, and returns its
// fingerprint.
func fingerprint(t *testing.T, flow string) string {
	t.Helper()
	parsed, err := parse("flows: [{" + flow + "}]")
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Flows[0].Fingerprint()
}

// TestFlowFingerprintGolden: the values stand in ledgers, so that another
// version has to find the same ones.
func TestFlowFingerprintGolden(t *testing.T) {
	for _, test := range []struct{ flow, want string }{
		{"name: f, from: a, to: b, topics: [x]", "582912127b568f8588cfd6928f98c715dc5705283fe0071fb6bc3127a3ffd4b4"},
		{`name: f, from: a, to: b, topics: [x], rename: "{cluster}.{topic}"`, "7a24216336fa79fdbdb4b8da6cf4af40f5d55883a2b9366ff1108d8d4ee526bc"},
		{"name: f, from: a, to: b, topics: [x], provenance: false", "98f8b535d8fe8b30f25bddf87e53c02516dfb8bb4aa294de1fac02fbf558f48c"},
	} {
		if got := fingerprint(t, test.flow); got != test.want {
			t.Errorf("%s: %s, want %s", test.flow, got, test.want)
		}
	}
}

func TestFlowFingerprintSees(t *testing.T) {
	base := fingerprint(t, "name: f, from: a, to: b, topics: [x]")
	for _, same := range []string{
		"name: f, from: c, to: b, topics: [x]", // the name of the cluster is in no copy
		"name: f, from: a, to: c, topics: [x, 'y.*']",
		"name: other, from: a, to: b, topics: {include: ['.*'], exclude: [z]}, guarantee: exactly-once, start: latest",
		"name: f, from: a, to: b, topics: [x], limits: {records: 7, bytes: 1MiB, refresh: 1s}, lanes: 9, on_error: skip",
		"name: f, from: a, to: b, topics: [x], ledger: {shards: 3}, transaction: {timeout: 6s}, on_gap: skip",
		"name: f, from: a, to: b, topics: [x], properties: {producer.override.compression.type: zstd}",
	} {
		if fingerprint(t, same) != base {
			t.Errorf("changed by %s", same)
		}
	}
	seen := []string{base}
	for _, other := range []string{
		"name: f, from: a, to: b, topics: [x], provenance: false",
		"name: f, from: a, to: b, topics: [x], rename: '{topic}-copy'",
		"name: f, from: a, to: b, topics: [x], rename: '{cluster}.{topic}'",
		"name: f, from: c, to: b, topics: [x], rename: '{cluster}.{topic}'",
	} {
		got := fingerprint(t, other)
		if slices.Contains(seen, got) {
			t.Errorf("not seen: %s", other)
		}
		seen = append(seen, got)
	}
	// Written out, the template makes the same names.
	if got := fingerprint(t, "name: f, from: a, to: b, topics: [x], rename: 'a.{topic}'"); got != seen[3] {
		t.Error("{cluster} and the name of the cluster differ")
	}
}

// TestFingerprintOfAddresses: clusters that move keep the ledger.
func TestFingerprintOfAddresses(t *testing.T) {
	parsed, err := topology.Parse("moved", []byte(`
clusters: {a: {bootstrap: ['elsewhere:1', 'more:2'], client_id: z, tls: {}}, b: {bootstrap: ['b2:9092']}}
flows: [{name: f, from: a, to: b, topics: [x]}]`), lookup)
	if err != nil {
		t.Fatal(err)
	}
	if parsed.Flows[0].Fingerprint() != fingerprint(t, "name: f, from: a, to: b, topics: [x]") {
		t.Error("depends on the addresses")
	}
}

func TestLedgerDefaults(t *testing.T) {
	f := topology.NewFlow("f")
	if f.Transaction != (topology.Transaction{Timeout: 30 * time.Second, Interval: 250 * time.Millisecond}) ||
		f.Ledger != (topology.Ledger{Shards: 8, ReplicationFactor: -1}) || f.AllowUnverified || f.AllowNoTopicIDs ||
		f.OnGap != topology.OnGapStop || f.OnRecreate != topology.OnRecreateStop || f.OnTargetRecreate != topology.OnTargetRecreateStop {
		t.Errorf("defaults %+v %+v", f.Transaction, f.Ledger)
	}
}

func TestLedgerValues(t *testing.T) {
	f := load(t, "full.good.yml").Flows[2]
	if f.Transaction != (topology.Transaction{Timeout: 5 * time.Second, Interval: 1250 * time.Millisecond}) ||
		f.Ledger != (topology.Ledger{Shards: 1000, ReplicationFactor: 3}) || !f.AllowUnverified || !f.AllowNoTopicIDs ||
		f.OnGap != topology.OnGapSkip || f.OnRecreate != topology.OnRecreateRestart || f.OnTargetRecreate != topology.OnTargetRecreateRefill {
		t.Errorf("flow %+v %+v", f.Transaction, f.Ledger)
	}
	got := settings(t, load(t, "full.good.yml"), 2, "transaction.timeout", "ledger.shards", "on_gap", "allow_no_topic_ids")
	if want := []string{
		"allow_no_topic_ids=true (flow ledger, line 65)", "ledger.shards=1000 (flow ledger, line 67)",
		"on_gap=skip (flow ledger, line 61)", "transaction.timeout=5s (flow ledger, line 66)",
	}; !slices.Equal(got, want) {
		t.Errorf("settings\n got %q\nwant %q", got, want)
	}
	got = settings(t, load(t, "full.good.yml"), 0, "transaction.interval", "ledger.replication_factor", "on_recreate")
	if want := []string{"ledger.replication_factor=-1 (default)", "on_recreate=stop (default)", "transaction.interval=250ms (default)"}; !slices.Equal(got, want) {
		t.Errorf("settings\n got %q\nwant %q", got, want)
	}
}

// TestExactlyOnceReaders: only what surely reads through a share group is
// refused.
func TestExactlyOnceReaders(t *testing.T) {
	const refused = "not supported by this version: exactly-once through share groups"
	worker := "properties: {consumer.group.protocol: share}\n"
	for _, test := range []struct{ text, path string }{
		{"flows: [{name: f, from: a, to: b, topics: [x], guarantee: exactly-once}]", ""},
		{"flows: [{name: f, from: a, to: b, topics: [x], guarantee: exactly-once, read: partition}]", ""},
		{"flows: [{name: f, from: a, to: b, topics: [x], guarantee: exactly-once, ordered: false}]", ""},
		{"flows: [{name: f, from: a, to: b, topics: [x], guarantee: auto, read: share}]", ""},
		{"flows: [{name: f, from: a, to: b, topics: [x], guarantee: exactly-once, read: share}]", "flows[0].read"},
		{worker + "flows: [{name: f, from: a, to: b, topics: [x], guarantee: exactly-once}]", "flows[0].guarantee"},
		{worker + "flows: [{name: f, from: a, to: b, topics: [x], guarantee: exactly-once, read: share}]", "flows[0].read"},
		{worker + "flows: [{name: f, from: a, to: b, topics: [x], guarantee: exactly-once, read: partition}]", ""},
	} {
		_, err := parse(test.text)
		if test.path != "" {
			wantFinding(t, err, test.path, refused)
		} else if err != nil {
			t.Errorf("%s: %v", test.text, err)
		}
	}
}
