package mirror_test

import (
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/testenv"
)

// One of two workers is cut off from the source, the target or both for longer
// than its session, and comes back: what it had begun does not count, and the
// other one's work stands.
func TestCase32CutOff(t *testing.T) {
	for name, from := range map[string]func(*fakeWorld) []*testenv.Cluster{
		"source": func(w *fakeWorld) []*testenv.Cluster { return []*testenv.Cluster{w.source} },
		"target": func(w *fakeWorld) []*testenv.Cluster { return []*testenv.Cluster{w.target} },
		"both":   func(w *fakeWorld) []*testenv.Cluster { return []*testenv.Cluster{w.source, w.target} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
				w.flow.Ledger.Shards = 4
				w.give(4, 400, 32)
				one, two := w.liveAs("one"), w.liveAs("two")
				w.copied(one)
				w.copied(two)
				load := func(seed int64) {
					for i := range int64(25) {
						w.more("t", 4, 40, seed+i)
						<-time.After(time.Second)
					}
				}
				load(32_000)
				before := one.Flow("eo").Records
				if before == 0 || two.Flow("eo").Records == 0 {
					w.Errorf("the work is not shared: %d and %d records", before, two.Flow("eo").Records)
				}
				one.cut(from(w)...)
				load(33_000)
				one.heal()
				load(34_000)
				w.copied(two)
				w.copied(one)
				one.Stop()
				w.once(two)
			})
		})
	}
}
