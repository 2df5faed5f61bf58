package mirror

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Errors of a share session that no broker sends.
var (
	// errHoldLost: the lock on a record ended before its fate was sent; the
	// record comes again.
	errHoldLost = errors.New("the record lock was lost")
	// errNameTaken: another process reads under this one's name.
	errNameTaken = errors.New("another process uses the same instance name")
	// errNoAnswer: the broker's answer leaves the partition out.
	errNoAnswer = errors.New("the broker's answer leaves the partition out")
)

// Refusal is why a flow does not start, or ends: a person has to change
// something. Trying again without that does not help.
type Refusal struct {
	// Flow that is refused.
	Flow string
	// Problem, with its place.
	Problem string
	// Hint says what to change.
	Hint string
}

// Error prints the flow, the problem and the hint.
func (r *Refusal) Error() string {
	if r.Hint == "" {
		return fmt.Sprintf("flow %s: %s", r.Flow, r.Problem)
	}
	return fmt.Sprintf("flow %s: %s (%s)", r.Flow, r.Problem, r.Hint)
}

// refuse makes a Refusal of the flow.
func (f *flow) refuse(problem, hint string) *Refusal {
	return &Refusal{Flow: f.def.Name, Problem: problem, Hint: hint}
}

// named gives a Refusal in err, that parts which know no flow made, the flow's
// name. It returns err.
func (f *flow) named(err error) error {
	var r *Refusal
	if errors.As(err, &r) && r.Flow == "" {
		r.Flow = f.def.Name
	}
	return err
}

// hinted is an error for which there is advice.
type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }

// hintOf returns the advice that goes with err, empty without one.
func hintOf(err error) string {
	var h *hinted
	if errors.As(err, &h) {
		return h.hint
	}
	var r *Refusal
	if errors.As(err, &r) {
		return r.Hint
	}
	return ""
}

// reasonOf is err without the advice and the flow that a Refusal prints, for
// places that have both beside it.
func reasonOf(err error) string {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Problem
	}
	return err.Error()
}

// withMessage adds the broker's own words to err; nil stays nil.
func withMessage(err error, msg *string) error {
	if err == nil || msg == nil || *msg == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, *msg)
}

// backoff is the pause before try n (1 for the first repetition): doubled each
// time from first up to most, with the upper half random so that workers that
// failed together do not come back together.
func backoff(n int, first, most time.Duration) time.Duration {
	d := first
	for i := 1; i < n && d < most; i++ {
		d *= 2
	}
	d = min(d, most)
	return d/2 + rand.N(d/2+1)
}
