package mirror

import "time"

// State is a snapshot of a running mirror, see [Mirror.State], and the JSON of
// the status page. Times are UTC, lags are in records and seconds.
type State struct {
	// Started is when Run was called.
	Started time.Time   `json:"started"`
	Flows   []FlowState `json:"flows"`
}

// FlowPhase is what a flow is doing.
type FlowPhase string

// The phases of a flow.
const (
	// FlowStarting: clusters are being examined, nothing is copied yet.
	FlowStarting FlowPhase = "starting"
	// FlowRunning: lanes are reading. Single topics or partitions may be
	// stopped all the same.
	FlowRunning FlowPhase = "running"
	// FlowWaiting: no topic matches, or the target can't be reached; tried
	// again at each refresh.
	FlowWaiting FlowPhase = "waiting"
	// FlowStopping: what is in flight is being finished.
	FlowStopping FlowPhase = "stopping"
	// FlowStopped: the flow ended, by request or with Reason.
	FlowStopped FlowPhase = "stopped"
	// FlowObserved: read from the clusters by [Mirror.Status]; whether a
	// process runs the flow is not known. Reason says what keeps it from being
	// copied, or from being examined.
	FlowObserved FlowPhase = "observed"
)

// FlowState is the state of one flow.
type FlowState struct {
	// Name, From and To are as declared; To names the file of a file sink.
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
	// Phase is what the flow is doing.
	Phase FlowPhase `json:"phase"`
	// Reason and Hint say why a flow waits or stopped, empty otherwise.
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
	// Guarantee, Reader, Order are what was decided, empty before that.
	Guarantee string `json:"guarantee"`
	Reader    string `json:"reader"`
	// Order is "per partition" or "not kept".
	Order string `json:"order"`
	// Why explains Reader and Guarantee in one line.
	Why string `json:"why"`
	// Lanes that are reading at the moment.
	Lanes int `json:"lanes"`
	// Shards is what there is to say of an exactly-once flow; nil for any other,
	// and before it is decided.
	Shards *ShardState `json:"shards,omitempty"`
	// Records and Bytes (keys and values) written to the target and Skipped
	// and Echoed (own records come back) left out, since Started.
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	Skipped int64 `json:"skipped"`
	Echoed  int64 `json:"echoed"`
	// RefusedAcks counts records whose acknowledgement the source refused;
	// they come again.
	RefusedAcks int64 `json:"refused_acks"`
	// Retries counts puts that were tried again.
	Retries int64 `json:"retries"`
	// Recovered counts records that the source's share group gave up on (their
	// delivery limit was reached) and that were copied by offset.
	Recovered int64 `json:"recovered"`
	// Lost counts source offsets that went (retention, DeleteRecords) before
	// they were copied.
	Lost int64 `json:"lost"`
	// Looked is when the positions at the source were last read, zero before
	// the first time.
	Looked time.Time `json:"looked,omitzero"`
	// Troubles are errors that last, the oldest first.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Topics that match but are not copied, with reasons.
	Topics []TopicState `json:"topics"`
	// Partitions that are copied or stopped, sorted by topic and partition.
	Partitions []PartitionState `json:"partitions"`
}

// ShardState says which shards of an exactly-once flow this process copies, and
// what became of the transactions that it copied in, since Started.
type ShardState struct {
	// Total is how many shards the ledger has, 0 before that is known.
	Total int `json:"total"`
	// Owned are those that this process has fenced and copies, sorted.
	Owned []int `json:"owned"`
	// Committed and Aborted count transactions, each once what became of it is
	// known.
	Committed int64 `json:"committed"`
	Aborted   int64 `json:"aborted"`
	// InDoubt counts those whose commit was left without a clear answer.
	// Resolved are those of them that the ledger has decided since; they count
	// as committed or aborted, too.
	InDoubt  int64 `json:"in_doubt"`
	Resolved int64 `json:"resolved"`
	// Fenced counts the times that another process took a shard from this one
	// without the group's doing, or that the target gave a transaction up for
	// taking too long: they can't be told apart.
	Fenced int64 `json:"fenced"`
	// LastCommit is when the flow, in whatever process, last moved a position,
	// zero before the first time.
	LastCommit time.Time `json:"last_commit,omitzero"`
}

// Trouble is what keeps a part of a flow from working for the time being.
type Trouble struct {
	// Where: "lag" (reading positions), "refresh" (looking for topics),
	// "recovery" (copying what the share group gave up on), or a lane's name
	// with what of it is concerned.
	Where  string `json:"where"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	// Since is when it began; it lasts although Reason may have changed.
	Since time.Time `json:"since"`
}

// TopicState says of one matching source topic whether it is copied.
type TopicState struct {
	// Topic at the source, and Target that it is copied to.
	Topic  string `json:"topic"`
	Target string `json:"target"`
	// Ready: the target topic exists with enough partitions and both sides
	// permit the copy.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// PartitionPhase is what becomes of one source partition.
type PartitionPhase string

// The phases of a partition.
const (
	// PartitionIdle: everything that can be read is copied.
	PartitionIdle PartitionPhase = "idle"
	// PartitionCopying: there is lag, and it moves.
	PartitionCopying PartitionPhase = "copying"
	// PartitionStalled: there is lag and nothing moved for [StallAfter].
	PartitionStalled PartitionPhase = "stalled"
	// PartitionLagging: there is lag; whether it moves is not known
	// ([Mirror.Status]).
	PartitionLagging PartitionPhase = "lagging"
	// PartitionWaiting: everything that can be read is copied, and a transaction
	// that is open at the source holds back what comes behind it. Nothing is
	// wrong with the flow; it goes on by itself. Reason says whose transaction it
	// is.
	PartitionWaiting PartitionPhase = "waiting"
	// PartitionStopped: stopped for good by an error; a person decides.
	PartitionStopped PartitionPhase = "stopped"
)

// StallAfter is how long a partition may have lag without progress before it
// counts as stalled and the process as unhealthy.
const StallAfter = 45 * time.Second

// PartitionState is the state of one source partition as this process sees it.
type PartitionState struct {
	// Topic and Partition at the source; Target is the target's topic.
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Target    string `json:"target"`
	// Phase, with reason and hint when it is stalled, waiting or stopped.
	Phase  PartitionPhase `json:"phase"`
	Reason string         `json:"reason,omitempty"`
	Hint   string         `json:"hint,omitempty"`
	// Since is when Phase began.
	Since time.Time `json:"since"`
	// Records and Bytes copied by this process since it started.
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// Lag is the number of records not yet acknowledged by the whole flow
	// (all processes), -1 while unknown.
	Lag int64 `json:"lag"`
	// LagSeconds is the age of the oldest record not yet acknowledged, by its
	// timestamp; 0 without lag, -1 while unknown.
	LagSeconds float64 `json:"lag_seconds"`
	// Unstable is the number of offsets behind EndOffset: what can't be read yet,
	// because a transaction that is open at the source comes before it. It is not
	// part of Lag. -1 while unknown.
	Unstable int64 `json:"unstable"`
	// EndOffset is the source's last stable offset at the last look: the end of
	// what can be read.
	EndOffset int64 `json:"end_offset"`
}

// Health is the verdict on a [State] at a time.
type Health struct {
	// OK: each flow runs and can see its source, and each partition with lag
	// moves.
	OK bool `json:"ok"`
	// Problems, one line each, with the place in front. Empty when OK.
	Problems []string `json:"problems"`
	// Remarks, in the same form, are of what waits for somebody else: nothing
	// that a restart of the process would change. They leave OK as it is.
	Remarks []string `json:"remarks,omitempty"`
}
