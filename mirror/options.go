package mirror

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
)

// Options is what [New] takes. Only Topology is required.
type Options struct {
	// Topology to run; not changed, and not to be changed afterwards.
	Topology *topology.Topology
	// ReadFile reads the certificate files that the topology names. Required
	// when it names any.
	ReadFile func(path string) ([]byte, error)
	// Log receives state transitions and errors. Default: discard.
	Log *slog.Logger
	// Observer is told what happens, record counts included. Default: none.
	Observer Observer
	// Hooks returns hooks for a new Kafka client of the given flow and role, for
	// metrics. Roles: "source" and "target" (each lane has its own of both, and
	// opens new ones after a failure), "source-admin" and "target-admin" (one
	// each for questions, lag included). Default: none.
	Hooks func(flow, role string) []kgo.Hook
	// Dial replaces the TCP dialer of every client, for virtual networks. The
	// TLS of the topology is still applied. Default: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Instance names this process in the source's groups. It must differ from
	// that of every other process of the same topology, and should be the same
	// after a restart: the process then takes its old place in the group at
	// once, where a new one waits for the session timeout of the old (45 s for
	// a share group). Default: random.
	Instance string
	// OpenFile opens the output of a file sink for appending; required when
	// the topology has one.
	OpenFile func(path string) (SyncWriter, error)
	// Sinks are makers of sinks by flow name; they replace the flow's own
	// target. Called once per lane.
	Sinks map[string]func(lane int) (Sink, error)
}

// SyncWriter is a file open for appending.
type SyncWriter interface {
	// Write appends p, as io.Writer does.
	Write(p []byte) (int, error)
	// Sync returns once everything written is on stable storage.
	Sync() error
	// Close does not sync.
	Close() error
}

// Observer is told what happens. Each func may be nil; each is called from
// the goroutine that did the work, possibly several at a time, and must
// return quickly and not call back into the mirror.
type Observer struct {
	// Copied: a batch of n records and that many bytes (keys and values) of
	// one source partition is written and its acknowledgement is confirmed.
	Copied func(flow, topic string, partition int32, n int, bytes int64)
	// Left: records were not copied for the given reason: "echo" (they came
	// from the target), "skipped" (refused by the target, on_error: skip).
	Left func(flow, topic string, partition int32, reason string, n int)
	// Retried: a put is tried again after a retriable error.
	Retried func(flow string, err error)
	// AckRefused: the source refused the acknowledgement of n records; they
	// come again.
	AckRefused func(flow, topic string, partition int32, n int, err error)
	// LastDelivery: a record is handed out for the last time the group
	// permits.
	LastDelivery func(flow, topic string, partition int32, offset int64)
	// Gap: source offsets first..last (both included) are gone and were not
	// copied.
	Gap func(flow, topic string, partition int32, first, last int64)
	// Owned: an exactly-once flow has fenced a shard and read its ledger. last
	// is what became of the transaction before, "unknown" when there was none.
	Owned func(flow string, shard int, last string)
	// Committed: a transaction of a shard, with n copies in it, committed. took
	// is how long that was waited for, from the wish to commit on: the answers to
	// what was sent last, the positions, and the end of the transaction.
	Committed func(flow string, shard, n int, took time.Duration)
	// Aborted: a transaction of a shard did not commit, or it is not known
	// whether it did.
	Aborted func(flow string, shard int, err error)
	// Phase: a flow changed its phase.
	Phase func(flow string, phase FlowPhase, reason string)
}
