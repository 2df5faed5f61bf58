package topology_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"

	"github.com/onceover-mirror/onceover/topology"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata; look at the difference before you keep it")

// variables are the environment of the files in testdata. Each secret holds
// the word hunter2, which no output may contain.
var variables = map[string]string{
	"EAST_MORE":      "east2:9093, east3:9093",
	"EAST_USER":      "mirror",
	"EAST_PASSWORD":  "hunter2$${x}",
	"LOGIN_PASSWORD": "hunter2",
	"CA_PEM":         "-----BEGIN CERTIFICATE-----\nY2E=\n-----END CERTIFICATE-----\n",
	"CERT_PEM":       "-----BEGIN CERTIFICATE-----\nY2VydA==\n-----END CERTIFICATE-----\n",
	"KEY_PEM":        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n",
}

func lookup(name string) (string, bool) {
	v, ok := variables[name]
	return v, ok
}

func load(t *testing.T, name string) *topology.Topology {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := topology.Parse(name, data, lookup)
	if err != nil {
		t.Fatalf("parse %s:\n%v", name, err)
	}
	return parsed
}

// parse parses text with every cluster that the tests use in front.
func parse(text string) (*topology.Topology, error) {
	const clusters = "clusters: {a: {bootstrap: ['a:9092']}, b: {bootstrap: ['b:9092']}, c: {bootstrap: ['c:9092']}}\n"
	return topology.Parse("test.yml", []byte(clusters+text), lookup)
}

// findingsOf unpacks err and checks the promise about its type.
func findingsOf(t *testing.T, err error) []*topology.Finding {
	t.Helper()
	if err == nil {
		return nil
	}
	var all *multierror.Error
	if !errors.As(err, &all) {
		t.Fatalf("error is a %T, want *multierror.Error: %v", err, err)
	}
	list := make([]*topology.Finding, len(all.Errors))
	for i, e := range all.Errors {
		if !errors.As(e, &list[i]) {
			t.Fatalf("error %d is a %T, want *topology.Finding: %v", i, e, e)
		}
	}
	return list
}

// wantFinding fails unless one finding at path has a problem with that text.
func wantFinding(t *testing.T, err error, path, problem string) {
	t.Helper()
	for _, f := range findingsOf(t, err) {
		if f.Path == path && strings.Contains(f.Problem, problem) {
			return
		}
	}
	t.Errorf("no finding at %s with %q; all findings:\n%v", path, problem, err)
}

func TestGoodFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.good.yml")
	if err != nil || len(files) < 5 {
		t.Fatalf("good files: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			printed := load(t, filepath.Base(file)).Canonical()
			golden(t, strings.TrimSuffix(file, ".yml")+".golden", printed)
			if bytes.Contains(printed, []byte("hunter2")) {
				t.Error("canonical print holds a secret")
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bad.yml")
	if err != nil || len(files) < 5 {
		t.Fatalf("bad files: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := topology.Parse(filepath.Base(file), data, lookup)
			if err == nil || parsed != nil {
				t.Fatalf("accepted: %v", parsed)
			}
			list := findingsOf(t, err)
			if !slices.IsSortedFunc(list, func(a, b *topology.Finding) int { return a.Line - b.Line }) {
				t.Error("findings are not sorted by line")
			}
			for _, f := range list {
				if lines := bytes.Count(data, []byte("\n")); f.Line < 0 || f.Line > lines {
					t.Errorf("line %d of %d: %v", f.Line, lines, f)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("findings hold a secret")
			}
			golden(t, strings.TrimSuffix(file, ".yml")+".findings", []byte(err.Error()+"\n"))
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s, got:\n%s\nwant:\n%s", file, got, want)
	}
}
