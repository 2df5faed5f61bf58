package mirror

import (
	"hash/crc32"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn"
)

// rawBatch makes an uncompressed batch that covers first..last and holds the
// given offsets.
func rawBatch(first, last int64, offsets ...int64) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: first, PartitionLeaderEpoch: 1, Magic: 2, LastOffsetDelta: int32(last - first),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(offsets)),
	}
	for _, o := range offsets {
		r := kmsg.Record{OffsetDelta: int32(o - first), Key: []byte{byte(o)}, Value: []byte("v")}
		body := r.AppendTo(nil)
		r.Length = int32(len(body)) - 1
		b.Records = append(b.Records, r.AppendTo(nil)...)
	}
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	raw := b.AppendTo(nil)
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b.AppendTo(nil)
}

func acquired(ranges ...int64) (rs []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) {
	for i := 0; i < len(ranges); i += 3 {
		r := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
		r.FirstOffset, r.LastOffset, r.DeliveryCount = ranges[i], ranges[i+1], int16(ranges[i+2])
		rs = append(rs, r)
	}
	return rs
}

func TestDecodeAcquisition(t *testing.T) {
	two := append(rawBatch(0, 4, 0, 2, 4), rawBatch(5, 9, 7)...)
	broken := rawBatch(5, 9, 5, 6, 7, 8, 9)
	broken[len(broken)-1] ^= 0xff // the CRC is wrong now
	for _, c := range []struct {
		name               string
		data               []byte
		ranges             []int64
		offsets            []int64
		counts             []int16
		gaps, back, unread []txn.Range
		err                bool
	}{
		{
			"records and holes", two,
			[]int64{0, 9, 1},
			[]int64{0, 2, 4, 7},
			[]int16{1, 1, 1, 1},
			[]txn.Range{{First: 1, Last: 1}, {First: 3, Last: 3}, {First: 5, Last: 6}, {First: 8, Last: 9}},
			nil, nil, false,
		},
		{"only what was acquired", two, []int64{2, 4, 3}, []int64{2, 4}, []int16{3, 3}, []txn.Range{{First: 3, Last: 3}}, nil, nil, false},
		{
			"ranges with different counts", two,
			[]int64{0, 2, 1, 3, 9, 2},
			[]int64{0, 2, 4, 7},
			[]int16{1, 1, 2, 2},
			[]txn.Range{{First: 1, Last: 1}, {First: 3, Last: 3}, {First: 5, Last: 6}, {First: 8, Last: 9}},
			nil, nil, false,
		},
		{
			"unsorted and overlapping: the higher count wins", two,
			[]int64{3, 9, 1, 0, 4, 9},
			[]int64{0, 2, 4, 7},
			[]int16{9, 9, 9, 9},
			[]txn.Range{{First: 1, Last: 1}, {First: 3, Last: 3}, {First: 5, Last: 6}, {First: 8, Last: 9}},
			nil, nil, false,
		},
		{"a whole batch without records", rawBatch(10, 14), []int64{10, 14, 1}, nil, nil, []txn.Range{{First: 10, Last: 14}}, nil, nil, false},
		{"no data at all is not a gap", nil, []int64{0, 3, 1}, nil, nil, nil, []txn.Range{{First: 0, Last: 3}}, nil, false},
		{
			"data cut off: the rest is given back", two[:len(two)-3],
			[]int64{0, 9, 1},
			[]int64{0, 2, 4},
			[]int16{1, 1, 1},
			[]txn.Range{{First: 1, Last: 1}, {First: 3, Last: 3}},
			[]txn.Range{{First: 5, Last: 9}},
			nil, false,
		},
		{
			"broken data is neither gap nor given back", append(rawBatch(0, 4, 0, 2, 4), broken...),
			[]int64{0, 9, 1},
			[]int64{0, 2, 4},
			[]int16{1, 1, 1},
			[]txn.Range{{First: 1, Last: 1}, {First: 3, Last: 3}},
			nil,
			[]txn.Range{{First: 5, Last: 9}},
			true,
		},
		{
			"what follows broken data is read", slices.Concat(rawBatch(0, 4, 0, 2, 4), broken, rawBatch(10, 12, 10, 12)),
			[]int64{0, 14, 1},
			[]int64{0, 2, 4, 10, 12},
			[]int16{1, 1, 1, 1, 1},
			[]txn.Range{{First: 1, Last: 1}, {First: 3, Last: 3}, {First: 11, Last: 11}},
			[]txn.Range{{First: 13, Last: 14}},
			[]txn.Range{{First: 5, Last: 9}},
			true,
		},
		{"nothing acquired", two, nil, nil, nil, nil, nil, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rp := kmsg.NewShareFetchResponseTopicPartition()
			rp.Records, rp.AcquiredRecords = c.data, acquired(c.ranges...)
			a := decodeAcquisition("t", &rp)
			var offsets []int64
			var counts []int16
			for _, it := range a.items {
				offsets, counts = append(offsets, it.rec.Offset), append(counts, it.delivery)
			}
			if !reflect.DeepEqual(offsets, c.offsets) || !reflect.DeepEqual(counts, c.counts) {
				t.Errorf("records %v with counts %v, want %v with %v", offsets, counts, c.offsets, c.counts)
			}
			if !reflect.DeepEqual(a.gaps, c.gaps) || !reflect.DeepEqual(a.back, c.back) || !reflect.DeepEqual(a.unread, c.unread) {
				t.Errorf("gaps %v, back %v, unread %v; want %v, %v, %v", a.gaps, a.back, a.unread, c.gaps, c.back, c.unread)
			}
			if (a.err != nil) != c.err {
				t.Errorf("error %v, want one: %v", a.err, c.err)
			}
		})
	}
}

// Whatever arrives, every acquired offset ends up in exactly one place.
func FuzzDecodeAcquisition(f *testing.F) {
	f.Add(append(rawBatch(0, 4, 0, 2, 4), rawBatch(5, 9, 7)...), int64(0), int64(9))
	f.Add([]byte{}, int64(3), int64(3))
	f.Fuzz(func(t *testing.T, data []byte, first, last int64) {
		if first < 0 || last < first || last-first > 5000 {
			return
		}
		rp := kmsg.NewShareFetchResponseTopicPartition()
		rp.Records, rp.AcquiredRecords = data, acquired(first, last, 1)
		a := decodeAcquisition("t", &rp)
		seen := map[int64]int{}
		for _, it := range a.items {
			seen[it.rec.Offset]++
		}
		for _, rs := range [][]txn.Range{a.gaps, a.back, a.unread} {
			for _, r := range rs {
				for o := r.First; o <= r.Last; o++ {
					seen[o]++
				}
			}
		}
		for o := first; o <= last; o++ {
			if seen[o] != 1 {
				t.Fatalf("offset %d stands in %d places", o, seen[o])
			}
			delete(seen, o)
		}
		if len(seen) > 0 {
			t.Fatalf("offsets that were not acquired: %v", seen)
		}
	})
}
