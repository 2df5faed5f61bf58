package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a contender at work.
type process interface {
	// pid is the process that does the work.
	pid() int
	// cpu is what it has used since it was started.
	cpu() (time.Duration, error)
	// gone is closed when it has ended.
	gone() <-chan struct{}
	// stop ends it in an orderly way and returns how it ended. It may be
	// called more than once.
	stop() error
}

// endedEarly is the error that a process has ended, or is about to, without having
// been told to.
func endedEarly(p process) error {
	<-p.gone()
	if err := p.stop(); err != nil {
		return fmt.Errorf("it ended by itself: %w", err)
	}
	return errors.New("it ended by itself, without an error")
}

// write makes a file of the run and returns its absolute path.
func (j job) write(ext, text string) (string, error) {
	file, err := filepath.Abs(filepath.Join(j.Out, j.alias+"."+ext))
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		return "", fmt.Errorf("write settings: %w", err)
	}
	return file, nil
}

// program is a process of its own.
type program struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
	err   error // of Wait; after ended
}

// launch starts a program; what it says goes to a file of the run.
func (j job) launch(ctx context.Context, name string, args ...string) (process, error) {
	p := &program{log: filepath.Join(j.Out, j.alias+j.again+".log"), ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	p.cmd = exec.CommandContext(ctx, name, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *program) pid() int                    { return p.cmd.Process.Pid }
func (p *program) cpu() (time.Duration, error) { return cpuOf(p.pid()) }
func (p *program) gone() <-chan struct{}       { return p.ended }

// kill ends it as a crash would and waits until it is gone.
func (p *program) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	<-p.ended
	return nil
}

func (p *program) stop() error {
	const patience = time.Minute
	// It may have ended, which is then said below.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("stop: still running after %v, see %s", patience, p.log)
	}
	// A JVM that a signal ends exits with 128 and its number.
	var exit *exec.ExitError
	if errors.As(p.err, &exit) && exit.ExitCode() == 128+int(syscall.SIGTERM) {
		return nil
	}
	if p.err != nil {
		return fmt.Errorf("%w, see %s", p.err, p.log)
	}
	return nil
}
