package robust

import (
	"sync"
	"time"
)

// fault names a kind of fault.
type fault string

const (
	faultKill        fault = "process killed"
	faultPause       fault = "process paused"
	faultStop        fault = "process stopped in order"
	faultSourceKill  fault = "source broker killed"
	faultTargetKill  fault = "target broker killed"
	faultTargetPause fault = "target broker paused"
	faultLeader      fault = "leader moved"
	faultOpen        fault = "transaction left open"
	faultHanging     fault = "transaction hangs after a broker's start"
	faultZombie      fault = "owner frozen past its session and back"
	faultJoin        fault = "process joined"
	faultTargetStop  fault = "target broker stopped in order"
	faultUpgrade     fault = "transaction.version raised"
)

// history notes what happened, and logs it as it happens.
type history struct {
	log func(format string, args ...any)

	mu    sync.Mutex
	first time.Time
	fired map[fault]int
}

// note logs an event with the time since the first.
func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first.IsZero() {
		h.first = time.Now()
	}
	h.log("%7.3fs  "+format, append([]any{time.Since(h.first).Seconds()}, args...)...)
}

// fire notes that a fault has hit.
func (h *history) fire(f fault, format string, args ...any) {
	h.mu.Lock()
	if h.fired == nil {
		h.fired = map[fault]int{}
	}
	h.fired[f]++
	h.mu.Unlock()
	h.note(string(f)+": "+format, args...)
}

func (h *history) count(f fault) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fired[f]
}
