// Package lint checks, as tests, what linters can't see: which package may
// import which, how long a file may be, that each exported symbol is
// documented and that the pages in docs agree with the code. Every rule has a
// test that shows it failing on a small violating snippet.
package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// module is the import path of the project.
const module = "github.com/onceover-mirror/onceover"

// source is one Go file. Path is relative to the root of the module, with
// slashes.
type source struct {
	path string
	text []byte
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// pkg is one package of the module: dir relative to the root, "." for the root
// itself.
type pkg struct {
	dir   string
	name  string
	files []source
	// deps are the import paths of everything that the package without its
	// tests is built from.
	deps []string
}

// root is the folder with go.mod.
var root = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(strings.TrimSpace(string(out)))
	// go test keeps a result until a file or folder that the test looked at
	// changes, and go list looks on its own: without this walk a new file
	// would go unnoticed.
	return dir, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return err
	})
})

// packages are all packages of the module, files behind build tags included.
var packages = sync.OnceValues(func() ([]pkg, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "list", "-e", "-json=Dir,Name,Deps,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l struct {
			Dir, Name                                                    string
			Deps                                                         []string
			GoFiles, CgoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(dir, l.Dir)
		if err != nil {
			return nil, err
		}
		p := pkg{dir: filepath.ToSlash(rel), name: l.Name, deps: l.Deps}
		for _, name := range slices.Concat(l.GoFiles, l.CgoFiles, l.IgnoredGoFiles, l.TestGoFiles, l.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(l.Dir, name))
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, source{path: filepath.ToSlash(filepath.Join(rel, name)), text: text})
		}
		pkgs = append(pkgs, p)
	}
})

// all returns the packages of the module and ends the test when they can't be
// read, or when there are so few that the check would say nothing.
func all(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := packages()
	if err != nil {
		t.Fatalf("list the packages: %v", err)
	}
	if len(pkgs) < 3 {
		t.Fatalf("go list found %d packages only", len(pkgs))
	}
	return pkgs
}

// report fails the test with one line per finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// imports returns the import paths of a file with their lines.
func imports(s source) (map[string]int, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, s.path, s.text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	m := map[string]int{}
	for _, i := range f.Imports {
		m[strings.Trim(i.Path.Value, `"`)] = fset.Position(i.Pos()).Line
	}
	return m, nil
}

// wantOne fails unless findings is a single one that contains each part.
func wantOne(t *testing.T, findings []string, parts ...string) {
	t.Helper()
	if len(findings) != 1 {
		t.Fatalf("%d findings, want one: %q", len(findings), findings)
	}
	for _, p := range parts {
		if !strings.Contains(findings[0], p) {
			t.Errorf("finding %q does not contain %q", findings[0], p)
		}
	}
}
