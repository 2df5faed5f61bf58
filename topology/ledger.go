package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Transaction bounds the transactions of an exactly-once flow in time;
// [Limits] bounds them in records and bytes.
type Transaction struct {
	// Timeout is how long a transaction may stay open before the target's
	// brokers abort it; 5 s to 15 min. It may be shorter than the session
	// timeout of the group that hands out shards: a new owner fences the last
	// one before it reads the ledger. Default: 30 s; with [KIP1289]
	// [MaxKIP1289Timeout], which is its most as well.
	Timeout time.Duration
	// Interval is the upper bound of the time from the first record of a
	// transaction to its commit; 1 ms to a quarter of Timeout. A lane that has
	// nothing more at hand commits earlier. Default: 250 ms.
	Interval time.Duration
}

// Ledger says how the flow's ledger and map topics are made on the target.
type Ledger struct {
	// Shards is the number of partitions of both topics, and with it of the
	// lanes that all processes of the flow can run; 1 to 1000. It can't be
	// changed once the ledger exists. Default: 8.
	Shards int
	// ReplicationFactor of both topics, default -1: the target broker's
	// default.
	ReplicationFactor int16
}

// OnGap is what becomes of a source partition whose log starts after the
// flow's position: records were deleted before they were copied.
type OnGap string

// The values of OnGap.
const (
	// OnGapStop stops the partition and names the missing offsets.
	OnGapStop OnGap = "stop"
	// OnGapSkip records the gap in the ledger and goes on behind it.
	OnGapSkip OnGap = "skip"
)

// OnRecreate is what becomes of a source topic that was deleted and made
// again under its name.
type OnRecreate string

// The values of OnRecreate.
const (
	// OnRecreateStop stops the partitions of the topic.
	OnRecreateStop OnRecreate = "stop"
	// OnRecreateRestart copies the new topic from its beginning.
	OnRecreateRestart OnRecreate = "restart"
)

// OnTargetRecreate is what becomes of a target topic that was deleted and
// made again under its name: the copies that the ledger tells of are gone.
type OnTargetRecreate string

// The values of OnTargetRecreate.
const (
	// OnTargetRecreateStop stops the partitions of the topic.
	OnTargetRecreateStop OnTargetRecreate = "stop"
	// OnTargetRecreateRefill copies the source topic again from the beginning
	// of its log.
	OnTargetRecreateRefill OnTargetRecreate = "refill"
)

const (
	minTxnTimeout  = 5 * time.Second
	maxTxnTimeout  = 15 * time.Minute
	minTxnInterval = time.Millisecond
	maxShards      = 1000
)

// ledgerKeys are the keys that only a flow to a Kafka cluster can have.
var ledgerKeys = append([]string{"transaction"}, ledgerOnly...)

// ledgerOnly are those of them that speak of the ledger, of what is compared
// with it, or of what it takes.
var ledgerOnly = []string{
	"ledger", "on_gap", "on_recreate", "on_target_recreate",
	"allow_unverified_transactions", "allow_no_topic_ids",
}

// checkLedger looks at the settings of exactly-once. A flow that copies
// at-least-once may have them: it may be asked for exactly-once again.
func checkLedger(flow *Flow, path string, f *findings) {
	known(f, path+".on_gap", flow.OnGap, OnGapStop, OnGapSkip)
	known(f, path+".on_recreate", flow.OnRecreate, OnRecreateStop, OnRecreateRestart)
	known(f, path+".on_target_recreate", flow.OnTargetRecreate, OnTargetRecreateStop, OnTargetRecreateRefill)
	timeout := flow.Transaction.Timeout
	if timeout < minTxnTimeout || timeout > maxTxnTimeout {
		f.add(path+".transaction.timeout", fmt.Sprintf("expected %s to %s, got %s", span(minTxnTimeout), span(maxTxnTimeout), span(timeout)),
			"the target's brokers may allow less: transaction.max.timeout.ms")
		timeout = maxTxnTimeout // one finding is enough
	}
	if flow.KIP1289 != nil {
		timeout = min(timeout, MaxKIP1289Timeout)
	}
	if interval, most := flow.Transaction.Interval, timeout/4; interval < minTxnInterval || interval > most {
		f.add(path+".transaction.interval", fmt.Sprintf("expected %s to %s, got %s", span(minTxnInterval), span(most), span(interval)),
			"a quarter of transaction.timeout at most: the rest is for the target's answers")
	}
	within(f, path+".ledger.shards", flow.Ledger.Shards, 1, maxShards)
	checkReplication(f, path+".ledger.replication_factor", flow.Ledger.ReplicationFactor)
}

// Fingerprint returns the SHA-256, in hex, of what decides the bytes and the
// place of the flow's copies: rename with {cluster} filled in, and provenance.
// It stands in the flow's ledger. Topics that are added or removed do not
// change it, nor do limits, nor anything about the clusters' addresses. It
// expects a flow that was validated.
func (f *Flow) Fingerprint() string {
	place := strings.ReplaceAll(f.Rename, placeCluster, f.From)
	sum := sha256.Sum256(fmt.Appendf(nil, "copies 1\nrename %q\nprovenance %t\n", place, f.Provenance))
	return hex.EncodeToString(sum[:])
}
