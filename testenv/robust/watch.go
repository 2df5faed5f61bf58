package robust

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
)

// watch sees the target topic as a read_committed consumer does, for times
// alone: what is there is judged by a reader that begins at the end.
type watch struct {
	mu    sync.Mutex
	asked []*recovery
	last  time.Time // when a record arrived
}

// recovery is how long it took until new records came from partitions again,
// counted from a fault.
type recovery struct {
	since, stamp time.Time
	left         map[int32]bool
	first, all   time.Duration
	done         chan struct{} // closed when all of them have
}

func startWatch(t *testing.T, target *testenv.Cluster, topic string, partitions int32) *watch {
	t.Helper()
	from := map[int32]kgo.Offset{}
	for p := range partitions {
		from[p] = kgo.NewOffset().AtStart()
	}
	cl := target.Client(t,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMinAge(100*time.Millisecond), // the mirror makes the topic
		kgo.UnknownTopicRetries(-1))
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it goes on while the test cleans up
	w := &watch{last: time.Now()}
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(w.see)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return w
}

func (w *watch) see(rec *kgo.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	for _, r := range w.asked {
		if !r.left[rec.Partition] || !rec.Timestamp.After(r.stamp) {
			continue
		}
		delete(r.left, rec.Partition)
		if r.first == 0 {
			r.first = time.Since(r.since)
		}
		if len(r.left) == 0 {
			r.all = time.Since(r.since)
			close(r.done)
		}
	}
}

// recovery waits for a record of each partition that the traffic makes from
// now on. Times count from since.
func (w *watch) recovery(partitions []int32, since time.Time) *recovery {
	r := &recovery{since: since, stamp: time.Now(), left: map[int32]bool{}, done: make(chan struct{})}
	for _, p := range partitions {
		r.left[p] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, r)
	return r
}

// quiet is how long nothing has come.
func (w *watch) quiet() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.last)
}
