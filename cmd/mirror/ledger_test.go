package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// The ledger commands on a flow that ran, lost its ledger, and got it back.
func TestLedgerCommands(t *testing.T) {
	const n = 60
	source, target := testenv.Embedded(t), testenv.Embedded(t)
	source.CreateTopic(t, "orders", 3, 1, nil)
	want := testenv.Records("orders", 3, n, 1)
	source.Produce(t, want...)
	flow := []string{"--from", source.Bootstrap()[0], "--to", target.Bootstrap()[0], "--topics", "orders", "--guarantee", "exactly-once"}
	ledger := func(code int, args ...string) result {
		t.Helper()
		got := mirrorRun(t, nil, append(append([]string{"ledger"}, args...), flow...)...)
		if got.code != code {
			t.Errorf("mirror ledger %v: exit code %d, want %d\n%s%s", args, got.code, code, got.stdout, got.stderr)
		}
		return got
	}
	copied := func() {
		t.Helper()
		r := start(t, flow...)
		r.until(t, "/api/v1/state", func(_ int, body string) bool {
			var s mirror.State
			return json.Unmarshal([]byte(body), &s) == nil && total(s).partitions == 3 && total(s).lag == 0
		})
		if got := r.stop(t); got.code != exitOK {
			t.Fatalf("run: exit code %d\n%s", got.code, got.stderr)
		}
	}
	wantText(t, "show", ledger(exitOK, "show").stdout, "no ledger")
	wantText(t, "check", ledger(exitOK, "check").stdout, "quick: no ledger")
	copied()

	wantText(t, "show", ledger(exitOK, "show").stdout, "ledger onceover.quick.ledger.internal (id ", "8 shards, reader partition, generation 1",
		"that of this declaration", "SHARD", "UNDECIDED", "TOPIC", "orders", "0..19 in ", "start: earliest")
	wantText(t, "check", ledger(exitOK, "check").stdout, "quick: sound")
	var all struct{ Flows []mirror.LedgerReport }
	asJSON := ledger(exitOK, "show", "--json")
	if err := json.Unmarshal([]byte(asJSON.stdout), &all); err != nil || len(all.Flows) != 1 || len(all.Flows[0].Positions) != 3 || !all.Flows[0].Declared {
		t.Errorf("%v:\n%s", err, asJSON.stdout)
	}
	for _, change := range [][]string{{"accept", "--yes"}, {"resume", "--yes"}, {"init", "--accept", "--yes"}} {
		wantText(t, change[0], ledger(exitOK, change...).stdout, "quick: nothing to do")
	}

	if _, err := target.Admin(t).DeleteTopics(t.Context(), txn.LedgerTopic("quick")); err != nil {
		t.Fatal(err)
	}
	lost := mirrorRun(t, nil, append([]string{"run", "--listen", ""}, flow...)...)
	if lost.code != exitFailed {
		t.Errorf("run without its ledger: exit code %d", lost.code)
	}
	wantText(t, "run", lost.stderr, "the ledger was lost", "mirror ledger init --accept --flow quick")
	wantText(t, "check", ledger(exitFindings, "check").stdout, "entries were lost", "  hint: mirror ledger init --accept --flow quick")
	ledger(exitFindings, "check", "--json")
	wantText(t, "init", ledger(exitUsage, "init", "--yes").stderr, "add --accept")
	wantText(t, "init", ledger(exitUsage, "init", "--accept", "--at", "noon").stderr, `--at "noon"`)
	told := ledger(exitUsage, "init", "--accept") // nobody to ask
	wantText(t, "init", told.stdout, "are founded", "BEGINS AT", "goes on where it stopped")
	wantText(t, "init", told.stderr, "nothing was changed", "add --yes")
	wantText(t, "check", ledger(exitFindings, "check").stdout, "entries were lost")
	wantText(t, "init", ledger(exitOK, "init", "--accept", "--yes").stdout, "quick: done, 3 positions")
	copied()
	wantText(t, "check", ledger(exitOK, "check").stdout, "quick: sound")
	testenv.AssertExactlyOnce(t, want, target.ReadAll(t, "orders"), testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}})

	if got := mirrorRun(t, nil, "ledger"); got.code != exitOK || !strings.Contains(got.stdout, "resume") {
		t.Errorf("mirror ledger: exit code %d\n%s", got.code, got.stdout)
	}
	if got := mirrorRun(t, nil, "ledger", "burn"); got.code != exitUsage {
		t.Errorf("mirror ledger burn: exit code %d\n%s", got.code, got.stdout)
	}
	none := ledger(exitUsage, "show", "--flow", "slow")
	wantText(t, "show", none.stderr, `no flow is named "slow"`)
}

// What is printed of a ledger that has everything to tell.
func TestLedgerText(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	r := mirror.LedgerReport{
		Flow: "f", From: "east", To: "west", Topic: "onceover.f.ledger.internal", Exists: true, TopicID: "abc", Partitions: 1, K: 1,
		SourceCluster: "se", TargetCluster: "te", Reader: "partition", Generation: 3, Fingerprint: "0123456789abcdef",
		Suspended: &mirror.LedgerNote{Reason: "asked for", Time: now},
		Shards:    []mirror.LedgerShard{{Owner: &mirror.LedgerOwner{Instance: "host-0"}, Next: 7, Undecided: 2, LastEntry: now.Add(-90 * time.Second)}},
		Positions: []mirror.LedgerPosition{
			{
				Topic: "t", Start: &mirror.LedgerStart{Position: 5, Prior: true, Reason: "because"}, Frontier: &mirror.LedgerFrontier{Time: now.Add(-2 * time.Second)},
				Position: 1234, Lag: 66, Gaps: []mirror.LedgerGap{{First: 8, Last: 9, Reason: "gone", Time: now}},
				Map: mirror.LedgerMap{Complete: true, Runs: 2, First: 5, Last: 1233, Unmapped: 4},
			},
			{Topic: "u", Gone: true, TopicID: "xyz", Position: -1, Lag: -1, Map: mirror.LedgerMap{First: -1, Last: -1, Unmapped: -1}},
		},
		Findings: []mirror.LedgerFinding{{Place: "t[0]", Problem: "cut", Hint: "mend it"}},
	}
	var b strings.Builder
	if err := ledgerText(&b, &r, now); err != nil {
		t.Fatal(err)
	}
	wantText(t, "text", b.String(), "1 shard, reader partition, generation 3", "cluster se -> cluster te, fingerprint 0123456789ab, NOT that of this declaration",
		"SUSPENDED since 2026-09-01T12:00:00Z: asked for", "host-0", "1m30s ago", "5*", "1234", "2s ago", "66", "5..1233 in 2 runs", "because",
		"u (gone, id xyz)", "none (not read to its end)", "gap: t[0] 8..9, 2026-09-01T12:00:00Z: gone", "1 finding: see mirror ledger check")
	b.Reset()
	ledgerFindings(&b, &r)
	if got := b.String(); got != "f: t[0]: cut\n  hint: mend it\n" {
		t.Errorf("findings %q", got)
	}
}
