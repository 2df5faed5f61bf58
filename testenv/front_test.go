package testenv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/testenv"
)

// wire is a connection to the first node without a client.
type wire struct {
	*testing.T
	net.Conn
}

func dialWire(t *testing.T, c *testenv.Cluster) *wire {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", c.Bootstrap()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t, conn}
}

// frames are the requests, numbered as correlation ids from 1.
func frames(reqs ...kmsg.Request) []byte {
	var b []byte
	for i, req := range reqs {
		b = append(b, kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire")).AppendRequest(nil, req, int32(i+1))...)
	}
	return b
}

// answers reads until the node closes the connection, at most n answers, and
// returns their correlation ids.
func (w *wire) answers(n int) []int32 {
	w.Helper()
	var ids []int32
	for len(ids) < n {
		var head [8]byte
		if _, err := io.ReadFull(w.Conn, head[:]); err != nil {
			if !errors.Is(err, io.EOF) {
				w.Errorf("after %d answers: %v", len(ids), err)
			}
			break
		}
		if _, err := io.CopyN(io.Discard, w.Conn, int64(binary.BigEndian.Uint32(head[:]))-4); err != nil {
			w.Fatal(err)
		}
		ids = append(ids, int32(binary.BigEndian.Uint32(head[4:])))
	}
	return ids
}

func metadata() kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	return req
}

func createTopic(name string) kmsg.Request {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1, -1
	req.Topics = append(req.Topics, rt)
	return req
}

// produce writes nothing to no topic.
func produce(version, acks int16) kmsg.Request {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 1000
	return req
}

// Answers come in order, each once, whether they are kfake's or a fault's, and
// with requests between them that are never answered.
func TestFrontPipelined(t *testing.T) {
	c := testenv.Embedded(t)
	named := func(name string) func(kmsg.Request) bool {
		return func(req kmsg.Request) bool {
			create, ok := req.(*kmsg.CreateTopicsRequest)
			return ok && create.Topics[0].Topic == name
		}
	}
	c.Front().Arm(testenv.Fault{
		Keys: []kmsg.Key{kmsg.CreateTopics}, Do: testenv.AnswerInstead, Match: named("made up"),
		Answer: func(req kmsg.Request) kmsg.Response { return req.ResponseKind() },
	})
	w := dialWire(t, c)
	if _, err := w.Write(frames(
		metadata(), produce(9, 0), createTopic("made up"), produce(7, 0), createTopic("a"), produce(3, 1), produce(9, 1), metadata(),
	)); err != nil {
		t.Fatal(err)
	}
	if got, want := w.answers(6), []int32{1, 3, 5, 6, 7, 8}; !slices.Equal(got, want) {
		t.Errorf("answers to %v, want %v", got, want)
	}

	// What was answered before a cut arrives, whatever comes behind.
	c.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Do: testenv.CutBefore, Match: named("cut")})
	w = dialWire(t, c)
	if _, err := w.Write(frames(metadata(), createTopic("b"), createTopic("cut"), createTopic("behind"), metadata())); err != nil {
		t.Fatal(err)
	}
	if got, want := w.answers(5), []int32{1, 2}; !slices.Equal(got, want) {
		t.Errorf("answers to %v, want %v", got, want)
	}
	for name, want := range map[string]bool{"a": true, "b": true, "made up": false, "cut": false, "behind": false} {
		if exists(c, name) != want {
			t.Errorf("topic %q is there: %v, want %v", name, !want, want)
		}
	}
}

// What is no request of Kafka's ends its connection, and that alone.
func TestFrontGarbage(t *testing.T) {
	c := testenv.Embedded(t)
	for name, sent := range map[string][]byte{
		"another protocol": []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"empty frame":      {0, 0, 0, 0},
		"unknown key":      {0, 0, 0, 10, 0, 95, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"cut short":        {0, 0, 0, 10, 0, 3, 0, 12, 0, 0, 0, 1, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := dialWire(t, c)
			if _, err := w.Write(sent); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(w.Conn); len(got) > 0 || err != nil {
				t.Errorf("answered %q, %v", got, err)
			}
		})
	}
	smoke(t, c)
}

func TestFrontLargeFrames(t *testing.T) {
	const size = 12 << 20
	for name, opts := range map[string]testenv.EmbeddedOptions{
		"newest": {},
		"old":    testenv.Old(kversion.V2_8_0()),
		"login":  {SASL: true, ACLs: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := testenv.Embedded(t, opts)
			c.CreateTopic(t, "large", 1, -1, map[string]*string{"max.message.bytes": kadm.StringPtr("20000000")})
			value := bytes.Repeat([]byte("0123456789abcdef"), size/16)
			r := c.Front().Watch(kmsg.Produce) // decodes it, too
			cl := c.Client(t, kgo.ProducerBatchMaxBytes(size+1<<16), kgo.ProducerBatchCompression(kgo.NoCompression()),
				kgo.FetchMaxBytes(2*size), kgo.FetchMaxPartitionBytes(2*size), kgo.DefaultProduceTopic("large"), kgo.ConsumeTopics("large"))
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: value}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			recs := cl.PollFetches(t.Context()).Records()
			if len(recs) != 1 || !bytes.Equal(recs[0].Value, value) {
				t.Errorf("%d records came back, or another value", len(recs))
			}
			if n := len(r.Calls()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// kfake learns that a client is gone while its fetch waits for records.
func TestFrontClientGoesAway(t *testing.T) {
	c := testenv.Embedded(t)
	c.CreateTopic(t, "t", 1, -1, nil)
	fetching := c.Front().Watch(kmsg.Fetch)
	kfakeConns := func() int { return goroutines("kfake.(*clientConn).write(") }
	beforeFront, beforeKfake := goroutines(frontGoroutine), kfakeConns()
	cl := c.Client(t, kgo.ConsumeTopics("t"), kgo.FetchMaxWait(5*time.Minute))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	go cl.PollFetches(ctx)
	if _, err := fetching.Wait(ctx, func(kmsg.Request) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if goroutines(frontGoroutine) <= beforeFront || kfakeConns() <= beforeKfake {
		t.Error("no connection")
	}
	cl.Close()
	for goroutines(frontGoroutine) > beforeFront || kfakeConns() > beforeKfake {
		if runtime.Gosched(); ctx.Err() != nil {
			t.Fatal("the connection is still there")
		}
	}
}

const frontGoroutine = "testenv.(*frontConn)"

// goroutines counts mentions of a function in the stacks of all goroutines.
func goroutines(of string) int {
	b := make([]byte, 8<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), of)
}

// Close leaves nothing behind, whatever is under way.
func TestFrontCloseWaits(t *testing.T) {
	c, err := testenv.StartEmbedded(testenv.EmbeddedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := goroutines(frontGoroutine)
	keys := []kmsg.Key{kmsg.CreateTopics}
	held := []*testenv.Armed{
		c.Front().Arm(testenv.Fault{Keys: keys, Do: testenv.HoldRequest, ClientID: "1"}),
		c.Front().Arm(testenv.Fault{Keys: keys, Do: testenv.HoldAnswer, ClientID: "2"}),
		c.Front().Arm(testenv.Fault{Keys: keys, Do: testenv.DelayRequest, Delay: 1e15, ClientID: "3"}),
		c.Front().Arm(testenv.Fault{Keys: keys, Do: testenv.DelayAnswer, Delay: 1e15, ClientID: "4"}),
		c.Front().Arm(testenv.Fault{Keys: keys, Do: testenv.AnswerLost, ClientID: "5"}),
	}
	failed := make(chan error, len(held))
	for i, f := range held {
		id := string(rune('1' + i))
		cl := c.Client(t, kgo.ClientID(id))
		go func() { failed <- create(t.Context(), cl, "t"+id) }()
		<-f.Reached()
	}
	idle := dialWire(t, c)
	if _, err := idle.Write(frames(metadata())); err != nil {
		t.Fatal(err)
	}
	idle.answers(1)
	if n := goroutines(frontGoroutine); n <= before {
		t.Errorf("%d goroutines of the front", n)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := goroutines(frontGoroutine); n > before {
		t.Errorf("%d goroutines are left, %d before", n, before)
	}
	for range held {
		if err := <-failed; err == nil {
			t.Error("answered by a closed cluster")
		}
	}
}

// A cluster in a bubble can be closed with answers held.
func TestFrontCloseInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: new(kfake.VirtualNetwork)})
		f := c.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Do: testenv.HoldAnswer})
		cl := c.Client(t)
		go func() { _ = create(t.Context(), cl, "t") }()
		<-f.Reached()
	})
}

// Level 2 has producers add partitions by Produce, below it they ask first.
func TestTransactionVersion(t *testing.T) { checkTransactionVersion(t, testenv.Embedded(t)) }

func TestRealTransactionVersion(t *testing.T) { checkTransactionVersion(t, testenv.Real(t, "4.4.0")) }

func checkTransactionVersion(t *testing.T, c *testenv.Cluster) {
	t.Helper()
	c.CreateTopic(t, "t", 1, -1, nil)
	for i, level := range []int16{0, 1, 2, 0, 2} {
		c.SetTransactionVersion(t, level)
		var r *testenv.Recorder
		if f := c.Front(); f != nil {
			r = f.Watch(kmsg.AddPartitionsToTxn)
		}
		// An id each: after a downgrade, a broker cannot go on with what it
		// keeps of an id from level 2.
		cl := c.Client(t, kgo.TransactionalID(fmt.Sprint("x", i)))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		recs := testenv.Records("t", 1, 1, int64(i))
		if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		if r == nil {
			continue
		}
		if asked := len(r.Calls()) > 0; asked != (level < 2) {
			t.Errorf("level %d: partitions were added by request: %v", level, asked)
		}
	}
}
