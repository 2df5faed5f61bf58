package wire

import (
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Response is the answer to TxnShareAcknowledge v0. It names no leader: after a
// move the client has to ask for metadata.
type Response struct {
	// Form is that of the request; it is not written.
	Form Form
	// ThrottleMillis is how long the client is throttled.
	ThrottleMillis int32
	// ErrorCode is of the whole request, 0 for none.
	ErrorCode int16
	// Topics with a result for each partition.
	Topics []ResponseTopic
}

// ResponseTopic is a source topic.
type ResponseTopic struct {
	// TopicID as in the request.
	TopicID [16]byte
	// Partitions of the topic.
	Partitions []ResponsePartition
}

// ResponsePartition is what became of the acknowledgements of one partition: all
// of them are staged, or none.
type ResponsePartition struct {
	// Partition number.
	Partition int32
	// ErrorCode is 0 if they are staged.
	ErrorCode int16
	// ErrorMessage is the broker's own, nil without one.
	ErrorMessage *string
}

var _ kmsg.Response = (*Response)(nil)

// Key is that of the form.
func (r *Response) Key() int16 { return r.Form.Key }

// MaxVersion is 0, the only version.
func (*Response) MaxVersion() int16 { return 0 }

// SetVersion does nothing: there is one version.
func (*Response) SetVersion(int16) {}

// GetVersion is 0.
func (*Response) GetVersion() int16 { return 0 }

// IsFlexible is true.
func (*Response) IsFlexible() bool { return true }

// RequestKind returns an empty request of the same form.
func (r *Response) RequestKind() kmsg.Request { return &Request{Form: r.Form} }

// AppendTo appends the response, without its header.
func (r *Response) AppendTo(dst []byte) []byte {
	dst = kbin.AppendInt32(dst, r.ThrottleMillis)
	dst = kbin.AppendInt16(dst, r.ErrorCode)
	dst = kbin.AppendCompactArrayLen(dst, len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		dst = kbin.AppendUuid(dst, t.TopicID)
		dst = kbin.AppendCompactArrayLen(dst, len(t.Partitions))
		for _, p := range t.Partitions {
			dst = kbin.AppendInt32(dst, p.Partition)
			dst = kbin.AppendInt16(dst, p.ErrorCode)
			dst = kbin.AppendCompactNullableString(dst, p.ErrorMessage)
			dst = append(dst, 0)
		}
		dst = append(dst, 0)
	}
	return append(dst, 0)
}

// ReadFrom reads a response, without its header. Nothing of src is kept. The
// error is about bytes that are no such response.
func (r *Response) ReadFrom(src []byte) error {
	b := kbin.Reader{Src: src}
	*r = Response{Form: r.Form, ThrottleMillis: b.Int32(), ErrorCode: b.Int16()}
	for range arrayLen(&b) {
		t := ResponseTopic{TopicID: b.Uuid()}
		for range arrayLen(&b) {
			p := ResponsePartition{Partition: b.Int32(), ErrorCode: b.Int16(), ErrorMessage: b.CompactNullableString()}
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
