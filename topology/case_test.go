package topology_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/topology"
)

// One name space for all kinds of groups: share and consumer groups of one
// flow never have the same name, whoever chose it.
func TestCase13GroupNamesPerMode(t *testing.T) {
	parsed, err := parse("flows: [{name: m1, from: a, to: b, topics: [a13]}]")
	if err != nil {
		t.Fatal(err)
	}
	r, err := parsed.Resolve(parsed.Flows[0])
	if err != nil {
		t.Fatal(err)
	}
	if r.ShareGroupID != "onceover.m1" || r.GroupID != "onceover.m1.positions" || r.StopsGroupID != "onceover.m1.stops" {
		t.Errorf("groups %q, %q, %q", r.ShareGroupID, r.GroupID, r.StopsGroupID)
	}
	for _, name := range []string{r.GroupID, r.StopsGroupID} {
		_, err = parse("flows: [{name: m1, from: a, to: b, topics: [a13], properties: {share.group.id: " + name + "}}]")
		wantFinding(t, err, "flows[0].properties.share.group.id", "is used for the")
	}
	// The same name on another cluster is another group.
	if _, err = parse(`flows:
  - {name: m1, from: a, to: b, topics: [a13], properties: {share.group.id: g}}
  - {name: m2, from: b, to: c, topics: [a13x], properties: {share.group.id: g}}`); err != nil {
		t.Error(err)
	}
}

// Timeouts that the wire or the brokers could not take are refused with the
// range; one that is shorter than a group's session is not, since a new owner
// fences before it reads.
func TestCase27TransactionTimeouts(t *testing.T) {
	for _, timeout := range []string{"20m", "720h", "30d", "1200h", "50d", "0", "0s", "-1", "-1s", "4999ms", "15m1ms", "9999999h"} {
		_, err := parse("flows: [{name: m1, from: a, to: b, topics: [x], guarantee: exactly-once, transaction: {timeout: " + timeout + "}}]")
		list := findingsOf(t, err)
		if len(list) != 1 || list[0].Path != "flows[0].transaction.timeout" || !strings.Contains(list[0].Problem, "5s to 15m") {
			t.Errorf("timeout %s: want one finding with the range, got:\n%v", timeout, err)
		}
	}
	for _, timeout := range []string{"5s", "9s", "15m", "900s"} {
		parsed, err := parse("flows: [{name: m1, from: a, to: b, topics: [x], guarantee: exactly-once, transaction: {timeout: " + timeout + "}}]")
		if want, _ := time.ParseDuration(timeout); err != nil || parsed.Flows[0].Transaction.Timeout != want {
			t.Errorf("timeout %s: %v", timeout, err)
		}
	}
}

// Two ways under unchanged names need the mark on every flow; rings too.
func TestCase57EchoLoops(t *testing.T) {
	for _, test := range []struct {
		name, flows, path, problem string
	}{
		{"two-way with marks", `
  - {name: ab, from: a, to: b, topics: [".*"]}
  - {name: ba, from: b, to: a, topics: [".*"]}`, "", ""},
		{"two-way, one mark missing", `
  - {name: ab, from: a, to: b, topics: [".*"]}
  - {name: ba, from: b, to: a, topics: [".*"], provenance: false}`, "flows[1].provenance", "through ba, ab"},
		{"two-way, names that cannot meet", `
  - {name: ab, from: a, to: b, topics: ["x.*"], provenance: false}
  - {name: ba, from: b, to: a, topics: ["y.*"], provenance: false}`, "", ""},
		{"ring of three", `
  - {name: ab, from: a, to: b, topics: [".*"], provenance: false}
  - {name: bc, from: b, to: c, topics: [".*"]}
  - {name: ca, from: c, to: a, topics: ["d8"]}`, "flows[0].provenance", "through ab, bc, ca"},
		{"renamed there and back again", `
  - {name: ab, from: a, to: b, topics: [d8], rename: d8-b, provenance: false}
  - {name: ba, from: b, to: a, topics: [d8-b], rename: d8}`, "flows[0].provenance", "goes round"},
		{"one way", `
  - {name: ab, from: a, to: b, topics: [".*"], provenance: false}
  - {name: bc, from: b, to: c, topics: [".*"], provenance: false}`, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse("flows:" + test.flows)
			if test.problem == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantFinding(t, err, test.path, test.problem)
		})
	}
}

// Names that would grow for ever, and two labels for one cluster.
func TestCase58NamesWithoutEnd(t *testing.T) {
	_, err := parse(`flows:
  - {name: ab, from: a, to: b, topics: [".*"], rename: "{cluster}.{topic}"}
  - {name: ba, from: b, to: a, topics: [".*"], rename: "{cluster}.{topic}"}`)
	wantFinding(t, err, "flows[0].topics", "ever longer names")
	wantFinding(t, err, "flows[1].topics", "ever longer names")

	_, err = parse(`flows: [{name: in-a, from: a, to: a, topics: [".*"], rename: "a.{topic}"}]`)
	wantFinding(t, err, "flows[0].topics", "a.a.")
	if got := err.Error(); !strings.Contains(got, `exclude: ['a\..*']`) {
		t.Errorf("no exclude hint in %s", got)
	}
	// What the hint says helps.
	if _, err = parse(`flows: [{name: in-a, from: a, to: a, topics: {include: [".*"], exclude: ['a\..*']}, rename: "a.{topic}"}]`); err != nil {
		t.Error(err)
	}
	_, err = parse(`flows: [{name: in-a, from: a, to: a, topics: [x]}]`)
	wantFinding(t, err, "flows[0].to", "onto itself")

	_, err = topology.Parse("f", []byte(`
clusters: {prod: {bootstrap: [k1:9092, k2:9092]}, p: {bootstrap: [K2:9092]}}
flows: [{name: f, from: prod, to: p, topics: [x], rename: "prod.{topic}"}]`), lookup)
	wantFinding(t, err, "clusters.prod.bootstrap[1]", "two names for one cluster")
}

func TestCase59InternalTopics(t *testing.T) {
	internal := []string{
		"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata",
		"heartbeats", "onceover.east-to-west.ledger.internal", "onceover.f.map.internal",
	}
	for _, separator := range []string{".", "-", "_", "__", ""} {
		for _, parts := range [][]string{
			{"mm2-offset-syncs", "B", "internal"},
			{"B", "checkpoints", "internal"},
			{"mm2-configs", "B", "internal"},
			{"mm2-offsets", "us-west.1", "internal"},
			{"mm2-status", "B", "internal"},
		} {
			internal = append(internal, strings.Join(parts, separator))
		}
	}
	ordinary := []string{
		"_schemas", "CLUSTER-1_x", "B.orders", "heartbeats-of-users", "internal", "orders.internal", "orders-internal",
		"checkpoints", "mm2-offset-syncs", "onceover.East.ledger.internal", "onceover.f.other.internal", "x.onceover.f.map.internal",
		"__consumer_offsets_2", "consumer_offsets",
	}
	f := topology.NewFlow("f")
	f.Topics.Include = append([]string{".*"}, internal...)
	for _, topic := range internal {
		if !topology.Internal(topic) || f.Match(topic) {
			t.Errorf("%s: internal %t, copied %t", topic, topology.Internal(topic), f.Match(topic))
		}
	}
	for _, topic := range ordinary {
		if topology.Internal(topic) || !f.Match(topic) {
			t.Errorf("%s: internal %t, copied %t", topic, topology.Internal(topic), f.Match(topic))
		}
	}
}
