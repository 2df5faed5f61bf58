package mirror

import (
	"slices"
	"time"

	"github.com/onceover-mirror/onceover/txn"
)

// shards lets change change what is known of the shards, in a flow that has any.
func (b *board) shards(change func(s *ShardState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flow.Shards != nil {
		change(b.flow.Shards)
	}
}

// sharded is what the ledger says: how many shards there are, and when a
// position last moved, zero for never.
func (b *board) sharded(total int, last time.Time) {
	b.shards(func(s *ShardState) {
		s.Total = total
		if last.After(s.LastCommit) {
			s.LastCommit = last
		}
	})
}

// owned: a shard is fenced and its ledger read. last is what became of the
// transaction before.
func (b *board) owned(shard int32, last txn.Outcome) {
	b.shards(func(s *ShardState) {
		if at, had := slices.BinarySearch(s.Owned, int(shard)); !had {
			s.Owned = slices.Insert(s.Owned, at, int(shard))
		}
		if b.doubts[shard] && last != txn.Unknown {
			s.Resolved++
			s.count(last)
		}
		delete(b.doubts, shard)
	})
}

// disowned: the lane of a shard has ended.
func (b *board) disowned(shard int32) {
	b.shards(func(s *ShardState) {
		s.Owned = slices.DeleteFunc(slices.Clone(s.Owned), func(n int) bool { return n == int(shard) })
		delete(b.doubts, shard)
	})
}

// ended: a transaction of a shard has ended, for all that is known.
func (b *board) ended(shard int32, how txn.Outcome) {
	b.shards(func(s *ShardState) {
		s.count(how)
		switch how {
		case txn.Unknown:
			b.doubts[shard] = true
		case txn.Committed:
			s.LastCommit = time.Now().UTC()
		case txn.Aborted:
		}
	})
}

// fenced: a shard was used by somebody else, or its transaction timed out.
func (b *board) fenced() {
	b.shards(func(s *ShardState) { s.Fenced++ })
}

func (s *ShardState) count(how txn.Outcome) {
	switch how {
	case txn.Committed:
		s.Committed++
	case txn.Aborted:
		s.Aborted++
	case txn.Unknown:
		s.InDoubt++
	}
}

// lastCommit is when the flow last moved a position, in whatever process, as of
// the last look at the ledger. The lag watcher's own.
func (f *flow) lastCommit() time.Time {
	var last int64
	for _, l := range f.tails {
		for _, p := range l.Partitions() {
			if fr := l.Mark(p).Frontier; fr != nil {
				last = max(last, fr.Time)
			}
		}
	}
	if last == 0 {
		return time.Time{}
	}
	return time.UnixMilli(last).UTC()
}
