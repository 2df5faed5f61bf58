// Package txn holds what guarantees rest on: what a pair of clusters can do
// ([Probe]) and which offsets are settled ([RangeSet]). It reads no
// declaration and polls no source.
package txn
