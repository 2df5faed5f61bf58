// Package topology holds what the operator declared: clusters, flows and
// their settings. It is pure: bytes in, values and findings out. It opens no
// file, no socket and reads no environment; ${VAR} is resolved by the lookup
// function that the caller passes to [Parse].
package topology

import (
	"sync/atomic"
	"time"
)

// Topology is a whole declaration, as [Parse] returns it: defaults filled in,
// every finding already ruled out.
type Topology struct {
	// Properties are the worker level settings (spec "worker"), by Kafka's
	// names, for example consumer.group.protocol=share. Flow properties win
	// over them.
	Properties map[string]Value
	// Clusters by the name that flows refer to.
	Clusters map[string]*Cluster
	// Flows in the order in which they were declared. Names are unique.
	Flows []*Flow

	// lines maps the path of each thing that was written down to its line; 0
	// for the quick form.
	lines map[string]int
}

// Value is a setting together with where it was written.
type Value struct {
	// Text is the value after ${VAR} expansion.
	Text string
	// Line is the line of the declaration, 1-based; 0 when it did not come
	// from a file (quick form flags, defaults).
	Line int
}

// Cluster says how one Kafka cluster is reached.
type Cluster struct {
	// Name is the key below "clusters:".
	Name string
	// Bootstrap are the seed brokers, host:port; at least one.
	Bootstrap []string
	// ClientID is sent with each request. Default: "onceover".
	ClientID string
	// TLS is nil for a plain text connection.
	TLS *TLS
	// SASL is nil for an unauthenticated connection.
	SASL *SASL
}

// TLS is the transport security of a cluster. Files are named, not read: the
// caller reads them relative to the declaration. Of a *File and its *PEM
// twin at most one is set.
type TLS struct {
	// CAFile and CAPEM hold the certificates that sign the brokers'
	// certificates. Neither: the system's roots.
	CAFile string
	CAPEM  string
	// CertFile, KeyFile (or CertPEM, KeyPEM) are the client certificate for
	// mutual TLS. Both or neither.
	CertFile string
	CertPEM  string
	KeyFile  string
	KeyPEM   Secret
	// ServerName overrides the name that is checked against the broker's
	// certificate. Default: the host that was dialled.
	ServerName string
	// SkipVerify accepts any broker certificate. Default: false.
	SkipVerify bool
}

// SASL mechanisms that this version speaks. Others are refused by name.
const (
	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"
)

// SASL is the authentication of a cluster.
type SASL struct {
	// Mechanism is one of the Mechanism constants.
	Mechanism string
	Username  string
	Password  Secret
}

// Guarantee is what a flow promises about duplicates.
type Guarantee string

// The guarantees a flow can ask for.
const (
	// GuaranteeAuto takes the strongest that both clusters can do.
	GuaranteeAuto Guarantee = "auto"
	// GuaranteeAtLeastOnce loses nothing; a record may be there twice after
	// a failure.
	GuaranteeAtLeastOnce Guarantee = "at-least-once"
	// GuaranteeExactlyOnce has every record there once, or refuses to start.
	GuaranteeExactlyOnce Guarantee = "exactly-once"
)

// Reader is how a flow reads its source.
type Reader string

// The readers a flow can ask for.
const (
	// ReaderAuto picks share where the source has finalised share groups and
	// nothing in the flow needs order, else partition.
	ReaderAuto Reader = "auto"
	// ReaderShare reads through a share group (KIP-932). Order is not kept.
	ReaderShare Reader = "share"
	// ReaderPartition reads through a consumer group. Order is kept per
	// partition.
	ReaderPartition Reader = "partition"
)

// Ordered says whether a flow needs order per partition.
type Ordered string

// The values of Ordered.
const (
	// OrderedAuto is true where a topic of the flow is compacted.
	OrderedAuto  Ordered = "auto"
	OrderedTrue  Ordered = "true"
	OrderedFalse Ordered = "false"
)

// Start is where a flow begins in a topic that it never read before.
type Start string

// The values of Start.
const (
	StartEarliest Start = "earliest"
	StartLatest   Start = "latest"
)

// OnError is what becomes of a record that the target refuses for good.
type OnError string

// The values of OnError.
const (
	// OnErrorStop stops the partition (partition reader) or topic (share
	// reader) with its reason; the others go on.
	OnErrorStop OnError = "stop"
	// OnErrorSkip drops the record, counts and logs it, and goes on.
	OnErrorSkip OnError = "skip"
)

// Flow copies a set of topics from one source to one target. Make one with
// [NewFlow]; it is not to be changed once it was validated or [Flow.Match] was called.
type Flow struct {
	// Name matches [a-z0-9][a-z0-9-]{0,60}; group names on the source derive
	// from it.
	Name string
	// Line where the flow is declared; 0 for the quick form.
	Line int
	// From and To are cluster names. To is empty when Sink is set.
	From, To string
	// Sink replaces a target cluster; nil means Kafka.
	Sink *Sink
	// Topics selects the source topics.
	Topics Topics
	// Rename is the template of a target topic's name, with {topic} and
	// {cluster} (the From name) to be filled in, each at most once. Default:
	// "{topic}".
	Rename string
	// Guarantee, default auto.
	Guarantee Guarantee
	// Read, default auto.
	Read Reader
	// Ordered, default auto.
	Ordered Ordered
	// Start is where to begin in topics that are there when the flow first runs;
	// what appears later is read from its beginning. Default earliest.
	Start Start
	// OnError, default stop.
	OnError OnError
	// OnGap, OnRecreate and OnTargetRecreate are the ways out of what voids
	// exactly-once; default stop. A flow that copies at-least-once does not
	// look at them.
	OnGap            OnGap
	OnRecreate       OnRecreate
	OnTargetRecreate OnTargetRecreate
	// Provenance adds the header "onceover.source.cluster" with the source
	// cluster's id, and drops records that carry the target's id, so that
	// two-way mirroring under unchanged names does not loop. Default: true.
	Provenance bool
	// Lanes is the number of parallel workers in one process, each with its
	// own source member and producer. Not with a ledger: there a process runs
	// one lane for each shard that it owns. Default: 2.
	Lanes int
	// Transaction bounds the transactions of exactly-once in time.
	Transaction Transaction
	// Ledger says how the ledger of exactly-once is made.
	Ledger Ledger
	// AllowUnverified takes, for exactly-once, a target that does not verify
	// transactions (before Kafka 3.6), where a late write can leave one open
	// for ever. Default: false.
	AllowUnverified bool
	// AllowNoTopicIDs takes, for exactly-once, a source without topic ids
	// (before Kafka 2.8), where a topic that was deleted and made again can't
	// be told from the old one. Default: false.
	AllowNoTopicIDs bool
	// KIP1289 makes a flow inside one cluster exactly-once without a ledger, by
	// share acknowledgements in the transaction of the copies. Default: nil,
	// which is off.
	KIP1289 *KIP1289
	// Create says how missing target topics are made.
	Create Create
	// Limits bound memory and time.
	Limits Limits
	// Properties are the flow level settings by Kafka's names
	// (share.group.id, share.acknowledgement.mode, consumer.override.*,
	// producer.override.*). Read them through [Topology.Resolve].
	Properties map[string]Value

	matcher atomic.Pointer[matcher]
}

// Topics selects topics. An entry made only of letters, digits, ".", "_" and
// "-" is an exact name; anything else is a regular expression (RE2) that has
// to match the whole name. A topic matches when some Include does and no
// Exclude does. Internal topics never match, see [Internal].
type Topics struct {
	Include []string
	Exclude []string
}

// Create says how missing target topics are made. A topic that exists is
// never altered, apart from partitions added to match the source.
type Create struct {
	// Enabled, default true; false: a missing target topic is reported and
	// its source topic waits.
	Enabled bool
	// ReplicationFactor, default -1: the target broker's default.
	ReplicationFactor int16
}

// Limits bound what one process holds of one flow.
type Limits struct {
	// Records and Bytes bound one batch, and one transaction, of one lane; a
	// lane holds one batch being written and one prefetched. Defaults: 5000
	// records, 8 MiB.
	Records int
	Bytes   int
	// Refresh is how often topics, partitions and settings are looked at
	// again. Default: 30 s.
	Refresh time.Duration
	// Shutdown is how long a stop may take to finish what is in flight.
	// Default: 30 s.
	Shutdown time.Duration
	// Lock is the record lock duration asked of the source's share group
	// (share.record.lock.duration.ms). Default: 30 s.
	Lock time.Duration
}

// Sink is a target other than a Kafka cluster; exactly one field is set.
type Sink struct {
	// File is set for a file of JSON lines.
	File *FileSink
}

// FileSink appends JSON lines to a file and syncs it before a record is
// acknowledged.
type FileSink struct {
	// Path of the file; created when missing, appended to otherwise.
	Path string
}
