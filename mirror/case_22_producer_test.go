package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
)

// inits counts the fences of the flow's shards.
func inits(r *testenv.Recorder) int {
	return len(r.Of(func(req kmsg.Request) bool { return req.Key() == int16(kmsg.InitProducerID) && ofShards(req) }))
}

// A flow that is idle for longer than the target remembers a transactional id
// goes on with a new producer, once for each shard.
func TestCase22IdleForTooLong(t *testing.T) {
	for _, level := range []int16{2, 1} {
		t.Run(fmt.Sprintf("v%d", level), func(t *testing.T) {
			t.Parallel()
			target := testenv.EmbeddedOptions{Configs: map[string]string{"transactional.id.expiration.ms": "60000"}}
			inFakeTime(t, level, testenv.EmbeddedOptions{}, target, func(w *fakeWorld) {
				rec := w.target.Front().Watch(testenv.TxnKeys...)
				w.give(2, 20, 22)
				l := w.live()
				w.copied(l)
				<-time.After(150 * time.Second)
				before := inits(rec)
				w.more("t", 2, 20, 220)
				w.copied(l)
				if n := inits(rec) - before; n != 2 {
					w.Errorf("%d new producers for two shards", n)
				}
				if n := l.log.count("level=WARN"); n > 1 {
					w.Errorf("%d warnings", n)
				}
				w.once(l)
			})
		})
	}
}

// The target has forgotten a producer: it is made anew once. When it forgets
// always, that is not done in a tight loop, and is said.
func TestCase22ProducerForgotten(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownProducerID, kerr.InvalidProducerIDMapping} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				rec := w.target.Front().Watch(testenv.TxnKeys...)
				w.give(2, 100, 22)
				forgets := testenv.Fault{
					Keys: []kmsg.Key{kmsg.Produce}, Match: ofShards, Nth: 6, Do: testenv.AnswerInstead,
					Answer: func(req kmsg.Request) kmsg.Response { return denial(req, code) },
				}
				once := w.target.Front().Arm(forgets)
				l := w.live()
				w.copied(l)
				once.MustHaveFired(w)
				if n := inits(rec); n != 3 {
					w.Errorf("%d producers, want one for each shard and one more", n)
				}
				if n := l.log.count("level=WARN"); n > 1 {
					w.Errorf("%d warnings", n)
				}

				forgets.Nth, forgets.Times = 1, -1
				always := w.target.Front().Arm(forgets)
				before := inits(rec)
				w.more("t", 2, 20, 220)
				<-time.After(2 * time.Minute)
				if n := inits(rec) - before; n > 100 {
					w.Errorf("%d producers were made in two minutes", n)
				}
				st := l.Flow("eo")
				if len(st.Troubles) == 0 || !says(st.Troubles[0].Reason, code.Message) {
					w.Errorf("it is not said: %+v", st.Troubles)
				}
				if h := l.Mirror.Health(); h.OK {
					w.Error("healthy")
				}
				always.Disarm()
				w.copied(l)
				w.once(l)
			})
		})
	}
}

// A predecessor dies in mid-transaction; the coordinator is busy with that for a
// while. The start succeeds, and the half transaction never shows.
func TestCase23CrashedPredecessor(t *testing.T) {
	for _, level := range []int16{2, 1} {
		t.Run(fmt.Sprintf("v%d", level), func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, level, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.give(2, 20, 23)
				w.flow.Limits.Records = 1000
				l := w.live()
				w.copied(l)
				for i := range 10 {
					half := w.target.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Match: ofShards, Do: testenv.CutBefore, Times: -1})
					w.more("t", 2, 200, 2300+int64(i))
					if w.copiedOr(l, half.Reached()) {
						w.Fatal("no transaction was ended")
					}
					l.kill()
					half.Disarm()
					busy := w.target.Front().Arm(testenv.Fault{
						Keys: []kmsg.Key{kmsg.InitProducerID}, Match: ofShards, Times: 20, Do: testenv.AnswerInstead,
						Answer: func(req kmsg.Request) kmsg.Response { return denial(req, kerr.ConcurrentTransactions) },
					})
					began := time.Now()
					l = w.live()
					w.copied(l)
					if took := time.Since(began); took > 20*time.Second {
						w.Errorf("copied %v after the start", took)
					}
					busy.MustHaveFired(w)
					w.same("t", testenv.Compare{})
				}
				w.once(l)
			})
		})
	}
}
