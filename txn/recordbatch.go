package txn

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Layout of a record batch of magic 2 (KIP-98): offsets of the fields in its
// header, whose numbers are big endian.
const (
	batchLength     = 8
	batchEpoch      = 12
	batchMagic      = 16
	batchCRC        = 17
	batchAttributes = 21
	batchLastDelta  = 23
	batchFirstTime  = 27
	batchMaxTime    = 35
	batchProducer   = 43
	batchProdEpoch  = 51
	batchSequence   = 53
	batchCount      = 57
	batchHeader     = 61

	attrTransactional = 1 << 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordBatch builds one batch. The zero value is empty.
type recordBatch struct {
	records            []byte
	n                  int
	firstTime, maxTime int64
}

// size is the most bytes that the batch takes with rec, before compression.
func (b *recordBatch) size(rec *kgo.Record) int {
	const ahead = 5 // the length of a record, at its longest
	return batchHeader + len(b.records) + ahead + b.length(rec)
}

// length of rec in b, without the length field itself.
func (b *recordBatch) length(rec *kgo.Record) int {
	delta := int64(0)
	if b.n > 0 {
		delta = rec.Timestamp.UnixMilli() - b.firstTime
	}
	n := 1 + varintSize(delta) + varintSize(int64(b.n)) + bytesSize(rec.Key) + bytesSize(rec.Value) + varintSize(int64(len(rec.Headers)))
	for i := range rec.Headers {
		h := &rec.Headers[i]
		n += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	return n
}

// add appends rec. Its time is taken to the millisecond, and as it is.
func (b *recordBatch) add(rec *kgo.Record) {
	now := rec.Timestamp.UnixMilli()
	if b.n == 0 {
		b.firstTime, b.maxTime = now, now
	}
	out := binary.AppendVarint(b.records, int64(b.length(rec)))
	out = append(out, 0) // attributes: none are defined
	out = binary.AppendVarint(out, now-b.firstTime)
	out = binary.AppendVarint(out, int64(b.n))
	out = appendBytes(out, rec.Key)
	out = appendBytes(out, rec.Value)
	out = binary.AppendVarint(out, int64(len(rec.Headers)))
	for i := range rec.Headers {
		h := &rec.Headers[i]
		out = binary.AppendVarint(out, int64(len(h.Key)))
		out = append(out, h.Key...)
		out = appendBytes(out, h.Value)
	}
	b.records = out
	b.maxTime = max(b.maxTime, now)
	b.n++
}

// seal returns the bytes of the batch, and leaves b empty with its room kept.
func (b *recordBatch) seal(c kgo.Compressor, id producerID, sequence int32) []byte {
	body, codec := b.records, kgo.CodecNone
	if c != nil {
		var room bytes.Buffer
		room.Grow(len(b.records) / 2)
		if small, used := c.Compress(&room, b.records); used != kgo.CodecNone && len(small) < len(b.records) {
			body, codec = small, used
		}
	}
	out := make([]byte, batchHeader, batchHeader+len(body))
	be := binary.BigEndian
	be.PutUint32(out[batchLength:], uint32(batchHeader-batchEpoch+len(body)))
	be.PutUint32(out[batchEpoch:], 1<<32-1) // the leader sets it
	out[batchMagic] = 2
	be.PutUint16(out[batchAttributes:], attrTransactional|uint16(codec))
	be.PutUint32(out[batchLastDelta:], uint32(b.n-1))
	be.PutUint64(out[batchFirstTime:], uint64(b.firstTime))
	be.PutUint64(out[batchMaxTime:], uint64(b.maxTime))
	be.PutUint64(out[batchProducer:], uint64(id.id))
	be.PutUint16(out[batchProdEpoch:], uint16(id.epoch))
	be.PutUint32(out[batchSequence:], uint32(sequence))
	be.PutUint32(out[batchCount:], uint32(b.n))
	out = append(out, body...)
	be.PutUint32(out[batchCRC:], crc32.Checksum(out[batchAttributes:], castagnoli))
	*b = recordBatch{records: b.records[:0]}
	return out
}

// nextSequence is the sequence number after n records from s on: they wrap at
// the largest positive number, to 0.
func nextSequence(s int32, n int) int32 { return int32((int64(s) + int64(n)) & (1<<31 - 1)) }

func appendBytes(out, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(out, -1)
	}
	return append(binary.AppendVarint(out, int64(len(b))), b...)
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1 // -1
	}
	return varintSize(int64(len(b))) + len(b)
}

// varintSize is the number of bytes that binary.AppendVarint writes for x.
func varintSize(x int64) int {
	return (bits.Len64(uint64(x)<<1^uint64(x>>63)|1) + 6) / 7
}
