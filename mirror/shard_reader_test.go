package mirror

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// readingIn runs test in fake time with a reader, at a source that has ten records
// in a[0].
func readingIn(t *testing.T, test func(*testing.T, *testenv.Cluster, *shardReader), more ...func(*kfake.VirtualNetwork) kgo.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: network})
		c.CreateTopic(t, "a", 1, -1, nil)
		c.Produce(t, testenv.Records("a", 1, 10, 1)...)
		opts := c.Opts()
		for _, opt := range more {
			opts = append(opts, opt(network))
		}
		log := slog.New(slog.DiscardHandler)
		rd, err := newShardReader(opts, "shard 0", newBoard("x", "s", "t", &Observer{}, log), log, func() {})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { rd.close() }()
		test(t, c, rd)
	})
}

// reads polls until n records came, for at most a minute.
func (r *shardReader) reads(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := 0
	for got < n && ctx.Err() == nil {
		for _, a := range r.poll(ctx, 100) {
			if a.err != nil {
				t.Fatalf("%v: %v", a.at, a.err)
			}
			got += len(a.recs)
		}
	}
	if got != n {
		t.Errorf("%d records, want %d", got, n)
	}
}

// A partition that was left alone for a while when it was let go of is read when it
// comes back.
func TestReaderTakesUpWhatRested(t *testing.T) {
	t.Parallel()
	readingIn(t, func(t *testing.T, c *testenv.Cluster, rd *shardReader) {
		failing := c.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.Fetch}, Do: testenv.AlterAnswer, Times: -1,
			Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
				for _, rt := range resp.(*kmsg.FetchResponse).Topics {
					for i := range rt.Partitions {
						rt.Partitions[i].ErrorCode, rt.Partitions[i].RecordBatches = kerr.KafkaStorageError.Code, nil
					}
				}
				return true
			},
		})
		at := place{"a", 0}
		rd.add(map[place]readPlace{at: {next: 0, epoch: -1}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for !rd.rest.resting(at) && ctx.Err() == nil {
			once, next := context.WithTimeout(ctx, 10*time.Millisecond)
			rd.poll(once, 100)
			next()
		}
		failing.MustHaveFired(t)
		if !rd.rest.resting(at) {
			t.Fatal("it does not rest")
		}
		failing.Disarm()
		rd.remove([]place{at})
		rd.add(map[place]readPlace{at: {next: 0, epoch: -1}})
		rd.reads(t, 10)
	})
}

// A source that shows a certificate that is not accepted has sent no data: it is
// not taken for data that can't be decoded, which might be skipped.
func TestReaderTellsConnectionsFromData(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	const refusals = 30
	readingIn(t, func(t *testing.T, _ *testenv.Cluster, rd *shardReader) {
		rd.add(map[place]readPlace{{"a", 0}: {next: 4, epoch: 0}})
		rd.reads(t, 6)
		if n := refused.Load(); n < refusals {
			t.Errorf("%d connections were refused, want %d", n, refusals)
		}
	}, func(network *kfake.VirtualNetwork) kgo.Opt {
		var dials atomic.Int32
		return kgo.Dialer(func(ctx context.Context, _, addr string) (net.Conn, error) {
			if n := dials.Add(1); n > 1 && n <= 1+refusals { // the first one is for metadata
				refused.Add(1)
				return nil, &tls.CertificateVerificationError{Err: errors.New("x509: certificate has expired")}
			}
			return network.DialContext(ctx, "tcp", addr)
		})
	})
}

// A lane that lets go of its only partition with something to be written waits for
// what comes next: it does not go round for ever about a position that it no
// longer has.
func TestLaneWithNothingToWriteWaits(t *testing.T) {
	t.Parallel()
	readingIn(t, func(t *testing.T, _ *testenv.Cluster, rd *shardReader) {
		p := &shardPart{at: place{"a", 0}, next: 10, committed: 9}
		l := &shardLane{name: "shard 0", f: &flow{def: topology.NewFlow("x")}, rd: rd, parts: map[place]*shardPart{p.at: p}, holedAt: time.Now()}
		<-time.After(2 * holes)
		if !l.holesDue() {
			t.Fatal("nothing is to be written")
		}
		l.drop(p)
		const wait = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		began := time.Now()
		if got := l.await(ctx); len(got) > 0 || time.Since(began) != wait {
			t.Errorf("%d arrivals after %v", len(got), time.Since(began))
		}
		if l.holesDue() {
			t.Error("something is to be written")
		}
	})
}
