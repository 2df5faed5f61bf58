package mirror_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
)

// deliveries keeps the highest delivery count that came with an answer.
type deliveries struct {
	tamper
	mu   sync.Mutex
	most int16
}

func newDeliveries() *deliveries {
	d := &deliveries{}
	d.keys = []kmsg.Key{kmsg.ShareFetch}
	d.change = func(_ string, resp kmsg.Response) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, tp := range resp.(*kmsg.ShareFetchResponse).Topics {
			for _, p := range tp.Partitions {
				for _, a := range p.AcquiredRecords {
					d.most = max(d.most, a.DeliveryCount)
				}
			}
		}
		return false
	}
	return d
}

func (d *deliveries) highest() int16 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

// A target that takes longer than the record lock gets each record once: the
// locks are renewed where the broker knows how, and elsewhere what comes again
// is not written again.
func TestSlowTargetOutlastsLock(t *testing.T) {
	old := kversion.Stable()
	old.SetMaxKeyVersion(int16(kmsg.ShareFetch), 1)
	old.SetMaxKeyVersion(int16(kmsg.ShareAcknowledge), 1)
	for name, versions := range map[string]*kversion.Versions{"Renewed": nil, "WithoutRenewal": old} {
		t.Run(name, func(t *testing.T) {
			o := quick(map[string]string{"group.share.record.lock.duration.ms": "1200"})
			o.MaxVersions = versions
			w := newWorld(t, o)
			w.fill("slow", 1, 50, 4)
			var mu sync.Mutex
			renewals := 0
			watch(w.source, kmsg.ShareAcknowledge, func(req kmsg.Request) {
				mu.Lock()
				defer mu.Unlock()
				renewals += len(ranges(req, renew))
			})
			sink := newRecorder(func(ctx context.Context, try int, _ []*kgo.Record) error {
				if try > 1 {
					return nil
				}
				select {
				case <-time.After(3 * time.Second): // more than two locks
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			d := newDeliveries()
			f := w.flow("slow", "slow")
			f.Lanes = 2 // the other lane is free to take what comes again
			p := w.start(f, sink.options("slow"), d.options)
			suite.Eventually(t, within, "everything is written", func() (bool, string) { return sink.has(0, 49), "" })
			w.settled(p, "slow", 50)
			p.Stop()
			mu.Lock()
			defer mu.Unlock()
			if n, twice := sink.copies(); n != 50 || len(twice) > 0 {
				t.Errorf("%d records written, twice: %v", n, twice)
			}
			switch {
			case versions == nil && (renewals == 0 || d.highest() != 1):
				t.Errorf("%d renewals, delivered up to %d times", renewals, d.highest())
			case versions != nil && (renewals > 0 || d.highest() < 2):
				t.Errorf("%d renewals, delivered up to %d times: the lock did not end", renewals, d.highest())
			}
		})
	}
}

// order keeps what happened to each record: written, refused, and the
// acknowledgements asked for.
type order struct {
	mu     sync.Mutex
	events map[int64][]string
}

func (o *order) note(at int64, event string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.events == nil {
		o.events = map[int64][]string{}
	}
	o.events[at] = append(o.events[at], event)
}

func (o *order) of(at int64) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events[at])
}

// watchAcks notes the acknowledgements of a source with one partition that
// settle a record. What is given back, by whatever means, is not among them.
func (o *order) watchAcks(c *testenv.Cluster) {
	watch(c, kmsg.ShareAcknowledge, func(req kmsg.Request) {
		for kind, event := range map[int8]string{accept: "ACCEPT", reject: "REJECT"} {
			for _, r := range ranges(req, kind) {
				for at := r[0]; at <= r[1]; at++ {
					o.note(at, event)
				}
			}
		}
	})
}

// judged is a sink with a verdict per record: record 5 fails twice in a way
// that passes, record 7 for good.
func (o *order) judged() *recorder {
	tries := map[int64]int{}
	return newRecorder(func(_ context.Context, _ int, recs []*kgo.Record) error {
		failed := map[int]error{}
		for i, rec := range recs {
			at := position(rec)
			tries[at]++
			switch {
			case at == 5 && tries[at] <= 2:
				failed[i] = mirror.Retriable(errors.New("not now"))
				o.note(at, "later")
			case at == 7:
				failed[i] = errors.New("never")
				o.note(at, "refused")
			default:
				o.note(at, "written")
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &mirror.PutError{Failed: failed}
	})
}

// Verdicts per record: what is written is accepted, and not before; what may
// pass is tried again; what fails for good is rejected, or stops the topic and
// is given back once, for when a person resumes it.
func TestVerdictPerRecord(t *testing.T) {
	for _, onError := range []topology.OnError{topology.OnErrorSkip, topology.OnErrorStop} {
		t.Run(string(onError), func(t *testing.T) {
			w := newWorld(t, quick(map[string]string{"group.share.record.lock.duration.ms": "30000"}))
			w.fill("verdict", 1, 20, 5)
			o, d := &order{}, newDeliveries()
			o.watchAcks(w.source)
			sink := o.judged()
			f := w.flow("verdict", "verdict")
			f.OnError = onError
			p := w.start(f, sink.options("verdict"), d.options)
			last := []string{"refused", "REJECT"}
			if onError == topology.OnErrorStop {
				last = []string{"refused"}
				st := w.until(p, "verdict", "the topic stops", func(st mirror.FlowState) bool {
					return slices.ContainsFunc(st.Topics, func(ts mirror.TopicState) bool { return !ts.Ready })
				})
				if why := st.Topics[0].Reason; !says(why, "verdict[0]", "offset 7", "never") {
					t.Errorf("stopped because: %s", why)
				}
			} else {
				st := w.settled(p, "verdict", 19)
				if st.Skipped != 1 || st.Records != 19 {
					t.Errorf("%d skipped, %d copied", st.Skipped, st.Records)
				}
			}
			p.Stop()
			for at := range int64(20) {
				want := []string{"written", "ACCEPT"}
				switch at {
				case 5:
					want = []string{"later", "later", "written", "ACCEPT"}
					if onError == topology.OnErrorStop {
						want = []string{"later"} // the topic had stopped by then
					}
				case 7:
					want = last
				}
				got := o.of(at)
				if onError == topology.OnErrorStop && at > 7 && !slices.Contains(got, "written") {
					want = nil // not in the first batch
				}
				if !slices.Equal(got, want) {
					t.Errorf("record %d: %v, want %v", at, got, want)
				}
			}
			if d.highest() != 1 {
				t.Errorf("records were delivered up to %d times", d.highest())
			}
			if onError == topology.OnErrorSkip {
				return
			}
			// The records are back at once, not when their locks end.
			next, began := newRecorder(nil), time.Now()
			p = w.start(f, next.options("verdict"), d.options)
			suite.Eventually(t, within, "the stop is cleared", func() (bool, string) {
				got, err := p.Mirror.Resume(t.Context(), "verdict", "verdict")
				return err == nil && len(got) == 1, ""
			})
			w.drained(p, "verdict", 1)
			p.Stop()
			if took := time.Since(began); took > 15*time.Second || !next.has(5, 5) || !next.has(7, 7) || d.highest() > 2 {
				t.Errorf("resumed, it took %v to get %v; delivered up to %d times", took, next.seen(), d.highest())
			}
		})
	}
}

// A record that is close to its last delivery is written alone, so that its
// fate does not hang on others'.
func TestLastDeliveriesAlone(t *testing.T) {
	w := newWorld(t, quick(map[string]string{"group.share.delivery.count.limit": "5"}))
	w.fill("last", 1, 10, 6)
	d := newDeliveries()
	// Each process holds the records and is cut off from its source: the
	// broker counts one delivery.
	for range 3 {
		sink := newRecorder(func(ctx context.Context, _ int, _ []*kgo.Record) error {
			<-ctx.Done()
			return mirror.Retriable(context.Cause(ctx))
		})
		f := w.flow("last", "last")
		f.Limits.Shutdown = time.Second
		p := w.start(f, sink.options("last"), d.options)
		<-sink.open
		p.Stop()
	}
	if n := d.highest(); n != 3 {
		t.Fatalf("%d deliveries so far, want 3", n)
	}
	sink := newRecorder(nil)
	p := w.start(w.flow("last", "last"), sink.options("last"), d.options)
	suite.Eventually(t, within, "everything is written", func() (bool, string) { return sink.has(0, 9), "" })
	w.settled(p, "last", 10)
	p.Stop()
	for _, batch := range sink.seen() {
		if len(batch) != 1 {
			t.Errorf("batch of %d at delivery 4: %v", len(batch), batch)
		}
	}
	if n, twice := sink.copies(); n != 10 || len(twice) > 0 {
		t.Errorf("%d records written, twice: %v", n, twice)
	}
}

// A stop while the target hangs ends within the shutdown limit and gives the
// records back; the next process copies them.
func TestStopWhileTargetHangs(t *testing.T) {
	w := newWorld(t, quick(map[string]string{"group.share.record.lock.duration.ms": "30000"}))
	w.fill("hang", 1, 10, 8)
	o := &order{}
	o.watchAcks(w.source)
	hung := newRecorder(func(ctx context.Context, _ int, _ []*kgo.Record) error {
		<-ctx.Done()
		return mirror.Retriable(context.Cause(ctx))
	})
	f := w.flow("hang", "hang")
	f.Limits.Shutdown = 3 * time.Second
	p := w.start(f, hung.options("hang"))
	<-hung.open
	began := time.Now()
	p.Stop()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the stop took %v, its limit is 3s", took)
	}
	for at := range int64(10) {
		if got := o.of(at); len(got) > 0 {
			t.Fatalf("record %d, which is not written: %v", at, got)
		}
	}
	sink := newRecorder(nil)
	began = time.Now()
	p = w.start(f, sink.options("hang"))
	suite.Eventually(t, within, "everything is written", func() (bool, string) { return sink.has(0, 9), "" })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the records came back after %v: they were not given back", took)
	}
	w.settled(p, "hang", 10)
	p.Stop()
}
