package txn

import (
	"fmt"
	"math"
)

// ledgerVersion is the form of ledger keys and values that this version
// writes, and the highest that it reads.
const ledgerVersion = 1

// MaxClaimRanges is the most ranges that one claim can have. More are written
// as several claims.
const MaxClaimRanges = 1 << 16

// Kind says what a ledger entry is about. The numbers are written to the
// ledger and never change.
type Kind int8

// The kinds of ledger entries (ledger section 1).
const (
	// KindFlow is the entry in each ledger partition that says what the
	// ledger belongs to: [Flow].
	KindFlow Kind = iota + 1
	// KindSuspend marks the ledger as suspended: [Suspend].
	KindSuspend
	// KindStart is where a source partition was begun: [Start].
	KindStart
	// KindFrontier is how far a partition reader has come: [Frontier].
	KindFrontier
	// KindFloor is the offset below which share readers have settled all:
	// [Floor].
	KindFloor
	// KindClaim is what one transaction of a share reader did: [Claim].
	KindClaim
	// KindGap is a run of source offsets that were passed without being
	// copied, on purpose: [Gap].
	KindGap
	lastKind = KindGap
)

var kindNames = [...]string{"", "flow", "suspend", "start", "frontier", "floor", "claim", "gap"}

// String is the name that the kind has in the specification.
func (k Kind) String() string {
	if k < KindFlow || k > lastKind {
		return fmt.Sprintf("kind %d", int8(k))
	}
	return kindNames[k]
}

// Key of a ledger entry. The ledger is compacted: a later entry replaces
// earlier ones of the same key. It can be compared.
type Key struct {
	// Kind of the value, and of a tombstone what it takes back.
	Kind Kind
	// Source is set for start, frontier, floor, claim and gap, and only there.
	Source SourcePartition
	// First is the first offset of a gap, 0 for other kinds.
	First int64
	// Nonce is 16 random bytes of a claim, so that no claim replaces another;
	// all zeros for other kinds.
	Nonce [16]byte
}

// Value of a ledger entry: a pointer to Flow, Suspend, Start, Frontier, Floor,
// Claim or Gap.
type Value interface {
	// Kind is that of the keys under which such a value stands.
	Kind() Kind
	fields(c *codec)
}

var (
	_ Value = (*Flow)(nil)
	_ Value = (*Suspend)(nil)
	_ Value = (*Start)(nil)
	_ Value = (*Frontier)(nil)
	_ Value = (*Floor)(nil)
	_ Value = (*Claim)(nil)
	_ Value = (*Gap)(nil)
)

// Entry is one record of a ledger partition.
type Entry struct {
	// Key that the record stands under.
	Key Key
	// Value is nil for a tombstone, which takes the key back. Whether it was
	// anybody's to take back is for the reader of the ledger to judge.
	Value Value
}

// Encode returns the key and value of the entry's record, the same bytes each
// time; the value of a tombstone is nil. A field out of its bounds is
// [ErrMalformed].
func (e Entry) Encode() (key, value []byte, err error) {
	k := codec{}
	e.Key.code(&k)
	if k.err != nil {
		return nil, nil, fmt.Errorf("encode ledger key %s: %w", e.Key.Kind, k.err)
	}
	if e.Value == nil {
		return k.b, nil, nil
	}
	v := codec{}
	codeValue(&v, e.Key.Kind, e.Value)
	if v.err != nil {
		return nil, nil, fmt.Errorf("encode ledger value %s: %w", e.Key.Kind, v.err)
	}
	return k.b, v.b, nil
}

// DecodeEntry reads the key and value of a record; a nil value is a
// tombstone. Anything that [Entry.Encode] does not write is refused, with
// [ErrFutureVersion], [ErrUnknownKind] or [ErrMalformed]; nothing is guessed.
// The entry keeps no part of the bytes.
func DecodeEntry(key, value []byte) (Entry, error) {
	var e Entry
	k := codec{b: key, reading: true}
	e.Key.code(&k)
	if k.err != nil {
		return Entry{}, fmt.Errorf("decode ledger key: %w", k.err)
	}
	if value == nil {
		return e, nil
	}
	v := codec{b: value, reading: true}
	e.Value = newValue(e.Key.Kind)
	codeValue(&v, e.Key.Kind, e.Value)
	if v.err != nil {
		return Entry{}, fmt.Errorf("decode ledger value %s: %w", e.Key.Kind, v.err)
	}
	return e, nil
}

// newValue returns an empty value of a known kind.
func newValue(k Kind) Value {
	switch k {
	case KindFlow:
		return new(Flow)
	case KindSuspend:
		return new(Suspend)
	case KindStart:
		return new(Start)
	case KindFrontier:
		return new(Frontier)
	case KindFloor:
		return new(Floor)
	case KindClaim:
		return new(Claim)
	case KindGap:
		return new(Gap)
	}
	panic("ledger value of " + k.String())
}

// code writes or reads the key.
func (k *Key) code(c *codec) {
	c.version(ledgerVersion)
	codeKind(c, &k.Kind)
	var source SourcePartition
	var nonce [16]byte
	var first int64
	switch k.Kind {
	case KindFlow, KindSuspend:
	case KindStart, KindFrontier, KindFloor:
		c.partition(&k.Source)
		source = k.Source
	case KindClaim:
		c.partition(&k.Source)
		c.raw("nonce", &k.Nonce)
		source, nonce = k.Source, k.Nonce
	case KindGap:
		c.partition(&k.Source)
		number(c, "first offset", &k.First, 0, maxOffset)
		source, first = k.Source, k.First
	}
	if k.Source != source || k.Nonce != nonce || k.First != first {
		c.malformed("the key has fields that a %s key has not", k.Kind)
	}
	c.end()
}

// codeValue writes or reads a value that stands under a key of kind k. The
// value says its kind again: one that was copied under another key shows.
func codeValue(c *codec, k Kind, v Value) {
	kind := v.Kind()
	c.version(ledgerVersion)
	codeKind(c, &kind)
	if kind != k {
		c.malformed("a value of %s", kind)
	}
	v.fields(c)
	c.end()
}

func codeKind(c *codec, k *Kind) {
	number(c, "kind", k, math.MinInt8, math.MaxInt8)
	if c.err == nil && (*k < KindFlow || *k > lastKind) {
		c.fail(fmt.Errorf("%s: %w", *k, ErrUnknownKind))
	}
}
