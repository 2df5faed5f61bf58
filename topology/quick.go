package topology

import (
	"fmt"
	"strings"
)

// The names of the two clusters of a [QuickFlow].
const (
	QuickSource = "source"
	QuickTarget = "target"
)

// QuickFlow is one flow between two clusters, told by flags instead of a
// file. A zero field means its default.
type QuickFlow struct {
	// Name of the flow. Default: "quick". Group names derive from it.
	Name string
	// From and To are the seed brokers, host:port.
	From, To []string
	// FromProperties and ToProperties are cluster settings under Kafka's own
	// names, as in a client.properties file.
	FromProperties, ToProperties map[string]string
	// Topics and Exclude as [Topics].
	Topics, Exclude []string
	// Rename, Guarantee, Read, Ordered, Start, OnError as in [Flow].
	Rename    string
	Guarantee string
	Read      string
	Ordered   string
	Start     string
	OnError   string
	// Lanes as in [Flow].
	Lanes int
}

// Quick turns q into a topology with the clusters "source" and "target" and
// one flow, and validates it as [Parse] does. Findings have no line, and
// their path names the flag.
func Quick(q QuickFlow) (*Topology, error) {
	t := &Topology{Clusters: map[string]*Cluster{}, lines: map[string]int{}}
	found := &findings{lines: t.lines}
	t.quickCluster(QuickSource, q.From, q.FromProperties, found)
	t.quickCluster(QuickTarget, q.To, q.ToProperties, found)
	f := NewFlow(defaultQuickName)
	f.From, f.To = QuickSource, QuickTarget
	f.Topics = Topics{Include: q.Topics, Exclude: q.Exclude}
	set := func(key, value string, dst *string) {
		if value != "" {
			*dst = value
			t.lines["flows[0]."+key] = 0
		}
	}
	set("name", q.Name, &f.Name)
	set("rename", q.Rename, &f.Rename)
	set("guarantee", q.Guarantee, (*string)(&f.Guarantee))
	set("read", q.Read, (*string)(&f.Read))
	set("ordered", q.Ordered, (*string)(&f.Ordered))
	set("start", q.Start, (*string)(&f.Start))
	set("on_error", q.OnError, (*string)(&f.OnError))
	if q.Lanes != 0 {
		f.Lanes = q.Lanes
		t.lines["flows[0].lanes"] = 0
	}
	t.Flows = []*Flow{f}
	t.validate(found)
	for _, finding := range found.list {
		finding.Path = quickFlag(finding.Path)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Topology) quickCluster(name string, bootstrap []string, properties map[string]string, found *findings) {
	c := &Cluster{Name: name, ClientID: defaultClientID}
	for _, address := range bootstrap {
		c.Bootstrap = append(c.Bootstrap, splitList(address)...)
	}
	values := map[string]Value{}
	for key, text := range properties {
		// The addresses come from their own flag; a properties file that is
		// used with other tools names them too.
		if key != "bootstrap.servers" || len(c.Bootstrap) == 0 {
			values[key] = Value{Text: text}
		}
	}
	c.apply(values, "clusters."+name, found)
	t.Clusters[name] = c
}

// quickFlag turns a path into the flag that it came from.
func quickFlag(path string) string {
	for _, flag := range []struct{ path, name string }{
		{"clusters.source.bootstrap", "--from"},
		{"clusters.target.bootstrap", "--to"},
		{"clusters.source.", "--from: "},
		{"clusters.target.", "--to: "},
		{"flows[0].topics.include", "--topics"},
		{"flows[0].topics.exclude", "--exclude"},
		{"flows[0].", "--"},
	} {
		if rest, ok := strings.CutPrefix(path, flag.path); ok {
			return fmt.Sprintf("%s%s", flag.name, strings.ReplaceAll(rest, "_", "-"))
		}
	}
	return path
}
