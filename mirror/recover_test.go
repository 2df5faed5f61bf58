package mirror_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
)

// burn takes acquired records out of the broker's answers, so that they run
// into their locks' ends until the group gives up on them.
func burn() *tamper {
	b := &tamper{keys: []kmsg.Key{kmsg.ShareFetch}}
	b.change = func(_ string, resp kmsg.Response) (changed bool) {
		topics := resp.(*kmsg.ShareFetchResponse).Topics
		for i := range topics {
			for j := range topics[i].Partitions {
				p := &topics[i].Partitions[j]
				changed = changed || len(p.AcquiredRecords) > 0
				p.AcquiredRecords, p.Records = nil, nil
			}
		}
		return changed
	}
	return b
}

// Records that a new group gives up on are copied by offset, piece by piece;
// those that are gone by then are reported, once, although the copy fails at
// first.
func TestGivenUp(t *testing.T) {
	w := newWorld(t, quick(map[string]string{"group.share.delivery.count.limit": "2"}))
	w.fill("given-up", 1, 40, 1)
	b := burn()
	sink := newRecorder(nil)
	var failed atomic.Int64
	sinks := func(o *mirror.Options) {
		o.Sinks = map[string]func(int) (mirror.Sink, error){"burnt": func(n int) (mirror.Sink, error) {
			if n < 0 && failed.Add(1) == 1 {
				return nil, errors.New("not yet")
			}
			return sink, nil
		}}
	}
	f := w.flow("burnt", "given-up")
	f.Limits.Records = 7
	p := w.start(f, b.options, sinks)
	suite.Eventually(t, within, "records are handed out", func() (bool, string) { return b.fired.Load() > 0, "" })
	var cut kadm.Offsets
	cut.AddOffset("given-up", 0, 10, -1)
	if _, err := w.source.Admin(t).DeleteRecords(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	st := w.until(p, "burnt", "they are copied", func(st mirror.FlowState) bool { return st.Recovered >= 30 })
	p.Stop()
	n, twice := sink.copies()
	if n != 30 || len(twice) > 0 || st.Recovered != 30 || st.Lost != 10 {
		t.Errorf("%d written, %d twice, %d recovered, %d lost, want 30, 0, 30, 10", n, len(twice), st.Recovered, st.Lost)
	}
	if failed.Load() < 2 {
		t.Errorf("the sink was made %d times", failed.Load())
	}
	if i := slices.IndexFunc(sink.batches, func(b []int64) bool { return len(b) > 7 }); i >= 0 {
		t.Errorf("%d records at once, want at most 7", len(sink.batches[i]))
	}
}

// A stop does not leave behind what the group gave up on: nobody else would
// copy it.
func TestGivenUpAtStop(t *testing.T) {
	w := newWorld(t, quick(map[string]string{"group.share.delivery.count.limit": "2"}))
	w.fill("given-up", 1, 20, 1)
	b := burn()
	sink := newRecorder(nil)
	refused := make(chan struct{})
	var failed atomic.Int64
	sinks := func(o *mirror.Options) {
		o.Sinks = map[string]func(int) (mirror.Sink, error){"burnt": func(n int) (mirror.Sink, error) {
			if n < 0 && failed.Add(1) == 1 {
				close(refused)
				return nil, errors.New("not yet")
			}
			return sink, nil
		}}
	}
	p := w.start(w.flow("burnt", "given-up"), b.options, sinks)
	select {
	case <-refused:
	case <-time.After(within):
		t.Fatal("nothing was given up")
	}
	p.Stop()
	if n, _ := sink.copies(); n != 20 {
		t.Errorf("%d of 20 written", n)
	}
}

// Another process that comes and goes under load leaves nothing that looks
// given up.
func TestOtherProcessLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		o := quick(nil)
		o.Network = network
		w := &world{t, testenv.Embedded(t, o), testenv.Embedded(t, testenv.EmbeddedOptions{Network: network})}
		dial := func(o *mirror.Options) { o.Dial = network.DialContext }
		seed := rand.Int64()
		t.Logf("seed %d", seed)
		pauses := rand.New(rand.NewPCG(uint64(seed), 0))
		w.source.CreateTopic(t, "leaves", 4, 1, nil)
		stays := w.start(w.flow("leaves", "leaves"), dial)
		w.running(stays, "leaves")
		n := int64(0)
		load := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); n++ {
				w.source.Produce(t, testenv.Records("leaves", 4, 20, seed+n)...)
				<-time.After(time.Duration(pauses.Int64N(int64(60 * time.Millisecond))))
			}
		}
		for range 3 {
			goes := w.start(w.flow("leaves", "leaves"), dial)
			w.running(goes, "leaves")
			load(5*time.Second + time.Duration(pauses.Int64N(int64(3*time.Second))))
			if goes.Flow("leaves").Records == 0 {
				t.Error("the other process copied nothing")
			}
			goes.Stop()
			load(4 * time.Second)
		}
		w.arrived("leaves", int(20*n))
		w.drained(stays, "leaves", 4)
		<-time.After(10 * time.Second) // three looks
		if st := stays.Flow("leaves"); st.Recovered > 0 || st.Lost > 0 {
			t.Errorf("%d recovered, %d lost", st.Recovered, st.Lost)
		}
		stays.Stop()
		w.same("leaves", unordered)
	})
}
