package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// stopSignal is the cause of a context that a signal ended.
type stopSignal struct{ signal os.Signal }

// Error names the signal.
func (s stopSignal) Error() string { return "interrupted by signal: " + s.signal.String() }

// untilSignal returns a context that SIGINT or SIGTERM ends, with a
// [stopSignal] as its cause. again is closed at the second signal. release
// gives the signals back and waits.
func untilSignal(parent context.Context) (ctx context.Context, again <-chan struct{}, release func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	second, quit := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case s := <-signals:
			cancel(stopSignal{s})
		case <-quit:
			return
		}
		select {
		case <-signals:
			close(second)
		case <-quit:
		}
	})
	return ctx, second, func() {
		signal.Stop(signals)
		close(quit)
		wg.Wait()
		cancel(nil)
	}
}

// interrupted replaces the bare "context canceled" of work that a signal
// ended by the signal.
func interrupted(ctx context.Context, err error) error {
	var stop stopSignal
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &stop) {
		return stop
	}
	return err
}
