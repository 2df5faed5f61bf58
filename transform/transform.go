// Package transform decides what becomes of one record on its way: kept,
// perhaps changed, left out, or refused. Everything here is a pure function
// of the record: the same input gives the same bytes, whenever and wherever
// it runs, so that a record that is copied a second time is the same record.
package transform

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Verdict says what becomes of a record.
type Verdict uint8

const (
	// Keep: the record goes on as the returned one.
	Keep Verdict = iota
	// Drop: the record is left out on purpose and counts as done.
	Drop
	// Reject: the record can't be handled; on_error decides.
	Reject
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case Keep:
		return "keep"
	case Drop:
		return "drop"
	case Reject:
		return "reject"
	}
	return "unknown"
}

// Transform handles one record.
type Transform interface {
	// Apply returns what becomes of rec. With Keep, out is a new record;
	// otherwise out is nil and reason says why in a few words.
	//
	// It must not change rec nor anything that rec refers to (key, value,
	// headers), may share them with out, and depends on nothing but rec: no
	// clock, no randomness, no network, no state. It may be called
	// concurrently.
	Apply(rec *kgo.Record) (out *kgo.Record, verdict Verdict, reason string)
}

// Chain applies transforms one after the other and ends at the first that does
// not keep the record.
type Chain []Transform

var _ Transform = Chain(nil)

// Apply implements [Transform]. An empty chain keeps a copy of rec.
func (c Chain) Apply(rec *kgo.Record) (out *kgo.Record, verdict Verdict, reason string) {
	if len(c) == 0 {
		return copied(rec), Keep, ""
	}
	for _, t := range c {
		if rec, verdict, reason = t.Apply(rec); verdict != Keep {
			return nil, verdict, reason
		}
	}
	return rec, Keep, ""
}

// copied is rec as a record to be produced: key, value, headers, timestamp,
// topic and partition stay; what only means something where rec was read
// (offset, leader epoch, producer, attributes) does not. Key, value and headers
// are shared; the headers are without room behind them, so that appending
// copies them.
func copied(rec *kgo.Record) *kgo.Record {
	return &kgo.Record{
		Key: rec.Key, Value: rec.Value, Headers: slices.Clip(rec.Headers),
		Timestamp: rec.Timestamp, Topic: rec.Topic, Partition: rec.Partition,
	}
}
