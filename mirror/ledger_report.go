package mirror

import (
	"time"

	"github.com/onceover-mirror/onceover/txn"
)

// LedgerReport is what the ledger of a flow says, beside what both clusters say
// of it, see [Mirror.Ledger]. Times are UTC; offsets that are not known are -1.
type LedgerReport struct {
	// Flow, From and To are as declared.
	Flow string `json:"flow"`
	From string `json:"from"`
	To   string `json:"to"`
	// Topic is the ledger's, on the target. Exists tells whether it is there;
	// without it nothing below is set.
	Topic  string `json:"topic"`
	Exists bool   `json:"exists"`
	// TopicID is the topic's id, in the form of Kafka's tools.
	TopicID string `json:"topic_id,omitempty"`
	// Partitions of the topic.
	Partitions int `json:"partitions"`
	// K is the number of shards that the ledger was founded with, 0 before that.
	K int `json:"k"`
	// SourceCluster and TargetCluster are the cluster ids that the ledger is for.
	SourceCluster string `json:"source_cluster,omitempty"`
	TargetCluster string `json:"target_cluster,omitempty"`
	// Reader of the source: "partition" or "share".
	Reader string `json:"reader,omitempty"`
	// Generation counts the changes of Reader and Fingerprint: the highest of
	// all shards.
	Generation int64 `json:"generation"`
	// Fingerprint of the declaration that the flow runs under, and whether it is
	// that of the declaration at hand.
	Fingerprint string `json:"fingerprint,omitempty"`
	Declared    bool   `json:"declared"`
	// Suspended is set when the flow has copied at-least-once since; then the
	// positions below are not where it stands.
	Suspended *LedgerNote `json:"suspended,omitempty"`
	// Shards in their order.
	Shards []LedgerShard `json:"shards"`
	// Positions by topic and partition.
	Positions []LedgerPosition `json:"positions"`
	// Findings are what is not as it has to be. Empty for a sound ledger.
	Findings []LedgerFinding `json:"findings"`
}

// LedgerNote is a decision with its reason.
type LedgerNote struct {
	// Reason as people are to see it, and Time of the decision.
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// LedgerShard is one partition of the ledger.
type LedgerShard struct {
	// Shard is its number, from 0.
	Shard int `json:"shard"`
	// Owner is who has the shard in the shard group, nil when nobody has.
	Owner *LedgerOwner `json:"owner,omitempty"`
	// Next is the offset up to which the partition was read.
	Next int64 `json:"next"`
	// Undecided is the number of entries of a transaction that is open.
	Undecided int `json:"undecided"`
	// LastEntry is the time of the newest entry that counts, zero without one.
	LastEntry time.Time `json:"last_entry,omitzero"`
	// Founded: it has a flow entry, of this generation.
	Founded    bool  `json:"founded"`
	Generation int64 `json:"generation"`
	Suspended  bool  `json:"suspended"`
	// Problem is why it could not be read, empty when it was.
	Problem string `json:"problem,omitempty"`
}

// LedgerOwner is a member of the shard group.
type LedgerOwner struct {
	// Instance is the process's lasting name, empty where it has none.
	Instance string `json:"instance,omitempty"`
	Member   string `json:"member"`
	Host     string `json:"host"`
}

// LedgerPosition is one source partition.
type LedgerPosition struct {
	// Topic is its name at the source, or was, where the topic is Gone.
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// TopicID is the source topic's id, in the form of Kafka's tools.
	TopicID string `json:"topic_id"`
	Shard   int    `json:"shard"`
	// Gone: the source has no topic of that id any more.
	Gone bool `json:"gone"`
	// Start is where the flow began, or was set to since; nil in a damaged
	// ledger.
	Start *LedgerStart `json:"start,omitempty"`
	// Frontier is how far it came since Start, nil before the first commit.
	Frontier *LedgerFrontier `json:"frontier,omitempty"`
	// Position is the next offset to copy.
	Position int64 `json:"position"`
	// LogStart and End (the last stable offset) are the source's.
	LogStart int64 `json:"log_start"`
	End      int64 `json:"end"`
	// Lag is End - Position.
	Lag int64 `json:"lag"`
	// Gaps are runs of offsets that were passed without a copy, by decision.
	Gaps []LedgerGap `json:"gaps,omitempty"`
	// Map is what the offset map has of the partition.
	Map LedgerMap `json:"map"`

	src txn.SourcePartition
}

// LedgerStart is a start entry.
type LedgerStart struct {
	// Position is the first offset to be copied.
	Position int64 `json:"position"`
	// Prior: what is below may have been copied outside of the ledger.
	Prior bool `json:"prior"`
	// Reason for that position, and Time of the decision.
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// LedgerFrontier is a frontier entry.
type LedgerFrontier struct {
	// Next is the first offset that is not copied, and Time when that was
	// written.
	Next int64     `json:"next"`
	Time time.Time `json:"time"`
	// TxnID and Epoch are the writer's.
	TxnID string `json:"txn_id"`
	Epoch int16  `json:"epoch"`
	// Target is the topic of the copies, TargetNext the offset after the last of
	// them, -1 before the first.
	Target     string `json:"target"`
	TargetNext int64  `json:"target_next"`
}

// LedgerGap is a gap entry.
type LedgerGap struct {
	// First and Last are both part of it.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Reason for passing them, and Time of the decision.
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// LedgerMap is the coverage of a source partition by the offset map.
type LedgerMap struct {
	// Complete: the map was read to its end within the time given. Without that
	// the figures below are of the part that was, and Unmapped is not known.
	Complete bool `json:"complete"`
	// Runs is the number of runs, First and Last the lowest and highest source
	// offset in them, -1 without any.
	Runs  int64 `json:"runs"`
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// Unmapped counts the offsets between start and position that are in no run:
	// control records, records that were rolled back, filtered, compacted away
	// or passed, and what the map has forgotten.
	Unmapped int64 `json:"unmapped"`
}

// LedgerFinding is one thing that is not as it has to be.
type LedgerFinding struct {
	// Place is the topic, partition or shard.
	Place   string `json:"place"`
	Problem string `json:"problem"`
	// Hint says what to do.
	Hint string `json:"hint,omitempty"`
}
