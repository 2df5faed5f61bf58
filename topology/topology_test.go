package topology_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/onceover-mirror/onceover/topology"
)

func TestSecretNeverPrints(t *testing.T) {
	c := &topology.Cluster{
		SASL: &topology.SASL{Username: "bob", Password: "hunter2"},
		TLS:  &topology.TLS{KeyPEM: "hunter2"},
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t", "%08.3f"} {
		for _, value := range []any{c.SASL.Password, *c.SASL, *c.TLS, []topology.Secret{"hunter2"}, &c.SASL.Password, error(fmt.Errorf("%v", c.SASL.Password))} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	if text, err = yaml.Marshal(c); err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "secret", c.SASL.Password, "cluster", *c.SASL)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "secret", c.SASL.Password, "cluster", c)
	for _, leak := range []string{"hunter2", fmt.Sprintf("%x", "hunter2")} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q printed:\n%s", leak, out.String())
		}
	}
	if !strings.Contains(out.String(), "***") || !strings.Contains(out.String(), "bob") {
		t.Errorf("printed too little:\n%s", out.String())
	}
	if string(c.SASL.Password) != "hunter2" {
		t.Error("the value itself is lost")
	}
}

func TestParsedValues(t *testing.T) {
	full := load(t, "full.good.yml")
	east := full.Clusters["east"]
	if got := string(east.SASL.Password); got != variables["EAST_PASSWORD"] {
		t.Errorf("a variable's value was changed: %q", got)
	}
	if !slices.Equal(east.Bootstrap, []string{"east1:9093", "east2:9093", "east3:9093"}) {
		t.Errorf("bootstrap %q", east.Bootstrap)
	}
	f := full.Flows[0]
	if f.Line != 27 || f.Limits.Bytes != 4<<20 || f.Limits.Shutdown != time.Minute || f.Provenance || f.Create.Enabled {
		t.Errorf("flow %+v", f)
	}
	if v := f.Properties["share.group.id"]; v.Text != "orders-to-west" || v.Line != 44 {
		t.Errorf("property %+v", v)
	}

	kafka := load(t, "kafka-names.good.yml")
	scram, login, inline := kafka.Clusters["scram"], kafka.Clusters["login"], kafka.Clusters["inline"]
	if string(scram.SASL.Password) != `p"w;=$1` || scram.TLS != nil {
		t.Errorf("scram: password %q, TLS %v", string(scram.SASL.Password), scram.TLS)
	}
	if string(login.SASL.Password) != "hunter2" || login.SASL.Username != "alice" || login.TLS == nil {
		t.Errorf("login: %q", string(login.SASL.Password))
	}
	if !strings.Contains(string(inline.TLS.KeyPEM), "hunter2") || inline.TLS.CAFile != "" || !strings.Contains(inline.TLS.CAPEM, "CERTIFICATE") {
		t.Errorf("inline: %+v", inline.TLS)
	}
	if kafka.Clusters["mutual"].TLS.SkipVerify || !kafka.Clusters["unchecked"].TLS.SkipVerify {
		t.Error("ssl.endpoint.identification.algorithm not honoured")
	}
}

func TestMatch(t *testing.T) {
	f := topology.NewFlow("f")
	f.From = "east"
	f.Topics = topology.Topics{Include: []string{"orders.*", "a.b", "(?i)case", "x|yy"}, Exclude: []string{".*-tmp", "orders"}}
	f.Rename = "{cluster}.{topic}-copy"
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for topic, want := range map[string]bool{
				"orders": false, "orders1": true, "orders-tmp": false, "my-orders": false,
				"a.b": true, "a-b": false, "CASE": true, "cases": false,
				"x": true, "yy": true, "xyy": false, "": false,
			} {
				if f.Match(topic) != want {
					t.Errorf("match %q: %t", topic, !want)
				}
			}
		})
	}
	running.Wait()
	if got := f.TargetTopic("{cluster}"); got != "east.{cluster}-copy" {
		t.Errorf("target topic %q", got)
	}
	broken := topology.NewFlow("f")
	broken.Topics.Include = []string{"a)|(b", "["}
	if broken.Match("a") || broken.Match("b") || broken.Match("[") {
		t.Error("a broken pattern matches")
	}
}

// settings returns "key=value (origin)" of the keys given.
func settings(t *testing.T, parsed *topology.Topology, flow int, keys ...string) []string {
	t.Helper()
	r, err := parsed.Resolve(parsed.Flows[flow])
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, s := range r.Settings {
		if slices.Contains(keys, s.Key) {
			list = append(list, fmt.Sprintf("%s=%s (%s)", s.Key, s.Value, s.Origin))
		}
	}
	if !slices.IsSortedFunc(r.Settings, func(a, b topology.Setting) int { return strings.Compare(a.Key, b.Key) }) {
		t.Error("settings are not sorted")
	}
	return list
}

func TestResolveLevels(t *testing.T) {
	parsed := load(t, "levels.good.yml")
	keys := []string{"consumer.group.protocol", "producer.compression.type", "read", "limits.records", "consumer.session.timeout.ms", "share.group.id", "share.acknowledgement.mode"}
	for flow, want := range [][]string{
		{
			"consumer.group.protocol=share (worker, line 2)", "limits.records=700 (default)", "producer.compression.type=gzip (worker, line 5)",
			"read=auto (default)", "share.acknowledgement.mode=explicit (default)", "share.group.id=onceover.worker-default (default)",
		},
		{
			"consumer.group.protocol=classic (flow flow-wins, line 19)", "consumer.session.timeout.ms=30000 (worker, line 3)", "limits.records=700 (default)",
			"producer.compression.type=zstd (flow flow-wins, line 20)", "read=auto (default)", "share.acknowledgement.mode=explicit (default)", "share.group.id=onceover.flow-wins (default)",
		},
		{
			"consumer.group.protocol=auto (default)", "consumer.session.timeout.ms=30000 (worker, line 3)", "limits.records=50 (flow read-wins, line 26)",
			"producer.compression.type=gzip (worker, line 5)", "read=partition (flow read-wins, line 25)", "share.acknowledgement.mode=explicit (default)", "share.group.id=onceover.read-wins (default)",
		},
		{
			"consumer.group.protocol=share (worker, line 2)", "limits.records=700 (default)", "producer.compression.type=gzip (worker, line 5)",
			"read=auto (default)", "share.acknowledgement.mode=explicit (flow named-group, line 33)", "share.group.id=my-group (flow named-group, line 32)",
		},
	} {
		if got := settings(t, parsed, flow, keys...); !slices.Equal(got, want) {
			t.Errorf("flow %d:\ngot  %q\nwant %q", flow, got, want)
		}
	}
	for flow, want := range []struct {
		read     topology.Reader
		protocol string
	}{{"share", "share"}, {"partition", "classic"}, {"partition", ""}, {"share", "share"}} {
		r, err := parsed.Resolve(parsed.Flows[flow])
		if err != nil {
			t.Fatal(err)
		}
		if r.Read != want.read || r.Protocol != want.protocol {
			t.Errorf("flow %d: read %s, protocol %q", flow, r.Read, r.Protocol)
		}
		if _, there := r.Consumer["max.poll.records"]; there {
			t.Error("max.poll.records reaches the client as well as the limit")
		}
	}
	r, err := parsed.Resolve(parsed.Flows[1])
	if err != nil {
		t.Fatal(err)
	}
	if r.Producer["compression.type"] != "zstd" || r.Consumer["session.timeout.ms"] != "30000" || len(r.Consumer) != 1 {
		t.Errorf("client settings %v, %v", r.Consumer, r.Producer)
	}
}

func TestResolveRefusesUnvalidated(t *testing.T) {
	f := topology.NewFlow("f")
	f.Properties = map[string]topology.Value{"consumer.override.isolation.level": {Text: "read_uncommitted"}}
	unchecked := &topology.Topology{Flows: []*topology.Flow{f}}
	_, err := unchecked.Resolve(f)
	wantFinding(t, err, "flows[0].properties.consumer.override.isolation.level", "can't be overridden")
}

func TestQuick(t *testing.T) {
	parsed, err := topology.Quick(topology.QuickFlow{
		From: []string{"e1:9092,e2:9092"}, To: []string{"w1:9092"}, Topics: []string{"orders.*"}, Read: "share",
		ToProperties: map[string]string{
			"bootstrap.servers": "elsewhere:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
			"sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";`,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := parsed.Flows[0]
	if f.Name != "quick" || f.From != "source" || f.To != "target" || !f.Match("orders-1") || f.Lanes != 2 {
		t.Errorf("flow %+v", f)
	}
	if s, d := parsed.Clusters["source"], parsed.Clusters["target"]; len(s.Bootstrap) != 2 || d.Bootstrap[0] != "w1:9092" || d.TLS == nil || string(d.SASL.Password) != "hunter2" {
		t.Errorf("clusters %+v, %+v", s, d)
	}
	if got := settings(t, parsed, 0, "read", "start"); !slices.Equal(got, []string{"read=share (flow quick)", "start=earliest (default)"}) {
		t.Errorf("settings %q", got)
	}
	// The same path as a file: what it prints is a file that says the same.
	again, err := topology.Parse("printed", parsed.Canonical(), lookup)
	if err != nil || again.Fingerprint() != parsed.Fingerprint() {
		t.Errorf("printed form: %v", err)
	}

	_, err = topology.Quick(topology.QuickFlow{
		From: []string{"nowhere"}, Topics: []string{"["}, OnError: "sulk", Rename: "fixed",
		FromProperties: map[string]string{"ssl.truststore.type": "JKS"},
	})
	for path, problem := range map[string]string{
		"--from[0]": "host:port", "--to": "no broker address", "--topics[0]": "bad pattern", "--on-error": "unknown value", "--rename": "{topic}",
		"--from: properties.ssl.truststore.type": `"JKS" is not supported`,
	} {
		wantFinding(t, err, path, problem)
	}
}

// TestLiteralTopology: a topology made by a program passes through the same
// validation.
func TestLiteralTopology(t *testing.T) {
	f := topology.NewFlow("f")
	f.From, f.To, f.Topics.Include = "a", "b", []string{"x"}
	made := &topology.Topology{
		Clusters: map[string]*topology.Cluster{
			"a": {Name: "a", Bootstrap: []string{"a:1"}, ClientID: "x"},
			"b": {Name: "b", Bootstrap: []string{"b:1"}, ClientID: "x"},
		},
		Flows: []*topology.Flow{f},
	}
	if err := made.Validate("made"); err != nil {
		t.Error(err)
	}
	f.To = "c"
	if err := made.Validate("made"); err == nil || err.Error() != `made: flows[0].to: unknown cluster "c" (did you mean "a"?)` {
		t.Errorf("finding: %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	data, err := os.ReadFile("testdata/full.good.yml")
	if err != nil {
		t.Fatal(err)
	}
	of := func(text string, password string) string {
		t.Helper()
		changed := maps.Clone(variables)
		changed["EAST_PASSWORD"] = password
		parsed, err := topology.Parse("f", []byte(text), func(name string) (string, bool) { v, ok := changed[name]; return v, ok })
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Fingerprint()
	}
	text := string(data)
	base := of(text, "one")
	if len(base) != 64 || of("# comment\n"+text, "two") != base {
		t.Error("depends on a comment, a line number or a password")
	}
	for _, change := range [][2]string{{"lanes: 4", "lanes: 5"}, {"zstd", "lz4"}, {".*-tmp", ".*-temp"}, {"mirror-west", "mirror"}} {
		if of(strings.ReplaceAll(text, change[0], change[1]), "one") == base {
			t.Errorf("does not see %q", change)
		}
	}
}

// TestRoundTrip: whatever is printed reads as the same topology, once the
// secrets are put back.
func TestRoundTrip(t *testing.T) {
	text := rapid.StringMatching(`[ -~äß\n\t\r"'\\${}#*&!%@]{1,12}`)
	rapid.Check(t, func(t *rapid.T) {
		secret := text.Draw(t, "secret")
		f := topology.NewFlow(rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,20}`).Draw(t, "name"))
		f.From, f.To = "a", "b"
		f.Topics.Include = rapid.SliceOfN(rapid.StringMatching(`[a-z.]{1,5}(\[\$a-z\]|\.\*|x)`), 1, 4).Draw(t, "include")
		f.Rename = rapid.SampledFrom([]string{"{topic}", "{cluster}.{topic}", "p_{topic}"}).Draw(t, "rename")
		f.Guarantee = rapid.SampledFrom([]topology.Guarantee{"auto", "at-least-once", "exactly-once"}).Draw(t, "guarantee")
		f.Ordered = rapid.SampledFrom([]topology.Ordered{"auto", "true", "false"}).Draw(t, "ordered")
		f.Provenance = rapid.Bool().Draw(t, "provenance")
		f.Lanes = rapid.IntRange(1, 256).Draw(t, "lanes")
		f.OnGap = rapid.SampledFrom([]topology.OnGap{"stop", "skip"}).Draw(t, "gap")
		f.OnRecreate = rapid.SampledFrom([]topology.OnRecreate{"stop", "restart"}).Draw(t, "recreate")
		f.OnTargetRecreate = rapid.SampledFrom([]topology.OnTargetRecreate{"stop", "refill"}).Draw(t, "target recreate")
		f.AllowUnverified = rapid.Bool().Draw(t, "unverified")
		f.AllowNoTopicIDs = rapid.Bool().Draw(t, "no topic ids")
		f.Transaction.Timeout = time.Duration(rapid.IntRange(5_000, 900_000).Draw(t, "timeout")) * time.Millisecond
		f.Transaction.Interval = time.Duration(rapid.IntRange(1_000, 1_250_000).Draw(t, "interval")) * time.Microsecond
		f.Ledger.Shards = rapid.IntRange(1, 1000).Draw(t, "shards")
		f.Ledger.ReplicationFactor = rapid.SampledFrom([]int16{-1, 1, 3}).Draw(t, "ledger rf")
		f.Create.ReplicationFactor = rapid.SampledFrom([]int16{-1, 1, 3}).Draw(t, "rf")
		f.Limits.Refresh = time.Duration(rapid.IntRange(100, 3600000).Draw(t, "refresh")) * time.Millisecond
		f.Limits.Bytes = rapid.IntRange(1024, 1<<30).Draw(t, "bytes")
		f.Properties = map[string]topology.Value{"consumer.override.client.rack": {Text: text.Draw(t, "rack")}}
		ca := "-----BEGIN CERTIFICATE-----\n" + text.Draw(t, "pem")
		made := &topology.Topology{
			Properties: map[string]topology.Value{"producer.client.id": {Text: text.Draw(t, "id")}},
			Clusters: map[string]*topology.Cluster{
				"a": {
					Name: "a", Bootstrap: []string{"h:1"}, ClientID: text.Draw(t, "client"),
					SASL: &topology.SASL{Mechanism: "PLAIN", Username: text.Draw(t, "user"), Password: topology.Secret(secret)},
				},
				"b": {Name: "b", Bootstrap: []string{"h:2"}, ClientID: "c", TLS: &topology.TLS{CAPEM: ca}},
			},
			Flows: []*topology.Flow{f},
		}
		if err := made.Validate(""); err != nil {
			t.Skipf("not valid: %v", err)
		}
		printed := made.Canonical()
		again, err := topology.Parse("printed", printed, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		if got := again.Clusters["a"].SASL.Password; string(got) != "***" {
			t.Fatalf("secret printed as %q", string(got))
		}
		again.Clusters["a"].SASL.Password = topology.Secret(secret)
		if got, want := plain(again), plain(made); got != want {
			t.Fatalf("got  %s\nwant %s\nprinted:\n%s", got, want, printed)
		}
	})
}

// plain shows every value of a topology, without lines, which a program's
// topology does not have.
func plain(t *topology.Topology) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.Clusters)) {
		c := *t.Clusters[name]
		fmt.Fprintf(&b, "%q %q %q", c.Name, c.Bootstrap, c.ClientID)
		if c.TLS != nil {
			fmt.Fprintf(&b, " %q", []string{c.TLS.CAFile, c.TLS.CAPEM})
		}
		if c.SASL != nil {
			fmt.Fprintf(&b, " %q", []string{c.SASL.Mechanism, c.SASL.Username, string(c.SASL.Password)})
		}
	}
	texts := func(properties map[string]topology.Value) {
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			fmt.Fprintf(&b, " %q=%q", key, properties[key].Text)
		}
	}
	texts(t.Properties)
	for _, f := range t.Flows {
		fmt.Fprintf(&b, " %q %q %q %q", f.Name, f.From, f.To, f.Rename)
		fmt.Fprintf(&b, " %q %q", f.Topics.Include, f.Topics.Exclude)
		fmt.Fprintf(&b, " %q %q %q %q %q", f.Guarantee, f.Read, f.Ordered, f.Start, f.OnError)
		fmt.Fprintf(&b, " %q %q %q", f.OnGap, f.OnRecreate, f.OnTargetRecreate)
		fmt.Fprintf(&b, " %t %t %+v %+v", f.AllowUnverified, f.AllowNoTopicIDs, f.Transaction, f.Ledger)
		fmt.Fprintf(&b, " %t %d %+v %+v", f.Provenance, f.Lanes, f.Create, f.Limits)
		texts(f.Properties)
	}
	return b.String()
}
