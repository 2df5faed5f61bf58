package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/topology"
)

// lookFlow is a flow with a topic that is being copied, and no lanes.
func lookFlow() *flow {
	f := &flow{
		def: topology.NewFlow("looks"), log: slog.New(slog.DiscardHandler), readers: map[int]reader{},
		ready: map[string]route{"a": {topic: "a", target: "a", partitions: 1}}, absent: map[string]int{},
		blocked: map[string]*blockage{}, stopped: map[string]string{}, wake: make(chan struct{}, 1),
	}
	f.def.Limits.Refresh = time.Minute
	f.board = newBoard("looks", "east", "west", &Observer{}, f.log)
	return f
}

// found is a view with one topic, which is kept from being copied by err.
func found(err error) *view {
	v := &view{began: time.Now(), ready: map[string]route{}, passing: map[string]bool{"a": errors.As(err, &passing{})}}
	st := TopicState{Topic: "a", Target: "a", Ready: err == nil}
	if err == nil {
		v.ready["a"] = route{topic: "a", target: "a", partitions: 1}
	} else {
		st.Reason = err.Error()
	}
	v.states = []TopicState{st}
	return v
}

// A topic leaves the flow when three looks in a row find it hindered, and at
// once when it is denied.
func TestPassingTroubleOfATopic(t *testing.T) {
	hindered, denied := passing{errors.New("no leader")}, errors.New("not permitted")
	for _, test := range []struct {
		name  string
		looks []error
		want  []bool
	}{
		{"passes", []error{hindered, hindered, nil, hindered, hindered}, []bool{true, true, true, true, true}},
		{"stays", []error{hindered, hindered, hindered, hindered, nil}, []bool{true, true, false, false, true}},
		{"denied", []error{hindered, denied, nil}, []bool{true, false, true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := lookFlow()
			for i, err := range test.looks {
				f.adopt(found(err))
				if _, ready := f.ready["a"]; ready != test.want[i] {
					t.Errorf("look %d: copied is %t, want %t", i, ready, test.want[i])
				}
				st := f.board.snapshot().Topics[0]
				if st.Ready != test.want[i] || err != nil && st.Reason != err.Error() {
					t.Errorf("look %d: state %+v", i, st)
				}
			}
		})
	}
}

// A blockage outlives looks that began before it or see nothing of it, and ends
// at once when what a look has shown is over.
func TestBlockage(t *testing.T) {
	refused := errors.New("refused by the target")
	t.Run("earlier look", func(t *testing.T) {
		f := lookFlow()
		v := found(nil)
		f.block("a", refused)
		f.adopt(v)
		if st := f.board.snapshot().Topics[0]; st.Ready || st.Reason != refused.Error() || len(f.ready) > 0 {
			t.Errorf("%+v after a look from before the blockage", st)
		}
	})
	t.Run("blind look", func(t *testing.T) {
		f := lookFlow()
		f.block("a", refused)
		f.adopt(found(nil))
		if st := f.board.snapshot().Topics[0]; st.Ready || st.Reason != refused.Error() {
			t.Errorf("%+v after a look that sees nothing", st)
		}
		f.blocked["a"].at = time.Now().Add(-f.def.Limits.Refresh)
		f.adopt(found(nil))
		if len(f.ready) != 1 {
			t.Error("not copied again after the time of the blockage")
		}
	})
	t.Run("shown and over", func(t *testing.T) {
		f := lookFlow()
		f.block("a", refused)
		f.adopt(found(errors.New("not permitted: WRITE")))
		f.adopt(found(nil))
		if len(f.ready) != 1 {
			t.Error("not copied although the denial that was shown is over")
		}
	})
	t.Run("longer each time", func(t *testing.T) {
		var b *blockage
		now := time.Now()
		var holds []time.Duration
		for range 14 {
			b = b.again(refused, now, time.Second)
			if same := b.again(refused, now.Add(b.hold/2), time.Second); same.at != b.at || same.hold != b.hold {
				t.Errorf("an error of the same time begins another blockage: %+v, then %+v", b, same)
			}
			holds = append(holds, b.hold)
			now = now.Add(b.hold + time.Millisecond)
		}
		if !slices.IsSorted(holds) || holds[0] != time.Second || holds[3] != 8*time.Second || holds[13] != maxBlock {
			t.Errorf("held for %v", holds)
		}
		if b = b.again(refused, now.Add(4*maxBlock), time.Second); b.hold != time.Second {
			t.Errorf("after a long time without: held for %v", b.hold)
		}
	})
}

// On one cluster, what the flow makes is not among what it copies.
func TestOwnTargets(t *testing.T) {
	f := topology.NewFlow("own")
	f.From, f.To, f.Rename = "east", "east", "copy-{topic}"
	f.Topics.Include = []string{".*"}
	c := &catalog{flow: f, sameCluster: true}
	all := kadm.TopicDetails{}
	const n = 20_000
	for i := range n {
		all[fmt.Sprintf("t%d", i)] = kadm.TopicDetail{}
		all[fmt.Sprintf("copy-t%d", i)] = kadm.TopicDetail{}
	}
	began := time.Now()
	made := c.made(all)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d topics took %v", len(all), took)
	}
	for _, name := range []string{"t0", "copy-t0", "t19999", "copy-t19999"} {
		if want := name[0] == 'c'; made[name] != want {
			t.Errorf("%s is a copy: %t, want %t", name, made[name], want)
		}
	}
}

// The set of topics is changed without waiting for a source that does not
// answer, and a poll that waits for records takes it up.
func TestSetTopicsDoesNotBlock(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "one", "two"))
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	log := slog.New(slog.DiscardHandler)
	r, err := newPartitionReader([]kgo.Opt{kgo.SeedBrokers(fake.ListenAddrs()...), kgo.MetadataMinAge(50 * time.Millisecond)}, "g", false, partitionConfig{
		lane: "lane", records: 100, board: newBoard("f", "east", "west", &Observer{}, log), log: log, doubted: func() {},
		copies: func(string, int32) bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer func() {
		if err := r.close(ctx); err != nil {
			t.Error(err)
		}
	}()
	type answer struct {
		b   *batch
		err error
	}
	polled := make(chan answer, 1)
	r.setTopics([]string{"one"})
	joined := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	go func() {
		b, err := r.poll(ctx)
		polled <- answer{b, err}
	}()
	if err := joined.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	release, silent := make(chan struct{}), make(chan struct{})
	fake.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { close(silent) })
		fake.SleepControl(func() { <-release })
		return nil, nil, false
	})
	r.cl.ForceMetadataRefresh()
	<-silent
	began := time.Now()
	for range 100 {
		r.setTopics([]string{"one", "two"})
		r.setTopics([]string{"two"})
	}
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("200 changes took %v", took)
	}
	close(release)
	producer, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "two", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	got := <-polled
	if got.err != nil || len(got.b.items) != 1 || got.b.items[0].rec.Topic != "two" {
		t.Fatalf("polled %+v", got)
	}
	got.b.items[0].fate = fateDone
	if err := r.settle(ctx, got.b); err != nil {
		t.Error(err)
	}
}

// A share reader's fetch does not keep its acknowledgements from reaching the
// broker before the locks end.
func TestFetchWaitIsCapped(t *testing.T) {
	for lock, want := range map[time.Duration]time.Duration{
		15 * time.Second: 3750 * time.Millisecond, 300 * time.Millisecond: 100 * time.Millisecond, time.Hour: 20 * time.Second,
	} {
		cfg := shareConfig{lock: lock}
		if err := cfg.override(map[string]string{"fetch.max.wait.ms": "20000"}); err != nil {
			t.Fatal(err)
		}
		r := newShareReader(nil, cfg)
		r.stop()
		r.abort()
		if r.cfg.maxWait != want {
			t.Errorf("lock %v: a fetch waits up to %v, want %v", lock, r.cfg.maxWait, want)
		}
	}
}
