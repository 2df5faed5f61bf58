package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
)

// The exit code tells what a plan found: 2 before the first run, 0 after it, 1
// for what can't be had.
func TestPlanExitCodes(t *testing.T) {
	source, target := testenv.Embedded(t), testenv.Embedded(t)
	source.CreateTopic(t, "orders", 3, 1, nil)
	flow := []string{"--from", source.Bootstrap()[0], "--to", target.Bootstrap()[0], "--topics", "orders", "--guarantee", "at-least-once"}
	plan := append([]string{"plan"}, flow...)
	got := mirrorRun(t, nil, plan...)
	if got.code != exitChanges || got.stderr != "" {
		t.Errorf("exit code %d, %s", got.code, got.stderr)
	}
	wantText(t, "plan", got.stdout, "quick (source -> target): at-least-once, share reader, order not kept: ",
		"create topic orders on target: 3 partitions, message.timestamp.type=CreateTime",
		"set group configs onceover.quick on source: share.", "onceover.quick on source (new): hands out the records", "1 flow, 2 changes pending")
	asJSON := mirrorRun(t, nil, append(plan, "--json")...)
	var p mirror.Plan
	if err := json.Unmarshal([]byte(asJSON.stdout), &p); err != nil || asJSON.code != exitChanges || len(p.Flows) != 1 || len(p.Flows[0].Changes) != 2 {
		t.Errorf("exit code %d, %v:\n%s", asJSON.code, err, asJSON.stdout)
	}

	r := start(t, flow...)
	r.until(t, "/readyz", func(code int, _ string) bool { return code == http.StatusOK })
	if stopped := r.stop(t); stopped.code != exitOK {
		t.Fatalf("run: exit code %d\n%s", stopped.code, stopped.stderr)
	}
	if got = mirrorRun(t, nil, plan...); got.code != exitOK || got.stderr != "" {
		t.Errorf("after a run: exit code %d, %s\n%s", got.code, got.stderr, got.stdout)
	}
	wantText(t, "plan", got.stdout, "1 flow, 0 changes pending")

	old := testenv.Embedded(t, testenv.Old(kversion.V3_5_0()))
	got = mirrorRun(t, nil, "plan", "--from", source.Bootstrap()[0], "--to", old.Bootstrap()[0], "--topics", "orders", "--guarantee", "exactly-once")
	if got.code != exitFailed {
		t.Errorf("exit code %d, want %d", got.code, exitFailed)
	}
	wantText(t, "stdout", got.stdout, "can't run: guarantee: exactly-once can't be had", "verifies no transactions", "orders")
	wantText(t, "stderr", got.stderr, "1 thing in the way")
}
