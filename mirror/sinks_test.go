package mirror_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
)

// recorder is a sink that remembers what was put and asks put what to return.
// It knows a record by its position, which is the source offset of records that
// were produced at once into one partition.
type recorder struct {
	put func(ctx context.Context, try int, recs []*kgo.Record) error

	mu      sync.Mutex
	tries   int
	batches [][]int64     // of each Put
	written map[int64]int // copies
	open    chan struct{} // closed by the first Put
	once    sync.Once
}

func position(rec *kgo.Record) int64 {
	for _, h := range rec.Headers {
		if h.Key == "position" {
			n, _ := strconv.ParseInt(string(h.Value), 10, 64)
			return n
		}
	}
	return -1
}

func newRecorder(put func(ctx context.Context, try int, recs []*kgo.Record) error) *recorder {
	if put == nil {
		put = func(context.Context, int, []*kgo.Record) error { return nil }
	}
	return &recorder{put: put, written: map[int64]int{}, open: make(chan struct{})}
}

// options makes the recorder the target of a flow.
func (r *recorder) options(flow string) func(*mirror.Options) {
	return func(o *mirror.Options) {
		o.Sinks = map[string]func(int) (mirror.Sink, error){flow: func(int) (mirror.Sink, error) { return r, nil }}
	}
}

func (r *recorder) Open(context.Context) error  { return nil }
func (r *recorder) Close(context.Context) error { return nil }

func (r *recorder) Put(ctx context.Context, recs []*kgo.Record) error {
	r.mu.Lock()
	r.tries++
	try := r.tries
	batch := make([]int64, len(recs))
	for i, rec := range recs {
		batch[i] = position(rec)
	}
	r.batches = append(r.batches, batch)
	r.mu.Unlock()
	r.once.Do(func() { close(r.open) })

	err := r.put(ctx, try, recs)

	r.mu.Lock()
	defer r.mu.Unlock()
	var some *mirror.PutError
	switch {
	case errors.As(err, &some):
		for i, rec := range recs {
			if some.Failed[i] == nil {
				r.written[position(rec)]++
			}
		}
	case err == nil:
		for _, rec := range recs {
			r.written[position(rec)]++
		}
	}
	return err
}

// copies returns how many records are written and those that are there more
// than once.
func (r *recorder) copies() (n int, twice []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, times := range r.written {
		n++
		if times > 1 {
			twice = append(twice, at)
		}
	}
	slices.Sort(twice)
	return n, twice
}

// has reports whether each of first..last is written.
func (r *recorder) has(first, last int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := first; o <= last; o++ {
		if r.written[o] == 0 {
			return false
		}
	}
	return true
}

func (r *recorder) seen() [][]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.batches)
}
