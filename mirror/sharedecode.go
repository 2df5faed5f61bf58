package mirror

import (
	"cmp"
	"encoding/binary"
	"math"
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
	recs, covered, bad, err := decodeBatches(topic, rp, ranges[0].FirstOffset)
	a.err = err
	for _, ar := range ranges {
		next := ar.FirstOffset
		for len(recs) > 0 && recs[0].Offset <= ar.LastOffset {
			rec := recs[0]
			recs = recs[1:]
			if rec.Offset < next {
				continue
			}
			a.hole(next, rec.Offset-1, covered, &bad)
			a.items = append(a.items, item{rec: rec, delivery: ar.DeliveryCount})
			next = rec.Offset + 1
		}
		a.hole(next, ar.LastOffset, covered, &bad)
	}
	return a
}

// decompressor is one for all: each has pools of its own, which are of use only
// if they are kept.
var decompressor = kgo.DefaultDecompressor()

// decodeBatches returns the records of a partition, the last offset that the
// data covers, and the offsets of batches that can't be decoded, for err.
func decodeBatches(topic string, rp *kmsg.ShareFetchResponseTopicPartition, from int64) (recs []*kgo.Record, covered int64, bad txn.RangeSet, err error) {
	decode := func(data []byte) ([]*kgo.Record, error) {
		fp := kmsg.NewFetchResponseTopicPartition()
		fp.Partition, fp.RecordBatches = rp.Partition, data
		fp.HighWatermark, fp.LastStableOffset, fp.LogStartOffset = -1, -1, -1
		got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset:    from,
			Topic:     topic,
			Partition: rp.Partition,
		}, &fp, decompressor, nil)
		return got.Records, got.Err
	}
	covered = -1
	if recs, err = decode(rp.Records); err == nil {
		eachBatch(rp.Records, func(_ []byte, _, last int64) { covered = max(covered, last) })
		return recs, covered, bad, nil
	}
	// Batch by batch: one that is damaged is no reason to give up on others.
	recs = nil
	eachBatch(rp.Records, func(data []byte, first, last int64) {
		covered = max(covered, last)
		got, err := decode(data)
		if err != nil {
			bad.Add(first, last)
			return
		}
		recs = append(recs, got...)
	})
	slices.SortStableFunc(recs, func(a, b *kgo.Record) int { return cmp.Compare(a.Offset, b.Offset) })
	if bad.Count() == 0 {
		// The damage is behind the last whole batch.
		bad.Add(covered+1, math.MaxInt64-1)
		covered = math.MaxInt64 - 1
	}
	return recs, covered, bad, err
}

// hole files first..last, which hold no record that was read.
func (a *acquisition) hole(first, last, covered int64, bad *txn.RangeSet) {
	if end := min(last, covered); first <= end {
		a.gaps = append(a.gaps, bad.Missing(first, end)...)
		a.unread = append(a.unread, common(bad, txn.Range{First: first, Last: end})...)
	}
	if first = max(first, covered+1); first <= last {
		a.back = append(a.back, txn.Range{First: first, Last: last})
	}
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

// eachBatch calls do with each whole batch of data and the offsets that it
// covers. A batch that was cut off at the end does not count.
func eachBatch(data []byte, do func(data []byte, first, last int64)) {
	const (
		header      = 12 // base offset and length
		magicAt     = 16
		lastDeltaAt = 23
	)
	for len(data) >= lastDeltaAt+4 {
		size := int64(binary.BigEndian.Uint32(data[8:])) + header
		if size < lastDeltaAt+4 || int64(len(data)) < size {
			return
		}
		first := int64(binary.BigEndian.Uint64(data))
		last := first
		if data[magicAt] >= 2 {
			last += int64(int32(binary.BigEndian.Uint32(data[lastDeltaAt:])))
		}
		do(data[:size:size], first, last)
		data = data[size:]
	}
}
