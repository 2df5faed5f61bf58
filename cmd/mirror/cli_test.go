package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const goodFlow = `
clusters:
  east:
    bootstrap: ["127.0.0.1:1"]
    sasl: {mechanism: SCRAM-SHA-512, username: mirror, password: "${EAST_PASSWORD}"}
  west: {bootstrap: ["127.0.0.1:2"]}
flows:
  - name: east-to-west
    from: east
    to: west
    topics: ["orders.*"]
    rename: "{cluster}.{topic}"
`

const badFlow = `clusters:
  east: {bootstrap: ["127.0.0.1:1"]}
flows:
  - name: east-to-west
    from: east
    to: wset
    topic: ["orders.*"]
    read: shared
`

// password is in the environment of tests and must never come out.
const password = "hunter2-secret"

var withPassword = []string{"EAST_PASSWORD=" + password}

func TestExitCodesAndMessages(t *testing.T) {
	good, bad := writeFile(t, "good.yaml", goodFlow), writeFile(t, "bad.yaml", badFlow)
	for _, tc := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr []string
	}{
		{"help", []string{"--help"}, exitOK, []string{"run", "validate", "plan", "status", "resume", "version", "Exit codes"}, nil},
		{"no command", nil, exitOK, []string{"COMMANDS"}, nil},
		{"version", []string{"version"}, exitOK, []string{"mirror ", "revision ", "go1."}, nil},
		{"unknown command", []string{"valdate"}, exitUsage, nil, []string{`unknown command "valdate"`, `Did you mean "validate"?`}},
		{"unknown global flag", []string{"--nope"}, exitUsage, nil, []string{"unknown flag --nope", "mirror --help"}},
		{"unknown flag", []string{"run", "--form", "a:1"}, exitUsage, nil, []string{"unknown flag --form", "mirror run --help"}},
		{"flag of the wrong type", []string{"run", "--lanes", "two"}, exitUsage, nil, []string{"lanes", "mirror run --help"}},
		{"argument left over", []string{"validate", "-f", good, "more"}, exitUsage, nil, []string{`unexpected argument "more"`}},
		{"validate good", []string{"validate", "-f", good}, exitOK, []string{good + ": ok, 2 clusters, 1 flow"}, nil},
		{"validate bad", []string{"validate", "-f", bad}, exitUsage, nil, []string{bad + ":6:", bad + ":7:", bad + ":8:", "3 findings"}},
		{"validate without file", []string{"validate"}, exitUsage, nil, []string{"-f flow.yaml"}},
		{"validate missing file", []string{"validate", "-f", "no-such-file.yaml"}, exitUsage, nil, []string{"no-such-file.yaml", "no such file"}},
		{"run without flow", []string{"run"}, exitUsage, nil, []string{"no flow given", "--from"}},
		{"run bad", []string{"run", "-f", bad}, exitUsage, nil, []string{"3 findings"}},
		{"file and flags", []string{"run", "-f", good, "--from", "a:1"}, exitUsage, nil, []string{"--file together with --from"}},
		{"quick form, bad values", []string{"run", "--from", "a", "--to", "b:2", "--topics", "(", "--read", "shared"}, exitUsage, nil, []string{"--from", "--topics", "--read", "3 findings"}},
		{"quick form, incomplete", []string{"status", "--from", "a:1"}, exitUsage, nil, []string{"--to", "--topics"}},
		{"no lanes", []string{"run", "--from", "a:1", "--to", "b:2", "--topics", "x", "--lanes", "0"}, exitUsage, nil, []string{"--lanes 0"}},
		{"log level", []string{"run", "-f", good, "--log-level", "loud"}, exitUsage, nil, []string{`"loud"`, "debug, info, warn or error"}},
		{"log format", []string{"run", "-f", good, "--log-format", "xml"}, exitUsage, nil, []string{`"xml"`, "text or json"}},
		{"listen", []string{"run", "-f", good, "--listen", "nowhere"}, exitUsage, nil, []string{"--listen nowhere", "HOST:PORT"}},
		{"resume unknown flow", []string{"resume", "-f", good, "--flow", "nope"}, exitUsage, nil, []string{`"nope"`, "east-to-west"}},
		{"plan without flow", []string{"plan"}, exitUsage, nil, []string{"no flow given"}},
		{"timeout", []string{"status", "-f", good, "--timeout", "0s"}, exitUsage, nil, []string{"--timeout"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := mirrorRun(t, withPassword, tc.args...)
			if got.code != tc.code {
				t.Errorf("exit code %d, want %d\n%s%s", got.code, tc.code, got.stdout, got.stderr)
			}
			wantText(t, "stdout", got.stdout, tc.stdout...)
			wantText(t, "stderr", got.stderr, tc.stderr...)
			if tc.code != exitOK && got.stdout != "" {
				t.Errorf("an error leaves stdout empty, got:\n%s", got.stdout)
			}
			if strings.Contains(got.stderr, "goroutine ") || strings.Contains(got.stderr, "USAGE") {
				t.Errorf("stack or usage dump:\n%s", got.stderr)
			}
		})
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	good := writeFile(t, "good.yaml", goodFlow)
	properties := writeFile(t, "client.properties", `security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    username="mirror" password="`+password+`";
`)
	broken := writeFile(t, "broken.properties", "sasl.jaas.config="+password+`\u12`)
	quick := []string{"--from", "127.0.0.1:1", "--to", "127.0.0.1:2", "--topics", "orders"}
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"print topology of a file", []string{"run", "-f", good, "--print-topology"}, exitOK, "password: '***'"},
		{"show", []string{"validate", "-f", good, "--show"}, exitOK, "password: '***'"},
		{"print topology of properties", append([]string{"run", "--print-topology", "--client-properties-from", properties}, quick...), exitOK, "password: '***'"},
		{"broken properties", append([]string{"run", "--client-properties-to", broken}, quick...), exitUsage, "line 1"},
		{"clusters out of reach", []string{"status", "-f", good, "--timeout", "300ms", "--log-level", "debug"}, exitFailed, "read positions"},
		{"plan, clusters out of reach", []string{"plan", "-f", good, "--timeout", "300ms", "--log-level", "debug"}, exitFailed, "plan: flow east-to-west"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := mirrorRun(t, withPassword, tc.args...)
			if got.code != tc.code {
				t.Errorf("exit code %d, want %d", got.code, tc.code)
			}
			wantText(t, "output", got.stdout+got.stderr, tc.want)
			if strings.Contains(got.stdout+got.stderr, password) {
				t.Errorf("the password is printed:\n%s%s", got.stdout, got.stderr)
			}
		})
	}
}

// What the quick form prints is a file that means the same.
func TestQuickFormIsAFile(t *testing.T) {
	quick := mirrorRun(t, nil, "run", "--from", "a:1,b:2", "--to", "c:3", "--topics", `orders\.[a-z]{1,3},payments`, "--topics", "more",
		"--exclude", ".*-tmp", "--rename", "east.{topic}", "--guarantee", "at-least-once", "--read", "partition", "--ordered",
		"--start", "latest", "--on-error", "skip", "--lanes", "3", "--name", "orders", "--print-topology")
	if quick.code != exitOK {
		t.Fatalf("exit code %d: %s", quick.code, quick.stderr)
	}
	wantText(t, "topology", quick.stdout, "['a:1', 'b:2']", `['orders\.[a-z]{1,3}', payments, more]`, "name: orders",
		"ordered: \"true\"", "lanes: 3", "start: latest", "on_error: skip")
	file := mirrorRun(t, nil, "run", "-f", writeFile(t, "flow.yaml", quick.stdout), "--print-topology")
	if file.code != exitOK || file.stdout != quick.stdout {
		t.Errorf("read back (exit %d) it differs:\n%s%s\nfrom:\n%s", file.code, file.stdout, file.stderr, quick.stdout)
	}
}

func TestShowNamesOrigins(t *testing.T) {
	got := mirrorRun(t, withPassword, "validate", "-f", writeFile(t, "good.yaml", goodFlow), "--show")
	wantText(t, "settings", got.stdout, "flow east-to-west, line 12", "default", "share.group.id", "onceover.east-to-west.positions")
	again := mirrorRun(t, nil, "validate", "-f", writeFile(t, "shown.yaml", got.stdout))
	if again.code != exitOK {
		t.Errorf("what --show prints is not a declaration: %s", again.stderr)
	}
}

func TestPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	got := mirrorRun(t, withPassword, "run", "-f", writeFile(t, "good.yaml", goodFlow), "--listen", taken.Addr().String())
	if got.code != exitUsage {
		t.Errorf("exit code %d, want %d", got.code, exitUsage)
	}
	wantText(t, "stderr", got.stderr, "another process has this port", "hint: ", "--listen")
}

func TestFilesAreRelativeToTheDeclaration(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := folder(dir).read("ca.pem"); err != nil || string(data) != "content" {
		t.Errorf("read ca.pem = %q, %v", data, err)
	}
	for range 2 { // appended to, not truncated
		out, err := folder(dir).open("out.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte("x\n")); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "out.jsonl")); err != nil || string(data) != "x\nx\n" {
		t.Errorf("out.jsonl = %q, %v", data, err)
	}
}

func TestStatusTable(t *testing.T) {
	var out strings.Builder
	if err := statusTable(&out, sampleState(), sampleNow); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.golden.txt", out.String())
	var back any
	data, err := json.Marshal(sampleState())
	if err != nil || json.Unmarshal(data, &back) != nil {
		t.Errorf("state is not JSON: %v", err)
	}
}
