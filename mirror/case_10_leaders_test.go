package mirror_test

import (
	"sync"
	"testing"
	"time"

	"github.com/onceover-mirror/onceover/testenv"
)

// Leaders that move during a stop do not keep it from ending; nothing is lost
// and nothing comes twice.
func TestCase10LeadersMoveDuringStops(t *testing.T) {
	const stops, partitions = 20, 6
	o := quick(nil)
	o.Nodes = 3
	w := newWorld(t, o)
	w.source.CreateTopic(t, "a10", partitions, 1, nil)
	f := w.flow("leaders", "a10")
	f.Lanes = 2
	for i := range stops {
		w.source.Produce(t, testenv.Records("a10", partitions, 60, int64(100+i))...)
		p := w.start(f)
		w.arrived("a10", 60*i+1)
		var moves sync.WaitGroup
		moves.Go(func() {
			for part := range int32(partitions) {
				to := (w.source.Fake().LeaderFor("a10", part) + 1) % 3
				if err := w.source.Fake().MoveTopicPartition("a10", part, to); err != nil {
					t.Error(err)
				}
			}
		})
		began := time.Now()
		p.Stop()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("stop %d took %v", i, took)
		}
		moves.Wait()
	}
	p := w.start(f)
	w.arrived("a10", 60*stops)
	w.drained(p, "leaders", partitions)
	p.Stop()
	testenv.AssertAtLeastOnce(t, w.source.ReadAll(t, "a10"), w.target.ReadAll(t, "a10"), testenv.Compare{Unordered: true, IgnoreHeaders: []string{testenv.Provenance}})
}
