package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sampleTests has one test of each end.
const sampleTests = `package sample

import "testing"

func TestPasses(t *testing.T) { t.Log("quiet") }
func TestSkips(t *testing.T)  { t.Skip("no Java") }
func TestPart(t *testing.T)   { t.Run("real", func(t *testing.T) { t.Skip("no Maven") }) }
`

const failingTests = `package sample

import "testing"

func TestFails(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Log("in passing") })
	t.Run("bad", func(t *testing.T) { t.Error("one is missing") })
}
`

const panickingTests = `package sample

import "testing"

func TestPanics(t *testing.T) { t.Log("so far"); panic("went wrong") }
`

// runReport runs the given tests as make test does.
func runReport(t *testing.T, ci string, files ...string) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module sample\n\ngo 1.26\n")
	for i, text := range files {
		write(string(rune('a'+i))+"_test.go", text)
	}
	top, err := root()
	if err != nil {
		t.Fatal(err)
	}
	script := "set -o pipefail; go test -v ./... 2>&1 | awk -f \"$1\""
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script, "report", filepath.Join(top, ".ci", "report.awk"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CI="+ci, "GOFLAGS=", "GOWORK=off")
	b, err := cmd.CombinedOutput()
	return string(b), err
}

func TestReport(t *testing.T) {
	tests := []struct {
		name, ci     string
		files        []string
		fails        bool
		says, silent []string
	}{
		{
			name: "skips are named", files: []string{sampleTests},
			says:   []string{"ok  \tsample", "skipped: sample TestSkips: no Java", "skipped: sample TestPart/real: no Maven"},
			silent: []string{"quiet", "TestPasses"},
		},
		{
			name: "skips fail CI", ci: "true", files: []string{sampleTests}, fails: true,
			says: []string{"skipped: sample TestSkips: no Java", "skipped tests: 2; with CI=true none may be"},
		},
		{
			name: "a failure is shown whole", files: []string{sampleTests, failingTests}, fails: true,
			says:   []string{"one is missing", "in passing", "--- FAIL: TestFails", "    --- FAIL: TestFails/bad", "FAIL\tsample", "skipped: sample TestSkips: no Java"},
			silent: []string{"quiet", "TestPasses"},
		},
		{
			name: "a panic is shown whole", files: []string{sampleTests, panickingTests}, fails: true,
			says:   []string{"so far", "panic: went wrong", "goroutine ", "FAIL\tsample"},
			silent: []string{"quiet"},
		},
		{
			name: "what does not build is shown", files: []string{"package sample\n\nvar x int = \"\"\n"}, fails: true,
			says: []string{"a_test.go:3:13", "[build failed]"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, err := runReport(t, test.ci, test.files...)
			if (err != nil) != test.fails {
				t.Errorf("ended with %v", err)
			}
			for _, s := range test.says {
				if !strings.Contains(out, s) {
					t.Errorf("does not say %q", s)
				}
			}
			for _, s := range test.silent {
				if strings.Contains(out, s) {
					t.Errorf("says %q", s)
				}
			}
			if t.Failed() {
				t.Logf("it said:\n%s", out)
			}
		})
	}
}
