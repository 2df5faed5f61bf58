package txn

import (
	"testing"

	"pgregory.net/rapid"
)

// goldenTopics are topic ids whose hashes were computed by another program
// (FNV-1a 64: offset basis 0xcbf29ce484222325, prime 0x100000001b3).
var goldenTopics = []struct {
	id     [16]byte
	shards map[int]int // shard of partition 0 by number of shards
}{
	{[16]byte{0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00}, map[int]int{1: 0, 3: 0, 8: 5, 50: 21}},
	{[16]byte{0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f}, map[int]int{1: 0, 3: 2, 8: 5, 50: 31}},
	{[16]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, map[int]int{1: 0, 3: 0, 8: 5, 50: 33}},
	{[16]byte{0xa5, 0x4d, 0xca, 0x18, 0x25, 0x30, 0xbb, 0x1d, 0x6d, 0x13, 0x2c, 0xde, 0xd6, 0x23, 0x7b, 0x2e}, map[int]int{1: 0, 3: 0, 8: 0, 50: 30}},
}

// These values are in every ledger there is: where the test fails, the code
// is wrong, never the test.
func TestShardGolden(t *testing.T) {
	for _, g := range goldenTopics {
		for k, shard := range g.shards {
			for p := range int32(20) {
				want := (shard + int(p)) % k
				if got := (SourcePartition{"c", g.id, p}).Shard(k); got != want {
					t.Errorf("shard of %x/%d in %d is %d, want %d", g.id, p, k, got, want)
				}
			}
		}
	}
}

// Neighbouring partitions of a topic are in neighbouring shards, so that k of
// them are in k different ones, whatever the hash is.
func TestShardSpreads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := SourcePartition{TopicID: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))}
		k := rapid.IntRange(1, 64).Draw(t, "k")
		first := rapid.Int32Range(0, 1<<31-65).Draw(t, "partition")
		seen := map[int]bool{}
		for i := range k {
			p.Partition = first + int32(i)
			s := p.Shard(k)
			if s < 0 || s >= k || seen[s] {
				t.Fatalf("partition %d of %d is in shard %d, taken: %v", p.Partition, k, s, seen)
			}
			seen[s] = true
		}
	})
}

func TestSourcePartitionString(t *testing.T) {
	p := SourcePartition{"lkc-1", [16]byte{0xfb, 0xff, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 3}
	if got, want := p.String(), "lkc-1/-_8CAwQFBgcICQoLDA0ODw/3"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
