// Package txn holds what guarantees rest on. It reads no declaration and polls
// no source.
//
// In use by flows: what a pair of clusters can do ([Probe]) and sets of offsets
// ([RangeSet]).
//
// For exactly-once between two clusters, whose flow is not part of this version:
// the ledger's entries ([Entry]) and offset map ([MapBuilder], [Mapping]), what
// each broker answer means to a transaction ([Classify]), the session of a shard
// as a pure machine (step), and a model of the whole protocol among the tests.
package txn
