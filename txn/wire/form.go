// Package wire has the one request that client libraries do not know yet:
// TxnShareAcknowledge (KIP-1289), which puts the acknowledgements of a share
// group into a producer's transaction. The KIP is not released: its key and one
// field have changed from draft to draft, so both are settings ([Form]).
package wire

import "fmt"

// Draft is one of the published forms of TxnShareAcknowledge. They differ in how
// the types of a batch are written.
type Draft int8

// The drafts, by the key that each of them had.
const (
	// DraftType (key 93) has one type for a batch, an int8.
	DraftType Draft = 1
	// DraftTypes (key 94) has an array of types: one for the whole batch, or one
	// for each offset.
	DraftTypes Draft = 2
	// DraftGaps (key 95) is DraftTypes with the type 0 allowed, for offsets
	// without a record.
	DraftGaps Draft = 3
)

// Key is the request key that the draft names, 0 for what is no draft.
func (d Draft) Key() int16 {
	switch d {
	case DraftType:
		return 93
	case DraftTypes:
		return 94
	case DraftGaps:
		return 95
	}
	return 0
}

// Form is what two ends have to agree on beforehand. Nothing of it is on the
// wire, apart from the key.
type Form struct {
	// Key of the request. It need not be the draft's own.
	Key int16
	// Draft says how batches are written.
	Draft Draft
}

// Valid returns an error for a form that no request can have.
func (f Form) Valid() error {
	switch {
	case f.Draft.Key() == 0:
		return fmt.Errorf("TxnShareAcknowledge: there is no draft %d", f.Draft)
	case f.Key <= 0:
		return fmt.Errorf("TxnShareAcknowledge: %d is no request key", f.Key)
	}
	return nil
}
