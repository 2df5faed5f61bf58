package topology

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDocument bounds a declaration, in bytes.
const maxDocument = 1 << 20

// Parse reads a YAML declaration, fills in the defaults and validates it.
// name is the file's name in findings. lookup resolves ${NAME} inside values;
// a name that it does not know is a finding, "$$" stands for one "$".
//
// The error is a *multierror.Error that holds every [Finding] of the file,
// sorted by line; the topology is then nil.
func Parse(name string, data []byte, lookup func(string) (string, bool)) (*Topology, error) {
	t := &Topology{Clusters: map[string]*Cluster{}, lines: map[string]int{}}
	p := &parser{findings: findings{file: name, lines: t.lines}, lookup: lookup}
	if root := p.document(data); root != nil {
		p.topology(root, t)
		t.takePollRecords(&p.findings)
		t.validate(&p.findings)
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return t, nil
}

// document returns the one mapping of the file, or nil with a finding.
func (p *parser) document(data []byte) *yaml.Node {
	if len(data) > maxDocument {
		p.addBroken(0, "", fmt.Sprintf("larger than %d bytes", maxDocument), "split the flows over several files")
		return nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		line, problem, hint := yamlProblem(err)
		p.addBroken(line, "", problem, hint)
		return nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		p.addBroken(0, "", "empty declaration", "name your clusters below \"clusters:\" and your flows below \"flows:\"")
		return nil
	}
	if line := secondDocument(data); line > 0 {
		p.addBroken(line, "", "second YAML document", "one declaration per file: remove the line \"---\" and what follows")
	}
	return doc.Content[0]
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func yamlProblem(err error) (line int, problem, hint string) {
	m := yamlError.FindStringSubmatch(err.Error())
	switch {
	case m == nil:
		return 0, "not YAML: " + err.Error(), ""
	case strings.HasPrefix(m[2], "unknown anchor"):
		// The library would quote what may be a password.
		problem, hint = "reference to an unknown anchor", "put a text that starts with * in quotes"
	default:
		problem = m[2]
	}
	line, _ = strconv.Atoi(m[1])
	return line, "not YAML: " + problem, hint
}

func (p *parser) topology(n *yaml.Node, t *Topology) {
	p.object(n, "", fields{
		"properties": p.properties(&t.Properties),
		"clusters":   p.clusters(t),
		"flows":      p.flows(t),
		"drills":     p.unsupported(),
	})
}

func (p *parser) clusters(t *Topology) setter {
	return func(n *yaml.Node, path string) {
		p.entries(n, path, func(name string, n *yaml.Node, path string) {
			c := &Cluster{Name: name, ClientID: defaultClientID}
			t.Clusters[name] = c
			var properties map[string]Value
			p.object(n, path, fields{
				"bootstrap":  p.addresses(&c.Bootstrap),
				"client_id":  p.text(&c.ClientID),
				"tls":        p.tls(c),
				"sasl":       p.sasl(c),
				"properties": p.properties(&properties),
			})
			c.apply(properties, path, &p.findings)
		})
	}
}

func (p *parser) tls(c *Cluster) setter {
	return func(n *yaml.Node, path string) {
		var ca, cert, key string
		c.TLS = &TLS{}
		p.object(n, path, fields{
			"ca":                   p.text(&ca),
			"cert":                 p.text(&cert),
			"key":                  p.text(&key),
			"server_name":          p.text(&c.TLS.ServerName),
			"insecure_skip_verify": p.boolean(&c.TLS.SkipVerify),
		})
		c.TLS.CAFile, c.TLS.CAPEM = fileOrPEM(ca)
		c.TLS.CertFile, c.TLS.CertPEM = fileOrPEM(cert)
		var pem string
		c.TLS.KeyFile, pem = fileOrPEM(key)
		c.TLS.KeyPEM = Secret(pem)
	}
}

func (p *parser) sasl(c *Cluster) setter {
	return func(n *yaml.Node, path string) {
		c.SASL = &SASL{}
		var password string
		p.object(n, path, fields{
			"mechanism": p.text(&c.SASL.Mechanism),
			"username":  p.text(&c.SASL.Username),
			"password":  p.text(&password),
		})
		c.SASL.Password = Secret(password)
	}
}

func (p *parser) flows(t *Topology) setter {
	return func(n *yaml.Node, path string) {
		p.items(n, path, func(n *yaml.Node, path string) {
			f := NewFlow("")
			f.Line = n.Line
			t.Flows = append(t.Flows, f)
			p.flow(n, path, f)
			p.boundTimeout(f, path)
		})
	}
}

func (p *parser) flow(n *yaml.Node, path string, f *Flow) {
	p.object(n, path, fields{
		"name":                          p.text(&f.Name),
		"from":                          p.text(&f.From),
		"to":                            p.text(&f.To),
		"sink":                          p.sink(f),
		"topics":                        p.topics(f),
		"rename":                        p.text(&f.Rename),
		"guarantee":                     p.text((*string)(&f.Guarantee)),
		"read":                          p.text((*string)(&f.Read)),
		"ordered":                       p.textOrBoolean((*string)(&f.Ordered)),
		"start":                         p.text((*string)(&f.Start)),
		"on_error":                      p.text((*string)(&f.OnError)),
		"provenance":                    p.boolean(&f.Provenance),
		"on_gap":                        p.text((*string)(&f.OnGap)),
		"on_recreate":                   p.text((*string)(&f.OnRecreate)),
		"on_target_recreate":            p.text((*string)(&f.OnTargetRecreate)),
		"allow_unverified_transactions": p.boolean(&f.AllowUnverified),
		"allow_no_topic_ids":            p.boolean(&f.AllowNoTopicIDs),
		"transaction": p.nested(fields{
			"timeout":  p.timeout(&f.Transaction.Timeout),
			"interval": p.duration(&f.Transaction.Interval),
		}),
		"ledger": p.nested(fields{
			"shards":             p.integer(&f.Ledger.Shards),
			"replication_factor": p.int16(&f.Ledger.ReplicationFactor),
		}),
		"kip1289": p.kip1289(f),
		"lanes":   p.integer(&f.Lanes),
		"create": p.nested(fields{
			"enabled":            p.boolean(&f.Create.Enabled),
			"replication_factor": p.int16(&f.Create.ReplicationFactor),
		}),
		"limits": p.nested(fields{
			"records":  p.integer(&f.Limits.Records),
			"bytes":    p.size(&f.Limits.Bytes),
			"refresh":  p.duration(&f.Limits.Refresh),
			"shutdown": p.duration(&f.Limits.Shutdown),
			"lock":     p.duration(&f.Limits.Lock),
		}),
		"properties": p.properties(&f.Properties),
		"sync":       p.unsupported(),
		"transforms": p.unsupported(),
		"routes":     p.unsupported(),
	})
}

func (p *parser) sink(f *Flow) setter {
	return func(n *yaml.Node, path string) {
		f.Sink = &Sink{}
		p.object(n, path, fields{"file": func(n *yaml.Node, path string) {
			f.Sink.File = &FileSink{}
			p.object(n, path, fields{"path": p.text(&f.Sink.File.Path)})
		}})
	}
}

func (p *parser) topics(f *Flow) setter {
	return func(n *yaml.Node, path string) {
		if n.Kind == yaml.SequenceNode {
			p.texts(&f.Topics.Include)(n, path)
			return
		}
		p.object(n, path, fields{
			"include": p.texts(&f.Topics.Include),
			"exclude": p.texts(&f.Topics.Exclude),
		})
	}
}

// unsupported refuses a key that is part of the language but not of this
// version, so that nobody believes it has an effect.
func (p *parser) unsupported() setter {
	return func(n *yaml.Node, path string) {
		p.addBroken(p.line(path), path, "not supported by this version", "remove it")
	}
}
