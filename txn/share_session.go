package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/txn/wire"
)

// AckKind is what a share acknowledgement says.
type AckKind int8

// What a transaction takes (KIP-1289): records are given back, and locks renewed,
// outside of it.
const (
	// AckGap is for an offset without a record; from the third draft on.
	AckGap = AckKind(wire.Gap)
	// AckAccept is for a record that was copied, or left out on purpose.
	AckAccept = AckKind(wire.Accept)
	// AckReject is for one that is never to be handed out again.
	AckReject = AckKind(wire.Reject)
)

// ShareAck acknowledges a run of offsets of one source partition.
type ShareAck struct {
	// TopicID and Partition of the source.
	TopicID   [16]byte
	Partition int32
	// First and Last offset, both included.
	First, Last int64
	// Kind of the acknowledgement.
	Kind AckKind
}

// ShareMember is who acknowledges.
type ShareMember struct {
	// Group is the share group.
	Group string
	// ID and Epoch of the member, as the last heartbeat gave them.
	ID    string
	Epoch int32
}

// ShareSessionConfig is what [NewShareSession] takes.
type ShareSessionConfig struct {
	// Client reaches the cluster, which source and target are in. See
	// [SessionConfig]; its MaxVersions have to be [ShareVersions] or more.
	Client *kgo.Client
	// TxnID is the transactional id, one for each member of the group.
	TxnID string
	// Timeout of a transaction at the broker, see transaction.timeout.ms. Two
	// thirds of it are the time for staging.
	Timeout time.Duration
	// Form of TxnShareAcknowledge that the brokers speak.
	Form wire.Form
	// Member is asked before each round of staging. Its error gives the
	// transaction up.
	Member func() (ShareMember, error)
	// Blocked, unless nil, is told now and then from within the other methods
	// that the cluster keeps the session waiting since a time, and why.
	Blocked func(since time.Time, err error)
}

// ShareSession copies what a share group hands out, inside one cluster: copies
// and acknowledgements become final together (KIP-1289). It keeps no record of
// what is done, the group does: what did not commit is handed out again. One
// goroutine owns a session.
type ShareSession struct {
	transaction
	cfg     ShareSessionConfig
	leaders map[[16]byte]map[int32]int32 // of source partitions
}

// ShareVersions are request versions for a client that has to speak f.
func ShareVersions(f wire.Form) *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(f.Key, 0)
	return v
}

// NewShareSession makes a session. It asks nothing of the cluster yet. The error
// is about the configuration.
func NewShareSession(cfg ShareSessionConfig) (*ShareSession, error) {
	if err := cfg.Form.Valid(); err != nil {
		return nil, err
	}
	p, err := newProducer(cfg.Client, cfg.TxnID, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	return &ShareSession{
		transaction: transaction{p: p, tell: cfg.Blocked},
		cfg:         cfg, leaders: map[[16]byte]map[int32]int32{},
	}, nil
}

// errNotV2: the transactions of the cluster are those from before KIP-890, which
// take no share acknowledgements.
var errNotV2 = errors.New("the brokers have not finalised transaction.version 2, which share acknowledgements in transactions need")

// Own makes the transactional id this session's: it fences whoever had it, and
// has his open transaction aborted. It is to be called before the first
// transaction and after each that did not commit.
//
// [ErrFenced]: somebody else was faster; it may be called again. The error of
// ctx: call again. Any other error is for a person, and the session is over.
func (s *ShareSession) Own(ctx context.Context) error {
	switch s.m.state {
	case Ready:
		return nil
	case Fresh, Fenced:
		s.on(evAssigned{})
	case Fencing, Reading, Open, Flushing, Ending, Unclear, Closed:
	}
	began := time.Now()
	for try := 0; ; try++ {
		if try > 0 {
			if err := wait(ctx, backoff(try, 5*time.Millisecond, time.Second)); err != nil {
				return s.because(err)
			}
			s.blocked(began, s.cause)
		}
		switch s.m.state {
		case Fenced:
			return s.because(ErrFenced)
		case Closed:
			return s.because(nil)
		case Fencing, Unclear:
			id, err := s.p.init(ctx)
			if err != nil {
				s.failed(InitProducerID, err)
				s.on(evInitErr{s.classify(InitProducerID, err)})
				continue
			}
			s.on(evInitOK{id})
			if !s.p.v2 {
				s.cause = errNotV2
				s.on(evReadErr{Stop})
				continue
			}
			s.on(evLedgerRead{Positions{}})
			return nil
		case Fresh, Reading, Ready, Open, Flushing, Ending:
			panic("txn: Own in state " + s.m.state.String())
		}
	}
}

// Begin opens a transaction. Nothing is sent by it.
func (s *ShareSession) Begin() { s.begin(true) }

// Size is how much was added since Begin: records, and their keys, values and
// headers.
func (s *ShareSession) Size() (records, bytes int) { return s.records, s.bytes }

// Commit ends the transaction: when all copies are on the target it stages acks
// and commits. held is asked right before the first stage request is sent, and
// again when all of them are answered; its error gives the transaction up. So
// does any acknowledgement that is not staged: *[StageError]. Acks must not
// overlap, and there has to be one; copies need not be.
//
// [Committed] comes without error. [Aborted] and [Unknown] come with the reason;
// then [ShareSession.Own] is to be called. What was not final by then is handed
// out again by the group. When ctx ends before EndTxn was sent the transaction is
// aborted.
func (s *ShareSession) Commit(ctx context.Context, acks []ShareAck, held func() error) (Outcome, error) {
	if n := s.p.sealAll(); n > 0 {
		s.on(evSent{n})
	}
	s.on(evCommit{})
	if !s.flush(ctx) {
		return s.end()
	}
	plan, err := planStage(s.cfg.Form, acks)
	if err == nil {
		err = held()
	}
	if err != nil {
		s.cause = err
		s.on(evAbort{})
		s.finish(ctx, false)
		return s.end()
	}
	s.on(evSent{len(plan)})
	if action, err := s.stage(ctx, plan); err != nil {
		s.cause = err
		s.on(evFlushErr{action})
		return s.end()
	}
	s.on(evStaged{len(plan), s.p.id})
	if err := held(); err != nil {
		s.cause = err
		s.on(evAbort{})
		s.finish(ctx, false)
		return s.end()
	}
	s.on(evFlushOK{})
	s.finish(ctx, true)
	return s.end()
}

// Close ends the session: a transaction that is open, or may be, is aborted if
// that can be done at once; if not, its timeout ends it. The client stays open.
func (s *ShareSession) Close(ctx context.Context) {
	dirty := s.m.state == Fencing || s.m.state == Unclear
	s.on(evClose{})
	s.finish(ctx, false)
	s.p.drop()
	if dirty {
		// Nobody else will fence this id, and its records are held until then.
		_, _ = s.p.init(ctx) // it is as well as it can be either way
	}
}

// StagedPartition is a source partition whose acknowledgements are staged.
type StagedPartition struct {
	// TopicID and Partition of the source.
	TopicID   [16]byte
	Partition int32
}

// StageError: acknowledgements were not staged, and so the whole transaction is
// given up.
type StageError struct {
	// Partitions that were refused, each with the broker's reason: nothing of
	// them is staged. Of partitions that are not named nothing is known.
	Partitions map[StagedPartition]error
	// Err is the first reason.
	Err error
}

// Error says how many partitions were refused, and the first reason.
func (e *StageError) Error() string {
	if n := len(e.Partitions); n > 1 {
		return fmt.Sprintf("stage share acknowledgements: %d partitions refused, the first: %v", n, e.Err)
	}
	return fmt.Sprintf("stage share acknowledgements: %v", e.Err)
}

// Unwrap returns the first reason.
func (e *StageError) Unwrap() error { return e.Err }
