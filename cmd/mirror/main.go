// Command mirror copies topics from one Kafka cluster to another.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

func main() {
	if os.Getenv("GOGC") == "" {
		// Nearly all that is allocated are few and large buffers: collecting them
		// twice as often costs 5 % of the CPU and saves a third of the memory.
		debug.SetGCPercent(50)
	}
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// run is main without the exit: it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, again, release := untilSignal(context.Background())
	defer release()
	done := make(chan error, 1)
	go func() { done <- newApp(stdout, stderr).RunContext(ctx, args) }()
	select {
	case err := <-done:
		return report(stderr, interrupted(ctx, err))
	case <-again:
		// Nothing is waited for: that is what a second signal asks for.
		fmt.Fprintln(stderr, "mirror: second signal: stopped at once; what was in flight is copied again at the next start")
		return exitFailed
	}
}
