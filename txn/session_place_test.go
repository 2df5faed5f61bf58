package txn_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// An owner that asks again, after commits and with nothing wrong, is told where
// it stands now and not where it stood when it asked before.
func TestSessionOwnsAnew(t *testing.T) {
	onLevels(t, func(d *desk) {
		s := d.session()
		d.own(s)
		for at := int64(0); at < 6; at += 3 {
			d.copy(s, at, 3)
			d.mustCommit(s, at+3)
		}
		if at, ok := d.own(s).Mark(src).Position(); !ok || at != 6 {
			d.t.Errorf("position %d, %v", at, ok)
		}
		d.copy(s, 6, 1)
		d.mustCommit(s, 7)
		if got := fmt.Sprint(d.values()); got != "[v0 v1 v2 v3 v4 v5 v6]" {
			d.t.Errorf("the target has %s", got)
		}
	})
}

// What was given up by its owner leaves markers behind; the next transaction
// finds its place all the same.
func TestSessionGoesOnBehindAnAbort(t *testing.T) {
	for name, giveUp := range map[string]func(*desk, *txn.Session){
		"abort": func(d *desk, s *txn.Session) { s.Abort(d.t.Context()) },
		"no entries": func(d *desk, s *txn.Session) {
			o, err := s.Commit(d.t.Context(), func(map[txn.SourcePartition]int64) []txn.Entry { return nil })
			if o != txn.Aborted || err == nil {
				d.t.Errorf("outcome %v, %v", o, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onLevels(t, func(d *desk) {
				s := d.session()
				d.own(s)
				d.copy(s, 0, 3)
				giveUp(d, s)
				if l := d.own(s); !l.Empty() {
					d.t.Errorf("the ledger says %v", l.Positions())
				}
				d.copy(s, 0, 3)
				d.mustCommit(s, 3)
				d.copy(s, 3, 3)
				giveUp(d, s)
				if at := d.own(s).Positions()[src]; at != 3 {
					d.t.Errorf("position %d", at)
				}
				d.copy(s, 3, 3)
				d.mustCommit(s, 6)
				if got := fmt.Sprint(d.values()); got != "[v0 v1 v2 v3 v4 v5]" {
					d.t.Errorf("the target has %s", got)
				}
			})
		})
	}
}

// Whoever answers for the ledger is its leader no more, and knows an old end. The
// owner that was told so commits nothing, and finds the place when it asks again.
func TestSessionToldAnOldEndCommitsNothing(t *testing.T) {
	onLevels(t, func(d *desk) {
		s := d.session()
		d.own(s)
		d.copy(s, 0, 3)
		d.mustCommit(s, 3)
		ends, err := kadm.NewClient(newClient(d.t, d.c)).ListEndOffsets(d.t.Context(), txn.LedgerTopic(flowName))
		if err != nil {
			d.t.Fatal(err)
		}
		end, _ := ends.Lookup(txn.LedgerTopic(flowName), 0)
		d.copy(s, 3, 3)
		d.mustCommit(s, 6)
		s.Close(d.t.Context())

		const latest = -1
		old := d.c.Front().Arm(testenv.Fault{
			Keys: []kmsg.Key{kmsg.ListOffsets}, Do: testenv.AlterAnswer, Times: -1,
			Alter: func(req kmsg.Request, resp kmsg.Response) bool {
				rt := &resp.(*kmsg.ListOffsetsResponse).Topics[0]
				if rt.Topic != txn.LedgerTopic(flowName) || req.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].Timestamp != latest {
					return false
				}
				rt.Partitions[0].Offset = end.Offset
				return true
			},
		})
		short := d.c.Front().Arm(d.c.Front().HighWatermarkStale(txn.LedgerTopic(flowName), 0, end.Offset, -1))
		s = d.session()
		if at := d.own(s).Positions()[src]; at != 3 {
			d.t.Fatalf("position %d was read, the fault is for nothing", at)
		}
		old.MustHaveFired(d.t)
		short.MustHaveFired(d.t)
		d.copy(s, 3, 3)
		if o, err := d.commit(s, 6); o != txn.Aborted || !errors.Is(err, txn.ErrMoved) {
			d.t.Errorf("outcome %v, %v", o, err)
		}
		old.Disarm()
		short.Disarm()
		if at := d.own(s).Positions()[src]; at != 6 {
			d.t.Errorf("position %d", at)
		}
		d.copy(s, 6, 1)
		d.mustCommit(s, 7)
		if got := fmt.Sprint(d.values()); got != "[v0 v1 v2 v3 v4 v5 v6]" {
			d.t.Errorf("the target has %s", got)
		}
	})
}

// Only an error of the partition itself is laid on it: one that a coordinator or
// the broker as a whole answers produces with names no partition as stuck.
func TestSessionStuckBecauseOfThePartition(t *testing.T) {
	for _, c := range []struct {
		code  *kerr.Error
		topic string
		stuck bool
	}{
		{kerr.NotEnoughReplicas, "out", true},
		{kerr.NotLeaderForPartition, "out", true},
		{kerr.KafkaStorageError, "out", true},
		{kerr.CoordinatorNotAvailable, "out", false},
		{kerr.CoordinatorLoadInProgress, "out", false},
		{kerr.ConcurrentTransactions, "out", false},
		{kerr.NotEnoughReplicas, txn.LedgerTopic(flowName), false},
		{kerr.NotEnoughReplicas, txn.MapTopic(flowName), false},
	} {
		t.Run(c.code.Message+" of "+c.topic, func(t *testing.T) {
			t.Parallel()
			atDesk(t, 2, func(d *desk) {
				s := d.session()
				d.own(s)
				h := d.c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: c.topic, Err: c.code, Count: -1})
				d.copy(s, 0, 3)
				o, err := d.commit(s, 3)
				var stuck *txn.StuckError
				if o != txn.Aborted || !errors.Is(err, c.code) || errors.As(err, &stuck) != c.stuck {
					d.t.Errorf("outcome %v, %v", o, err)
				}
				if h.Hits() == 0 {
					d.t.Error("the fault never happened")
				}
				h.Remove()
				d.own(s)
				d.copy(s, 0, 3)
				d.mustCommit(s, 3)
				if got := len(d.values()); got != 3 {
					d.t.Errorf("%d records", got)
				}
			})
		})
	}
}

// A target that keeps the owner waiting, without an end, is said while it lasts.
func TestSessionSaysThatItWaits(t *testing.T) {
	atDesk(t, 2, func(d *desk) {
		began := time.Now()
		var said []time.Duration
		s, err := txn.NewSession(txn.SessionConfig{
			Client: newClient(d.t, d.c), Flow: flowName, Timeout: 20 * time.Second,
			Blocked: func(since time.Time, err error) {
				if since.Before(began) || since.After(began.Add(time.Second)) || !errors.Is(err, kerr.ConcurrentTransactions) {
					d.t.Errorf("since %v: %v", since.Sub(began), err)
				}
				said = append(said, time.Since(began))
			},
		})
		if err != nil {
			d.t.Fatal(err)
		}
		h := d.c.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ConcurrentTransactions, Count: -1})
		time.AfterFunc(18*time.Second, h.Remove)
		d.own(s)
		if h.Hits() == 0 {
			d.t.Error("the fault never happened")
		}
		if len(said) < 2 || len(said) > 3 || said[0] > 7*time.Second {
			d.t.Errorf("said after %v", said)
		}
		s.Begin()
		s.Add(src, 0, &kgo.Record{Topic: "out", Value: []byte("v0")})
		d.mustCommit(s, 1)
	})
}
