package topology

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	flowNameShape = `[a-z0-9][a-z0-9-]{0,60}`
	maxRecords    = 1_000_000
	maxLanes      = 256
	maxFlows      = 500
)

var (
	flowName    = regexp.MustCompile(`^` + flowNameShape + `$`)
	clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$`)
)

// Validate checks everything that can be known without a network. name is
// the file's name in findings, "" for none. The error is a *multierror.Error
// of *[Finding], sorted by line. [Parse] and [Quick] have called it.
func (t *Topology) Validate(name string) error {
	f := &findings{file: name, lines: t.lines}
	t.validate(f)
	return f.err()
}

func (t *Topology) validate(f *findings) {
	workerLevel.check(t.Properties, "", f)
	t.checkClusters(f)
	if len(t.Flows) == 0 {
		f.add("flows", "no flow is declared", "a flow names its clusters (from, to) and its topics")
	}
	if len(t.Flows) > maxFlows {
		f.add("flows", fmt.Sprintf("%d flows, at most %d are possible", len(t.Flows), maxFlows), "use more patterns, or several files")
		return
	}
	names := map[string]int{}
	for i, flow := range t.Flows {
		path := fmt.Sprintf("flows[%d]", i)
		t.checkFlow(flow, path, f)
		if first, taken := names[flow.Name]; taken && flow.Name != "" {
			f.add(path+".name", fmt.Sprintf("flow name %q is taken by flows[%d]", flow.Name, first), "group names derive from it: choose another")
		} else {
			names[flow.Name] = i
		}
	}
	t.checkGroups(f)
	t.checkGraph(f)
}

func (t *Topology) checkClusters(f *findings) {
	owners := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(t.Clusters)) {
		c, path := t.Clusters[name], "clusters."+name
		if !clusterName.MatchString(name) {
			f.add(path, fmt.Sprintf("illegal cluster name %q", name), "use 1 to 61 letters, digits, '.', '_' and '-': it may become part of topic names")
		}
		if len(c.Bootstrap) == 0 {
			f.add(path+".bootstrap", "no broker address", "name at least one as host:port")
		}
		for i, address := range c.Bootstrap {
			at := fmt.Sprintf("%s.bootstrap[%d]", path, i)
			host, port, err := net.SplitHostPort(address)
			if n, perr := strconv.Atoi(port); err != nil || perr != nil || host == "" || n < 1 || n > 65535 {
				f.add(at, fmt.Sprintf("%q is not host:port", address), "")
				continue
			}
			address = strings.ToLower(address)
			if owner, taken := owners[address]; taken && owner != name {
				f.add(at, fmt.Sprintf("%s is an address of cluster %s too: two names for one cluster", address, owner), "use one name for it in every flow")
			}
			owners[address] = name
		}
		if len(c.ClientID) == 0 || len(c.ClientID) > 256 {
			f.add(path+".client_id", "expected 1 to 256 characters", "")
		}
		c.checkSecurity(path, f)
	}
}

func (c *Cluster) checkSecurity(path string, f *findings) {
	if s := c.SASL; s != nil {
		if !slices.Contains(mechanisms, s.Mechanism) {
			f.add(path+".sasl.mechanism", fmt.Sprintf("SASL mechanism %q is not supported", s.Mechanism), "use one of "+strings.Join(mechanisms, ", "))
		}
		if s.Username == "" {
			f.add(path+".sasl.username", "missing", "")
		}
		if s.Password == "" {
			f.add(path+".sasl.password", "missing", "")
		}
	}
	if s := c.TLS; s != nil {
		cert, key := s.CertFile+s.CertPEM != "", s.KeyFile+string(s.KeyPEM) != ""
		if cert != key {
			f.add(path+".tls", "a client certificate needs both certificate and key", "")
		}
		if strings.Contains(string(s.KeyPEM), "ENCRYPTED") {
			f.add(path+".tls.key", "the key is encrypted", "store it unencrypted, with file permissions that protect it")
		}
		if s.SkipVerify && (s.CAFile+s.CAPEM+s.ServerName) != "" {
			f.add(path+".tls", "certificates are not checked, so the ones and the name given to check against have no effect", "remove insecure_skip_verify, or ca and server_name")
		}
	}
}

func (t *Topology) checkFlow(flow *Flow, path string, f *findings) {
	if flow.Name == "" {
		f.add(path+".name", "missing", "")
	} else if !flowName.MatchString(flow.Name) {
		f.add(path+".name", fmt.Sprintf("illegal flow name %q", flow.Name), "use 1 to 61 lower-case letters, digits and '-', not starting with '-'")
	}
	t.checkEnds(flow, path, f)
	checkTopics(flow, path, f)
	checkRename(flow, path, f)
	known(f, path+".guarantee", flow.Guarantee, GuaranteeAuto, GuaranteeAtLeastOnce, GuaranteeExactlyOnce)
	known(f, path+".read", flow.Read, ReaderAuto, ReaderShare, ReaderPartition)
	known(f, path+".ordered", flow.Ordered, OrderedAuto, OrderedTrue, OrderedFalse)
	known(f, path+".start", flow.Start, StartEarliest, StartLatest)
	if flow.OnError == "dead-letter" {
		f.add(path+".on_error", "dead-letter is not supported by this version", "use stop or skip")
	} else {
		known(f, path+".on_error", flow.OnError, OnErrorStop, OnErrorSkip)
	}
	within(f, path+".lanes", flow.Lanes, 1, maxLanes)
	checkReplication(f, path+".create.replication_factor", flow.Create.ReplicationFactor)
	checkLedger(flow, path, f)
	within(f, path+".limits.records", flow.Limits.Records, 1, maxRecords)
	within(f, path+".limits.bytes", flow.Limits.Bytes, 1<<10, 1<<30)
	lasting(f, path+".limits.refresh", flow.Limits.Refresh, 100*time.Millisecond, time.Hour)
	lasting(f, path+".limits.shutdown", flow.Limits.Shutdown, 100*time.Millisecond, time.Hour)
	// The window that brokers accept for share.record.lock.duration.ms.
	lasting(f, path+".limits.lock", flow.Limits.Lock, 15*time.Second, time.Minute)
	flowLevel.check(flow.Properties, path, f)
	t.checkReader(flow, path, f)
	t.checkKIP1289(flow, path, f)
}

// checkEnds looks at where the flow comes from and goes to.
func (t *Topology) checkEnds(flow *Flow, path string, f *findings) {
	names := slices.Collect(maps.Keys(t.Clusters))
	reference := func(key, name string) {
		if name == "" {
			f.add(path+"."+key, "missing", "name one of your clusters")
		} else if _, ok := t.Clusters[name]; !ok {
			f.add(path+"."+key, fmt.Sprintf("unknown cluster %q", name), didYouMean(name, names))
		}
	}
	reference("from", flow.From)
	if flow.Sink == nil {
		reference("to", flow.To)
		return
	}
	if flow.To != "" {
		f.add(path+".sink", "a flow has one target, and this one has \"to\" as well", "remove one of them")
	}
	if flow.Sink.File == nil {
		f.add(path+".sink", "no kind of sink is named", `write sink: {file: {path: ...}}`)
	} else if flow.Sink.File.Path == "" {
		f.add(path+".sink.file.path", "missing", "")
	}
	if flow.Guarantee == GuaranteeExactlyOnce {
		f.add(path+".guarantee", "exactly-once needs a Kafka target: a file sink has no transactions", "use at-least-once or auto")
	}
	for _, key := range append([]string{"create"}, ledgerKeys...) {
		if _, given := t.lines[path+"."+key]; given {
			f.add(path+"."+key, "has no effect with a file sink", "remove it")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(flow.Properties)) {
		if strings.HasPrefix(key, flowLevel.producer) {
			f.add(path+".properties."+key, "has no effect with a file sink", "remove it")
		}
	}
}

func checkTopics(flow *Flow, path string, f *findings) {
	if len(flow.Topics.Include) == 0 {
		f.add(path+".topics", "no topic is included", `name topics or patterns, for example ["orders.*"]`)
	}
	lists := []struct {
		key     string
		entries []string
	}{{"include", flow.Topics.Include}, {"exclude", flow.Topics.Exclude}}
	for _, list := range lists {
		for i, entry := range list.entries {
			at := fmt.Sprintf("%s.topics.%s[%d]", path, list.key, i)
			if entry == "" {
				f.add(at, "empty", "")
			} else if problem, hint := patternProblem(entry); problem != "" {
				f.add(at, problem, hint)
			} else if list.key == "include" && isName(entry) {
				checkName(flow, entry, at, f)
			}
		}
	}
}

// checkName looks at an exact topic name that is included.
func checkName(flow *Flow, topic, at string, f *findings) {
	if problem := illegalTopic(topic); problem != "" {
		f.add(at, fmt.Sprintf("no topic can have this name: it %s", problem), "")
	} else if Internal(topic) {
		f.add(at, "an internal topic is never copied", "remove it")
	} else if !flow.Match(topic) {
		f.add(at, "excluded by topics.exclude", "remove it, or what excludes it")
	}
}

func patternProblem(pattern string) (problem, hint string) {
	_, err := compile(pattern)
	if err == nil {
		return "", ""
	}
	var bad *syntax.Error
	if !errors.As(err, &bad) {
		return err.Error(), ""
	}
	if strings.Contains(bad.Expr, "(?") {
		hint = "RE2 has neither look-around nor back-references; use topics.exclude"
	}
	position := max(0, strings.Index(pattern, bad.Expr)) + 1
	return fmt.Sprintf("bad pattern at character %d: %s: %q", position, bad.Code, bad.Expr), hint
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

func checkRename(flow *Flow, path string, f *findings) {
	at := path + ".rename"
	places := []string{placeTopic, placeCluster}
	for _, p := range placeholder.FindAllString(flow.Rename, -1) {
		if !slices.Contains(places, p) {
			f.add(at, "unknown placeholder "+p, didYouMean(p, places))
			return
		}
	}
	for _, p := range places {
		if strings.Count(flow.Rename, p) > 1 {
			f.add(at, p+" appears more than once", "")
			return
		}
	}
	if problem := illegalTopic(flow.TargetTopic("x")); problem != "" {
		f.add(at, "makes an illegal topic name: it "+problem, "")
		return
	}
	fixed := !strings.Contains(flow.Rename, placeTopic)
	if include := flow.Topics.Include; fixed && (len(include) != 1 || !isName(include[0])) {
		f.add(at, "without {topic} every source topic gets the same name", "add {topic}, or include one topic by its exact name")
		return
	}
	for _, topic := range flow.names() {
		target := flow.TargetTopic(topic)
		if problem := illegalTopic(target); problem != "" {
			f.add(at, fmt.Sprintf("topic %s would get an illegal name: it %s", topic, problem), "")
		} else if Internal(target) {
			f.add(at, fmt.Sprintf("topic %s would become %s, an internal topic", topic, target), "")
		}
	}
}

// names returns the exact names that the flow includes.
func (f *Flow) names() []string {
	var names []string
	for _, entry := range f.Topics.Include {
		if isName(entry) && f.Match(entry) {
			names = append(names, entry)
		}
	}
	return names
}

// known checks a value that has to be one of a few.
func known[T ~string](f *findings, path string, got T, all ...T) {
	if slices.Contains(all, got) {
		return
	}
	texts := make([]string, len(all))
	for i, v := range all {
		texts[i] = string(v)
	}
	f.add(path, fmt.Sprintf("unknown value %q", string(got)), didYouMean(string(got), texts))
}

// within checks a number that has to lie in a range.
func within(f *findings, path string, got, low, high int) {
	if got < low || got > high {
		f.add(path, fmt.Sprintf("expected %d to %d, got %d", low, high, got), "")
	}
}

// lasting checks a duration that has to lie in a range.
func lasting(f *findings, path string, got, low, high time.Duration) {
	if got < low || got > high {
		f.add(path, fmt.Sprintf("expected %s to %s, got %s", span(low), span(high), span(got)), "")
	}
}

func checkReplication(f *findings, path string, factor int16) {
	if factor != -1 && factor < 1 {
		f.add(path, fmt.Sprintf("expected -1 (the broker's default) or at least 1, got %d", factor), "")
	}
}
