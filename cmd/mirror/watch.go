package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceover-mirror/onceover/mirror"
)

// watcher tells the operator what a running mirror does: a line for each flow
// as soon as it is decided how it runs, and a progress line.
type watcher struct {
	source stateSource
	screen *screen
	meter  *meter
	// changed is signalled when a flow changed its phase.
	changed chan struct{}

	announced map[string]bool
}

func newWatcher(s *screen, m *meter) *watcher {
	return &watcher{screen: s, meter: m, changed: make(chan struct{}, 1), announced: map[string]bool{}}
}

// phase is an mirror.Observer's Phase; it never blocks.
func (w *watcher) phase(string, mirror.FlowPhase, string) {
	select {
	case w.changed <- struct{}{}:
	default: // one look is due anyway
	}
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	defer w.screen.progress("")
	for {
		state := w.source.State()
		w.announce(state)
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		case now := <-tick.C:
			w.meter.add(now, state)
			w.screen.progress(w.progress(state))
		}
	}
}

// announce prints the line of each flow that has left its start.
func (w *watcher) announce(s mirror.State) {
	for _, f := range s.Flows {
		if w.announced[f.Name] || f.Phase == mirror.FlowStarting || f.Guarantee == "" {
			continue
		}
		w.announced[f.Name] = true
		w.screen.say("%s", flowLine(f))
	}
}

// flowLine says how a flow runs.
func flowLine(f mirror.FlowState) string {
	line := fmt.Sprintf("%s (%s -> %s): %s, %s reader, order %s", f.Name, f.From, f.To, f.Guarantee, f.Reader, f.Order)
	if f.Why != "" {
		line += ": " + f.Why
	}
	return line
}

// progress is the line on the terminal.
func (w *watcher) progress(s mirror.State) string {
	var now rate
	sum := total(s)
	phases := map[mirror.FlowPhase]int{}
	for _, f := range s.Flows {
		r := w.meter.rate(f.Name)
		now.records += r.records
		now.bytes += r.bytes
		phases[f.Phase]++
	}
	var parts []string
	for _, phase := range flowPhases {
		if n := phases[phase]; n > 0 && len(s.Flows) > 1 {
			parts = append(parts, fmt.Sprintf("%d %s", n, phase))
		} else if n > 0 {
			parts = append(parts, string(phase))
		}
	}
	parts = append(parts, short(now.records)+" records/s", size(now.bytes)+"/s", "lag "+sum.lagText())
	if sum.shards > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d shards", sum.owned, sum.shards))
	}
	if sum.stopped > 0 {
		parts = append(parts, plural(int64(sum.stopped), "partition")+" stopped")
	}
	if sum.stalled > 0 {
		parts = append(parts, plural(int64(sum.stalled), "partition")+" stalled")
	}
	if sum.waiting > 0 {
		parts = append(parts, plural(int64(sum.waiting), "partition")+" waiting")
	}
	return strings.Join(parts, " | ")
}
