package testenv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn/wire"
)

// maxFrame is the size of a request that brokers take (socket.request.max.bytes).
const maxFrame = 100 << 20

// exchange is one request on a connection and its answer. It belongs to the
// goroutine that serves the connection.
type exchange struct {
	conn     *frontConn
	node     int32
	key      int16
	version  int16
	corr     int32
	clientID string
	frame    []byte // the request, size included
	header   int    // where the header's fixed part ends in frame
	decoded  kmsg.Request
	answer   []byte // the answer, size included; nil: none yet, or none at all
	// written is signalled when the answer of kfake is no longer needed; nil
	// if kfake gave none.
	written chan<- struct{}
}

// readFrame reads one frame, its size included.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// parseExchange reads the header of a request frame.
func parseExchange(c *frontConn, frame []byte) (*exchange, error) {
	r := kbin.Reader{Src: frame[4:]}
	x := &exchange{conn: c, node: c.node, frame: frame, key: r.Int16(), version: r.Int16(), corr: r.Int32()}
	if id := r.NullableString(); id != nil {
		x.clientID = *id
	}
	if !r.Ok() {
		return nil, errors.New("request header cut short")
	}
	x.header = len(frame) - len(r.Src)
	return x, nil
}

// request decodes the request; it is not to be changed, see setRequest.
func (x *exchange) request() (kmsg.Request, error) {
	if x.decoded != nil {
		return x.decoded, nil
	}
	req := x.conn.front.requestFor(x.key)
	if req == nil {
		return nil, fmt.Errorf("decode request: unknown key %d", x.key)
	}
	req.SetVersion(x.version)
	r := kbin.Reader{Src: x.frame[x.header:]}
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := req.ReadFrom(r.Src); err != nil {
		return nil, fmt.Errorf("decode %s v%d: %w", kmsg.NameForKey(x.key), x.version, err)
	}
	x.decoded = req
	return req, nil
}

// requestFor is an empty request of a key, nil if nobody knows it.
func (f *Front) requestFor(key int16) kmsg.Request {
	if f.share != nil && key == f.share.o.Form.Key && key != 0 {
		return &wire.Request{Form: f.share.o.Form}
	}
	return kmsg.RequestForKey(key)
}

// setRequest makes req what is passed on.
func (x *exchange) setRequest(req kmsg.Request) {
	req.SetVersion(x.version)
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID(x.clientID))
	x.frame = f.AppendRequest(nil, req, x.corr)
}

// response decodes the answer. The caller may change it and set it.
func (x *exchange) response() (kmsg.Response, error) {
	req, err := x.request()
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	r := kbin.Reader{Src: x.answer}
	r.Span(8)
	if resp.IsFlexible() && x.key != int16(kmsg.ApiVersions) {
		kmsg.SkipTags(&r)
	}
	if err := resp.ReadFrom(r.Src); err != nil {
		return nil, fmt.Errorf("decode answer to %s v%d: %w", kmsg.NameForKey(x.key), x.version, err)
	}
	return resp, nil
}

// setResponse makes resp the answer.
func (x *exchange) setResponse(resp kmsg.Response) {
	resp.SetVersion(x.version)
	b := make([]byte, 8, 256)
	if resp.IsFlexible() && x.key != int16(kmsg.ApiVersions) {
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	binary.BigEndian.PutUint32(b[4:], uint32(x.corr))
	x.answer = b
}

// unanswered tells whether the request is one that is never answered: a
// Produce with acks=0.
func (x *exchange) unanswered() bool {
	if x.key != int16(kmsg.Produce) {
		return false
	}
	// Without decoding: the acks follow the transactional id, or nothing.
	r := kbin.Reader{Src: x.frame[x.header:]}
	switch {
	case x.version >= 9:
		kmsg.SkipTags(&r)
		r.CompactNullableString()
	case x.version >= 3:
		r.NullableString()
	}
	acks := r.Int16()
	return r.Ok() && acks == 0
}
