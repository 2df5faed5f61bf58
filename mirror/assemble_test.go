package mirror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// files gives the PEM texts of c as files, as most declarations have them.
func files(c *topology.Cluster) (*topology.Cluster, func(string) ([]byte, error)) {
	have := map[string]string{"ca.pem": c.TLS.CAPEM, "client.pem": c.TLS.CertPEM, "client.key": string(c.TLS.KeyPEM)}
	c.TLS = &topology.TLS{CAFile: "ca.pem"}
	if have["client.pem"] != "" {
		c.TLS.CertFile, c.TLS.KeyFile = "client.pem", "client.key"
	}
	return c, func(path string) ([]byte, error) {
		if text, ok := have[path]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("no such file")
	}
}

func ping(t *testing.T, c *topology.Cluster, o *Options) error {
	t.Helper()
	opts, err := clientOpts(c, o)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(append(opts, kgo.RequestRetries(0))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return cl.Ping(ctx)
}

func secureTargets(t *testing.T, test func(t *testing.T, c *testenv.Cluster, users []testenv.User)) {
	users := []testenv.User{
		{Mechanism: topology.MechanismPlain, Name: "plain", Password: "p1"},
		{Mechanism: topology.MechanismScramSHA256, Name: "small", Password: "p2"},
		{Mechanism: topology.MechanismScramSHA512, Name: "large", Password: "p3"},
	}
	t.Run("embedded", func(t *testing.T) {
		test(t, testenv.Embedded(t, testenv.EmbeddedOptions{TLS: true, SASL: true, Users: users}), users)
	})
	t.Run("real", func(t *testing.T) {
		test(t, testenv.Real(t, "4.4.0", testenv.RealOptions{TLS: true, MutualTLS: true, SASL: true, Users: users}), users)
	})
}

func TestClientOptsSecure(t *testing.T) {
	secureTargets(t, func(t *testing.T, c *testenv.Cluster, users []testenv.User) {
		for _, u := range users {
			decl, readFile := files(c.Topology("east"))
			decl.SASL = &topology.SASL{Mechanism: u.Mechanism, Username: u.Name, Password: topology.Secret(u.Password)}
			if err := ping(t, decl, &Options{ReadFile: readFile}); err != nil {
				t.Errorf("%s: %v", u.Mechanism, err)
			}
			decl.SASL.Password = "wrong"
			if ping(t, decl, &Options{ReadFile: readFile}) == nil {
				t.Errorf("%s: a wrong password is taken", u.Mechanism)
			}
		}

		// TLS goes on top of a given dialer.
		var dialled atomic.Int32
		o := &Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}
		if err := ping(t, c.Topology("east"), o); err != nil || dialled.Load() == 0 {
			t.Errorf("with a dialer: %v, %d connections", err, dialled.Load())
		}

		for name, change := range map[string]struct {
			edit func(*topology.TLS)
			want string
		}{
			"certificate of nobody we know": {func(s *topology.TLS) { s.CAPEM = "" }, "certificate"},
			"another server name":           {func(s *topology.TLS) { s.ServerName = "elsewhere" }, "elsewhere"},
			"not verified":                  {func(s *topology.TLS) { s.CAPEM, s.SkipVerify = "", true }, ""},
			"server name given":             {func(s *topology.TLS) { s.ServerName = "localhost" }, ""},
		} {
			decl := c.Topology("east")
			change.edit(decl.TLS)
			err := ping(t, decl, &Options{})
			if (err == nil) != (change.want == "") || err != nil && !strings.Contains(err.Error(), change.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestClientOptsRefuses(t *testing.T) {
	readFile := func(path string) ([]byte, error) {
		if path == "empty.pem" {
			return nil, nil
		}
		if path == "text.pem" {
			return []byte("not PEM"), nil
		}
		return nil, errors.New("no such file")
	}
	for name, c := range map[string]topology.Cluster{
		"ca.pem":       {TLS: &topology.TLS{CAFile: "ca.pem"}},
		"empty.pem":    {TLS: &topology.TLS{CAFile: "empty.pem"}},
		"text.pem":     {TLS: &topology.TLS{CAFile: "text.pem"}},
		"(inline)":     {TLS: &topology.TLS{CAPEM: "not PEM"}},
		"me.pem":       {TLS: &topology.TLS{CertFile: "me.pem", KeyFile: "text.pem"}},
		"me.key":       {TLS: &topology.TLS{CertFile: "text.pem", KeyFile: "me.key"}},
		"key text.pem": {TLS: &topology.TLS{CertFile: "empty.pem", KeyFile: "text.pem"}},
		"GSSAPI":       {SASL: &topology.SASL{Mechanism: "GSSAPI", Password: "secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Name, c.Bootstrap = "east", []string{"localhost:9092"}
			_, err := clientOpts(&c, &Options{ReadFile: readFile})
			if err == nil || hintOf(err) == "" || !strings.Contains(err.Error(), "cluster east") || !strings.Contains(err.Error(), name) {
				t.Errorf("got %v (hint %q)", err, hintOf(err))
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("a password is printed: %v", err)
			}
		})
	}
	c := topology.Cluster{Name: "east", Bootstrap: []string{"localhost:9092"}, TLS: &topology.TLS{CAFile: "ca.pem"}}
	if _, err := clientOpts(&c, &Options{}); err == nil {
		t.Error("a file is named and there is no way to read it")
	}
}

func TestClientOptsPlain(t *testing.T) {
	opts, err := clientOpts(&topology.Cluster{Name: "east", Bootstrap: []string{"a:1", "b:2"}, ClientID: "me"}, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for opt, want := range map[string]string{
		"SeedBrokers":            "[[a:1 b:2]]",
		"ClientID":               "[me true]",
		"AllowAutoTopicCreation": "[false]",
		"SoftwareNameAndVersion": "[onceover " + softwareVersion() + "]",
	} {
		if got := fmt.Sprint(cl.OptValues(opt)); got != want {
			t.Errorf("%s is %s, want %s", opt, got, want)
		}
	}
	for n := range 100 {
		if d := retryPause(n); d < 80*time.Millisecond || d > time.Second {
			t.Errorf("pause %d is %v", n, d)
		}
	}
}

// Every setting that can be overridden arrives at the client.
func TestOverridesArrive(t *testing.T) {
	type row struct{ key, value, opt, want string }
	shared := []row{
		{"client.id", "me", "ClientID", "[me true]"},
		{"metadata.max.age.ms", "100", "MetadataMaxAge", "[100ms]"},
		{"connections.max.idle.ms", "1500", "ConnIdleTimeout", "[1.5s]"},
	}
	for kind, side := range map[string]struct {
		opts  func(map[string]string) ([]kgo.Opt, error)
		table map[string]setting
		more  int
		rows  []row
	}{
		"consumer": {consumerOpts, consumerSettings, 0, []row{
			{"fetch.min.bytes", "7", "FetchMinBytes", "[7]"},
			{"fetch.max.bytes", "104857600", "FetchMaxBytes", "[104857600]"},
			{"max.partition.fetch.bytes", "7", "FetchMaxPartitionBytes", "[7]"},
			{"fetch.max.wait.ms", "1500", "FetchMaxWait", "[1.5s]"},
			{"client.rack", "r", "Rack", "[r]"},
			{"session.timeout.ms", "15000", "SessionTimeout", "[15s]"},
			{"heartbeat.interval.ms", "1500", "HeartbeatInterval", "[1.5s]"},
			{"request.timeout.ms", "1500", "RequestTimeoutOverhead", "[1.5s]"},
		}},
		"producer": {producerOpts, producerSettings, 2, []row{
			{"batch.size", "16384", "ProducerBatchMaxBytes", "[16384]"},
			{"linger.ms", "7", "ProducerLinger", "[7ms]"},
			{"compression.type", "zstd", "ProducerBatchCompression", fmt.Sprint([]any{[]kgo.CompressionCodec{kgo.ZstdCompression(), kgo.NoCompression()}})},
			{"max.request.size", "2048", "BrokerMaxWriteBytes", "[2048]"},
			{"max.request.size", "2048", "ProducerBatchMaxBytes", "[2048]"},
			{"request.timeout.ms", "1500", "ProduceRequestTimeout", "[1.5s]"},
		}},
	} {
		seen := map[string]bool{}
		for _, r := range append(side.rows, shared...) {
			seen[r.key] = true
			opts, err := side.opts(map[string]string{r.key: r.value})
			if err != nil {
				t.Errorf("%s %s: %v", kind, r.key, err)
				continue
			}
			cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers("localhost:1"))...)
			if err != nil {
				t.Errorf("%s %s: %v", kind, r.key, err)
				continue
			}
			if got := fmt.Sprint(cl.OptValues(r.opt)); got != r.want {
				t.Errorf("%s %s: %s is %s, want %s", kind, r.key, r.opt, got, r.want)
			}
			cl.Close()
		}
		if want := len(side.table) + len(sharedSettings) + side.more; len(seen) != want {
			t.Errorf("%s: %d of %d settings are tested", kind, len(seen), want)
		}
		for _, bad := range []map[string]string{{"acks": "0"}, {"metadata.max.age.ms": "soon"}} {
			if _, err := side.opts(bad); err == nil || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s %v: %v", kind, bad, err)
			}
		}
	}
	for _, bad := range []map[string]string{{"compression.type": "rar"}, {"batch.size": "many"}} {
		if _, err := producerOpts(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}
