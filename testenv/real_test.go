package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shareVersion returns the finalised level of share.version.
func shareVersion(t *testing.T, c *testenv.Cluster) int16 {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "onceover", "test"
	resp, err := req.RequestWith(t.Context(), c.Client(t))
	must(t, err)
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "share.version" {
			return f.MaxVersionLevel
		}
	}
	return 0
}

func TestReal(t *testing.T) {
	for _, tc := range []struct {
		version string
		share   bool // finalises share groups
	}{
		{"4.4.0", true},
		{"3.9.2", false},
	} {
		t.Run(tc.version, func(t *testing.T) {
			c := testenv.Real(t, tc.version)
			if c.Name() != "real "+tc.version {
				t.Errorf("name %q", c.Name())
			}
			if v := shareVersion(t, c); (v > 0) != tc.share {
				t.Errorf("share.version %d, want share groups: %v", v, tc.share)
			}
			want := smoke(t, c)

			must(t, c.StopNode(t.Context(), 0))
			if len(c.Running()) != 0 {
				t.Errorf("running after a stop: %v", c.Running())
			}
			if err := c.StopNode(t.Context(), 0); err == nil {
				t.Error("stopped twice")
			}
			must(t, c.StartNode(t.Context(), 0))
			testenv.AssertExactlyOnce(t, want, c.ReadAll(t, "smoke"))

			must(t, c.KillNode(t.Context(), 0))
			must(t, c.StartNode(t.Context(), 0))
			testenv.AssertExactlyOnce(t, want, c.ReadAll(t, "smoke"))

			must(t, c.PauseNode(0))
			cl, err := kgo.NewClient(c.Opts()...)
			must(t, err)
			defer cl.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := cl.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("ping of a paused node: %v", err)
			}
			must(t, c.ResumeNode(t.Context(), 0))
			must(t, cl.Ping(t.Context()))
		})
	}
}

func TestRealSecure(t *testing.T) {
	c := testenv.Real(t, "4.4.0", testenv.RealOptions{
		MutualTLS: true, SASL: true, ACLs: true, Users: []testenv.User{plainUser},
		Features: map[string]int{"share.version": 0},
	})
	smoke(t, c)
	checkSecure(t, c)
	if decl := c.Topology("east"); decl.TLS.CertPEM == "" || decl.TLS.KeyPEM == "" {
		t.Error("declaration lacks the client certificate")
	}
	if v := shareVersion(t, c); v != 0 {
		t.Errorf("share.version %d, although 0 was asked for", v)
	}
}

func TestRealThreeNodes(t *testing.T) {
	c := testenv.Real(t, "4.4.0", testenv.RealOptions{Nodes: 3})
	want := smoke(t, c)
	for _, node := range c.Nodes() {
		c.MoveLeader(t, "smoke", 1, node)
	}
	// The leader of partition 1 goes: the others lead on.
	must(t, c.KillNode(t.Context(), 2))
	more := testenv.Records("smoke", 2, 10, 6)
	c.Produce(t, more...)
	want = append(want, more...)
	testenv.AssertExactlyOnce(t, want, c.ReadAll(t, "smoke"))
	must(t, c.StartNode(t.Context(), 2))
	c.MoveLeader(t, "smoke", 1, 2)
	testenv.AssertExactlyOnce(t, want, c.ReadAll(t, "smoke"))
	// A node without a replica takes one.
	c.CreateTopic(t, "single", 1, 1, nil)
	for _, node := range c.Nodes() {
		c.MoveLeader(t, "single", 0, node)
	}
}

// A node that cannot be formatted, or ends by itself, is an error with its
// last words, at once.
func TestRealFailsToStart(t *testing.T) {
	needReal(t)
	for key, value := range map[string]string{
		"inter.broker.listener.name": "NOWHERE",       // refused by format
		"authorizer.class.name":      "no.such.Class", // refused by the broker
	} {
		_, err := testenv.StartReal(t.Context(), testenv.RealOptions{
			Version: "4.4.0", Config: map[string]string{key: value},
		})
		if err == nil || !strings.Contains(err.Error(), value) {
			t.Errorf("with %s=%s: error %v, want the reason from the log", key, value, err)
		}
	}
}

func TestRealMirrorMaker2Classpath(t *testing.T) {
	needReal(t)
	cp, err := testenv.MirrorMaker2Classpath(t.Context())
	must(t, err)
	// It exits with 255 on --help.
	out, _ := exec.CommandContext(t.Context(), "java", "-cp", cp, "org.apache.kafka.connect.mirror.MirrorMaker", "--help").CombinedOutput()
	if !strings.Contains(string(out), "usage: connect-mirror-maker") {
		t.Errorf("%s", out)
	}
}

func TestRealImpossibleOptions(t *testing.T) {
	for _, tc := range []struct {
		say  string
		opts testenv.RealOptions
	}{
		{"ACLs need SASL", testenv.RealOptions{Version: "4.4.0", ACLs: true}},
		{"2 nodes", testenv.RealOptions{Version: "4.4.0", Nodes: 2}},
		{"1.1.1 is not among", testenv.RealOptions{Version: "1.1.1"}},
	} {
		if _, err := testenv.StartReal(t.Context(), tc.opts); err == nil || !strings.Contains(err.Error(), tc.say) {
			t.Errorf("error %v, want it to contain %q", err, tc.say)
		}
	}
}

// needReal is for tests that start no cluster through testenv.Real.
func needReal(t *testing.T) {
	t.Helper()
	if ok, _ := testenv.RealAvailable(); !ok {
		testenv.Real(t, "4.4.0") // skips, or fails where CI=true
	}
}

// outcome is a testenv.T that has failed, and keeps how it was ended.
type outcome struct {
	*testing.T
	skipped, fatal string
}

func (*outcome) Failed() bool { return true }

func (o *outcome) Skipf(format string, args ...any) {
	o.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestRealWithoutJava(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, ci := range []string{"", "true"} {
		t.Setenv("CI", ci)
		o := &outcome{T: t}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			testenv.Real(o, "4.4.0")
		}()
		<-ended
		said := o.skipped
		if ci == "true" {
			said = o.fatal
		}
		if !strings.Contains(said, "java is not on the PATH") {
			t.Errorf("CI=%q: skipped %q, fatal %q", ci, o.skipped, o.fatal)
		}
	}
}

func TestRealKeepsLogs(t *testing.T) {
	needReal(t)
	data, logs := t.TempDir(), t.TempDir()
	t.Setenv("ONCEOVER_TEST_LOGS", logs)
	t.Run("cluster", func(t *testing.T) {
		testenv.Real(&outcome{T: t}, "3.9.2", testenv.RealOptions{Dir: data})
	})
	kept, err := filepath.Glob(filepath.Join(logs, "TestRealKeepsLogs_cluster-real_3.9.2-*-node-0.log"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("logs kept: %v, %v", kept, err)
	}
	log, err := os.ReadFile(kept[0])
	if err != nil || !strings.Contains(string(log), "Kafka version: 3.9.2") {
		t.Errorf("kept log: %v\n%s", err, log)
	}
	if _, err := os.Stat(filepath.Join(data, "node-0", "meta.properties")); err != nil {
		t.Errorf("a given folder is kept: %v", err)
	}
}
