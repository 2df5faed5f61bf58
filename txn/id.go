package txn

import (
	"fmt"
	"regexp"
	"strconv"
)

// LedgerTopic is the topic on the target that holds the ledger of a flow, one
// partition a shard (ledger section 1). A flow name has no dots, so that no
// name of one flow is the beginning of another's.
func LedgerTopic(flow string) string { return "onceover." + flow + ".ledger.internal" }

// MapTopic is the topic on the target that holds the offset map of a flow,
// with as many partitions as the ledger (ledger sections 1 and 7).
func MapTopic(flow string) string { return "onceover." + flow + ".map.internal" }

// ShardGroup is the consumer group on the target in which the processes of a
// flow share out its shards: to be assigned partition k of the ledger topic
// is to own shard k (ledger section 1).
func ShardGroup(flow string) string { return "onceover." + flow + ".shards" }

// ShardTxnID is the transactional id under which the owner of a shard copies.
// Every owner uses the same one, so that the next owner fences the last.
func ShardTxnID(flow string, shard int) string { return fmt.Sprintf("onceover.%s.%d", flow, shard) }

// KeeperTxnID is the transactional id under which the owner of a shard writes
// floors while share workers copy (ledger section 5).
func KeeperTxnID(flow string, shard int) string {
	return fmt.Sprintf("onceover.%s.keeper.%d", flow, shard)
}

// WorkerTxnID is the transactional id of one lane of a share worker. The
// instance is that of the shard group's static membership, <hostname>-<n>; it
// must not be empty and may have dots in it.
func WorkerTxnID(flow, instance string, lane int) string {
	return fmt.Sprintf("onceover.%s.w.%s.%d", flow, instance, lane)
}

// TxnRole says whose a transactional id is.
type TxnRole int8

// The roles that a flow has transactional ids for.
const (
	// RoleShard copies as the one writer of a shard, see [ShardTxnID].
	RoleShard TxnRole = iota + 1
	// RoleKeeper writes the floors of a shard, see [KeeperTxnID].
	RoleKeeper
	// RoleWorker copies as one of several share workers, see [WorkerTxnID].
	RoleWorker
)

// TxnID is a transactional id taken apart. It can be compared.
type TxnID struct {
	// Flow by its name.
	Flow string
	// Role says which of the other fields are set.
	Role TxnRole
	// Shard of a RoleShard or RoleKeeper.
	Shard int
	// Instance and Lane of a RoleWorker.
	Instance string
	Lane     int
}

// Numbers are written without sign and leading zeros, so that two ids never
// mean one thing.
var txnIDShape = regexp.MustCompile(`^onceover\.([a-z0-9][a-z0-9-]{0,60})\.(?:(keeper\.)?(0|[1-9][0-9]{0,8})|w\.(.+)\.(0|[1-9][0-9]{0,8}))$`)

// ParseTxnID takes a transactional id apart, as the functions above made it.
// It looks at the whole id and reports false for any other: that one is
// somebody else's, and must be neither fenced nor aborted.
func ParseTxnID(id string) (TxnID, bool) {
	m := txnIDShape.FindStringSubmatch(id)
	if m == nil {
		return TxnID{}, false
	}
	t := TxnID{Flow: m[1], Role: RoleShard, Instance: m[4]}
	switch {
	case t.Instance != "":
		t.Role = RoleWorker
		t.Lane, _ = strconv.Atoi(m[5]) // nine digits at most
		return t, true
	case m[2] != "":
		t.Role = RoleKeeper
	}
	t.Shard, _ = strconv.Atoi(m[3]) // nine digits at most
	return t, true
}
