package robust

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
)

// traffic writes records with unique ids to the source, at a steady rate,
// through every fault of the source.
type traffic struct {
	cl     *kgo.Client
	paused atomic.Bool
	quit   chan struct{}
	done   sync.WaitGroup
	once   sync.Once

	mu      sync.Mutex
	acked   []*kgo.Record // in order per partition
	unknown int           // their writes failed, so they may be there or not
	last    error
}

// tick is how often a handful of records is written.
const tick = 25 * time.Millisecond

func startTraffic(t *testing.T, source *testenv.Cluster, topic string, partitions, rate int, seed int64) *traffic {
	t.Helper()
	tr := &traffic{quit: make(chan struct{})}
	tr.cl = source.Client(t,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(1<<20),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond))
	t.Cleanup(tr.stop)
	tr.done.Go(func() { tr.run(topic, partitions, rate, seed) })
	return tr
}

func (tr *traffic) run(topic string, partitions, rate int, seed int64) {
	beat := time.NewTicker(tick)
	defer beat.Stop()
	each := max(1, int(time.Duration(rate)*tick/time.Second))
	for n := int64(0); ; n++ {
		select {
		case <-beat.C:
		case <-tr.quit:
			return
		}
		if tr.paused.Load() {
			continue
		}
		// Each handful has a seed of its own, which makes its ids unique.
		for _, rec := range testenv.Records(topic, partitions, each, seed+n) {
			tr.cl.Produce(context.Background(), rec, tr.written)
		}
	}
}

func (tr *traffic) written(rec *kgo.Record, err error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err != nil {
		tr.unknown++
		tr.last = err
		return
	}
	tr.acked = append(tr.acked, rec)
}

func (tr *traffic) stop() {
	tr.once.Do(func() { close(tr.quit) })
	tr.done.Wait()
}

// finish ends the traffic and returns the records that the source has
// confirmed.
func (tr *traffic) finish(t *testing.T) []*kgo.Record {
	t.Helper()
	tr.stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := tr.cl.Flush(ctx); err != nil {
		t.Fatalf("write the last of the traffic: %v", err)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.unknown > 0 {
		t.Logf("%d records of the traffic have an unknown outcome, the last because of: %v", tr.unknown, tr.last)
	}
	if len(tr.acked) == 0 {
		t.Fatal("the traffic wrote nothing")
	}
	return tr.acked
}
