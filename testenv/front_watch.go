package testenv

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Call is a request that came to a node of an embedded cluster.
type Call struct {
	// Node that was asked, counted as in [Fault.Nodes].
	Node int32
	// ClientID of the sender.
	ClientID string
	// Request as it came. It is not to be changed.
	Request kmsg.Request
}

// Key of the request.
func (c Call) Key() kmsg.Key { return kmsg.Key(c.Request.Key()) }

// String names request, version, node and client.
func (c Call) String() string {
	return fmt.Sprintf("%s v%d to node %d by %q", c.Key().Name(), c.Request.GetVersion(), c.Node, c.ClientID)
}

// Recorder lists requests. Its methods may be called concurrently.
type Recorder struct {
	front *Front
	keys  []kmsg.Key

	mu    sync.Mutex
	calls []Call
	more  chan struct{} // closed with the next call
}

// Watch records the requests of the given keys from now on, all keys without
// any, in the order in which the nodes take them up; those that a [Fault] cuts
// off are among them. It panics without a front (see [Cluster.Front]).
func (f *Front) Watch(keys ...kmsg.Key) *Recorder {
	f.must()
	r := &Recorder{front: f, keys: keys, more: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorders = append(slices.Clip(f.recorders), r)
	return r
}

func (r *Recorder) record(x *exchange) {
	if len(r.keys) > 0 && !slices.Contains(r.keys, kmsg.Key(x.key)) {
		return
	}
	req, err := x.request()
	if err != nil {
		return // kfake won't take it either
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, Call{Node: x.node, ClientID: x.clientID, Request: req})
	close(r.more)
	r.more = make(chan struct{})
}

// Calls returns what was recorded until now.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Of returns the recorded calls for which match holds, such as
// [OfTransaction].
func (r *Recorder) Of(match func(kmsg.Request) bool) []Call {
	return slices.DeleteFunc(r.Calls(), func(c Call) bool { return !match(c.Request) })
}

// Wait returns the first recorded call for which match holds, at once if there
// is one already. It returns ctx's error if that ends before.
func (r *Recorder) Wait(ctx context.Context, match func(kmsg.Request) bool) (Call, error) {
	for seen := 0; ; {
		r.mu.Lock()
		calls, more := r.calls, r.more
		r.mu.Unlock()
		for ; seen < len(calls); seen++ {
			if match(calls[seen].Request) {
				return calls[seen], nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Call{}, fmt.Errorf("wait for a request: %w", ctx.Err())
		}
	}
}

// Stop ends the recording; what was recorded stays.
func (r *Recorder) Stop() {
	r.front.mu.Lock()
	defer r.front.mu.Unlock()
	r.front.recorders = slices.DeleteFunc(slices.Clone(r.front.recorders), func(o *Recorder) bool { return o == r })
}

// TxnKeys are the requests that make up a producer's transaction.
var TxnKeys = []kmsg.Key{kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn}

// OfTransaction matches the requests of [TxnKeys] that name the transactional
// id.
func OfTransaction(id string) func(kmsg.Request) bool {
	is := func(p *string) bool { return p != nil && *p == id }
	return func(req kmsg.Request) bool {
		switch req := req.(type) {
		case *kmsg.InitProducerIDRequest:
			return is(req.TransactionalID)
		case *kmsg.AddPartitionsToTxnRequest:
			return req.TransactionalID == id || slices.ContainsFunc(req.Transactions,
				func(t kmsg.AddPartitionsToTxnRequestTransaction) bool { return t.TransactionalID == id })
		case *kmsg.ProduceRequest:
			return is(req.TransactionID)
		case *kmsg.EndTxnRequest:
			return req.TransactionalID == id
		}
		return false
	}
}

// Commits matches EndTxn requests that commit a transaction of the
// transactional id.
func Commits(id string) func(kmsg.Request) bool {
	return func(req kmsg.Request) bool {
		end, ok := req.(*kmsg.EndTxnRequest)
		return ok && end.TransactionalID == id && end.Commit
	}
}
