package txn

import "math"

// Reader says who reads the source partitions of a flow.
type Reader int8

// The readers of a flow (ledger section 1). The numbers are written to the
// ledger and never change.
const (
	// ReaderPartition is one writer per shard, which keeps order: frontiers.
	ReaderPartition Reader = iota + 1
	// ReaderShare is any worker that the share group gives a record: claims
	// and floors.
	ReaderShare
)

// Flow says what a ledger belongs to. The same one is in every ledger
// partition but for Generation and Reader, which change shard by shard
// (ledger sections 1 and 6).
type Flow struct {
	// K is the number of shards, at least 1. It is never changed.
	K int32
	// SourceCluster and TargetCluster are cluster ids.
	SourceCluster, TargetCluster string
	// LedgerTopicID is the id of the ledger topic itself: in a recreated one
	// it differs.
	LedgerTopicID [16]byte
	// Fingerprint of the declaration that the flow runs under.
	Fingerprint string
	// Reader of the shard's source partitions.
	Reader Reader
	// Generation counts the changes of Reader and Fingerprint, from 1. The
	// higher one is right.
	Generation int64
	// Time of writing, Unix milliseconds.
	Time int64
}

// Kind is KindFlow.
func (*Flow) Kind() Kind { return KindFlow }

func (f *Flow) fields(c *codec) {
	number(c, "k", &f.K, 1, math.MaxInt32)
	c.name("source cluster", &f.SourceCluster)
	c.name("target cluster", &f.TargetCluster)
	c.raw("ledger topic id", &f.LedgerTopicID)
	c.name("fingerprint", &f.Fingerprint)
	number(c, "reader", &f.Reader, int64(ReaderPartition), int64(ReaderShare))
	number(c, "generation", &f.Generation, 1, math.MaxInt64)
	number(c, "time", &f.Time, 0, math.MaxInt64)
}

// Suspend marks a ledger whose flow was told to copy at-least-once: what was
// copied since is not in the ledger, and only an explicit command may go on
// from it. The command takes the mark away with a tombstone (ledger section
// 2).
type Suspend struct {
	// Reason as people are to see it.
	Reason string
	// Time of the suspension, Unix milliseconds.
	Time int64
}

// Kind is KindSuspend.
func (*Suspend) Kind() Kind { return KindSuspend }

func (s *Suspend) fields(c *codec) {
	c.text("reason", &s.Reason)
	number(c, "time", &s.Time, 0, math.MaxInt64)
}

// Start is where the flow began in a source partition; committed before the
// first fetch (ledger section 2). A later one is a deliberate change of the
// position: what stands before it in the ledger does not count any more.
type Start struct {
	// Position is the first offset to be copied.
	Position int64
	// Prior tells that records below Position may have been copied outside of
	// the ledger: the offset map does not know their places.
	Prior bool
	// Reason for that position, as people are to see it.
	Reason string
	// Time of the decision, Unix milliseconds.
	Time int64
}

// Kind is KindStart.
func (*Start) Kind() Kind { return KindStart }

func (s *Start) fields(c *codec) {
	number(c, "position", &s.Position, 0, maxOffset)
	c.flag("prior", &s.Prior)
	c.text("reason", &s.Reason)
	number(c, "time", &s.Time, 0, math.MaxInt64)
}

// Frontier is how far a source partition has been copied. It is written in
// the transaction of the copies, and it never goes back (ledger sections 2
// and 4).
type Frontier struct {
	// Next is the first offset that is not settled yet.
	Next int64
	// LeaderEpoch of the last record below Next on the source, -1 when it is
	// not known.
	LeaderEpoch int32
	// TargetTopicID is the id of the topic that holds the copies: in a
	// recreated one it differs.
	TargetTopicID [16]byte
	// TargetNext is the offset after the last copy in the target partition, -1
	// when there is none yet: a target log that ends before it was cut.
	TargetNext int64
	// SourceTopic and TargetTopic are names, for people.
	SourceTopic, TargetTopic string
	// TxnID and ProducerEpoch say who wrote the entry.
	TxnID         string
	ProducerEpoch int16
	// Time of writing, Unix milliseconds.
	Time int64
}

// Kind is KindFrontier.
func (*Frontier) Kind() Kind { return KindFrontier }

func (f *Frontier) fields(c *codec) {
	number(c, "next offset", &f.Next, 0, maxOffset)
	number(c, "leader epoch", &f.LeaderEpoch, -1, math.MaxInt32)
	c.raw("target topic id", &f.TargetTopicID)
	number(c, "target next offset", &f.TargetNext, -1, maxOffset)
	c.name("source topic", &f.SourceTopic)
	c.name("target topic", &f.TargetTopic)
	c.name("transactional id", &f.TxnID)
	number(c, "producer epoch", &f.ProducerEpoch, 0, math.MaxInt16)
	number(c, "time", &f.Time, 0, math.MaxInt64)
}

// Floor is the offset below which share readers have settled everything. The
// keeper alone writes it, and it never goes back (ledger section 5). It has a
// frontier's fields, because a change of reader turns the one into the other
// (ledger section 6).
type Floor Frontier

// Kind is KindFloor.
func (*Floor) Kind() Kind { return KindFloor }

func (f *Floor) fields(c *codec) { (*Frontier)(f).fields(c) }

// Fate is what became of a source record.
type Fate int8

// The fates that a claim names (ledger section 5). The numbers are written to
// the ledger and never change.
const (
	// FateCopied: the copy is in the claim's transaction.
	FateCopied Fate = iota + 1
	// FateDropped: a transform, or loop prevention, left it out.
	FateDropped
	// FateRejected: it can't be copied, and the flow's on_error was applied.
	FateRejected
	// FateGap: there is no record at the offset, or no longer.
	FateGap
)

// ClaimRange is a run of offsets that share a fate.
type ClaimRange struct {
	Range
	// Fate of each offset in the range.
	Fate Fate
}

// Claim says which offsets of a source partition one transaction of a share
// worker settles, should it commit (ledger section 5).
type Claim struct {
	// Ranges are in order and do not overlap; at least one, at most
	// MaxClaimRanges.
	Ranges []ClaimRange
	// TxnID, ProducerID and Epoch are the writer's, so that others can fence
	// it.
	TxnID      string
	ProducerID int64
	Epoch      int16
	// Generation of the flow entry under which it was written.
	Generation int64
}

// Kind is KindClaim.
func (*Claim) Kind() Kind { return KindClaim }

func (m *Claim) fields(c *codec) {
	c.name("transactional id", &m.TxnID)
	number(c, "producer id", &m.ProducerID, 0, math.MaxInt64)
	number(c, "epoch", &m.Epoch, 0, math.MaxInt16)
	number(c, "generation", &m.Generation, 1, math.MaxInt64)
	n := len(m.Ranges)
	c.count("number of ranges", &n, MaxClaimRanges, 3)
	if c.err != nil {
		return
	}
	if c.reading {
		m.Ranges = make([]ClaimRange, n)
	}
	// A range is written as its distance from the one before and its length.
	var next int64
	for i := range m.Ranges {
		r := &m.Ranges[i]
		gap, length := r.First-next, r.Last-r.First
		number(c, "distance of range", &gap, 0, maxOffset-next)
		number(c, "length of range", &length, 0, maxOffset-next-gap)
		number(c, "fate", &r.Fate, int64(FateCopied), int64(FateGap))
		if c.err != nil {
			return
		}
		if c.reading {
			r.Range = Range{next + gap, next + gap + length}
		}
		next = r.Last + 1
	}
}

// Gap is a run of source offsets, from its key's First to Last, that were passed
// without being copied: by decision of a person or of a setting. It tells them
// from what is missing.
type Gap struct {
	// Last offset of the run.
	Last int64
	// Reason as people are to see it.
	Reason string
	// Time of the decision, Unix milliseconds.
	Time int64
}

// Kind is KindGap.
func (*Gap) Kind() Kind { return KindGap }

func (g *Gap) fields(c *codec) {
	number(c, "last offset", &g.Last, 0, maxOffset)
	c.text("reason", &g.Reason)
	number(c, "time", &g.Time, 0, math.MaxInt64)
}
