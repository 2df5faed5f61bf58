package testenv

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Action is what a [Fault] does.
type Action string

const (
	// CutBefore closes the connection in place of handling the request.
	CutBefore Action = "cut before"
	// AnswerLost has the request handled, throws its answer away and closes
	// the connection.
	AnswerLost Action = "answer lost"
	// DelayRequest passes the request on after Delay, even if its client has
	// gone by then: it was on its way.
	DelayRequest Action = "delay request"
	// DelayAnswer has the request handled at once and answers after Delay.
	DelayAnswer Action = "delay answer"
	// HoldRequest keeps the request until [Armed.Release] and passes it on
	// then, even if its client has gone.
	HoldRequest Action = "hold request"
	// HoldAnswer has the request handled and keeps its answer until
	// [Armed.Release].
	HoldAnswer Action = "hold answer"
	// AnswerInstead answers with the response of Answer; the request is never
	// handled. With Delay, the answer comes that much later.
	AnswerInstead Action = "answer instead"
	// AlterAnswer has the request handled and the answer changed by Alter.
	// With Delay, the changed answer comes that much later.
	AlterAnswer Action = "alter answer"
)

// Fault is something to go wrong with requests of a kind. Error codes alone
// are kfake's: see [Cluster.Fake] and [kfake.Fault].
type Fault struct {
	// Keys of the requests; at least one.
	Keys []kmsg.Key
	// Do is what happens; required.
	Do Action
	// Nth is the call to act on first, counted from arming among those that
	// match, over all keys, nodes and connections; 1 (default) is the first.
	Nth int
	// Times is on how many calls in a row to act, default 1; -1 for all.
	Times int
	// Nodes the request is sent to; default all. They are counted from 0 in
	// the order in which they were made.
	Nodes []int32
	// ClientID of the sender; default any.
	ClientID string
	// Match tells whether to count the request; default each. It must not
	// change the request. It is called by several connections at once.
	Match func(kmsg.Request) bool
	// Delay of DelayRequest and DelayAnswer (required), AnswerInstead and
	// AlterAnswer (default 0). It is fake time in a bubble of testing/synctest.
	Delay time.Duration
	// Answer makes the response of AnswerInstead; see ResponseKind of the
	// request. It is called by several connections at once.
	Answer func(kmsg.Request) kmsg.Response
	// Alter changes the response for AlterAnswer and tells whether it did. A
	// call that it left alone doesn't count. It may be called for calls that
	// are not acted on: what it changes then is dropped. It is called by
	// several connections at once.
	Alter func(kmsg.Request, kmsg.Response) bool
}

// problem tells why the fault can't be armed.
func (f *Fault) problem() string {
	switch f.Do {
	case CutBefore, AnswerLost, HoldRequest, HoldAnswer:
		if f.Delay != 0 {
			return "Delay means nothing to it"
		}
	case DelayRequest, DelayAnswer:
		if f.Delay <= 0 {
			return "Delay is missing"
		}
	case AnswerInstead, AlterAnswer:
	default:
		return "no such action"
	}
	switch {
	case len(f.Keys) == 0:
		return "Keys are missing"
	case (f.Do == AnswerInstead) != (f.Answer != nil):
		return "Answer belongs to AnswerInstead, and it alone"
	case (f.Do == AlterAnswer) != (f.Alter != nil):
		return "Alter belongs to AlterAnswer, and it alone"
	case f.Nth < 0 || f.Times < -1:
		return "Nth or Times is negative"
	}
	return ""
}
