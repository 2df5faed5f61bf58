package mirror

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn"
)

// acquisition is what one partition of a ShareFetch answer holds.
type acquisition struct {
	items []item
	// gaps are acquired offsets that the data covers and that hold no record:
	// compaction, control records, aborted transactions.
	gaps []txn.Range
	// back are acquired offsets that the data does not reach; they are given
	// back for another delivery.
	back []txn.Range
	// unread are acquired offsets whose data can't be decoded, for err.
	unread []txn.Range
	err    error
}

// decodeAcquisition sorts the acquired offsets of one partition into records
// and the three kinds of offset without one. An offset is a gap only where a
// whole batch in the data covers it: one beyond the data was cut off, not
// compacted, and acknowledging it as a gap would lose a record.
func decodeAcquisition(topic string, rp *kmsg.ShareFetchResponseTopicPartition) acquisition {
	var a acquisition
	ranges := normalAcquired(rp.AcquiredRecords)
	if len(ranges) == 0 {
		return a
	}
	covered := lastCovered(rp.Records)
	fp := kmsg.NewFetchResponseTopicPartition()
	fp.Partition, fp.RecordBatches = rp.Partition, rp.Records
	fp.HighWatermark, fp.LastStableOffset, fp.LogStartOffset = -1, -1, -1
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset:    ranges[0].FirstOffset,
		Topic:     topic,
		Partition: rp.Partition,
	}, &fp, kgo.DefaultDecompressor(), nil)
	a.err = got.Err
	readable := covered
	if a.err != nil {
		// What follows the last record read is unknown, not absent.
		readable = ranges[0].FirstOffset - 1
		if n := len(got.Records); n > 0 {
			readable = got.Records[n-1].Offset
		}
	}
	recs := got.Records
	for _, ar := range ranges {
		next := ar.FirstOffset
		for len(recs) > 0 && recs[0].Offset <= ar.LastOffset {
			rec := recs[0]
			recs = recs[1:]
			if rec.Offset < next {
				continue
			}
			a.hole(next, rec.Offset-1, readable, covered)
			a.items = append(a.items, item{rec: rec, delivery: ar.DeliveryCount})
			next = rec.Offset + 1
		}
		a.hole(next, ar.LastOffset, readable, covered)
	}
	return a
}

// hole files first..last, which hold no record that was read.
func (a *acquisition) hole(first, last, readable, covered int64) {
	put := func(to *[]txn.Range, f, l int64) {
		if f <= l {
			*to = append(*to, txn.Range{First: f, Last: l})
		}
	}
	put(&a.gaps, first, min(last, readable))
	first = max(first, readable+1)
	put(&a.unread, first, min(last, covered))
	put(&a.back, max(first, covered+1), last)
}

// normalAcquired returns the ranges sorted and without overlap; of two that
// overlap the higher delivery count wins, so that a last delivery is not
// overlooked.
func normalAcquired(in []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord {
	rs := slices.DeleteFunc(slices.Clone(in), func(r kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) bool {
		return r.FirstOffset < 0 || r.LastOffset < r.FirstOffset
	})
	slices.SortFunc(rs, func(a, b kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.FirstOffset <= out[n-1].LastOffset {
			out[n-1].LastOffset = max(out[n-1].LastOffset, r.LastOffset)
			out[n-1].DeliveryCount = max(out[n-1].DeliveryCount, r.DeliveryCount)
			continue
		}
		out = append(out, r)
	}
	return out
}

// lastCovered is the last offset that the whole batches of data cover, -1
// without one. A batch that was cut off at the end does not count.
func lastCovered(data []byte) int64 {
	const (
		header      = 12 // base offset and length
		magicAt     = 16
		lastDeltaAt = 23
	)
	last := int64(-1)
	for len(data) >= lastDeltaAt+4 {
		size := int64(binary.BigEndian.Uint32(data[8:])) + header
		if size < lastDeltaAt+4 || int64(len(data)) < size {
			break
		}
		base := int64(binary.BigEndian.Uint64(data))
		if data[magicAt] >= 2 {
			base += int64(int32(binary.BigEndian.Uint32(data[lastDeltaAt:])))
		}
		last = max(last, base)
		data = data[size:]
	}
	return last
}
