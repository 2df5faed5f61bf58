package wire

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Types of acknowledgements that a transaction takes (KIP-932, KIP-1289).
const (
	Gap    int8 = 0
	Accept int8 = 1
	Reject int8 = 3
)

// Request is TxnShareAcknowledge v0. The producer sends it to the leader of the
// source partitions. All of its fields are those of the drafts' schema.
type Request struct {
	// Form says key and layout; it is not written.
	Form Form
	// TransactionalID of the producer; brokers refuse nil.
	TransactionalID *string
	// GroupID of the share group.
	GroupID string
	// ProducerID and ProducerEpoch are those of the open transaction.
	ProducerID    int64
	ProducerEpoch int16
	// MemberID and MemberEpoch are those of the member that holds the records.
	MemberID    string
	MemberEpoch int32
	// Topics with what is acknowledged.
	Topics []RequestTopic
}

// RequestTopic is a source topic.
type RequestTopic struct {
	// TopicID as Metadata gives it.
	TopicID [16]byte
	// Partitions of the topic.
	Partitions []RequestPartition
}

// RequestPartition is a source partition.
type RequestPartition struct {
	// Partition number.
	Partition int32
	// Batches to acknowledge, ascending.
	Batches []Batch
}

// Batch is a run of offsets.
type Batch struct {
	// First and Last offset, both included.
	First, Last int64
	// Types has one entry for the whole batch, or one for each offset.
	Types []int8
}

var _ kmsg.Request = (*Request)(nil)

// Key is that of the form.
func (r *Request) Key() int16 { return r.Form.Key }

// MaxVersion is 0, the only version.
func (*Request) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*Request) SetVersion(int16) {}

// GetVersion is 0.
func (*Request) GetVersion() int16 { return 0 }

// IsFlexible is true: the request has tagged fields, and none is defined.
func (*Request) IsFlexible() bool { return true }

// ResponseKind returns an empty response of the same form.
func (r *Request) ResponseKind() kmsg.Response { return &Response{Form: r.Form} }

// Check returns an error for what the form can't express, or the drafts forbid:
// RELEASE and RENEW, gaps before the third draft, types that do not fit their
// batch.
func (r *Request) Check() error {
	if err := r.Form.Valid(); err != nil {
		return err
	}
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			for _, b := range p.Batches {
				if err := b.check(r.Form.Draft); err != nil {
					return fmt.Errorf("TxnShareAcknowledge: partition %d, offsets %d to %d: %w", p.Partition, b.First, b.Last, err)
				}
			}
		}
	}
	return nil
}

func (b *Batch) check(d Draft) error {
	if b.First < 0 || b.Last < b.First {
		return fmt.Errorf("no run of offsets")
	}
	if n := int64(len(b.Types)); n != 1 && n != b.Last-b.First+1 {
		return fmt.Errorf("%d types", n)
	}
	for _, t := range b.Types {
		if t != Accept && t != Reject && (t != Gap || d != DraftGaps) {
			return fmt.Errorf("type %d is not permitted in a transaction of draft %d", t, d)
		}
	}
	return nil
}

// split returns b as batches of one type each.
func (b *Batch) split() []Batch {
	if len(b.Types) <= 1 {
		return []Batch{*b}
	}
	var out []Batch
	for i, t := range b.Types {
		at := b.First + int64(i)
		if n := len(out); n > 0 && out[n-1].Types[0] == t {
			out[n-1].Last = at
		} else {
			out = append(out, Batch{First: at, Last: at, Types: []int8{t}})
		}
	}
	return out
}

// AppendTo appends the request, without its header. Under [DraftType] a batch
// with several types becomes several batches; one without any is written as
// type 0, see [Request.Check].
func (r *Request) AppendTo(dst []byte) []byte {
	dst = kbin.AppendCompactNullableString(dst, r.TransactionalID)
	dst = kbin.AppendCompactString(dst, r.GroupID)
	dst = kbin.AppendInt64(dst, r.ProducerID)
	dst = kbin.AppendInt16(dst, r.ProducerEpoch)
	dst = kbin.AppendCompactString(dst, r.MemberID)
	dst = kbin.AppendInt32(dst, r.MemberEpoch)
	dst = kbin.AppendCompactArrayLen(dst, len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		dst = kbin.AppendUuid(dst, t.TopicID)
		dst = kbin.AppendCompactArrayLen(dst, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			dst = kbin.AppendInt32(dst, p.Partition)
			dst = r.appendBatches(dst, p.Batches)
			dst = append(dst, 0)
		}
		dst = append(dst, 0)
	}
	return append(dst, 0)
}

func (r *Request) appendBatches(dst []byte, batches []Batch) []byte {
	if r.Form.Draft == DraftType {
		var single []Batch
		for i := range batches {
			single = append(single, batches[i].split()...)
		}
		batches = single
	}
	dst = kbin.AppendCompactArrayLen(dst, len(batches))
	for _, b := range batches {
		dst = kbin.AppendInt64(dst, b.First)
		dst = kbin.AppendInt64(dst, b.Last)
		if r.Form.Draft == DraftType {
			kind := Gap
			if len(b.Types) > 0 {
				kind = b.Types[0]
			}
			dst = kbin.AppendInt8(dst, kind)
		} else {
			dst = kbin.AppendCompactArrayLen(dst, len(b.Types))
			for _, t := range b.Types {
				dst = kbin.AppendInt8(dst, t)
			}
		}
		dst = append(dst, 0)
	}
	return dst
}

// ReadFrom reads a request of r's form, without its header. Nothing of src is
// kept. The error is about bytes that are no such request.
func (r *Request) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	form := r.Form
	*r = Request{Form: form}
	if id := b.CompactNullableString(); id != nil {
		r.TransactionalID = id
	}
	r.GroupID = b.CompactString()
	r.ProducerID, r.ProducerEpoch = b.Int64(), b.Int16()
	r.MemberID, r.MemberEpoch = b.CompactString(), b.Int32()
	for range arrayLen(&b) {
		t := RequestTopic{TopicID: b.Uuid()}
		for range arrayLen(&b) {
			p := RequestPartition{Partition: b.Int32()}
			for range arrayLen(&b) {
				p.Batches = append(p.Batches, readBatch(&b, form.Draft))
				if !b.Ok() {
					return b.Complete()
				}
			}
			kmsg.SkipTags(&b)
			if !b.Ok() {
				return b.Complete()
			}
			t.Partitions = append(t.Partitions, p)
		}
		kmsg.SkipTags(&b)
		if !b.Ok() {
			return b.Complete()
		}
		r.Topics = append(r.Topics, t)
	}
	kmsg.SkipTags(&b)
	return b.Complete()
}

func readBatch(b *kbin.Reader, d Draft) Batch {
	a := Batch{First: b.Int64(), Last: b.Int64()}
	if d == DraftType {
		a.Types = []int8{b.Int8()}
	} else {
		for range arrayLen(b) {
			a.Types = append(a.Types, b.Int8())
		}
	}
	kmsg.SkipTags(b)
	return a
}

// arrayLen reads the length of an array. What is left has at least a byte for
// each element, or the length is a lie.
func arrayLen(b *kbin.Reader) int {
	n := int(b.CompactArrayLen())
	if n > len(b.Src) {
		b.Span(len(b.Src) + 1) // marks the reader as short
		return 0
	}
	return max(n, 0)
}
