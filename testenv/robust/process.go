package robust

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/onceover-mirror/onceover/mirror"
)

// process is one run of the binary.
type process struct {
	name string
	cmd  *exec.Cmd
	out  output
	gone chan struct{} // closed when it has ended
}

// launch starts the binary on a declaration. Its status page has any free
// port, which its log tells.
func launch(binary, name, file string, env ...string) (*process, error) {
	p := &process{name: name, gone: make(chan struct{})}
	p.out.found = make(chan struct{})
	p.cmd = exec.Command(binary, "run", "-f", file, "--listen", "127.0.0.1:0", "--instance", name)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.gone)
	}()
	return p, nil
}

// ended reports whether the process is gone, within d.
func (p *process) ended(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.gone:
		return true
	case <-timer.C:
		return false
	}
}

// state asks the process itself.
func (p *process) state(ctx context.Context) (mirror.FlowState, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	select {
	case <-p.out.found:
	case <-p.gone:
		return mirror.FlowState{}, fmt.Errorf("%s ended by itself (%v)", p.name, p.cmd.ProcessState)
	case <-ctx.Done():
		return mirror.FlowState{}, fmt.Errorf("%s does not serve a page yet", p.name)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.out.url+"api/v1/state", http.NoBody)
	if err != nil {
		return mirror.FlowState{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return mirror.FlowState{}, err
	}
	defer resp.Body.Close()
	var s mirror.State
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return mirror.FlowState{}, fmt.Errorf("state of %s: %w", p.name, err)
	}
	if len(s.Flows) != 1 {
		return mirror.FlowState{}, fmt.Errorf("state of %s: %d flows", p.name, len(s.Flows))
	}
	return s.Flows[0], nil
}

// abandon ends a process that may be left over, whatever its state.
func (p *process) abandon() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may be gone
	<-p.gone
}

// output keeps what a process says and finds the address of its page in it.
type output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	url   string
	found chan struct{}
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+/`)

// Write keeps b.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.b.Write(b)
	if o.url == "" {
		if o.url = string(address.Find(o.b.Bytes())); o.url != "" {
			close(o.found)
		}
	}
	return n, err
}

// tail returns the last lines.
func (o *output) tail(lines int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := bytes.Split(bytes.TrimSpace(o.b.Bytes()), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
