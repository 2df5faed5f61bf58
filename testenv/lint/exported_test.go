package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"unicode"
)

// undocumented collects the exported symbols of one file that have no doc
// comment: a contract that is written nowhere is guessed by its caller.
type undocumented struct {
	fset  *token.FileSet
	found []string
}

func (u *undocumented) add(pos token.Pos, kind, name string) {
	u.found = append(u.found, fmt.Sprintf("%s: %s %s is exported and has no doc comment: say what it promises, its unit and its default", u.fset.Position(pos), kind, name))
}

// checkExported returns the undocumented exported symbols of a file: types,
// functions, constants, variables, methods and fields of exported types. A
// doc comment on a group of constants or variables stands for all of them;
// one on a field or interface method stands for those that follow it without
// an empty line between, and that of the type for those that it names.
func checkExported(s source) ([]string, error) {
	u := &undocumented{fset: token.NewFileSet()}
	f, err := parser.ParseFile(u.fset, s.path, s.text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			u.function(d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					u.typ(spec, d.Doc)
				case *ast.ValueSpec:
					u.value(spec, d)
				}
			}
		}
	}
	return u.found, nil
}

func (u *undocumented) function(d *ast.FuncDecl) {
	if !d.Name.IsExported() || d.Doc != nil {
		return
	}
	if d.Recv == nil {
		u.add(d.Pos(), "function", d.Name.Name)
	} else if name := receiver(d.Recv.List[0].Type); ast.IsExported(name) {
		u.add(d.Pos(), "method", name+"."+d.Name.Name)
	}
}

// receiver returns the type name of a receiver: T of T, *T, T[P] and *T[P].
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	}
	return ""
}

func (u *undocumented) value(spec *ast.ValueSpec, d *ast.GenDecl) {
	if spec.Doc != nil || spec.Comment != nil || d.Doc != nil {
		return
	}
	for _, n := range spec.Names {
		if n.IsExported() {
			u.add(n.Pos(), d.Tok.String(), n.Name)
		}
	}
}

func (u *undocumented) typ(spec *ast.TypeSpec, group *ast.CommentGroup) {
	if !spec.Name.IsExported() {
		return
	}
	if spec.Doc == nil && spec.Comment == nil && group == nil {
		u.add(spec.Pos(), "type", spec.Name.Name)
	}
	switch t := spec.Type.(type) {
	case *ast.StructType:
		u.fields(spec.Name.Name, words(spec.Doc, group), t.Fields.List)
	case *ast.InterfaceType:
		u.fields(spec.Name.Name, words(spec.Doc, group), t.Methods.List)
	}
}

// words returns the words of doc comments.
func words(groups ...*ast.CommentGroup) map[string]bool {
	m := map[string]bool{}
	for _, g := range groups {
		notName := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }
		for _, w := range strings.FieldsFunc(g.Text(), notName) {
			m[w] = true
		}
	}
	return m
}

func (u *undocumented) fields(of string, named map[string]bool, list []*ast.Field) {
	covered, next := false, 0 // a doc comment stands up to the next empty line
	for _, f := range list {
		if u.fset.Position(f.Pos()).Line != next {
			covered = false
		}
		covered = covered || f.Doc != nil
		next = u.fset.Position(f.End()).Line + 1
		for _, n := range f.Names {
			if n.IsExported() && !covered && f.Comment == nil && !named[n.Name] {
				u.add(n.Pos(), "field", of+"."+n.Name)
			}
		}
	}
}

func TestExportedDocumented(t *testing.T) {
	for _, p := range all(t) {
		if p.name == "main" {
			continue
		}
		for _, s := range p.files {
			if s.isTest() {
				continue
			}
			found, err := checkExported(s)
			if err != nil {
				t.Fatal(err)
			}
			report(t, found)
		}
	}
}

func TestExportedDocumentedRefuses(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"function", "func Do() {}", "function Do"},
		{"unexported function", "func do() {}", ""},
		{"type", "type T int", "type T"},
		{"constant", "const (\n\tA = 1\n)", "const A"},
		{"documented group", "// The letters.\nconst (\n\tA = 1\n\tB = 2\n)", ""},
		{"trailing comment", "var A = 1 // the first letter", ""},
		{"variable", "var a, A = 1, 2", "var A"},
		{"method", "func (t *T[P]) Do() {}", "method T.Do"},
		{"method of an unexported type", "func (t *t) Do() {}", ""},
		{"field", "// T is.\ntype T struct {\n\tA int\n}", "field T.A"},
		{"field of an unexported type", "type t struct {\n\tA int\n}", ""},
		{"trailing field comment", "// T is.\ntype T struct {\n\tA int // in bytes\n}", ""},
		{"run of fields", "// T is.\ntype T struct {\n\t// A and B are.\n\tA int\n\tB int\n}", ""},
		{"field after a doc comment of two lines", "// T is.\ntype T struct {\n\t// A is.\n\tA int\n\t// B is,\n\t// and C.\n\tB int\n\tC int\n}", ""},
		{"field after an empty line", "// T is.\ntype T struct {\n\t// A is.\n\tA int\n\n\tB int\n}", "field T.B"},
		{"field named by its type", "// T counts A.\ntype T struct {\n\tA int\n\tB int\n}", "field T.B"},
		{"interface method", "// T is.\ntype T interface {\n\tDo()\n}", "field T.Do"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			found, err := checkExported(source{"x/x.go", []byte("package x\n\n" + test.text + "\n")})
			if err != nil {
				t.Fatal(err)
			}
			if test.want != "" {
				wantOne(t, found, test.want, "no doc comment")
			} else if len(found) > 0 {
				t.Errorf("refused: %q", found)
			}
		})
	}
}
