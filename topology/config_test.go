package topology_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/onceover-mirror/onceover/topology"
)

// keysAt asks the parser which keys a mapping may have: the hint at an
// unknown key lists them.
func keysAt(t *testing.T, text, path string) []string {
	t.Helper()
	_, err := topology.Parse("keys.yml", []byte(text), lookup)
	for _, f := range findingsOf(t, err) {
		if list, ok := strings.CutPrefix(f.Hint, "known here: "); ok && f.Path == path {
			return strings.Split(list, ", ")
		}
	}
	t.Fatalf("no list of keys at %s:\n%v", path, err)
	return nil
}

// yamlKeys returns the path of every key that the parser knows, as
// docs/CONFIG.md writes it.
func yamlKeys(t *testing.T) []string {
	t.Helper()
	const odd = "unheard-of-anywhere"
	var all []string
	for _, place := range []struct{ prefix, text, path string }{
		{"", odd + ": 1", odd},
		{"clusters.NAME.", "clusters: {n: {" + odd + ": 1}}", "clusters.n." + odd},
		{"clusters.NAME.tls.", "clusters: {n: {tls: {" + odd + ": 1}}}", "clusters.n.tls." + odd},
		{"clusters.NAME.sasl.", "clusters: {n: {sasl: {" + odd + ": 1}}}", "clusters.n.sasl." + odd},
		{"flows[].", "flows: [{" + odd + ": 1}]", "flows[0]." + odd},
		{"flows[].sink.", "flows: [{sink: {" + odd + ": 1}}]", "flows[0].sink." + odd},
		{"flows[].sink.file.", "flows: [{sink: {file: {" + odd + ": 1}}}]", "flows[0].sink.file." + odd},
		{"flows[].topics.", "flows: [{topics: {" + odd + ": 1}}]", "flows[0].topics." + odd},
		{"flows[].create.", "flows: [{create: {" + odd + ": 1}}]", "flows[0].create." + odd},
		{"flows[].transaction.", "flows: [{transaction: {" + odd + ": 1}}]", "flows[0].transaction." + odd},
		{"flows[].ledger.", "flows: [{ledger: {" + odd + ": 1}}]", "flows[0].ledger." + odd},
		{"flows[].kip1289.", "flows: [{kip1289: {" + odd + ": 1}}]", "flows[0].kip1289." + odd},
		{"flows[].limits.", "flows: [{limits: {" + odd + ": 1}}]", "flows[0].limits." + odd},
	} {
		for _, key := range keysAt(t, place.text, place.path) {
			all = append(all, place.prefix+key)
		}
	}
	return all
}

func TestConfigPageNamesEveryKey(t *testing.T) {
	page, err := os.ReadFile("../docs/CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		rows[row[1]] = true
	}
	cluster, worker, flow, owned := topology.PropertyKeys()
	known := slices.Concat(yamlKeys(t), cluster, worker, flow)
	if len(known) < 70 {
		t.Fatalf("only %d keys found", len(known))
	}
	for _, key := range known {
		if !rows[key] {
			t.Errorf("docs/CONFIG.md has no row for %s", key)
		}
		delete(rows, key)
	}
	for row := range rows {
		t.Errorf("docs/CONFIG.md has a row for %s, which does not exist", row)
	}
	for _, key := range owned {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/CONFIG.md does not name the owned setting %s", key)
		}
	}
}

// TestConfigPageExample: what the page shows is accepted.
func TestConfigPageExample(t *testing.T) {
	page, err := os.ReadFile("../docs/CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("no example")
	}
	for _, block := range blocks {
		if _, err := topology.Parse("CONFIG.md", block[1], lookup); err != nil {
			t.Errorf("%v\n%s", err, block[1])
		}
	}
}

// TestFullFileHasEveryKey keeps testdata/full.good.yml worth its name.
func TestFullFileHasEveryKey(t *testing.T) {
	data, err := os.ReadFile("testdata/full.good.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	collect(doc.Content[0], "", used)
	unsupported := []string{"drills", "flows[].sync", "flows[].transforms", "flows[].routes"}
	for _, key := range yamlKeys(t) {
		if !used[key] && !slices.Contains(unsupported, key) {
			t.Errorf("testdata/full.good.yml does not use %s", key)
		}
	}
}

func collect(n *yaml.Node, path string, used map[string]bool) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i].Value
			if path == "clusters." {
				key = "NAME"
			}
			used[path+key] = true
			collect(n.Content[i+1], path+key+".", used)
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			collect(item, strings.TrimSuffix(path, ".")+"[].", used)
		}
	}
}
