package main

import (
	"regexp"
	"strings"
	"testing"
)

// The demo does what the README says: it ends by itself, a worker is killed in
// mid-transaction, and everything is there once.
func TestDemo(t *testing.T) {
	r := mirrorRun(t, nil, "demo", "--duration", "5s", "--rate", "1000")
	if r.code != exitOK {
		t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{
		`worker 1 was killed \(SIGKILL\) in mid-transaction: onceover\.demo\.\d is left open at west, with [\d,]+ records? in orders\[\d\]`,
		`the first new record there came \d+\.\d s after the kill`,
		`missing +0\n`, `changed +0\n`, `duplicated +0\n`, `out of order +0\n`, `Exactly once`,
	} {
		if !regexp.MustCompile(want).MatchString(r.stdout) {
			t.Errorf("no %q in the demo's output:\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "at east             0") {
		t.Errorf("nothing was produced:\n%s", r.stdout)
	}
	t.Log(r.stdout)
}

func TestDemoRefusesNonsense(t *testing.T) {
	if r := mirrorRun(t, nil, "demo", "--duration", "1s"); r.code != exitUsage {
		t.Errorf("exit code %d, want %d: %s", r.code, exitUsage, r.stderr)
	}
}
