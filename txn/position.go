package txn

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
)

// SourcePartition is what a position in the ledger belongs to. A topic that
// was deleted and created again under its old name is a different one. It can
// be compared and used as a key.
type SourcePartition struct {
	// Cluster is the source's own cluster id.
	Cluster string
	// TopicID is the id that the source gave the topic. All zeros stands for
	// "none" in Kafka: two such topics would share one position, so no record
	// can be written for it. Where brokers have no topic ids (before 2.8) the
	// caller puts an id of its own making here.
	TopicID [16]byte
	// Partition of the topic.
	Partition int32
}

// Shard returns the shard, 0 to k-1, that the partition belongs to in a
// ledger of k shards: (FNV-1a 64 of the topic id + partition) mod k, which
// spreads the partitions of one topic evenly. The rule is for ever: under any
// other the positions of a running flow would be looked for in the wrong
// place. k comes from the flow record, never from metadata (ledger section
// 1). Panics unless k is positive.
func (p SourcePartition) Shard(k int) int {
	h := fnv.New64a()
	h.Write(p.TopicID[:])
	return int((h.Sum64() + uint64(p.Partition)) % uint64(k))
}

// String prints cluster/topic id/partition, the id as Kafka's own tools do.
func (p SourcePartition) String() string {
	return fmt.Sprintf("%s/%s/%d", p.Cluster, base64.RawURLEncoding.EncodeToString(p.TopicID[:]), p.Partition)
}
