package main

import (
	"sync"
	"time"

	"github.com/onceover-mirror/onceover/mirror"
)

// meter turns the counters of states into rates. Safe for concurrent use.
type meter struct {
	mu      sync.Mutex
	samples []sample // oldest first
}

// meterSpan is the time over which a rate is taken: long enough to be calm,
// short enough to show a stop.
const meterSpan = 5 * time.Second

type sample struct {
	at    time.Time
	flows map[string]rate // counters, not rates
}

// rate is records and bytes (keys and values) per second.
type rate struct{ records, bytes float64 }

// add takes the counters of a state at a time later than the last.
func (m *meter) add(at time.Time, s mirror.State) {
	next := sample{at, make(map[string]rate, len(s.Flows))}
	for _, f := range s.Flows {
		next.flows[f.Name] = rate{float64(f.Records), float64(f.Bytes)}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = append(m.samples, next)
	// The newest of those that are too old stays as the other end.
	for len(m.samples) > 2 && at.Sub(m.samples[1].at) >= meterSpan {
		m.samples = m.samples[1:]
	}
}

// rate returns the present rate of a flow, zero as long as there is none.
func (m *meter) rate(flow string) rate {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.samples) < 2 {
		return rate{}
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	seconds := last.at.Sub(first.at).Seconds()
	before, now := first.flows[flow], last.flows[flow]
	if seconds <= 0 {
		return rate{}
	}
	return rate{max(0, now.records-before.records) / seconds, max(0, now.bytes-before.bytes) / seconds}
}
