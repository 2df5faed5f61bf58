package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Sink is where a lane writes. Kafka is built in, and so is a file of JSON
// lines; anything else can be added through [Options].Sinks. The contract is
// that of a share-group sink (KIP-1302): a record is acknowledged at the
// source only after Put returned for it.
//
// One Sink belongs to one lane: its methods are never called concurrently.
type Sink interface {
	// Open is called once, before the first Put. A retriable error, and any
	// other that is not final, starts the lane anew after a back-off: nothing is
	// read from the source while the target takes no writes.
	Open(ctx context.Context) error
	// Put writes recs, which are already as they shall be on the target
	// (topic, partition, key, value, headers, timestamp), and returns only
	// when the fate of each is known and what was written is durable. It must
	// not change or keep recs.
	//
	//   - nil: every record is written.
	//   - a *[PutError]: the records it names failed, each with its error, all
	//     others are written.
	//   - any other error: nothing is known to be written; it holds for each
	//     record.
	//
	// An error for which [IsRetriable] holds is tried again with back-off,
	// anything else is final for that record and decided by on_error. Put
	// blocks while the target is slow; the lane keeps its source locks alive
	// meanwhile. When ctx ends, Put returns soon, with its cause for every
	// record whose fate is unknown.
	Put(ctx context.Context, recs []*kgo.Record) error
	// Close releases what Open took. Nothing written is lost by it.
	Close(ctx context.Context) error
}

// PutError says which records of one Put failed; those not named are written.
type PutError struct {
	// Failed maps the index in Put's recs to that record's error.
	Failed map[int]error
}

// Error names the number of failures and one of them.
func (e *PutError) Error() string {
	for i, err := range e.Failed {
		return fmt.Sprintf("%d records not written, among them record %d: %v", len(e.Failed), i, err)
	}
	return "no record failed"
}

// Unwrap returns the errors of the failed records.
func (e *PutError) Unwrap() []error {
	errs := make([]error, 0, len(e.Failed))
	for _, err := range e.Failed {
		errs = append(errs, err)
	}
	return errs
}

type retriableError struct{ err error }

func (e *retriableError) Error() string { return e.err.Error() }
func (e *retriableError) Unwrap() error { return e.err }

// Retriable marks err, returned by a [Sink], as one that may pass by itself.
func Retriable(err error) error {
	if err == nil {
		return nil
	}
	return &retriableError{err}
}

// IsRetriable reports whether err was marked by [Retriable].
func IsRetriable(err error) bool {
	var r *retriableError
	return errors.As(err, &r)
}
