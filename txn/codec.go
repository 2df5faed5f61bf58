package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Why bytes from a ledger or map topic are not read. Each stops what reads
// them: a record that is passed over may be a position.
var (
	// ErrFutureVersion: a newer version wrote the record in a form that this
	// one does not know. The text names the version.
	ErrFutureVersion = errors.New("written by a newer version; run that one or a later one")
	// ErrUnknownKind: the form is known but the kind of record is not. The
	// text names the kind.
	ErrUnknownKind = errors.New("no such kind of record; a newer version may have written it")
	// ErrMalformed: the record was cut, altered or written by something else,
	// or, when encoding, has a field out of its bounds. The text names the
	// field.
	ErrMalformed = errors.New("malformed record")
)

// MaxText is the most bytes that a name, id or reason in a ledger or map
// record can have. Longer ones are refused both ways.
const MaxText = 4096

// maxOffset leaves room for "the offset after it".
const maxOffset = math.MaxInt64 - 1

// codec writes fields to b, or reads them from it: each record names its
// fields once, in one order, with one set of bounds, so that what is written
// can be read. Numbers are signed varints in their shortest form, texts and
// lists carry their length before them. After the first error nothing more
// happens.
type codec struct {
	// b is what was written, or what is left to be read.
	b       []byte
	reading bool
	err     error
}

// fail keeps the first error.
func (c *codec) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func (c *codec) malformed(format string, args ...any) {
	c.fail(fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrMalformed))
}

// take reads the next n bytes; nil when there are fewer or after an error.
func (c *codec) take(field string, n int) []byte {
	if c.err == nil && n > len(c.b) {
		c.malformed("%s ends early", field)
	}
	if c.err != nil {
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

// version is the first byte of everything: the form of what follows.
func (c *codec) version(current byte) {
	if !c.reading {
		c.b = append(c.b, current)
		return
	}
	b := c.take("version", 1)
	switch {
	case b == nil:
	case b[0] > current:
		c.fail(fmt.Errorf("version %d, known up to %d: %w", b[0], current, ErrFutureVersion))
	case b[0] == 0:
		c.malformed("version 0")
	}
}

// flag is a field that is written as 0 or 1.
func (c *codec) flag(field string, v *bool) {
	var n int8
	if *v {
		n = 1
	}
	number(c, field, &n, 0, 1)
	*v = n == 1
}

// raw is a field of fixed length: an id.
func (c *codec) raw(field string, id *[16]byte) {
	if !c.reading {
		c.b = append(c.b, id[:]...)
		return
	}
	copy(id[:], c.take(field, len(id)))
}

// text is a field of at most MaxText bytes.
func (c *codec) text(field string, s *string) {
	n := len(*s)
	number(c, field+" length", &n, 0, MaxText)
	if c.err != nil {
		return
	}
	if !c.reading {
		c.b = append(c.b, *s...)
		return
	}
	*s = string(c.take(field, n))
}

// name is a text that must not be empty.
func (c *codec) name(field string, s *string) {
	c.text(field, s)
	if *s == "" {
		c.malformed("%s is empty", field)
	}
}

// count is the length of a list, at least 1 and at most most. When reading,
// each element has size bytes or more, so that what is not there is not
// allocated.
func (c *codec) count(field string, n *int, most, size int) {
	if c.reading {
		most = min(most, len(c.b)/size)
	}
	number(c, field, n, 1, int64(most))
}

// number is a field within low..high, which must fit T.
func number[T ~int | ~int8 | ~int16 | ~int32 | ~int64](c *codec, field string, v *T, low, high int64) {
	if c.err != nil {
		return
	}
	x := int64(*v)
	if c.reading {
		var n int
		x, n = binary.Varint(c.b)
		// A longer form of the same number is damage: nothing writes it.
		if n <= 0 || n > 1 && c.b[n-1] == 0 {
			c.malformed("%s is not a number", field)
			return
		}
		c.b = c.b[n:]
	}
	if x < low || x > high {
		c.malformed("%s is %d, not within %d to %d", field, x, low, high)
		return
	}
	if c.reading {
		*v = T(x)
		return
	}
	c.b = binary.AppendVarint(c.b, x)
}

// partition is the source partition that a record is about.
func (c *codec) partition(p *SourcePartition) {
	c.name("source cluster", &p.Cluster)
	c.raw("source topic id", &p.TopicID)
	if p.TopicID == ([16]byte{}) {
		c.malformed("source topic id is empty")
	}
	number(c, "source partition", &p.Partition, 0, math.MaxInt32)
}

// end refuses bytes after the last field: what they say would be lost.
func (c *codec) end() {
	if c.reading && len(c.b) > 0 {
		c.malformed("%d bytes after the last field", len(c.b))
	}
}
