package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
)

// verify on a flow that ran, then on one to whose target somebody wrote.
func TestVerifyCommand(t *testing.T) {
	const n = 1200
	source, target := testenv.Embedded(t), testenv.Embedded(t)
	source.CreateTopic(t, "orders", 3, 1, nil)
	source.Produce(t, testenv.Records("orders", 3, n, 1)...)
	flow := []string{"--from", source.Bootstrap()[0], "--to", target.Bootstrap()[0], "--topics", "orders.*"}
	verify := func(code int, args ...string) result {
		t.Helper()
		got := mirrorRun(t, nil, append(append([]string{"verify"}, flow...), args...)...)
		if got.code != code {
			t.Errorf("mirror verify %v: exit code %d, want %d\n%s%s", args, got.code, code, got.stdout, got.stderr)
		}
		return got
	}
	wantText(t, "no ledger", verify(exitFailed).stderr, "no ledger", "hint: only an exactly-once flow has one")

	r := start(t, append([]string{"--guarantee", "exactly-once"}, flow...)...)
	r.until(t, "/api/v1/state", func(_ int, body string) bool {
		var s mirror.State
		return json.Unmarshal([]byte(body), &s) == nil && total(s).partitions == 3 && total(s).lag == 0
	})
	beside := verify(exitOK)
	wantText(t, "beside a running mirror", beside.stdout, "quick (source -> target): 1,200 records compared in 3 partitions, no difference",
		"missing 0, duplicated 0, changed 0, out of order 0, unexpected 0")
	if lines := strings.Count(beside.stdout, "\n"); lines != 2 || beside.stderr != "" {
		t.Errorf("%d lines, stderr %q:\n%s", lines, beside.stderr, beside.stdout)
	}
	if got := r.stop(t); got.code != exitOK {
		t.Fatalf("run: exit code %d\n%s", got.code, got.stderr)
	}

	copies := target.ReadAll(t, "orders")
	again := copies[0]
	target.Produce(t, &kgo.Record{Topic: "orders", Key: again.Key, Value: again.Value, Headers: again.Headers, Timestamp: again.Timestamp},
		&kgo.Record{Topic: "orders", Value: []byte("of somebody else")})
	source.Produce(t, testenv.Records("orders", 3, 3, 2)...)
	found := verify(exitFindings)
	wantText(t, "differences", found.stdout, "1 difference,", "duplicated 1,", "another writer: 1 record between", "not copied yet: 3 offsets in 3 partitions",
		"orders[0] -> orders, source offsets 0 to 399: 1 difference", "duplicated: source -, target ", "foreign: source -, target ")
	var all struct{ Flows []mirror.VerifyReport }
	asJSON := verify(exitFindings, "--json")
	if err := json.Unmarshal([]byte(asJSON.stdout), &all); err != nil || len(all.Flows) != 1 || all.Flows[0].Duplicated != 1 ||
		len(all.Flows[0].Partitions) != 3 || len(all.Flows[0].Partitions[0].Findings) != 2 {
		t.Errorf("%v:\n%s", err, asJSON.stdout)
	}
	if got := verify(exitFindings, "--findings", "0"); strings.Contains(got.stdout, "duplicated: ") {
		t.Errorf("findings are listed:\n%s", got.stdout)
	}
	wantText(t, "another topic", verify(exitFailed, "--topic", "payments").stderr, "payments")
	wantText(t, "another flow", verify(exitUsage, "--flow", "nope").stderr, `"nope"`)
	wantText(t, "findings", verify(exitUsage, "--findings", "-1").stderr, "--findings -1")
}

func TestVerifyText(t *testing.T) {
	frozen := time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	r := mirror.VerifyReport{
		Flow: "east-to-west", From: "east", To: "west", Frozen: frozen, Ended: frozen.Add(90 * time.Second), Suspended: "the ledger is suspended: asked for",
		VerifyCounts: mirror.VerifyCounts{
			Compared: 1234567, Missing: 2, Changed: 1, Foreign: 1000, Echoes: 3, Skipped: 50, Compacted: 7,
			ExpiredAtSource: 8, ExpiredAtTarget: 9, Outside: 10, Unmapped: 11,
		},
		Partitions: []mirror.VerifyPartition{
			{Topic: "orders", Partition: 0, Target: "east.orders", End: 20, Behind: 1},
			{
				Topic: "orders", Partition: 1, Target: "east.orders", First: 10, End: 20000, VerifyCounts: mirror.VerifyCounts{Missing: 2, Changed: 1, Foreign: 1000},
				Findings: []mirror.VerifyFinding{
					{Kind: mirror.VerifyMissing, Source: 1234, Target: -1, Detail: "the map has no copy"},
					{Kind: mirror.VerifyForeign, Source: -1, Target: 77},
				},
			},
			{Topic: "payments", NotCompared: "nothing of it was copied yet"},
		},
	}
	var out strings.Builder
	verifyText(&out, &r)
	golden(t, "verify.golden.txt", out.String())
}
