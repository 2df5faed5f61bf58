package mirror

import (
	"errors"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// queue holds the records of one Put that go to one partition.
type queue struct {
	topic     string
	partition int32
	// todo are the indexes of the records not decided yet, in order.
	todo []int
	// most bounds the next run while records are looked for that the broker
	// refuses; 0 is no bound.
	most int
	// run is how many of todo are being written; alone, if it is a single
	// one that is too large for a common batch.
	run   int
	alone bool
}

// next sets the run: everything up to the next record that has to go alone,
// where limit is what fits into a batch. single bounds it to one batch: of two
// that are on the way the second may be taken although the first is refused,
// and what is good in the first would then come after it.
func (q *queue) next(recs []*kgo.Record, limit int32, single bool) {
	n := len(q.todo)
	if q.most > 0 {
		n = min(n, q.most)
	}
	q.run, q.alone = 0, false
	size := 0
	for _, i := range q.todo[:n] {
		one := batchSize(recs[i])
		if size += one; one > int(limit) || single && size > int(limit) {
			break
		}
		q.run++
	}
	if q.run == 0 {
		q.run, q.alone = 1, true
	}
}

// batchSize is at least what a batch with only rec takes before compression.
func batchSize(rec *kgo.Record) int {
	const batch, varints = 128, 10 // headers, lengths and deltas at their longest
	n := batch + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += varints + len(h.Key) + len(h.Value)
	}
	return n
}

// errOpen stands for a record whose fate is not known yet.
var errOpen = errors.New("not decided")

// round collects the fates of records that are being written. The client
// reports them from its own goroutine, possibly after the round is over.
type round struct {
	done chan struct{} // closed once each record is decided

	mu   sync.Mutex
	errs []error
	open int
}

// newRound is a round of n out of all records.
func newRound(all, n int) *round {
	return &round{done: make(chan struct{}), errs: make([]error, all), open: n}
}

func (r *round) decide(i int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs[i] = err
	if r.open--; r.open == 0 {
		close(r.done)
	}
}

func (r *round) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// stuck are the queues with records whose fate is open.
func (r *round) stuck(queues []*queue) []*queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	var stuck []*queue
	for _, q := range queues {
		if slices.ContainsFunc(q.todo[:q.run], func(i int) bool { return errors.Is(r.errs[i], errOpen) }) {
			stuck = append(stuck, q)
		}
	}
	return stuck
}

// result ends the round: records that are still open get err. all reports that
// there was none.
func (r *round) result(err error) (errs []error, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs = make([]error, len(r.errs))
	for i, e := range r.errs {
		if errs[i] = e; errors.Is(e, errOpen) {
			errs[i] = err
		}
	}
	return errs, r.open == 0
}
