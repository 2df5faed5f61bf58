package suite

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// declaration is what an operator would write. The source has the project's
// own names, the target Kafka's.
const declaration = `
clusters:
  source:
    bootstrap: ["${SOURCE}"]
    tls: {ca: "${SOURCE_CA}"}
    sasl: {mechanism: SCRAM-SHA-512, username: "${USER}", password: "${PASSWORD}"}
  target:
    properties:
      bootstrap.servers: "${TARGET}"
      security.protocol: SASL_SSL
      sasl.mechanism: SCRAM-SHA-512
      sasl.jaas.config: org.apache.kafka.common.security.scram.ScramLoginModule required username="${USER}" password="${PASSWORD}";
      ssl.truststore.type: PEM
      ssl.truststore.location: ${TARGET_CA}
flows:
  - name: ${FLOW}
    from: source
    to: target
    topics: ["${TOPIC}"]
    limits: {refresh: 1s, lock: 15s}
`

// declare parses the declaration; values replace what it would be filled with.
func (w secured) declare(t *testing.T, values map[string]string) *topology.Topology {
	t.Helper()
	dir := t.TempDir()
	env := map[string]string{
		"SOURCE": w.Source.Bootstrap()[0], "TARGET": w.Target.Bootstrap()[0],
		"SOURCE_CA": filepath.Join(dir, "source.pem"), "TARGET_CA": filepath.Join(dir, "target.pem"),
		"USER": mirrorUser.Name, "PASSWORD": mirrorUser.Password,
	}
	for key, c := range map[string]*testenv.Cluster{"SOURCE_CA": w.Source, "TARGET_CA": w.Target} {
		if err := os.WriteFile(env[key], []byte(c.Topology("").TLS.CAPEM), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lookup := func(name string) (string, bool) {
		if v, ok := values[name]; ok {
			if at, ok := env[v]; ok {
				return at, true
			}
			return v, true
		}
		v, ok := env[name]
		return v, ok
	}
	top, err := topology.Parse("mirror.yaml", []byte(declaration), lookup)
	if err != nil {
		t.Fatalf("declaration: %v", err)
	}
	return top
}

// startQuiet starts a mirror, and at the end of the test looks for secrets in
// everything it said.
func startQuiet(t *testing.T, top *topology.Topology, secrets ...string) *Process {
	t.Helper()
	logs := &buffer{}
	p := Start(t, top, func(o *mirror.Options) {
		o.Log = slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	t.Cleanup(func() {
		state, err := json.Marshal(p.Mirror.State())
		if err != nil {
			t.Error(err)
		}
		if !strings.Contains(logs.String(), "flow=") {
			t.Error("nothing was logged, so nothing was looked at")
		}
		for _, secret := range secrets {
			if strings.Contains(logs.String()+string(state), secret) {
				t.Errorf("the secret %q was told:\n%s\n%s", secret, logs.String(), state)
			}
		}
		if t.Failed() {
			t.Logf("mirror log:\n%s", logs.String())
		}
	})
	return p
}

func testDeclared(t *testing.T, w secured) {
	const topic, flow = "secure", "declared"
	w.both(t, topic, 100, 1)
	grant(t, w.Source, append(flowGroups(flow), toRead(topic))...)
	grant(t, w.Target, toWrite(topic))
	p := startQuiet(t, w.declare(t, map[string]string{"FLOW": flow, "TOPIC": topic}), mirrorUser.Password)
	w.arrived(t, topic, 100, within)
	w.drained(t, p, flow, 2)
	if st := p.Flow(flow); st.Reader != string(topology.ReaderShare) {
		t.Errorf("reader %s: %s", st.Reader, st.Why)
	}
	p.Stop()
	w.same(t, topic)
}

func testWrongPassword(t *testing.T, w secured) {
	const wrong = "not-the-password"
	p := startQuiet(t, w.declare(t, map[string]string{"FLOW": "password", "TOPIC": "secure", "PASSWORD": wrong}), wrong)
	waits(t, p, "password", "source", "SASL_AUTHENTICATION_FAILED", "see bootstrap, tls and sasl of cluster source")
}

func testWrongAuthority(t *testing.T, w secured) {
	p := startQuiet(t, w.declare(t, map[string]string{"FLOW": "authority", "TOPIC": "secure", "TARGET_CA": "SOURCE_CA"}), mirrorUser.Password)
	waits(t, p, "authority", "target", "certificate signed by unknown authority", "see bootstrap, tls and sasl of cluster target")
}

// waits until the flow waits at the given side, for a reason with a part.
func waits(t *testing.T, p *Process, flow, begins, part, hint string) {
	t.Helper()
	Eventually(t, within, "the flow waits with its reason", func() (bool, string) {
		st := p.Flow(flow)
		return st.Phase == mirror.FlowWaiting && strings.HasPrefix(st.Reason, begins) && strings.Contains(st.Reason, part) && st.Hint == hint,
			fmt.Sprintf("%s: %s (%s)", st.Phase, st.Reason, st.Hint)
	})
	if p.Mirror.Health().OK {
		t.Error("healthy, although nothing can be copied")
	}
	p.Stop()
}
