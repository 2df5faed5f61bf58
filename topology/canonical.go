package topology

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Canonical prints the whole topology as YAML that [Parse] accepts: every
// default written out, keys in a fixed order, clusters sorted by name, and
// every secret as "***".
func (t *Topology) Canonical() []byte {
	root := tree{}
	root.properties(t.Properties)
	clusters := tree{}
	for _, name := range slices.Sorted(maps.Keys(t.Clusters)) {
		clusters.put(name, t.Clusters[name].canonical().node())
	}
	root.put("clusters", clusters.node())
	flows := &yaml.Node{Kind: yaml.SequenceNode}
	for _, f := range t.Flows {
		flows.Content = append(flows.Content, f.canonical().node())
	}
	root.put("flows", flows)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	// A buffer takes every write, and the tree holds valid nodes only.
	_ = encoder.Encode(root.node())
	_ = encoder.Close()
	return out.Bytes()
}

// String returns [Topology.Canonical] as text.
func (t *Topology) String() string { return string(t.Canonical()) }

// Fingerprint returns the SHA-256 of [Topology.Canonical] in hex. It changes
// with every setting but not with a secret, a comment or the order of keys.
// What a ledger is bound to is [Flow.Fingerprint].
func (t *Topology) Fingerprint() string {
	sum := sha256.Sum256(t.Canonical())
	return hex.EncodeToString(sum[:])
}

func (c *Cluster) canonical() tree {
	var out tree
	out.list("bootstrap", c.Bootstrap)
	out.text("client_id", c.ClientID)
	if s := c.TLS; s != nil {
		var tls tree
		tls.optional("ca", s.CAFile+s.CAPEM)
		tls.optional("cert", s.CertFile+s.CertPEM)
		key := s.KeyFile
		if s.KeyPEM != "" {
			key = s.KeyPEM.String()
		}
		tls.optional("key", key)
		tls.optional("server_name", s.ServerName)
		tls.boolean("insecure_skip_verify", s.SkipVerify)
		out.put("tls", tls.node())
	}
	if s := c.SASL; s != nil {
		var sasl tree
		sasl.text("mechanism", s.Mechanism)
		sasl.text("username", s.Username)
		sasl.text("password", s.Password.String())
		out.put("sasl", sasl.node())
	}
	return out
}

func (f *Flow) canonical() tree {
	var out, topics, create, limits tree
	out.text("name", f.Name)
	out.text("from", f.From)
	if f.Sink == nil {
		out.text("to", f.To)
	} else if f.Sink.File != nil {
		var file, sink tree
		file.text("path", f.Sink.File.Path)
		sink.put("file", file.node())
		out.put("sink", sink.node())
	}
	topics.list("include", f.Topics.Include)
	if len(f.Topics.Exclude) > 0 {
		topics.list("exclude", f.Topics.Exclude)
	}
	out.put("topics", topics.node())
	out.text("rename", f.Rename)
	out.text("guarantee", string(f.Guarantee))
	out.text("read", string(f.Read))
	out.text("ordered", string(f.Ordered))
	out.text("start", string(f.Start))
	out.text("on_error", string(f.OnError))
	out.boolean("provenance", f.Provenance)
	out.integer("lanes", f.Lanes)
	if f.Sink == nil {
		f.putExactly(&out)
		create.boolean("enabled", f.Create.Enabled)
		create.integer("replication_factor", int(f.Create.ReplicationFactor))
		out.put("create", create.node())
	}
	limits.integer("records", f.Limits.Records)
	limits.integer("bytes", f.Limits.Bytes)
	limits.text("refresh", span(f.Limits.Refresh))
	limits.text("shutdown", span(f.Limits.Shutdown))
	limits.text("lock", span(f.Limits.Lock))
	out.put("limits", limits.node())
	out.properties(f.Properties)
	return out
}

// putExactly prints the settings of exactly-once: those of the ledger, or of
// what it does without.
func (f *Flow) putExactly(out *tree) {
	var transaction, ledger tree
	if k := f.KIP1289; k != nil {
		var kip tree
		kip.integer("key", int(k.Key))
		kip.integer("draft", int(k.Draft))
		out.put("kip1289", kip.node())
		transaction.text("timeout", span(min(f.Transaction.Timeout, MaxKIP1289Timeout)))
		transaction.text("interval", span(f.Transaction.Interval))
		out.put("transaction", transaction.node())
		return
	}
	out.text("on_gap", string(f.OnGap))
	out.text("on_recreate", string(f.OnRecreate))
	out.text("on_target_recreate", string(f.OnTargetRecreate))
	out.boolean("allow_unverified_transactions", f.AllowUnverified)
	out.boolean("allow_no_topic_ids", f.AllowNoTopicIDs)
	transaction.text("timeout", span(f.Transaction.Timeout))
	transaction.text("interval", span(f.Transaction.Interval))
	out.put("transaction", transaction.node())
	ledger.integer("shards", f.Ledger.Shards)
	ledger.integer("replication_factor", int(f.Ledger.ReplicationFactor))
	out.put("ledger", ledger.node())
}

// tree is a YAML mapping in the order in which it was filled.
type tree []*yaml.Node

func (t tree) node() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Content: t} }

func (t *tree) put(key string, value *yaml.Node) { *t = append(*t, textNode(key), value) }

func (t *tree) text(key, value string) { t.put(key, textNode(escape(value))) }

func (t *tree) optional(key, value string) {
	if value != "" {
		t.text(key, value)
	}
}

func (t *tree) boolean(key string, value bool) {
	t.put(key, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(value)})
}

func (t *tree) integer(key string, value int) {
	t.put(key, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(value)})
}

func (t *tree) list(key string, values []string) {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, v := range values {
		n.Content = append(n.Content, textNode(escape(v)))
	}
	t.put(key, n)
}

func (t *tree) properties(properties map[string]Value) {
	if len(properties) == 0 {
		return
	}
	var out tree
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		out.text(key, properties[key].Text)
	}
	t.put("properties", out.node())
}

// span prints a duration without zero parts at its end.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// escape keeps the reader from taking a dollar sign for a variable.
func escape(s string) string { return strings.ReplaceAll(s, "$", "$$") }

func textNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(strings.ToValidUTF8(s, "\uFFFD"))
	if strings.ContainsAny(s, "\r\n\t") {
		n.Style = yaml.DoubleQuotedStyle // keeps each character as it is
	}
	return n
}
