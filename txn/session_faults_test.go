package txn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// atDesk runs test in fake time, on a target with a level of transaction.version.
func atDesk(t *testing.T, level int16, test func(*desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := testenv.Embedded(t, testenv.EmbeddedOptions{Network: &kfake.VirtualNetwork{}})
		if level < 2 {
			c.SetTransactionVersion(t, level)
		}
		test(newDesk(t, c))
	})
}

func onLevels(t *testing.T, test func(*desk)) {
	t.Helper()
	for _, level := range []int16{2, 1} {
		t.Run(fmt.Sprintf("v%d", level), func(t *testing.T) { atDesk(t, level, test) })
	}
}

func (d *desk) fault(key kmsg.Key, do testenv.Action) *testenv.Armed {
	return d.c.Front().Arm(testenv.Fault{Keys: []kmsg.Key{key}, Do: do})
}

// A commit without an answer is unknown until the ledger was read, and then it is
// what the ledger says.
func TestSessionResolvesUnknown(t *testing.T) {
	for do, want := range map[testenv.Action]txn.Outcome{testenv.AnswerLost: txn.Committed, testenv.CutBefore: txn.Aborted} {
		t.Run(want.String(), func(t *testing.T) {
			onLevels(t, func(d *desk) {
				s := d.session()
				d.own(s)
				d.copy(s, 0, 3)
				d.mustCommit(s, 3)
				d.copy(s, 3, 3)
				d.fault(kmsg.EndTxn, do)
				if o, err := d.commit(s, 6); o != txn.Unknown || err == nil {
					d.t.Fatalf("outcome %v, %v", o, err)
				}
				at := d.own(s).Positions()[src]
				if got := s.Resolved(); got != want {
					d.t.Errorf("resolved as %v, want %v", got, want)
				}
				if next := map[txn.Outcome]int64{txn.Committed: 6, txn.Aborted: 3}[want]; at != next {
					d.t.Errorf("position %d, want %d", at, next)
				}
				d.copy(s, at, 2)
				d.mustCommit(s, at+2)
				if got := len(d.values()); got != int(at)+2 {
					d.t.Errorf("%d records", got)
				}
			})
		})
	}
}

// Nothing is committed when the caller's time is over before EndTxn goes out.
func TestSessionCommitInterrupted(t *testing.T) {
	onLevels(t, func(d *desk) {
		s := d.session()
		d.own(s)
		held := d.fault(kmsg.Produce, testenv.HoldRequest)
		s.Begin()
		s.Add(src, 0, &kgo.Record{Topic: "out", Value: []byte("v0"), Timestamp: time.UnixMilli(1)})
		ctx, cancel := context.WithTimeout(d.t.Context(), time.Second)
		defer cancel()
		o, err := s.Commit(ctx, func(map[txn.SourcePartition]int64) []txn.Entry { return nil })
		if o != txn.Aborted || !errors.Is(err, context.DeadlineExceeded) {
			d.t.Errorf("outcome %v, %v", o, err)
		}
		held.Release()
		d.own(s)
		d.copy(s, 0, 1)
		d.mustCommit(s, 1)
		if got := fmt.Sprint(d.values()); got != "[v0]" {
			d.t.Errorf("the target has %s", got)
		}
	})
}

// A record that is refused for good is named, once it is alone in its batch.
func TestSessionNamesTheRefusedRecord(t *testing.T) {
	onLevels(t, func(d *desk) {
		s := d.session()
		h := d.c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: -1, When: func(req kmsg.Request) bool { return holds(req, "v37") }})
		for try := 0; ; try++ {
			if try > 12 {
				d.t.Fatal("not found")
			}
			at := d.own(s).Positions()[src]
			s.Begin()
			for o := at; o < 100; o++ {
				s.Add(src, o, &kgo.Record{Topic: "out", Value: fmt.Appendf(nil, "v%d", o), Timestamp: time.UnixMilli(1_790_000_000_000 + o)})
			}
			err := s.Send(d.t.Context())
			o := txn.Aborted
			if err == nil {
				o, err = d.commit(s, 100)
			}
			var refused *txn.RefusedError
			if o != txn.Aborted || !errors.As(err, &refused) {
				d.t.Fatalf("outcome %v, %v", o, err)
			}
			if refused.Source == nil {
				continue
			}
			if *refused.Source != src || refused.Offset != 37 {
				d.t.Errorf("the refused record is %d", refused.Offset)
			}
			if at != 0 || h.Hits() < 2 {
				d.t.Errorf("position %d, %d refusals", at, h.Hits())
			}
			return
		}
	})
}

// holds reports whether a produce request has a record with the value.
func holds(req kmsg.Request, value string) bool {
	for _, rt := range req.(*kmsg.ProduceRequest).Topics {
		for _, rp := range rt.Partitions {
			got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{IsolationLevel: kgo.ReadUncommitted()},
				&kmsg.FetchResponseTopicPartition{Partition: rp.Partition, RecordBatches: rp.Records}, kgo.DefaultDecompressor(), nil)
			for _, rec := range got.Records {
				if string(rec.Value) == value {
					return true
				}
			}
		}
	}
	return false
}

// A leader that takes nothing is named, with its reason, before the broker would
// end the transaction by itself.
func TestSessionStuck(t *testing.T) {
	onLevels(t, func(d *desk) {
		s := d.session()
		d.own(s)
		h := d.c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "out", Err: kerr.NotEnoughReplicas, Count: -1})
		began := time.Now()
		d.copy(s, 0, 3)
		o, err := d.commit(s, 3)
		var stuck *txn.StuckError
		if o != txn.Aborted || !errors.As(err, &stuck) || stuck.Topic != "out" || !errors.Is(err, kerr.NotEnoughReplicas) {
			d.t.Errorf("outcome %v, %v", o, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			d.t.Errorf("given up after %v", took)
		}
		h.Remove()
		d.own(s)
		d.copy(s, 0, 3)
		d.mustCommit(s, 3)
		if got := fmt.Sprint(d.values()); got != "[v0 v1 v2]" {
			d.t.Errorf("the target has %s", got)
		}
	})
}

// A target topic that is not the one that was expected gets no copy.
func TestSessionExpectsTheTopic(t *testing.T) {
	onLevels(t, func(d *desk) {
		s := d.session()
		d.own(s)
		s.Expect("out", [16]byte{9})
		s.Begin()
		s.Add(src, 0, &kgo.Record{Topic: "out", Value: []byte("v0")})
		o, err := d.commit(s, 1)
		if o != txn.Aborted || !errors.Is(err, txn.ErrRecreated) {
			d.t.Errorf("outcome %v, %v", o, err)
		}
		d.own(s)
		s.Expect("out", d.id)
		d.copy(s, 0, 1)
		d.mustCommit(s, 1)
	})
}
