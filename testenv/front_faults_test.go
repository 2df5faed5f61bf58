package testenv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
)

// create asks node 0 to make a topic, once.
func create(ctx context.Context, cl *kgo.Client, topic string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, 1, -1
	req.Topics = append(req.Topics, rt)
	kresp, err := cl.Broker(0).Request(ctx, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(kresp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
}

// exists asks kfake itself.
func exists(c *testenv.Cluster, topic string) bool { return c.Fake().TopicInfo(topic) != nil }

func TestFrontFaults(t *testing.T) {
	const late = 7 * time.Second
	for _, tc := range []struct {
		name    string
		fault   testenv.Fault
		err     string // part of what the client gets; "" when all is well
		handled bool
		after   time.Duration // the client's answer
	}{
		{name: "cut before", fault: testenv.Fault{Do: testenv.CutBefore}, err: "closed the connection"},
		{name: "answer lost", fault: testenv.Fault{Do: testenv.AnswerLost}, err: "closed the connection", handled: true},
		{name: "delay request", fault: testenv.Fault{Do: testenv.DelayRequest, Delay: late}, handled: true, after: late},
		{name: "delay answer", fault: testenv.Fault{Do: testenv.DelayAnswer, Delay: late}, handled: true, after: late},
		{name: "answer instead", fault: testenv.Fault{Do: testenv.AnswerInstead, Answer: func(req kmsg.Request) kmsg.Response {
			resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
			resp.Topics = []kmsg.CreateTopicsResponseTopic{{Topic: "t", ErrorCode: kerr.PolicyViolation.Code}}
			return resp
		}}, err: "POLICY_VIOLATION"},
		{name: "alter answer", fault: testenv.Fault{Do: testenv.AlterAnswer, Delay: late, Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
			resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode = kerr.RequestTimedOut.Code
			return true
		}}, err: "REQUEST_TIMED_OUT", handled: true, after: late},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: new(kfake.VirtualNetwork)})
				cl := c.Client(t)
				tc.fault.Keys = []kmsg.Key{kmsg.CreateTopics}
				f := c.Front().Arm(tc.fault)
				start := time.Now()
				err := create(t.Context(), cl, "t")
				if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				if took := time.Since(start); took != tc.after {
					t.Errorf("answered after %v, want %v", took, tc.after)
				}
				if exists(c, "t") != tc.handled {
					t.Errorf("handled: %v, want %v", !tc.handled, tc.handled)
				}
				f.MustHaveFired(t)
				// It is over. A new client, as the first may not know yet that
				// its connection is gone.
				if err := create(t.Context(), c.Client(t), "next"); err != nil {
					t.Errorf("the next request: %v", err)
				}
				if f.Fired() != 1 {
					t.Errorf("fired %d times", f.Fired())
				}
			})
		})
	}
}

// A delay is one connection's own: the same client's other connections, and
// other clients, get their answers meanwhile.
func TestFrontDelayHoldsUpOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: new(kfake.VirtualNetwork), Nodes: 2})
		f := c.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Do: testenv.DelayAnswer, Delay: 10 * time.Minute, ClientID: "slow"})
		slow, quick := c.Client(t, kgo.ClientID("slow"), kgo.RequestTimeoutOverhead(15*time.Minute)), c.Client(t)
		start := time.Now()
		done := make(chan time.Duration)
		go func() {
			if _, err := slow.SeedBrokers()[0].Request(t.Context(), kmsg.NewPtrMetadataRequest()); err != nil {
				t.Error(err)
			}
			done <- time.Since(start)
		}()
		<-f.Reached()
		for _, cl := range []*kgo.Client{slow, quick} {
			for _, node := range cl.SeedBrokers()[1:] {
				if _, err := node.Request(t.Context(), kmsg.NewPtrMetadataRequest()); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := quick.SeedBrokers()[0].Request(t.Context(), kmsg.NewPtrMetadataRequest()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("others waited %v", took)
		}
		if took := <-done; took != 10*time.Minute {
			t.Errorf("the slow one got its answer after %v", took)
		}
	})
}

// In the window between commit and answer the records are there.
func TestFrontHoldAnswerOfCommit(t *testing.T) {
	c := testenv.Embedded(t)
	c.CreateTopic(t, "t", 1, -1, nil)
	seen := c.Front().Watch(testenv.TxnKeys...)
	// The abort comes first, and is not meant.
	f := c.Front().Arm(testenv.Fault{Keys: testenv.TxnKeys, Do: testenv.HoldAnswer, Match: testenv.Commits("x")})
	cl := c.Client(t, kgo.TransactionalID("x"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	recs := testenv.Records("t", 1, 5, 1)
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cl.EndTransaction(t.Context(), end) }()
		if end == kgo.TryCommit {
			<-f.Reached()
			testenv.AssertExactlyOnce(t, recs, c.ReadAll(t, "t"))
			select {
			case err := <-ended:
				t.Fatalf("the commit was answered: %v", err)
			default:
			}
			f.Release()
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, call := range seen.Of(testenv.OfTransaction("x")) {
		names = append(names, call.Key().Name())
	}
	if got, want := strings.Join(names, " "), "InitProducerID Produce EndTxn Produce EndTxn"; got != want {
		t.Errorf("requests of the transactions: %s, want %s", got, want)
	}
}

// A request that is on its way when its client dies is handled all the same.
func TestFrontHoldRequestOutlivesClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: new(kfake.VirtualNetwork)})
		f := c.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Do: testenv.HoldRequest})
		cl := c.Client(t)
		failed := make(chan error, 1)
		go func() { failed <- create(t.Context(), cl, "late") }()
		<-f.Reached()
		cl.Close()
		if err := <-failed; err == nil {
			t.Error("a closed client got its answer")
		}
		synctest.Wait()
		if exists(c, "late") {
			t.Fatal("handled while it was held")
		}
		f.Release()
		synctest.Wait()
		if !exists(c, "late") {
			t.Error("the request was lost with its client")
		}
	})
}

func TestFrontSelectors(t *testing.T) {
	c := testenv.Embedded(t, testenv.EmbeddedOptions{Nodes: 3})
	// A new client each time: after a cut, the next request may still go to the
	// connection that is gone.
	ask := func(id string, node int, topics ...string) bool {
		t.Helper()
		cl := c.Client(t, kgo.ClientID(id))
		defer cl.Close()
		req := kmsg.NewPtrMetadataRequest()
		for _, topic := range topics {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(topic)
			req.Topics = append(req.Topics, rt)
		}
		_, err := cl.SeedBrokers()[node].Request(t.Context(), req)
		return err != nil
	}
	named := func(req kmsg.Request) bool { return len(req.(*kmsg.MetadataRequest).Topics) == 1 }
	// Clients ask for metadata on their own, hence the predicate.
	f := c.Front().Arm(testenv.Fault{
		Keys: []kmsg.Key{kmsg.Metadata}, Do: testenv.CutBefore, Nth: 3, Times: 2,
		Nodes: []int32{1, 2}, ClientID: "b", Match: named,
	})
	for i, tc := range []struct {
		id   string
		node int
		cut  bool
	}{
		{"b", 1, false},
		{"a", 1, false},
		{"b", 0, false},
		{"b", 2, false},
		{"b", 0, false},
		{"b", 2, true},
		{"b", 0, false},
		{"b", 1, true},
		{"b", 1, false},
		{"b", 2, false},
	} {
		if ask(tc.id, tc.node) {
			t.Errorf("call %d, without a topic: cut", i)
		}
		if got := ask(tc.id, tc.node, "t"); got != tc.cut {
			t.Errorf("call %d: cut %v, want %v", i, got, tc.cut)
		}
	}
	if f.Fired() != 2 {
		t.Errorf("fired %d times, want 2: %v", f.Fired(), f)
	}
	always := c.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Do: testenv.AnswerLost, Times: -1, Match: named})
	for range 3 {
		if !ask("a", 0, "t") {
			t.Error("not cut")
		}
	}
	always.Disarm()
	if ask("a", 0, "t") {
		t.Error("cut by a fault that is disarmed")
	}
	if always.Fired() != 3 {
		t.Errorf("fired %d times, want 3", always.Fired())
	}
}

// A fault that does not happen fails the test that armed it.
func TestFrontFaultMustFire(t *testing.T) {
	v := &verdict{TB: t}
	c := testenv.Embedded(t)
	f := c.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.EndTxn, kmsg.Produce}, Do: testenv.AnswerLost, Nth: 2})
	f.MustHaveFired(v)
	for _, part := range []string{`"answer lost" on call 2 of EndTxn, Produce`, "front_faults_test.go:", "never happened"} {
		if !strings.Contains(v.said, part) {
			t.Errorf("said %q, want it to contain %q", v.said, part)
		}
	}
	f.Disarm() // or the cluster says so as well: see TestFrontClusterWantsFaults
}

// cleanups is a T whose cleanups are run by the test.
type cleanups struct {
	verdict
	fns []func()
}

func (c *cleanups) Cleanup(fn func()) { c.fns = append(c.fns, fn) }

func TestFrontClusterWantsFaults(t *testing.T) {
	for _, disarm := range []bool{false, true} {
		w := &cleanups{verdict: verdict{TB: t}}
		c := testenv.Embedded(w)
		f := c.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Do: testenv.CutBefore})
		if disarm {
			f.Disarm()
		}
		for _, fn := range w.fns {
			fn()
		}
		if said := strings.Contains(w.said, "never happened"); said == disarm {
			t.Errorf("disarmed %v: said %q", disarm, w.said)
		}
	}
}

func TestFrontImpossibleFaults(t *testing.T) {
	keys := []kmsg.Key{kmsg.Produce}
	plain := testenv.Embedded(t)
	encrypted := testenv.Embedded(t, testenv.EmbeddedOptions{TLS: true})
	for _, tc := range []struct {
		say   string
		c     *testenv.Cluster
		fault testenv.Fault
	}{
		{"no front", encrypted, testenv.Fault{Keys: keys, Do: testenv.CutBefore}},
		{"no such action", plain, testenv.Fault{Keys: keys}},
		{"Keys are missing", plain, testenv.Fault{Do: testenv.CutBefore}},
		{"Delay is missing", plain, testenv.Fault{Keys: keys, Do: testenv.DelayAnswer}},
		{"Delay means nothing", plain, testenv.Fault{Keys: keys, Do: testenv.HoldAnswer, Delay: 1}},
		{"Answer belongs", plain, testenv.Fault{Keys: keys, Do: testenv.AnswerInstead}},
		{"Alter belongs", plain, testenv.Fault{Keys: keys, Do: testenv.CutBefore, Alter: func(kmsg.Request, kmsg.Response) bool { return true }}},
		{"negative", plain, testenv.Fault{Keys: keys, Do: testenv.CutBefore, Nth: -1}},
	} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.Contains(said, tc.say) {
					t.Errorf("said %q, want %q", said, tc.say)
				}
			}()
			tc.c.Front().Arm(tc.fault)
		}()
	}
}

func TestFrontHighWatermarkLags(t *testing.T) {
	c := testenv.Embedded(t)
	c.CreateTopic(t, "t", 2, -1, nil)
	c.Produce(t, testenv.Records("t", 2, 20, 1)...)
	f := c.Front().Arm(testenv.HighWatermarkLags("t", 1, 2))
	adm := c.Admin(t)
	cl := c.Client(t)
	latest := func(part int32) (int64, error) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rt.Topic, rp.Partition, rp.Timestamp = "t", part, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		kresp, err := cl.Broker(0).Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		p := kresp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		return p.Offset, kerr.ErrorForCode(p.ErrorCode)
	}
	if end, err := latest(0); end != 10 || err != nil {
		t.Errorf("the other partition: end %d, %v", end, err)
	}
	if starts, err := adm.ListStartOffsets(t.Context(), "t"); err != nil || starts.Error() != nil {
		t.Errorf("starts: %v, %v", err, starts.Error())
	}
	for range 2 {
		if end, err := latest(1); end != -1 || !errors.Is(err, kerr.OffsetNotAvailable) {
			t.Errorf("end %d, %v; want OFFSET_NOT_AVAILABLE", end, err)
		}
	}
	if end, err := latest(1); end != 10 || err != nil {
		t.Errorf("end %d, %v", end, err)
	}
	if f.Fired() != 2 {
		t.Errorf("fired %d times", f.Fired())
	}
}

// A reader sees nothing from the stale high watermark on, and all of it once
// that has moved.
func TestFrontHighWatermarkStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: new(kfake.VirtualNetwork)})
		c.CreateTopic(t, "t", 1, -1, nil)
		recs := testenv.Records("t", 1, 9, 1)
		for i := 0; i < len(recs); i += 3 { // three batches
			c.Produce(t, recs[i:i+3]...)
		}
		f := c.Front().Arm(c.Front().HighWatermarkStale("t", 0, 6, -1))
		cl := c.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
		var got int
		var end int64
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			cl.PollFetches(ctx).EachPartition(func(p kgo.FetchTopicPartition) {
				if len(p.Records) > 0 {
					got, end = got+len(p.Records), p.HighWatermark
				}
			})
			cancel()
		}
		if got != 6 || end != 6 {
			t.Errorf("%d records, high watermark %d; want 6 and 6", got, end)
		}
		if f.Fired() < 2 {
			t.Errorf("fired %d times", f.Fired())
		}
		f.Disarm()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for got < len(recs) && ctx.Err() == nil {
			got += cl.PollFetches(ctx).NumRecords()
		}
		if got != len(recs) {
			t.Errorf("%d records in the end", got)
		}
	})
}

func TestFrontRecorder(t *testing.T) {
	c := testenv.Embedded(t)
	r := c.Front().Watch(kmsg.CreateTopics)
	all := c.Front().Watch()
	cl := c.Client(t, kgo.ClientID("me"))
	of := func(topic string) func(kmsg.Request) bool {
		return func(req kmsg.Request) bool { return req.(*kmsg.CreateTopicsRequest).Topics[0].Topic == topic }
	}
	waited := make(chan error, 1)
	go func() {
		_, err := r.Wait(t.Context(), of("b"))
		waited <- err
	}()
	for _, topic := range []string{"a", "b"} {
		if err := create(t.Context(), cl, topic); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	r.Stop()
	if err := create(t.Context(), cl, "c"); err != nil {
		t.Fatal(err)
	}
	calls := r.Calls()
	if len(calls) != 2 || len(r.Of(of("b"))) != 1 {
		t.Fatalf("calls: %v", calls)
	}
	if got := calls[0]; got.Node != 0 || got.ClientID != "me" || got.Key() != kmsg.CreateTopics || !strings.HasPrefix(got.String(), "CreateTopics v") {
		t.Errorf("call %v", got)
	}
	if n := len(all.Calls()); n < 4 {
		t.Errorf("%d calls of all keys", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Wait(ctx, of("c")); !errors.Is(err, context.Canceled) {
		t.Errorf("wait for what does not come: %v", err)
	}
}

// Ledger topics compact for everybody but kfake.
func TestFrontHidesLedgerCompaction(t *testing.T) {
	c := testenv.Embedded(t)
	adm := c.Admin(t)
	policy := func(topic string) (seen, kept string) {
		t.Helper()
		rcs, err := adm.DescribeTopicConfigs(t.Context(), topic)
		if err != nil || len(rcs) != 1 || rcs[0].Err != nil {
			t.Fatalf("%v, %v", rcs, err)
		}
		for _, cfg := range rcs[0].Configs {
			if cfg.Key == "cleanup.policy" {
				seen = cfg.MaybeValue() + " " + cfg.Source.String()
			}
		}
		if v := c.Fake().TopicInfo(topic).Configs["cleanup.policy"]; v != nil {
			kept = *v
		}
		return seen, kept
	}
	check := func(topic, wantSeen, wantKept string) {
		t.Helper()
		if seen, kept := policy(topic); seen != wantSeen || kept != wantKept {
			t.Errorf("%s: clients see %q, kfake has %q; want %q and %q", topic, seen, kept, wantSeen, wantKept)
		}
	}
	const ledger = "onceover.f.ledger.internal"
	compact := map[string]*string{"cleanup.policy": kadm.StringPtr("compact"), "max.message.bytes": kadm.StringPtr("2000000")}
	if _, err := adm.ValidateCreateTopics(t.Context(), 1, -1, compact, ledger); err != nil {
		t.Fatal(err)
	}
	resp, err := adm.CreateTopic(t.Context(), 1, -1, nil, ledger)
	if err != nil {
		t.Fatal(err)
	}
	check(ledger, "delete DEFAULT_CONFIG", "")
	if _, err := adm.DeleteTopics(t.Context(), ledger); err != nil {
		t.Fatal(err)
	}
	if resp, err = adm.CreateTopic(t.Context(), 1, -1, compact, ledger); err != nil {
		t.Fatal(err)
	}
	if got := resp.Configs["cleanup.policy"]; got.MaybeValue() != "compact" {
		t.Errorf("the answer says %v", got)
	}
	check(ledger, "compact DYNAMIC_TOPIC_CONFIG", "delete")
	if _, err := adm.CreateTopic(t.Context(), 1, -1, compact, "other"); err != nil {
		t.Fatal(err)
	}
	check("other", "compact DYNAMIC_TOPIC_CONFIG", "compact")

	alter := func(op kadm.IncrementalOp, value, seen, kept string) {
		t.Helper()
		got, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: op, Name: "cleanup.policy", Value: &value}}, ledger)
		if err != nil || got[0].Err != nil {
			t.Fatalf("%v %v", got, err)
		}
		check(ledger, seen, kept)
	}
	alter(kadm.SetConfig, "delete", "delete DYNAMIC_TOPIC_CONFIG", "delete")
	alter(kadm.AppendConfig, "compact", "delete,compact DYNAMIC_TOPIC_CONFIG", "delete")
	alter(kadm.SubtractConfig, "delete", "compact DYNAMIC_TOPIC_CONFIG", "delete")
	alter(kadm.DeleteConfig, "", "delete DEFAULT_CONFIG", "")
	alter(kadm.SetConfig, "compact", "compact DYNAMIC_TOPIC_CONFIG", "delete")
	all := func(value, seen, kept string) {
		t.Helper()
		got, err := adm.AlterTopicConfigsState(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &value}}, ledger)
		if err != nil || got[0].Err != nil {
			t.Fatalf("%v %v", got, err)
		}
		check(ledger, seen, kept)
	}
	all("delete", "delete DYNAMIC_TOPIC_CONFIG", "delete")
	all("compact", "compact DYNAMIC_TOPIC_CONFIG", "delete")
}
