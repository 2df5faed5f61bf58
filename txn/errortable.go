package txn

import "github.com/twmb/franz-go/pkg/kerr"

// actions are those of one error code, by request. A request that the code is
// not known to answer is left out.
type actions [requests]Action

// row is what is known of one error code.
type row struct {
	actions actions
	// hint is for a person; for Stop alone.
	hint string
}

// table is the one place where broker errors get their meaning. Each row says
// which part of the broker gives the code, and why the action follows:
// coordinator = TransactionCoordinator and TransactionStateManager, verifier =
// AddPartitionsToTxnManager behind a produce request (KIP-890, from 3.6),
// leader = ReplicaManager, UnifiedLog and ProducerAppendInfo of the partition,
// share leader = SharePartitionManager and SharePartition of the drafts of KIP-1289.
//
// No EndTxn of v1 is ever repeated. The coordinator gives CONCURRENT_TRANSACTIONS,
// NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE before it has logged the commit
// and also after; and at an unchanged epoch it takes a second commit for that of
// the transaction which follows. Under v2 the bumped epoch tells the two apart:
// a repeated commit gets the first one's answer (the table in the coordinator's
// source, KIP-890).
var table = func() map[int16]row {
	t := map[int16]row{}
	for e, r := range map[*kerr.Error]row{
		// Coordinator: a log append of its own ended with a code it has no
		// mapping for; leader: any exception it did not foresee. The commit may
		// be logged. Taking this for success lost batches elsewhere.
		kerr.UnknownServerError: {actions: actions{
			InitProducerID: RestartLane, AddPartitions: RestartLane, Produce: RestartLane,
			EndTxnV1: RestartLane, EndTxnV2: RestartLane, Inspect: Retry, ReadLedger: Retry,
		}},
		// Leader: compaction or a deletion moved the log's start between
		// ListOffsets and Fetch: read again, from the fence on.
		kerr.OffsetOutOfRange: {actions: actions{ReadLedger: RestartLane}},
		// Leader (LogValidator): also how brokers before 2.4 refuse a record
		// without key on a compacted topic, so it is no mere line noise. In a
		// fetch: the ledger's own bytes are damaged.
		kerr.CorruptMessage: {actions: actions{Produce: Abort, ReadLedger: Stop}, hint: "the ledger partition is damaged on the target's disk"},
		// KafkaApis, leader: the broker's metadata lags, or the topic is gone;
		// the caller's time decides which.
		kerr.UnknownTopicOrPartition: {actions: actions{AddPartitions: Retry, Produce: Retry, Inspect: Retry, ReadLedger: Retry, StageShare: Retry}},
		// Leader: an election is under way. Sequence numbers make a repeated
		// produce harmless (KIP-98).
		kerr.LeaderNotAvailable:    {actions: actions{Produce: Retry, Inspect: Retry, ReadLedger: Retry, StageShare: Retry}},
		kerr.NotLeaderForPartition: {actions: actions{Produce: Retry, Inspect: Retry, ReadLedger: Retry, StageShare: Retry}},
		// Leader: the in-sync replicas did not follow in time; the batch may
		// be in the log, its sequence number tells (KIP-98). Coordinator: its
		// own append timed out, which it reports as COORDINATOR_NOT_AVAILABLE;
		// older ones let it through, and the commit may be logged.
		kerr.RequestTimedOut: {actions: actions{
			InitProducerID: Retry, AddPartitions: Retry, Produce: Retry,
			EndTxnV1: RestartLane, EndTxnV2: Retry, Inspect: Retry, ReadLedger: Retry, StageShare: Retry,
		}},
		kerr.BrokerNotAvailable:  {actions: actions{Produce: Retry, Inspect: Retry, ReadLedger: Retry}},
		kerr.ReplicaNotAvailable: {actions: actions{Produce: Retry, Inspect: Retry, ReadLedger: Retry}},
		// Leader: max.message.bytes, segment.bytes. Before anything is written.
		kerr.MessageTooLarge:    {actions: actions{Produce: Abort}},
		kerr.RecordListTooLarge: {actions: actions{Produce: Abort}},
		// Verifier: the coordinator did not answer it (KIP-890); the batch is
		// not in the log.
		kerr.NetworkException: {actions: actions{AddPartitions: Retry, Produce: Retry, Inspect: Retry, ReadLedger: Retry, StageShare: Retry}},
		// Coordinator: it moves, loads, or could not append to its log
		// (appendTransactionToLog maps NOT_ENOUGH_REPLICAS, a timeout and
		// UNKNOWN_TOPIC_OR_PARTITION to 15; NOT_LEADER and a storage error to
		// 16). Verifier: the same codes, before the append.
		kerr.CoordinatorLoadInProgress: {actions: coordinator},
		kerr.CoordinatorNotAvailable:   {actions: coordinator},
		kerr.NotCoordinator:            {actions: coordinator},
		// KafkaApis: not a name for a topic, or one of the broker's own.
		kerr.InvalidTopicException: {actions: actions{AddPartitions: Abort, Produce: Abort, Inspect: Stop, ReadLedger: Stop}, hint: "choose another flow name"},
		// Leader: min.insync.replicas, before (19) or after (20) the append.
		// Verifier: what the coordinator answered it, for clients of old
		// produce versions (KIP-890).
		kerr.NotEnoughReplicas:            {actions: actions{Produce: Retry}},
		kerr.NotEnoughReplicasAfterAppend: {actions: actions{Produce: Retry}},
		// KafkaApis: transactions need acks=all.
		kerr.InvalidRequiredAcks: {actions: actions{Produce: Stop}, hint: "remove producer.override.acks: a transaction needs all"},
		// KafkaApis: Write on the topic. The topic stops, not the lane; the
		// ledger itself is another matter.
		kerr.TopicAuthorizationFailed: {
			actions: actions{AddPartitions: Abort, Produce: Abort, Inspect: Stop, ReadLedger: Stop, StageShare: RestartLane},
			hint:    "grant Read, Write and Describe on the flow's ledger and map topics",
		},
		// KafkaApis: ListTransactions and DescribeProducers, and idempotence
		// before 3.0.
		kerr.ClusterAuthorizationFailed: {actions: everywhere(Stop), hint: "grant IdempotentWrite and Describe on the target cluster"},
		// Leader (LogValidator): about the records, before the append.
		kerr.InvalidTimestamp:            {actions: actions{Produce: Abort}},
		kerr.UnsupportedForMessageFormat: {actions: actions{Produce: Abort}},
		kerr.PolicyViolation:             {actions: actions{Produce: Abort}},
		kerr.UnsupportedCompressionType:  {actions: actions{Produce: Abort}},
		kerr.InvalidRecord:               {actions: actions{Produce: Abort}},
		// The connection: whatever the request was, it was not carried out.
		kerr.UnsupportedSaslMechanism: {actions: everywhere(Stop), hint: "see the sasl settings of the target cluster"},
		kerr.IllegalSaslState:         {actions: everywhere(Stop), hint: "see the sasl settings of the target cluster"},
		kerr.SaslAuthenticationFailed: {actions: everywhere(Stop), hint: "see the sasl settings of the target cluster"},
		kerr.UnsupportedVersion: {
			actions: everywhere(Stop),
			hint:    "the target brokers can't do this; guarantee: at-least-once needs no transactions, and kip1289 needs share.version 3 and transaction.version 2",
		},
		// KafkaApis, coordinator: an empty id, an epoch without an id: a fault
		// of ours that no repetition mends.
		kerr.InvalidRequest: {actions: invalid},
		// ListTransactions v2 with a pattern.
		kerr.InvalidRegularExpression: {actions: actions{Inspect: Stop}},
		// Leader: a batch before this one is missing, or the leader lost the
		// producer's state (KIP-98, KIP-360); v2 also refuses a first batch
		// whose number is not 0 (KIP-890).
		kerr.OutOfOrderSequenceNumber: {actions: actions{Produce: RestartLane}},
		// Leader: the batch is in the log, but too far back for the leader to
		// know its offset, which the map needs: no success for us.
		kerr.DuplicateSequenceNumber: {actions: actions{Produce: RestartLane}},
		// Leader and coordinator: no trace of the id, its records or the id
		// itself expired (KIP-360, transactional.id.expiration.ms). Beginning
		// again gives a new one.
		kerr.UnknownProducerID:        {actions: actions{Produce: RestartLane}},
		kerr.InvalidProducerIDMapping: {actions: transactional(RestartLane)},
		// Leader: a marker with a later epoch was written, by fencing or by a
		// timeout (47 in place of 90 since 2.7, KIP-588); coordinators before
		// that give it too. Verifier: its name for PRODUCER_FENCED.
		kerr.InvalidProducerEpoch: {actions: transactional(Yield)},
		// Coordinator: another epoch is current (KIP-98, KIP-360, KIP-890).
		kerr.ProducerFenced: {actions: transactional(Yield)},
		// Coordinator: no transaction is open, or it is ended the other way;
		// verifier: the partition is not in it (for old produce versions).
		kerr.InvalidTxnState: {actions: transactional(RestartLane)},
		// Coordinator: transaction.max.timeout.ms.
		kerr.InvalidTransactionTimeout: {actions: actions{InitProducerID: Stop}, hint: "lower transaction.timeout.ms, or raise transaction.max.timeout.ms on the target"},
		// Coordinator: the markers of the transaction before are still being
		// written, or it is being aborted by this very fence.
		kerr.ConcurrentTransactions: {actions: coordinator},
		// Coordinator: a marker from one that is none any more. Brokers alone
		// should see it (WriteTxnMarkers); should it come through, start again.
		kerr.TransactionCoordinatorFenced: {actions: transactional(RestartLane)},
		kerr.TransactionalIDAuthorizationFailed: {
			actions: everywhere(Stop),
			hint:    "grant Write and Describe on the flow's transactional ids (prefix onceover.<flow>.)",
		},
		// Group coordinator, asked by the share leader before anything is staged:
		// the member is gone, or its epoch is not the one of the last heartbeat.
		kerr.UnknownMemberID:   {actions: actions{StageShare: RestartLane}},
		kerr.GroupIDNotFound:   {actions: actions{StageShare: RestartLane}},
		kerr.FencedMemberEpoch: {actions: actions{StageShare: RestartLane}},
		kerr.StaleMemberEpoch:  {actions: actions{StageShare: RestartLane}},
		// KafkaApis: Read on the share group.
		kerr.GroupAuthorizationFailed: {actions: actions{StageShare: Stop}, hint: "grant Read on the flow's share group"},
		// Share leader: an offset is not in this member's hands any more: its
		// lock ran out, or another transaction has it.
		kerr.InvalidRecordState: {actions: actions{StageShare: RestartLane}},
		// Share leader: its view of the share partition is not the newest.
		kerr.FencedStateEpoch: {actions: actions{StageShare: RestartLane}},
		// KafkaApis: AddPartitionsToTxn is all or nothing; the code of another
		// partition in the answer says why.
		kerr.OperationNotAttempted: {actions: actions{AddPartitions: Abort}},
		// Leader: the log directory is failing over.
		kerr.KafkaStorageError: {actions: actions{Produce: Retry, Inspect: Retry, ReadLedger: Retry}},
		// Leader, KIP-320: the client's or the broker's leader epoch is old.
		kerr.FencedLeaderEpoch:  {actions: actions{Inspect: Retry, ReadLedger: Retry, StageShare: Retry}},
		kerr.UnknownLeaderEpoch: {actions: actions{Inspect: Retry, ReadLedger: Retry}},
		// Leader, KIP-207: a new leader's high watermark has not caught up. A
		// ledger read to that end would miss commits.
		kerr.OffsetNotAvailable: {actions: actions{ReadLedger: Retry}},
		// Leader, KIP-516: metadata lags, or the topic was recreated.
		kerr.UnknownTopicID:      {actions: actions{Produce: Retry, ReadLedger: Retry, StageShare: Retry}},
		kerr.InconsistentTopicID: {actions: actions{ReadLedger: Retry}},
		// KIP-227, fetch sessions: the next fetch opens a new one.
		kerr.FetchSessionIDNotFound:   {actions: actions{ReadLedger: Retry}},
		kerr.InvalidFetchSessionEpoch: {actions: actions{ReadLedger: Retry}},
		kerr.FetchSessionTopicIDError: {actions: actions{ReadLedger: Retry}},
		// DescribeTransactions: what was seen open is over and forgotten: the
		// ledger has its end.
		kerr.TransactionalIDNotFound: {actions: actions{Inspect: RestartLane}},
		// KIP-890 (KIP-1050): the transaction is lost, the id is not. Verifier:
		// the partition is not in the transaction. It says nothing about the
		// batch. On EndTxn it is one more unclear answer, on InitProducerID there
		// is nothing to abort.
		kerr.TransactionAbortable: {actions: transactional(RestartLane)},
	} {
		t[e.Code] = r
	}
	return t
}()

// coordinator are the actions for a coordinator that is busy or elsewhere.
var coordinator = actions{
	InitProducerID: Retry, AddPartitions: Retry, Produce: Retry, EndTxnV1: RestartLane, EndTxnV2: Retry, Inspect: Retry, StageShare: Retry,
}

// transactional gives a to every request of a producer.
func transactional(a Action) actions {
	return actions{InitProducerID: a, AddPartitions: a, Produce: a, EndTxnV1: a, EndTxnV2: a, StageShare: a}
}

// invalid are the actions for a request that can't be right. For a stage it may
// be one whose offsets are past what was acquired: they come again.
var invalid = func() actions {
	all := everywhere(Stop)
	all[StageShare] = RestartLane
	return all
}()

// everywhere gives a to every request.
func everywhere(a Action) actions {
	all := transactional(a)
	all[Inspect], all[ReadLedger] = a, a
	return all
}
