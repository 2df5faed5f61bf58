package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	franz = "github.com/twmb/franz-go"
	kafka = franz + "/..."
)

// arrow bans imports from a room. Patterns are import paths; a trailing /...
// stands for the path itself and everything below it. Paths that begin with
// ./ are the project's own.
type arrow struct {
	// from are folders, or single files.
	from []string
	// not are exceptions from from.
	not []string
	// to is banned, except what is in but.
	to, but []string
	// deep: reaching it through other packages is banned too.
	deep bool
	// tests: test files are held to it too.
	tests  bool
	reason string
}

// arrows between the rooms, docs/adr/0001-rooms-and-arrows.md.
var arrows = []arrow{
	{
		from: []string{"./topology/..."}, to: []string{"./..."}, but: []string{"./topology/..."},
		deep: true, tests: true,
		reason: "topology, transform and txn are siblings: none imports another room",
	},
	{
		from: []string{"./topology/..."}, to: []string{kafka}, deep: true, tests: true,
		reason: "topology names no Kafka type: it must be usable where there is no Kafka",
	},
	{
		from: []string{"./topology/..."}, to: []string{"os/...", "net/http", "log/...", "flag", "math/rand/..."},
		but:    []string{"log/slog"},
		reason: "topology is pure, bytes in and values and findings out; log/slog is there for LogValue alone",
	},
	{
		from: []string{"./transform/..."}, to: []string{"./..."}, but: []string{"./transform/..."},
		deep: true, tests: true,
		reason: "topology, transform and txn are siblings: none imports another room",
	},
	{
		from: []string{"./transform/..."}, to: []string{kafka}, but: []string{franz + "/pkg/kgo"},
		reason: "transform knows the record and nothing else of Kafka",
	},
	{
		from:   []string{"./transform/..."},
		to:     []string{"os/...", "net/...", "log/...", "flag", "sync/...", "math/rand/...", "crypto/rand"},
		reason: "transform is a pure function of one record: same input, same bytes",
	},
	{
		from: []string{"./txn/..."}, to: []string{"./topology/...", "./transform/...", "./mirror/...", "./cmd/..."},
		deep: true, tests: true,
		reason: "topology, transform and txn are siblings, and txn is below mirror",
	},
	{
		from:   []string{"./txn/..."},
		to:     []string{"os/...", "flag", "log/...", "net/http"},
		reason: "txn knows neither files nor environment, and tells its caller instead of logging",
	},
	{
		from:   []string{"./txn/state.go", "./txn/rangeset.go", "./txn/ledger_entry.go", "./txn/claim.go"},
		to:     []string{"context", "time", "sync/...", "net/...", franz + "/pkg/kgo", franz + "/pkg/kadm"},
		reason: "the protocol core is pure: events in, effects out, so that it can be tested without a clock or a broker",
	},
	{
		from: []string{"./txn/wire/..."}, to: []string{"./...", franz + "/pkg/kgo", franz + "/pkg/kadm"}, but: []string{"./txn/wire/..."},
		reason: "wire is a codec, shared with the broker that tests it",
	},
	{
		from: []string{"./mirror/..."}, to: []string{"./cmd/..."}, deep: true, tests: true,
		reason: "mirror is a library; commands call it",
	},
	{
		from: []string{"./mirror"}, to: []string{"./mirror/..."}, deep: true, tests: true,
		reason: "sync and drill stand on mirror, not the other way round",
	},
	{
		from: []string{"./mirror"}, to: []string{"os/...", "flag"},
		reason: "files, environment and signals belong to cmd, which passes functions",
	},
	{
		from: []string{"./..."}, not: []string{"./testenv/...", "./cmd/mirror/demo.go", "./cmd/mirror/demo_data.go"},
		to:     []string{"./testenv/...", franz + "/pkg/kfake"},
		reason: "shipped code runs on real clusters; only the demo brings its own",
	},
	{
		from: []string{"./..."}, not: []string{"./testenv/...", "./cmd/..."},
		to: []string{"./testenv/...", franz + "/pkg/kfake", "testing"}, deep: true,
		reason: "shipped code runs on real clusters, and the testing package adds its flags to a binary",
	},
	{
		from:  []string{"./testenv"},
		to:    []string{"./..."},
		but:   []string{"./testenv/...", "./topology", "./txn/wire"},
		deep:  true,
		tests: true,
		reason: "the rooms' own tests import testenv, and a broker that shares code with what it tests " +
			"shares its faults; it takes the codec, and topology to describe its clusters",
	},
}

// matches reports whether an import path or file is covered by a pattern.
func matches(pattern, name string) bool {
	if rest, ok := strings.CutPrefix(pattern, "."); ok {
		pattern = module + rest
	}
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	return name == pattern
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// checkArrows returns every import of p that an arrow bans.
func checkArrows(p pkg, arrows []arrow) ([]string, error) {
	var found []string
	here := path.Join(module, p.dir)
	for _, a := range arrows {
		bans := func(imp string) bool { return matchesAny(a.to, imp) && !matchesAny(a.but, imp) }
		direct := map[string]bool{}
		for _, f := range p.files {
			file := path.Join(module, f.path)
			covered := matchesAny(a.from, here) || matchesAny(a.from, file)
			if !covered || matchesAny(a.not, here) || matchesAny(a.not, file) || f.isTest() && !a.tests {
				continue
			}
			imps, err := imports(f)
			if err != nil {
				return nil, err
			}
			for imp, line := range imps {
				// A test in an external package imports its own package.
				if bans(imp) && imp != here {
					direct[imp] = true
					found = append(found, fmt.Sprintf("%s:%d: imports %s: %s", f.path, line, imp, a.reason))
				}
			}
		}
		if !a.deep || !matchesAny(a.from, here) || matchesAny(a.not, here) {
			continue
		}
		for _, d := range p.deps {
			if bans(d) && !direct[d] && d != here {
				found = append(found, fmt.Sprintf("%s: reaches %s through another package: %s", p.dir, d, a.reason))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

func TestArrows(t *testing.T) {
	for _, p := range all(t) {
		found, err := checkArrows(p, arrows)
		if err != nil {
			t.Fatal(err)
		}
		report(t, found)
	}
}

// TestArrowsRefuse shows each arrow failing: a package with a banned import,
// then one that reaches it through another, then the exceptions.
func TestArrowsRefuse(t *testing.T) {
	tests := []struct {
		name string
		p    pkg
		file string
		imp  string
		want string // part of the reason; empty: permitted
	}{
		{name: "topology to a room", p: pkg{dir: "topology"}, file: "parse.go", imp: module + "/txn", want: "siblings"},
		{name: "topology test to a room", p: pkg{dir: "topology"}, file: "parse_test.go", imp: module + "/mirror", want: "siblings"},
		{name: "topology to Kafka", p: pkg{dir: "topology"}, file: "parse.go", imp: franz + "/pkg/kmsg", want: "no Kafka type"},
		{name: "topology to files", p: pkg{dir: "topology"}, file: "parse.go", imp: "os", want: "pure"},
		{name: "topology test to files", p: pkg{dir: "topology"}, file: "parse_test.go", imp: "os"},
		{name: "topology external test to itself", p: pkg{dir: "topology"}, file: "x_test.go", imp: module + "/topology"},
		{name: "topology to slog", p: pkg{dir: "topology"}, file: "secret.go", imp: "log/slog"},
		{name: "transform to a room", p: pkg{dir: "transform"}, file: "build.go", imp: module + "/topology", want: "siblings"},
		{name: "transform to admin", p: pkg{dir: "transform"}, file: "build.go", imp: franz + "/pkg/kadm", want: "nothing else of Kafka"},
		{name: "transform to the record", p: pkg{dir: "transform"}, file: "build.go", imp: franz + "/pkg/kgo"},
		{name: "transform to random numbers", p: pkg{dir: "transform"}, file: "build.go", imp: "math/rand/v2", want: "same input"},
		{name: "txn to mirror", p: pkg{dir: "txn"}, file: "session.go", imp: module + "/mirror", want: "below mirror"},
		{name: "txn to files", p: pkg{dir: "txn"}, file: "session.go", imp: "os/exec", want: "neither files"},
		{name: "core to the clock", p: pkg{dir: "txn"}, file: "rangeset.go", imp: "time", want: "protocol core"},
		{name: "shell to the clock", p: pkg{dir: "txn"}, file: "session.go", imp: "time"},
		{name: "wire to the client", p: pkg{dir: "txn/wire"}, file: "ack.go", imp: franz + "/pkg/kgo", want: "codec"},
		{name: "mirror to cmd", p: pkg{dir: "mirror"}, file: "lane.go", imp: module + "/cmd/mirror", want: "library"},
		{name: "mirror to drill", p: pkg{dir: "mirror"}, file: "lane.go", imp: module + "/mirror/drill", want: "stand on mirror"},
		{name: "drill to mirror", p: pkg{dir: "mirror/drill"}, file: "run.go", imp: module + "/mirror"},
		{name: "mirror to the environment", p: pkg{dir: "mirror"}, file: "lane.go", imp: "os", want: "belong to cmd"},
		{name: "command to testenv", p: pkg{dir: "cmd/mirror"}, file: "run.go", imp: module + "/testenv", want: "only the demo"},
		{name: "demo to testenv", p: pkg{dir: "cmd/mirror"}, file: "demo.go", imp: module + "/testenv"},
		{name: "test to testenv", p: pkg{dir: "mirror"}, file: "lane_test.go", imp: module + "/testenv"},
		{name: "testenv to mirror", p: pkg{dir: "testenv"}, file: "env.go", imp: module + "/mirror", want: "shares its faults"},
		{name: "testenv to topology", p: pkg{dir: "testenv"}, file: "env.go", imp: module + "/topology"},
		{name: "suite to mirror", p: pkg{dir: "testenv/suite"}, file: "suite.go", imp: module + "/mirror"},
		{name: "topology through another", p: pkg{dir: "topology", deps: []string{franz + "/pkg/kgo"}}, want: "through another package"},
		{name: "mirror through another", p: pkg{dir: "mirror", deps: []string{"testing"}}, want: "through another package"},
		{name: "demo's broker in the command", p: pkg{dir: "cmd/mirror", deps: []string{franz + "/pkg/kfake"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := test.p
			if test.file != "" {
				text := fmt.Sprintf("package x\n\nimport _ %q\n", test.imp)
				p.files = []source{{path: path.Join(p.dir, test.file), text: []byte(text)}}
			}
			found, err := checkArrows(p, arrows)
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if len(found) > 0 {
					t.Errorf("refused: %q", found)
				}
				return
			}
			if len(found) == 0 {
				t.Fatal("permitted")
			}
			if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, test.want) }) {
				t.Errorf("refused with %q, want a reason with %q", found, test.want)
			}
		})
	}
}
