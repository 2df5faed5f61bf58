package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// ofShards matches the transactional requests of the flow "eo".
func ofShards(req kmsg.Request) bool {
	return testenv.OfTransaction(txn.ShardTxnID("eo", 0))(req) || testenv.OfTransaction(txn.ShardTxnID("eo", 1))(req)
}

// coded gives every place of an answer to a transactional request an error, and
// tells whether it could.
func coded(resp kmsg.Response, err *kerr.Error) bool {
	switch resp := resp.(type) {
	case *kmsg.InitProducerIDResponse:
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = err.Code, -1, -1
	case *kmsg.EndTxnResponse:
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = err.Code, -1, -1
	case *kmsg.AddPartitionsToTxnResponse:
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				resp.Topics[i].Partitions[j].ErrorCode = err.Code
			}
		}
	case *kmsg.ProduceResponse:
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				p := &resp.Topics[i].Partitions[j]
				p.ErrorCode, p.BaseOffset = err.Code, -1
			}
		}
	default:
		return false
	}
	return true
}

// denial is the answer to a transactional request that was not carried out.
func denial(req kmsg.Request, err *kerr.Error) kmsg.Response {
	resp := req.ResponseKind()
	switch req := req.(type) {
	case *kmsg.AddPartitionsToTxnRequest:
		resp := resp.(*kmsg.AddPartitionsToTxnResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				rp.Partition = p
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
	case *kmsg.ProduceRequest:
		resp := resp.(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition = p.Partition
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
	}
	coded(resp, err)
	return resp
}

// passing is an error of a request that passes by itself.
func passing(req kmsg.Request) *kerr.Error {
	if req.Key() == int16(kmsg.Produce) {
		return kerr.NotEnoughReplicas
	}
	return kerr.ConcurrentTransactions
}

// stepFaults are the ways in which one request fails.
var stepFaults = map[string]testenv.Fault{
	"cut":             {Do: testenv.CutBefore},
	"lost":            {Do: testenv.AnswerLost},
	"busy":            {Do: testenv.AnswerInstead, Answer: func(req kmsg.Request) kmsg.Response { return denial(req, passing(req)) }},
	"failed":          {Do: testenv.AnswerInstead, Answer: func(req kmsg.Request) kmsg.Response { return denial(req, kerr.UnknownServerError) }},
	"failed-yet-done": {Do: testenv.AlterAnswer, Alter: func(_ kmsg.Request, resp kmsg.Response) bool { return coded(resp, kerr.UnknownServerError) }},
	"fenced":          {Do: testenv.AnswerInstead, Answer: func(req kmsg.Request) kmsg.Response { return denial(req, kerr.ProducerFenced) }},
}

// Request 0, 1, 2, ... of the flow's transactions fails, until a run gets by
// without the fault. The process goes on by itself, or dies right then and is
// started again: every record is on the target once, in order.
func TestFaultAtEveryStep(t *testing.T) {
	for _, level := range []int16{2, 1, 0} {
		for name, fault := range stepFaults {
			fault.Keys, fault.Match = testenv.TxnKeys, ofShards
			for _, dies := range []bool{false, true} {
				if level == 0 && (name != "lost" || !dies) {
					continue // to the client it is v1
				}
				t.Run(fmt.Sprintf("v%d/%s/dies=%t", level, name, dies), func(t *testing.T) {
					t.Parallel()
					everyStep(t, level, fault, dies)
				})
			}
		}
	}
}

// The same with whatever the flow asks the target.
func TestFaultAtEveryRequest(t *testing.T) {
	for name, fault := range map[string]testenv.Fault{"cut": stepFaults["cut"], "lost": stepFaults["lost"]} {
		for key := range kmsg.MaxKey + 1 {
			if kmsg.RequestForKey(int16(key)) != nil {
				fault.Keys = append(fault.Keys, kmsg.Key(key))
			}
		}
		fault.ClientID = "onceover"
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/dies=%t", name, dies), func(t *testing.T) {
				t.Parallel()
				everyStep(t, 2, fault, dies)
			})
		}
	}
}

func everyStep(t *testing.T, level int16, fault testenv.Fault, dies bool) {
	t.Helper()
	n := 1
	for stepFails(t, level, fault, n, dies) && !t.Failed() {
		n++
	}
	if n < 18 && !t.Failed() {
		t.Errorf("a run has only %d steps", n-1)
	}
	t.Logf("%d steps", n-1)
}

// stepFails makes call n of a run fail, and returns whether there was one.
func stepFails(t *testing.T, level int16, fault testenv.Fault, n int, dies bool) (fired bool) {
	t.Helper()
	inFakeTime(t, level, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(2, 40, int64(n))
		fault.Nth = n
		armed := w.target.Front().Arm(fault)
		calls := w.target.Front().Watch(testenv.TxnKeys...)
		l := w.live()
		if dies && !w.copiedOr(l, armed.Reached()) {
			l.kill()
			l = w.live()
		}
		w.copied(l)
		fired = armed.Fired() > 0
		armed.Disarm()
		w.once(l)
		if w.Failed() {
			var all []string
			for _, c := range calls.Of(ofShards) {
				all = append(all, c.String())
			}
			w.Logf("%v\nthe transactions were:\n%s", armed, strings.Join(all, "\n"))
		}
	})
	return fired
}
