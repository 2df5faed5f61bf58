package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// node is one JVM. What it was told to be and whether its process lives are
// apart: a process that is gone while the node should be up has crashed.
type node struct {
	id      int32
	args    []string // of java
	logPath string

	mu    sync.Mutex
	state nodeState
	// logFrom is where the log of the present process begins.
	logFrom int64
	cmd     *exec.Cmd
	gone    chan struct{} // closed when cmd has ended
}

type nodeState int

const (
	nodeDown nodeState = iota
	nodeUp
	nodePaused
)

var (
	errNotUp     = errors.New("it is not running")
	errPortTaken = errors.New("a port is taken")
)

func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != nodeDown {
		return errors.New("it is running already")
	}
	out, err := os.OpenFile(n.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	logged, err := out.Stat()
	if err != nil {
		return err
	}
	cmd := exec.Command("java", n.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = processAttr()
	if err := cmd.Start(); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in the log
		close(gone)
	}()
	n.cmd, n.gone, n.state, n.logFrom = cmd, gone, nodeUp, logged.Size()
	return nil
}

func (n *node) stop(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != nodeUp {
		return errNotUp
	}
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return n.wait(ctx)
}

func (n *node) kill(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == nodeDown {
		return errNotUp
	}
	if err := n.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return n.wait(ctx)
}

// wait is called with the lock held.
func (n *node) wait(ctx context.Context) error {
	select {
	case <-n.gone:
		n.state = nodeDown
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for process %d to end: %w", n.cmd.Process.Pid, ctx.Err())
	}
}

func (n *node) pause() error  { return n.turn(nodeUp, nodePaused, sigPause) }
func (n *node) resume() error { return n.turn(nodePaused, nodeUp, sigResume) }

func (n *node) turn(from, to nodeState, sig os.Signal) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != from {
		return errNotUp
	}
	if err := n.cmd.Process.Signal(sig); err != nil {
		return err
	}
	n.state = to
	return nil
}

func (n *node) is(s nodeState) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state == s
}

// crashed tells, with the errors of its log, that the process ended unasked,
// or is about to: a broker that finds a port taken may take a minute to end.
func (n *node) crashed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state != nodeUp {
		return nil
	}
	select {
	case <-n.gone:
		return fmt.Errorf("node %d ended by itself (%v): its log says\n%s", n.id, n.cmd.ProcessState, n.complaints())
	default:
	}
	if log, err := n.log(); err == nil && bytes.Contains(log, []byte("java.net.BindException")) {
		return fmt.Errorf("node %d: %w: its log says\n%s", n.id, errPortTaken, n.complaints())
	}
	return nil
}

// log returns what the node wrote since it was last started.
func (n *node) log() ([]byte, error) {
	log, err := os.ReadFile(n.logPath)
	if err != nil {
		return nil, err
	}
	return log[min(n.logFrom, int64(len(log))):], nil
}

// complaints returns the first lines of the log that are neither the normal
// course of things nor the inside of a stack trace, its end where there are
// none.
func (n *node) complaints() []byte {
	const most = 12
	log, err := n.log()
	if err != nil {
		return []byte(err.Error())
	}
	var out [][]byte
	for line := range bytes.Lines(log) {
		normal := bytes.Contains(line, []byte(" INFO ")) || bytes.Contains(line, []byte(" WARN ")) || line[0] == '\t'
		if !normal && len(out) < most {
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		return tail(log, most)
	}
	return bytes.Join(out, nil)
}

func tail(log []byte, lines int) []byte {
	at := len(log)
	for ; lines >= 0 && at >= 0; lines-- {
		at = bytes.LastIndexByte(log[:at], '\n')
	}
	return log[at+1:]
}
