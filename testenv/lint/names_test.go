package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// checkRealNames finds tests that start real brokers without saying so in
// their names, by which make real and make fake tell them apart.
func checkRealNames(s source) ([]string, error) {
	if !s.isTest() {
		return nil, nil
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, s.path, s.text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(fn.Name.Name, "Test") || strings.Contains(fn.Name.Name, "Real") || fn.Body == nil {
			continue
		}
		starts := ""
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if name := selector(call.Fun); name == "testenv.Real" || name == "testenv.StartReal" {
					starts = name
				}
			}
			return true
		})
		if starts != "" {
			found = append(found, fmt.Sprintf("%s: %s calls %s: put Real into its name, or make fake starts brokers and make real leaves it out", fset.Position(fn.Pos()), fn.Name.Name, starts))
		}
	}
	return found, nil
}

func TestRealInNames(t *testing.T) {
	for _, p := range all(t) {
		for _, s := range p.files {
			found, err := checkRealNames(s)
			if err != nil {
				t.Fatal(err)
			}
			report(t, found)
		}
	}
}

func TestRealInNamesRefuses(t *testing.T) {
	text := `package x

func TestCopy(t *testing.T) { t.Run("4.4", func(t *testing.T) { testenv.Real(t, "4.4.0") }) }

func TestRealCopy(t *testing.T) { testenv.Real(t, "4.4.0") }

func TestEmbedded(t *testing.T) { testenv.Embedded(t) }
`
	found, err := checkRealNames(source{"x/x_test.go", []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	wantOne(t, found, "x/x_test.go:3:1: TestCopy calls testenv.Real")
}
