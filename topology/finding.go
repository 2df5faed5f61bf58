package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// Finding is one thing that is wrong with a declaration.
type Finding struct {
	// File is the name given to [Parse], empty for the quick form.
	File string
	// Line is 1-based; 0 when the thing has no line.
	Line int
	// Path names the place, for example flows[0].topics.include[1].
	Path string
	// Problem is one phrase; it never holds the value of a secret.
	Problem string
	// Hint says what to do about it; may be empty.
	Hint string
}

// Error returns "file:line: path: problem (hint)", without the parts that are
// not known.
func (f *Finding) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		b.WriteString(": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Problem)
	if f.Hint != "" {
		b.WriteString(" (" + f.Hint + ")")
	}
	return b.String()
}

// findings gathers what is wrong with one declaration.
type findings struct {
	file  string
	lines map[string]int
	list  []*Finding
	// broken are the paths that could not be read: what follows from that is
	// not worth a second finding.
	broken map[string]bool
}

// add records a finding at the line of path, or of the nearest thing around
// it that has one.
func (f *findings) add(path, problem, hint string) {
	for at := path; at != ""; at = parent(at) {
		if f.broken[at] {
			return
		}
	}
	f.list = append(f.list, &Finding{File: f.file, Line: f.line(path), Path: path, Problem: problem, Hint: hint})
}

// addBroken records a finding about something unreadable and silences later
// ones about it.
func (f *findings) addBroken(line int, path, problem, hint string) {
	f.list = append(f.list, &Finding{File: f.file, Line: line, Path: path, Problem: problem, Hint: hint})
	f.silence(path)
}

func (f *findings) silence(path string) {
	if f.broken == nil {
		f.broken = map[string]bool{}
	}
	f.broken[path] = true
}

func (f *findings) line(path string) int {
	for at := path; at != ""; at = parent(at) {
		if line := f.lines[at]; line > 0 {
			return line
		}
	}
	return 0
}

// parent cuts the last step off a path: "a.b[1]" gives "a.b", then "a".
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// err returns all findings sorted by line, or nil.
func (f *findings) err() error {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, func(a, b *Finding) int { return cmp.Compare(a.Line, b.Line) })
	all := &multierror.Error{ErrorFormat: onePerLine}
	for _, finding := range f.list {
		all.Errors = append(all.Errors, finding)
	}
	return all
}

func onePerLine(errs []error) string {
	lines := make([]string, len(errs))
	for i, err := range errs {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// maxListed is how long the list of known words in a hint may be.
const maxListed = 400

// didYouMean is the hint for a word that is not among the known ones: the
// nearest of them, or all of them when none is near.
func didYouMean(word string, known []string) string {
	best, distance := "", max(2, len(word)/3)+1
	sorted := slices.Sorted(slices.Values(known))
	for _, k := range sorted {
		d := editDistance(strings.ToLower(word), strings.ToLower(k))
		if len(word) > 2 && strings.HasPrefix(k, word) {
			d = 1 // cut short
		}
		if d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if len(sorted) == 0 {
		return ""
	}
	list := strings.Join(sorted, ", ")
	if len(list) > maxListed {
		return "docs/CONFIG.md lists the known ones"
	}
	return "known here: " + list
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
