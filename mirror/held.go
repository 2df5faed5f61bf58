package mirror

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// holdup is a source partition whose last stable offset stood still between two
// looks although there is more behind it: a transaction is open there that began
// at that offset. It is not lag, for nothing can be read, and nothing is wrong
// with the flow.
type holdup struct {
	end   int64     // last stable offset
	noted time.Time // first seen there
	asked time.Time // who holds it, zero before the first time
	who   *holder   // nil as long as nothing is open, as far as the source tells
}

// askAgain is how often the source is asked who holds a partition: a transaction
// that is open may turn into one that hangs.
const askAgain = 30 * time.Second

// holder is a source transaction that holds back what comes behind its first
// record. What the source does not tell, or not everybody, is zero.
type holder struct {
	producer int64 // -1 when not known
	start    int64 // its first offset in the partition
	txnID    string
	began    time.Time
	noted    time.Time // it was there by then
	timeout  time.Duration
	// ended: the coordinator has no such transaction open (any more), so that
	// nobody will end it.
	ended bool
}

// unstable is the number of offsets that can't be read yet.
func (s standing) unstable() int64 {
	if s.high < 0 || s.end < 0 {
		return -1
	}
	return max(0, s.high-s.end)
}

// lookForHolders finds the partitions that an open transaction holds back, and
// who that is. A partition looks held for a moment after each commit at the
// source; those count that do so at two looks in a row.
func (f *flow) lookForHolders(ctx context.Context, at map[place]standing) map[place]*holder {
	now := time.Now()
	ask := kadm.TopicsSet{}
	for pl, s := range at {
		h := f.holdups[pl]
		switch {
		case s.unstable() <= 0:
			delete(f.holdups, pl)
		case h == nil || h.end != s.end:
			f.holdups[pl] = &holdup{end: s.end, noted: now}
			if f.board.isOutside() {
				ask.Add(pl.topic, pl.partition) // there may be no second look
			}
		case now.Sub(h.asked) >= askAgain:
			ask.Add(pl.topic, pl.partition)
		}
	}
	maps.DeleteFunc(f.holdups, func(pl place, _ *holdup) bool { _, ok := at[pl]; return !ok })
	if len(ask) > 0 {
		f.askWhoHolds(ctx, ask)
	}
	held := map[place]*holder{}
	for pl, h := range f.holdups {
		if h.who != nil {
			held[pl] = h.who
		}
	}
	return held
}

// askWhoHolds asks the leaders whose transaction each partition waits for, and
// its coordinator since when.
func (f *flow) askWhoHolds(ctx context.Context, ask kadm.TopicsSet) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout/2)
	defer cancel()
	adm := f.admin()
	// What failed, is not supported (before Kafka 2.8) or not permitted, is
	// missing from the answer; the error says nothing more.
	told, _ := adm.DescribeProducers(ctx, ask)
	byProducer := map[int64][]*holder{}
	for pl, h := range f.holdups {
		if !ask.Lookup(pl.topic, pl.partition) {
			continue
		}
		h.asked = time.Now()
		h.who = &holder{producer: -1, start: h.end, noted: h.noted}
		d, ok := told[pl.topic].Partitions[pl.partition]
		if !ok || d.Err != nil {
			continue
		}
		first := firstOpen(d.ActiveProducers)
		if first == nil {
			h.who = nil // it has ended since
			continue
		}
		h.who.producer, h.who.start = first.ProducerID, first.CurrentTxnStartOffset
		byProducer[first.ProducerID] = append(byProducer[first.ProducerID], h.who)
	}
	f.nameHolders(ctx, adm, byProducer)
}

// firstOpen is the producer whose transaction was the first to begin of those
// that are open, nil for none.
func firstOpen(ps kadm.DescribedProducers) *kadm.DescribedProducer {
	var first *kadm.DescribedProducer
	for _, p := range ps {
		if p.CurrentTxnStartOffset >= 0 && (first == nil || p.CurrentTxnStartOffset < first.CurrentTxnStartOffset) {
			first = &p
		}
	}
	return first
}

// nameHolders finds the transactional ids of producers, and when their
// transactions began, as far as this user may know it.
func (f *flow) nameHolders(ctx context.Context, adm *kadm.Client, holders map[int64][]*holder) {
	if len(holders) == 0 {
		return
	}
	var ids []int64
	for id := range holders {
		ids = append(ids, id)
	}
	listed, _ := adm.ListTransactions(ctx, ids, nil) // as above
	if len(listed) == 0 {
		return
	}
	described, _ := adm.DescribeTransactions(ctx, listed.TransactionalIDs()...)
	for _, t := range listed {
		d, ok := described[t.TxnID]
		ok = ok && d.Err == nil && d.ProducerID == t.ProducerID
		for _, h := range holders[t.ProducerID] {
			h.txnID, h.ended = t.TxnID, !open(t.State)
			if ok && open(d.State) && d.StartTimestamp > 0 {
				h.began = time.UnixMilli(d.StartTimestamp)
				h.timeout = time.Duration(d.TimeoutMillis) * time.Millisecond
			}
		}
	}
}

// open reports whether a transaction in that state has records without a marker.
func open(state string) bool {
	return state == "Ongoing" || strings.HasPrefix(state, "Prepare")
}

// reason is what a partition waits for.
func (h *holder) reason() string {
	who := "a source transaction"
	switch {
	case h.txnID != "":
		who = fmt.Sprintf("the source transaction of %s (producer %d)", h.txnID, h.producer)
	case h.producer >= 0:
		who = fmt.Sprintf("the source transaction of producer %d", h.producer)
	}
	since := "since " + h.began.UTC().Format(time.RFC3339)
	if h.began.IsZero() {
		since = "since before " + h.noted.UTC().Format(time.RFC3339)
	}
	return "waiting for " + who + " " + since
}

// hint says how the waiting ends.
func (h *holder) hint(at place, now time.Time) string {
	abort := fmt.Sprintf("kafka-transactions.sh --bootstrap-server ... abort --topic %s --partition %d --start-offset %d", at.topic, at.partition, h.start)
	switch {
	case h.ended:
		return "the source has no such transaction any more: it hangs, and nobody will end it; end it with: " + abort
	case h.timeout > 0 && now.Before(h.began.Add(h.timeout)):
		return fmt.Sprintf("its application ends it, or the source at its timeout of %s, and copying goes on", h.timeout)
	}
	return "if its application is gone for good, end it with: " + abort
}

// held notes how much of a partition can't be read yet, and whose open
// transaction that is: nil where it does not last.
func (b *board) held(topic string, partition int32, unstable int64, who *holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.part(topic, partition).Unstable = unstable
	if who == nil {
		delete(b.holders, place{topic, partition})
		return
	}
	b.holders[place{topic, partition}] = who
}

func (b *board) isOutside() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.outside
}
