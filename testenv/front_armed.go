package testenv

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Armed is a fault that waits for its calls or has met them. Its methods may
// be called concurrently.
type Armed struct {
	fault Fault
	where string

	mu       sync.Mutex
	calls    int // that matched
	fired    int
	disarmed bool
	reached  chan struct{}
	released chan struct{}
}

// Arm has a fault happen from now on. It panics on a fault that makes no
// sense, and on a cluster without a front (see [Cluster.Front]). A cluster of
// [Embedded] fails its test if the fault never happens, unless it is disarmed.
func (f *Front) Arm(fault Fault) *Armed {
	f.must()
	if problem := fault.problem(); problem != "" {
		panic(fmt.Sprintf("testenv: fault %q: %s", fault.Do, problem))
	}
	if fault.Nth == 0 {
		fault.Nth = 1
	}
	if fault.Times == 0 {
		fault.Times = 1
	}
	a := &Armed{fault: fault, reached: make(chan struct{}), released: make(chan struct{})}
	if _, file, line, ok := runtime.Caller(1); ok {
		a.where = fmt.Sprintf("%s:%d", filepath.Base(file), line)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = append(f.armed, a)
	return a
}

// Fired tells on how many calls the fault has acted.
func (a *Armed) Fired() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fired
}

// Reached is closed when the fault has acted for the first time: for those
// that have the request handled, when it was; for those that hold or delay,
// when they begin to.
func (a *Armed) Reached() <-chan struct{} { return a.reached }

// Release lets go what HoldRequest or HoldAnswer hold, and holds nothing more.
func (a *Armed) Release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.released:
	default:
		close(a.released)
	}
}

// Disarm ends the fault; it need not have happened. What it holds is released.
func (a *Armed) Disarm() {
	a.Release()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.disarmed = true
}

// MustHaveFired marks the test as failed if the fault never acted.
func (a *Armed) MustHaveFired(t T) {
	t.Helper()
	if a.Fired() == 0 {
		t.Errorf("%v never happened", a)
	}
}

// String says which fault it is, where it was armed, and what it met.
func (a *Armed) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := make([]string, len(a.fault.Keys))
	for i, key := range a.fault.Keys {
		keys[i] = key.Name()
	}
	return fmt.Sprintf("fault %q on call %d of %s, armed at %s (%d calls met, %d acted on)",
		a.fault.Do, a.fault.Nth, strings.Join(keys, ", "), a.where, a.calls, a.fired)
}

// mustHaveFired marks the test as failed for each fault that did not happen.
func (f *Front) mustHaveFired(t T) {
	t.Helper()
	f.mu.Lock()
	armed := slices.Clone(f.armed)
	f.mu.Unlock()
	for _, a := range armed {
		a.mu.Lock()
		ok := a.disarmed || a.fired > 0
		a.mu.Unlock()
		if !ok {
			t.Errorf("%v never happened", a)
		}
	}
}

// noticed records a request and returns the faults to apply to it.
func (f *Front) noticed(x *exchange) []*Armed {
	if x.clientID == frontClient {
		return nil
	}
	f.mu.Lock()
	armed, recorders := f.armed, f.recorders
	f.mu.Unlock()
	for _, r := range recorders {
		r.record(x)
	}
	var hit []*Armed
	for _, a := range armed {
		if a.wants(x) && (a.fault.Do == AlterAnswer || a.count()) {
			hit = append(hit, a)
		}
	}
	return hit
}

// wants tells whether the fault is about such a request.
func (a *Armed) wants(x *exchange) bool {
	f := &a.fault
	if !slices.Contains(f.Keys, kmsg.Key(x.key)) ||
		len(f.Nodes) > 0 && !slices.Contains(f.Nodes, x.node) ||
		f.ClientID != "" && f.ClientID != x.clientID || a.over() {
		return false
	}
	if f.Match == nil {
		return true
	}
	req, err := x.request()
	return err == nil && f.Match(req)
}

func (a *Armed) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.disarmed || a.fault.Times >= 0 && a.calls >= a.fault.Nth-1+a.fault.Times
}

// count notes a call and tells whether to act on it.
func (a *Armed) count() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	return !a.disarmed && a.calls >= a.fault.Nth && (a.fault.Times < 0 || a.calls < a.fault.Nth+a.fault.Times)
}

// act notes that the fault has acted.
func (a *Armed) act() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fired++; a.fired == 1 {
		close(a.reached)
	}
}

// before applies the fault to a request that was not handled yet.
func (a *Armed) before(c *frontConn, x *exchange) error {
	switch a.fault.Do {
	case CutBefore:
		a.act()
		return errHungUp
	case DelayRequest:
		a.act()
		return c.pause(a.fault.Delay, nil)
	case HoldRequest:
		a.act()
		return c.hold(a.released, nil)
	case AnswerInstead:
		req, err := x.request()
		if err != nil {
			return err
		}
		a.act()
		x.setResponse(a.fault.Answer(req))
		return c.pause(a.fault.Delay, c.gone)
	case AnswerLost, DelayAnswer, HoldAnswer, AlterAnswer:
	}
	return nil
}

// after applies the fault to a request that was handled.
func (a *Armed) after(c *frontConn, x *exchange) error {
	switch a.fault.Do {
	case AnswerLost:
		a.act()
		return errHungUp
	case DelayAnswer:
		a.act()
		return c.pause(a.fault.Delay, c.gone)
	case HoldAnswer:
		a.act()
		return c.hold(a.released, c.gone)
	case AlterAnswer:
		return a.alter(c, x)
	case CutBefore, DelayRequest, HoldRequest, AnswerInstead:
	}
	return nil
}

func (a *Armed) alter(c *frontConn, x *exchange) error {
	if x.answer == nil {
		return nil
	}
	resp, err := x.response()
	if err != nil {
		return err
	}
	if !a.fault.Alter(x.decoded, resp) || !a.count() {
		return nil
	}
	a.act()
	x.setResponse(resp)
	return c.pause(a.fault.Delay, c.gone)
}
