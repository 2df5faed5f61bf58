package mirror

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/txn"
)

// reader is a lane's way to its source. One goroutine, the lane's, calls it.
type reader interface {
	// poll blocks until there are records, or ctx ends (its error is returned
	// then). Any other error ends the lane, which is started anew after a
	// back-off unless the error is a *refusal. At most one batch's worth is
	// returned (topology.Limits), give or take the source's batch boundaries.
	poll(ctx context.Context) (*batch, error)
	// settle takes back a batch that poll returned, with the fate of each
	// record set. Open records are given back to the source. What the source
	// said to it is reported to the board, not here: a record counts as copied
	// only once its acknowledgement is confirmed, and one whose
	// acknowledgement was refused comes again.
	settle(ctx context.Context, b *batch) error
	// setTopics replaces the set of source topics that are read. It does not
	// block, and may be called from another goroutine.
	setTopics(topics []string)
	// close sends what is settled, gives back what is held, leaves the group
	// and returns within ctx. The reader is of no use afterwards.
	close(ctx context.Context) error
}

// fate is what became of one record.
type fate int8

const (
	// fateOpen: nothing is known yet; given back to the source for another
	// delivery.
	fateOpen fate = iota
	// fateDone: written to the target, or left out on purpose.
	fateDone
	// fateRejected: refused for good by the target, never to be handed out
	// again (on_error: skip).
	fateRejected
)

// item is one record of a batch.
type item struct {
	rec *kgo.Record // as read; never changed
	// src is the source partition; its topic id is zero where the reader does
	// not know it.
	src tip
	// delivery is the number of times that the source has handed the record
	// out, 1 for the first; 0 where the source does not count.
	delivery int16
	// last: the source will not hand it out again. owed: it is noted at the
	// source in case that this process dies, see owed.go.
	last, owed bool
	// written: the record was produced, not just left out.
	written bool
	fate    fate
}

func (it *item) size() int64 { return int64(len(it.rec.Key) + len(it.rec.Value)) }

// batch is what one poll returned, in source order per partition.
type batch struct {
	items []item
	// from is the reader's own.
	from *pump
	// For acknowledgements inside a transaction: grant is the acquisition that
	// the records are of, gaps are acquired offsets without a record, alone says
	// that the batch shares no transaction with others.
	grant int64
	gaps  []ownRange
	alone bool
}

// ownRange is a run of offsets of one source partition.
type ownRange struct {
	src tip
	txn.Range
}
