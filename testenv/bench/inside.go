package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/topology"
)

// inside is a mirror in this process, with a CPU profile from start to stop.
type inside struct {
	ended  chan struct{}
	finish func() error
	err    error // of the run; after ended
	base   time.Duration
}

// runInside starts a mirror on a declaration.
func runInside(ctx context.Context, j job, text string) (process, error) {
	t, err := topology.Parse(j.alias, []byte(text), os.LookupEnv)
	if err != nil {
		return nil, err
	}
	m, err := mirror.New(mirror.Options{Topology: t})
	if err != nil {
		return nil, err
	}
	base, err := cpuOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(j.Out, j.alias+".prof"))
	if err != nil {
		return nil, fmt.Errorf("write profile: %w", err)
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, errors.Join(fmt.Errorf("write profile: %w", err), out.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &inside{ended: make(chan struct{}), base: base}
	go func() {
		p.err = m.Run(ctx)
		close(p.ended)
	}()
	p.finish = sync.OnceValue(func() error {
		cancel()
		<-p.ended
		pprof.StopCPUProfile()
		return errors.Join(p.err, out.Close())
	})
	return p, nil
}

func (p *inside) pid() int              { return os.Getpid() }
func (p *inside) gone() <-chan struct{} { return p.ended }
func (p *inside) stop() error           { return p.finish() }

func (p *inside) cpu() (time.Duration, error) {
	now, err := cpuOf(os.Getpid())
	return now - p.base, err
}
