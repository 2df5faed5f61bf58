package lint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page reads a file of the project; ok is false where there is none.
func page(t *testing.T, name string) (text string, ok bool) {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b), err == nil
}

var guaranteeID = regexp.MustCompile(`\bG[1-9][0-9]*\b`)

// checkGuarantees returns the ids of the page that no test names: a promise
// that nothing tests is a wish.
func checkGuarantees(text string, tests []source) []string {
	ids := guaranteeID.FindAllString(text, -1)
	slices.Sort(ids)
	var found []string
	for _, id := range slices.Compact(ids) {
		named := func(s source) bool { return slices.Contains(guaranteeID.FindAllString(string(s.text), -1), id) }
		if !slices.ContainsFunc(tests, named) {
			found = append(found, fmt.Sprintf("docs/GUARANTEES.md: %s is named by no test: a promise needs a test that would see it broken", id))
		}
	}
	return found
}

// guaranteeTests are all tests and the suites that they call, but for these
// here, which name ids that don't exist.
func guaranteeTests(t *testing.T) []source {
	var tests []source
	for _, p := range all(t) {
		for _, s := range p.files {
			if p.dir != "testenv/lint" && (s.isTest() || strings.HasPrefix(p.dir, "testenv/")) {
				tests = append(tests, s)
			}
		}
	}
	return tests
}

// TestGuaranteesTested asks nothing as long as the page is not written.
func TestGuaranteesTested(t *testing.T) {
	if text, ok := page(t, "docs/GUARANTEES.md"); ok {
		report(t, checkGuarantees(text, guaranteeTests(t)))
	}
}

func TestGuaranteesTestedRefuses(t *testing.T) {
	tests := []source{{"mirror/lane_test.go", []byte("package mirror\n\n// TestCrash shows G1 and G12.\n")}}
	wantOne(t, checkGuarantees("## G1 Nothing is lost\n## G2 Nothing is there twice\n", tests), "G2 is named by no test")
}

func TestConfigPageExists(t *testing.T) {
	if text, ok := page(t, "docs/CONFIG.md"); !ok || text == "" {
		t.Error("docs/CONFIG.md is missing: it names every key of the declaration")
	}
}

// recordParts is what a decision record has to say.
var recordParts = []string{"\n## Decision\n", "\n## Alternatives\n", "\n## Revisit trigger\n"}

var recordHead = regexp.MustCompile(`(?m)\A# [0-9]{4}: .+\n\n\* Status: (proposed|accepted|tabled|superseded by [0-9]{4})\n\* Date: [0-9]{4}-[0-9]{2}-[0-9]{2}\n`)

func checkRecord(name, text string) []string {
	var found []string
	if !recordHead.MatchString(text) {
		found = append(found, name+": does not begin with \"# NNNN: title\", Status and Date as in docs/adr/template.md")
	}
	for _, part := range recordParts {
		if !strings.Contains(text, part) {
			found = append(found, fmt.Sprintf("%s: has no part %q: a decision without it can't be looked at again", name, strings.TrimSpace(part)))
		}
	}
	return found
}

func TestDecisionRecords(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "docs", "adr", "[0-9]*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no record in docs/adr: %v", err)
	}
	for _, name := range names {
		name = "docs/adr/" + filepath.Base(name)
		text, _ := page(t, name)
		report(t, checkRecord(name, text))
	}
}

func TestDecisionRecordsRefuse(t *testing.T) {
	good := "# 0007: Seven\n\n* Status: accepted\n* Date: 2026-12-01\n\n## Decision\n\nx\n\n## Alternatives\n\nx\n\n## Revisit trigger\n\nx\n"
	if found := checkRecord("a.md", good); len(found) > 0 {
		t.Errorf("refused: %q", found)
	}
	wantOne(t, checkRecord("a.md", strings.Replace(good, "accepted", "done", 1)), "does not begin with")
	wantOne(t, checkRecord("a.md", strings.Replace(good, "## Revisit trigger", "## Later", 1)), "Revisit trigger")
}
