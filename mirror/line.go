package mirror

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// line is a record in a file of JSON lines. No field is left out, so that
// null, empty and absent can't be mixed up.
type line struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Timestamp in milliseconds since 1970, as Kafka has it.
	Timestamp int64        `json:"timestamp"`
	Key       octets       `json:"key"`
	Value     octets       `json:"value"`
	Headers   []lineHeader `json:"headers"`
}

type lineHeader struct {
	Key   octets `json:"key"`
	Value octets `json:"value"`
}

// octets is null, a string where the bytes are valid UTF-8, and otherwise
// {"base64": "..."}.
type octets []byte

type base64Octets struct {
	Base64 []byte `json:"base64"`
}

func (o octets) MarshalJSON() ([]byte, error) {
	switch {
	case o == nil:
		return []byte("null"), nil
	case utf8.Valid(o):
		// json.Marshal would turn <, > and & into escapes.
		var b bytes.Buffer
		err := encoder(&b).Encode(string(o))
		return b.Bytes(), err
	}
	return json.Marshal(base64Octets{o})
}

func (o *octets) UnmarshalJSON(data []byte) error {
	switch {
	case string(data) == "null":
		*o = nil
	case data[0] == '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*o = octets(s)
	default:
		var b base64Octets
		if err := strict(data, &b); err != nil {
			return err
		}
		if b.Base64 == nil {
			return errors.New(`expected null, a string or {"base64": "..."}`)
		}
		*o = b.Base64
	}
	return nil
}

func strict(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// appendLine appends rec as one line with its line end.
func appendLine(to *bytes.Buffer, rec *kgo.Record) error {
	l := line{
		Topic: rec.Topic, Partition: rec.Partition, Timestamp: rec.Timestamp.UnixMilli(),
		Key: rec.Key, Value: rec.Value, Headers: make([]lineHeader, len(rec.Headers)),
	}
	for i, h := range rec.Headers {
		l.Headers[i] = lineHeader{octets(h.Key), h.Value}
	}
	return encoder(to).Encode(l)
}

func encoder(to *bytes.Buffer) *json.Encoder {
	enc := json.NewEncoder(to)
	enc.SetEscapeHTML(false)
	return enc
}

// DecodeLine reads one line that the file sink wrote: a JSON object with
// topic, partition, timestamp (milliseconds since 1970), key, value and
// headers (a list of key and value, in order). A key or value is null, a
// string, or {"base64": "..."} where the bytes are not valid UTF-8. Offset and
// attributes are not kept.
//
// It returns an error for anything else. A crash can leave a line that is cut
// off; its record was not acknowledged and follows again, so a reader may pass
// over it.
func DecodeLine(data []byte) (*kgo.Record, error) {
	var l line
	if err := strict(data, &l); err != nil {
		return nil, fmt.Errorf("read line: %w", err)
	}
	if l.Topic == "" {
		return nil, errors.New("read line: no topic")
	}
	rec := &kgo.Record{
		Topic: l.Topic, Partition: l.Partition, Timestamp: time.UnixMilli(l.Timestamp),
		Key: l.Key, Value: l.Value,
	}
	for _, h := range l.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: string(h.Key), Value: h.Value})
	}
	return rec, nil
}
