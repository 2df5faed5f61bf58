package mirror_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
)

// A stop, or a death, at 200 moments around EndTxn, which takes some
// milliseconds on its way there, in the broker or on its way back.
func TestCase18StopInCommit(t *testing.T) {
	const worlds, stops = 4, 50
	for i := range uint64(worlds) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, []int16{2, 1}[i%2], testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				seed := rand.Uint64()
				w.Logf("seed %d", seed)
				rng := rand.New(rand.NewPCG(seed, 18))
				slow := testenv.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Do: testenv.DelayAnswer, Match: ofShards, Delay: 10 * time.Millisecond, Times: -1}
				if i < 2 {
					slow.Do = testenv.DelayRequest
				}
				w.target.Front().Arm(slow)
				w.give(2, 100, 18)
				l := w.live()
				w.copied(l)
				for n := range stops {
					w.more("t", 2, 60, 1800+int64(n))
					ends := w.target.Front().Watch(kmsg.EndTxn)
					skip := rng.IntN(4)
					_, err := ends.Wait(w.Context(), func(req kmsg.Request) bool {
						if ofShards(req) && req.(*kmsg.EndTxnRequest).Commit {
							skip--
						}
						return skip < 0
					})
					if err != nil {
						w.Fatal(err)
					}
					ends.Stop()
					<-time.After(time.Duration(rng.IntN(16)) * time.Millisecond)
					began := time.Now()
					if n%4 == 3 {
						l.kill()
					} else {
						l.Stop()
					}
					if took := time.Since(began); took > w.flow.Limits.Shutdown {
						w.Errorf("stopped after %v", took)
					}
					l = w.live()
				}
				w.once(l)
			})
		})
	}
}
