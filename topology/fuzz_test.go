package topology_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/onceover-mirror/onceover/topology"
)

// FuzzParse: no input makes Parse panic, every error is made of findings, and
// what is accepted can be printed and read again as the same thing.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, err := topology.Parse("fuzz.yml", data, lookup)
		if err != nil {
			if list := findingsOf(t, err); len(list) == 0 || parsed != nil {
				t.Fatalf("%d findings, topology %v", len(list), parsed)
			}
			return
		}
		printed := parsed.Canonical()
		again, err := topology.Parse("printed.yml", printed, lookup)
		if err != nil {
			t.Fatalf("printed form is refused: %v\n%s", err, printed)
		}
		if again.Fingerprint() != parsed.Fingerprint() {
			t.Fatalf("printed form differs:\n%s\n%s", printed, again.Canonical())
		}
		for _, flow := range parsed.Flows {
			if _, err := parsed.Resolve(flow); err != nil {
				t.Fatalf("resolve: %v", err)
			}
		}
	})
}
