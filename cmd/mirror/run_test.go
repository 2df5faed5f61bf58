package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
)

// running is a "mirror run" in another process.
type running struct {
	cmd    *exec.Cmd
	url    string // of its HTTP server, without the last slash
	stdout strings.Builder
	stderr strings.Builder
	read   sync.WaitGroup
}

// start runs "mirror run" and returns once its HTTP server has an address.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.CommandContext(t.Context(), binary, append([]string{"run", "--listen", "127.0.0.1:0", "--log-format", "json"}, args...)...)}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	r.read.Go(func() { _, _ = io.Copy(&r.stdout, stdout) })
	r.read.Go(func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			r.stderr.WriteString(lines.Text() + "\n")
			var entry struct{ URL string }
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.URL != "" {
				address <- strings.TrimSuffix(entry.URL, "/")
			}
		}
		close(address)
	})
	if r.url = <-address; r.url == "" {
		t.Fatalf("no HTTP server: %v\n%s", r.cmd.Wait(), r.stderr.String())
	}
	return r
}

// stop sends SIGTERM and returns how the process ended.
func (r *running) stop(t *testing.T) result {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.read.Wait()
	_ = r.cmd.Wait() // the code says it
	return result{r.stdout.String(), r.stderr.String(), r.cmd.ProcessState.ExitCode()}
}

// until asks for path again and again until ok holds for an answer.
func (r *running) until(t *testing.T, path string, ok func(code int, body string) bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := ""; ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if last = string(body); ok(resp.StatusCode, last) {
				return last
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("GET %s never answered as expected, last: %s", path, last)
		case <-tick.C:
		}
	}
}

func TestRunBetweenTwoClusters(t *testing.T) {
	for _, tc := range []struct{ reader, order string }{{"share", "not kept"}, {"partition", "per partition"}} {
		t.Run(tc.reader, func(t *testing.T) {
			const topic, partitions, n = "orders", 3, 500
			source, target := testenv.Embedded(t), testenv.Embedded(t)
			source.CreateTopic(t, topic, partitions, 1, nil)
			want := testenv.Records(topic, partitions, n, 1)
			source.Produce(t, want...)
			flow := []string{
				"--from", strings.Join(source.Bootstrap(), ","), "--to", strings.Join(target.Bootstrap(), ","),
				"--topics", "orders.*", "--read", tc.reader, "--guarantee", "at-least-once",
			}
			r := start(t, flow...)
			state := r.until(t, "/api/v1/state", func(_ int, body string) bool {
				var s mirror.State
				return json.Unmarshal([]byte(body), &s) == nil && total(s).records >= n
			})
			wantText(t, "state", state, `"reader": "`+tc.reader+`"`)
			r.until(t, "/readyz", func(code int, _ string) bool { return code == http.StatusOK })
			r.until(t, "/healthz", func(code int, _ string) bool { return code == http.StatusOK })
			metrics := r.until(t, "/metrics", func(code int, _ string) bool { return code == http.StatusOK })
			wantText(t, "metrics", metrics, `onceover_records_total{flow="quick",partition="2",topic="orders"}`,
				`onceover_flow_phase{flow="quick",phase="running"} 1`, "onceover_build_info{",
				`onceover_kafka_connects_total{client="0",flow="quick"`, `role="target"`)
			page := r.until(t, "/", func(code int, _ string) bool { return code == http.StatusOK })
			wantText(t, "page", page, "<h2>quick</h2>", "phase-running")

			got := r.stop(t)
			if got.code != exitOK {
				t.Errorf("exit code %d after SIGTERM\n%s", got.code, got.stderr)
			}
			lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
			if len(lines) != 2 || !strings.HasPrefix(lines[0], fmt.Sprintf("quick (source -> target): at-least-once, %s reader, order %s: ", tc.reader, tc.order)) ||
				!strings.HasPrefix(lines[1], "copied 500 records (") {
				t.Errorf("stdout:\n%s", got.stdout)
			}
			wantText(t, "log", got.stderr, "finishing what is in flight", "terminated")
			testenv.AssertAtLeastOnce(t, want, target.ReadAll(t, topic), testenv.Compare{
				Unordered: tc.reader == "share", IgnoreHeaders: []string{"onceover.source.cluster"},
			})

			status := mirrorRun(t, nil, append([]string{"status"}, flow...)...)
			if status.code != exitOK || status.stderr != "" {
				t.Errorf("status: exit code %d, %s", status.code, status.stderr)
			}
			wantText(t, "status", status.stdout, "at-least-once, "+tc.reader+" reader", "TOPIC", "orders", "idle", "3 partitions, lag 0")
			var s mirror.State
			asJSON := mirrorRun(t, nil, append([]string{"status", "--json"}, flow...)...)
			if err := json.Unmarshal([]byte(asJSON.stdout), &s); err != nil || len(s.Flows) != 1 || len(s.Flows[0].Partitions) != partitions {
				t.Errorf("status --json: %v\n%s", err, asJSON.stdout)
			}
			resumed := mirrorRun(t, nil, append([]string{"resume"}, flow...)...)
			if resumed.code != exitOK {
				t.Errorf("resume: exit code %d, %s", resumed.code, resumed.stderr)
			}
			wantText(t, "resume", resumed.stdout, "quick: nothing was stopped")
		})
	}
}

// A file sink's path starts at the folder of the declaration.
func TestRunIntoAFile(t *testing.T) {
	const n = 20
	source := testenv.Embedded(t)
	source.CreateTopic(t, "orders", 1, 1, nil)
	source.Produce(t, testenv.Records("orders", 1, n, 1)...)
	file := writeFile(t, "flow.yaml", fmt.Sprintf(`
clusters: {east: {bootstrap: [%q]}}
flows: [{name: archive, from: east, sink: {file: {path: out.jsonl}}, topics: [orders], lanes: 1}]
`, source.Bootstrap()[0]))
	r := start(t, "-f", file)
	r.until(t, "/api/v1/state", func(_ int, body string) bool {
		var s mirror.State
		return json.Unmarshal([]byte(body), &s) == nil && total(s).records >= n
	})
	if got := r.stop(t); got.code != exitOK {
		t.Errorf("exit code %d\n%s", got.code, got.stderr)
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(file), "out.jsonl"))
	if lines := strings.Count(string(data), "\n"); err != nil || lines != n {
		t.Errorf("%d lines, %v:\n%s", lines, err, data)
	}
}

func TestStatusWatch(t *testing.T) {
	source, target := testenv.Embedded(t), testenv.Embedded(t)
	source.CreateTopic(t, "orders", 1, 1, nil)
	cmd := exec.CommandContext(t.Context(), binary, "status", "--watch", "--json",
		"--from", source.Bootstrap()[0], "--to", target.Bootstrap()[0], "--topics", "orders")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	for range 2 { // one line of JSON each time
		line, err := lines.ReadString('\n')
		var s mirror.State
		if err != nil || json.Unmarshal([]byte(line), &s) != nil || len(s.Flows) != 1 {
			t.Fatalf("%v in %q", err, line)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("a watch that is interrupted: %v", err)
	}
}

// What can't be had is refused: problem and hint, exit code 1.
func TestRunIsRefused(t *testing.T) {
	source, target := testenv.Embedded(t), testenv.Embedded(t, testenv.Old(kversion.V3_5_0()))
	source.CreateTopic(t, "orders", 1, 1, nil)
	got := mirrorRun(t, nil, "run", "--listen", "", "--from", source.Bootstrap()[0], "--to", target.Bootstrap()[0],
		"--topics", "orders", "--guarantee", "exactly-once")
	if got.code != exitFailed {
		t.Errorf("exit code %d, want %d", got.code, exitFailed)
	}
	wantText(t, "stderr", got.stderr, "mirror: flow quick: ", "exactly-once", "verifies no transactions", "  hint: ", "allow_unverified_transactions")
}

// Clusters out of reach are waited for, and a signal ends that at once.
func TestSignalWhileWaiting(t *testing.T) {
	r := start(t, "--from", "127.0.0.1:1", "--to", "127.0.0.1:2", "--topics", "orders")
	r.until(t, "/readyz", func(code int, body string) bool { return code != 0 && body != "" })
	if got := r.stop(t); got.code != exitOK {
		t.Errorf("exit code %d\n%s", got.code, got.stderr)
	}
}

func TestSecondSignal(t *testing.T) {
	ctx, again, release := untilSignal(t.Context())
	defer release()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if got := interrupted(ctx, ctx.Err()); got.Error() != "interrupted by signal: terminated" {
		t.Errorf("cause %v", got)
	}
	select {
	case <-again:
		t.Error("one signal counts for two")
	default:
	}
	if err := self.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-again
}
