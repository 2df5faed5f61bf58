package txn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// SessionConfig is what [NewSession] takes.
type SessionConfig struct {
	// Client reaches the target. The session uses its compression
	// (ProducerBatchCompression), batch size (ProducerBatchMaxBytes) and
	// request size (BrokerMaxWriteBytes), not its producer. It should be the
	// session's alone: brokers answer the requests of a connection one by one.
	Client *kgo.Client
	// Flow by its name, and the shard of its ledger.
	Flow  string
	Shard int
	// Timeout of a transaction at the broker, see transaction.timeout.ms.
	Timeout time.Duration
	// Blocked, unless nil, is told now and then from within the other methods
	// that the target keeps the session waiting since a time, and why.
	Blocked func(since time.Time, err error)
}

// Session copies into one shard: it is the shell around step, and does what
// that says. What it writes is one transaction at a time, and a transaction
// commits only as a whole, with the positions that it reached (ledger section
// 4). One goroutine owns a session.
type Session struct {
	cfg SessionConfig
	p   *producer
	m   machine
	// due is the offset that the next ledger entry will have: nobody else writes
	// to the partition.
	due int64
	// toldAt is when Blocked was called last.
	toldAt time.Time

	// Of the transaction that is open, or was last:
	runs    MapBuilder
	last    map[SourcePartition]int64 // offset after the last copy on the target
	counts  [2]int                    // records of ledger and map that wait
	outcome Outcome
	cause   error // why it was given up, or the session ended
	records int
	bytes   int
}

// RefusedError: the target refuses a record for good. The transaction that it
// was in is aborted; the same record comes to the same end unless somebody does
// something about it.
type RefusedError struct {
	// Topic and Partition of the target.
	Topic     string
	Partition int32
	// Source and Offset say which record it is; Source is nil when the batch
	// had several records, and it is not known yet which of them is refused:
	// they come in smaller batches next time.
	Source *SourcePartition
	Offset int64
	// Err is the broker's.
	Err error
}

// Error names the place on the target and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the target refuses a record of %s[%d]: %v", e.Topic, e.Partition, e.Err)
}

// Unwrap returns the broker's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// StuckError: a partition of the target has not taken a record for as long as a
// transaction can wait, and it is the partition that says so.
type StuckError struct {
	// Topic and Partition of the target.
	Topic     string
	Partition int32
	// Err is the broker's.
	Err error
}

// Error names the place on the target and the reason.
func (e *StuckError) Error() string {
	return fmt.Sprintf("%s[%d] of the target takes nothing: %v", e.Topic, e.Partition, e.Err)
}

// Unwrap returns the broker's error.
func (e *StuckError) Unwrap() error { return e.Err }

// Errors of a session, besides those of brokers.
var (
	// ErrFenced: somebody else has used the transactional id. [Session.Own] may
	// be called again once the group has confirmed, by a heartbeat sent after
	// this error, that the shard is this process's.
	ErrFenced = errors.New("another process has taken the shard")
	// ErrMoved: an entry went to another place in the ledger partition than the
	// one behind what was read: its leader has lost something, was not the leader
	// any more when it was asked, or somebody else writes there.
	ErrMoved = errors.New("the ledger does not go on where it was read up to")
	// ErrHanging: a transaction is open that nobody can end: a person has to. The
	// text says where and how.
	ErrHanging = errors.New("a hanging transaction")
	// errGivenUp: the owner had no entries for the transaction.
	errGivenUp = errors.New("given up by its owner")
	// errStale: the answers are for another producer id than the session's.
	errStale = errors.New("the producer id has changed")
)

// NewSession makes a session. It asks nothing of the target yet.
func NewSession(cfg SessionConfig) (*Session, error) {
	p, err := newProducer(cfg.Client, ShardTxnID(cfg.Flow, cfg.Shard), cfg.Timeout,
		target{LedgerTopic(cfg.Flow), int32(cfg.Shard)}, target{MapTopic(cfg.Flow), int32(cfg.Shard)})
	if err != nil {
		return nil, err
	}
	return &Session{cfg: cfg, p: p, last: map[SourcePartition]int64{}}, nil
}

// Own makes the shard this session's: it fences whoever had it, reads the
// ledger to its end, and with that decides a transaction that was in doubt. It
// is to be called before the first transaction and after each that did not
// commit. The ledger does not follow what is committed after that.
//
// [ErrFenced]: see there. The error of ctx: call again. Any other error is for a
// person, and the session is over.
func (s *Session) Own(ctx context.Context) (*Ledger, error) {
	if s.m.state == Ready {
		// What was read at the last call may have been passed by since.
		s.on(evLost{})
	}
	if s.m.state == Fresh || s.m.state == Fenced {
		s.on(evAssigned{})
	}
	began := time.Now()
	for try := 0; ; try++ {
		if try > 0 {
			if err := wait(ctx, backoff(try, 5*time.Millisecond, time.Second)); err != nil {
				return nil, s.because(err)
			}
			s.blocked(began, s.cause)
		}
		switch s.m.state {
		case Fenced:
			return nil, s.because(ErrFenced)
		case Closed:
			return nil, s.because(nil)
		case Fencing, Unclear:
			id, err := s.p.init(ctx)
			if err != nil {
				s.failed(InitProducerID, err)
				s.on(evInitErr{s.classify(InitProducerID, err)})
				continue
			}
			s.on(evInitOK{id})
			fallthrough
		case Reading:
			l := &Ledger{}
			action, err := s.read(ctx, l)
			if err != nil {
				s.failed(ReadLedger, err)
				s.on(evReadErr{action})
				continue
			}
			s.due = l.next
			s.on(evLedgerRead{l.Positions()})
			return l, nil
		case Fresh, Ready, Open, Flushing, Ending:
			panic("txn: Own in state " + s.m.state.String())
		}
	}
}

// read reads the ledger behind the fence.
func (s *Session) read(ctx context.Context, l *Ledger) (Action, error) {
	err := l.Read(ctx, s.cfg.Client, LedgerTopic(s.cfg.Flow), int32(s.cfg.Shard))
	if err != nil {
		return s.classify(ReadLedger, err), err
	}
	open := l.Undecided()
	if len(open) == 0 {
		return 0, nil
	}
	// Either another process has set its fence between ours and the read and is
	// writing, or nobody will ever end this transaction.
	d, err := kadm.NewClient(s.cfg.Client).DescribeTransactions(ctx, s.p.txnID)
	if err == nil {
		err = d[s.p.txnID].Err
	}
	if err != nil {
		return s.classify(Inspect, err), fmt.Errorf("describe transaction %s: %w", s.p.txnID, err)
	}
	if t := d[s.p.txnID]; t.ProducerID != s.p.id.id || t.ProducerEpoch > s.p.id.epoch {
		return Yield, fmt.Errorf("producer %d epoch %d has it now: %w", t.ProducerID, t.ProducerEpoch, ErrFenced)
	}
	return Stop, s.hanging(ctx, open[0])
}

// classify is [Classify], with errors of this package.
func (s *Session) classify(r Request, err error) Action {
	switch {
	case errors.Is(err, ErrDamaged):
		return Stop
	case errors.Is(err, ErrRecreated):
		return RestartLane
	}
	return Classify(r, err)
}

// Resolved is what became of the last transaction, as far as it is known;
// after [Session.Own] that includes one that was in doubt.
func (s *Session) Resolved() Outcome { return s.outcome }

// patient is how long something may wait before the owner is told.
const patient = 5 * time.Second

// blocked tells the owner now and then that something has been waiting.
func (s *Session) blocked(since time.Time, err error) {
	if now := time.Now(); s.cfg.Blocked != nil && err != nil && now.Sub(since) >= patient && now.Sub(s.toldAt) >= patient {
		s.toldAt = now
		s.cfg.Blocked(since, err)
	}
}

// Fenced reports whether somebody else has used the transactional id, see
// [ErrFenced].
func (s *Session) Fenced() bool { return s.m.state == Fenced }

// Expect names the id that a target topic has to have from now on: copies are
// not for one that was deleted and created again, see [ErrRecreated]. All zeros
// expects nothing.
func (s *Session) Expect(topic string, id [16]byte) {
	if s.p.expect == nil {
		s.p.expect = map[string][16]byte{}
	}
	s.p.expect[topic] = id
	if t, ok := s.p.topics[topic]; ok && t.id != id {
		delete(s.p.topics, topic)
	}
}

// TxnID is the transactional id.
func (s *Session) TxnID() string { return s.p.txnID }

// ProducerID is the producer's id as of now.
func (s *Session) ProducerID() int64 { return s.p.id.id }

// Epoch is the producer's epoch as of now.
func (s *Session) Epoch() int16 { return s.p.id.epoch }

// V2 reports whether transactions are those of KIP-890, as of the last
// [Session.Own].
func (s *Session) V2() bool { return s.p.v2 }

// TargetTopicID returns the id of a target topic that was written to since the
// last [Session.Own]; all zeros where it is not known.
func (s *Session) TargetTopicID(topic string) [16]byte { return s.p.topics[topic].id }

// failed keeps the reason for what follows.
func (s *Session) failed(r Request, err error) {
	if r == Produce || r == ReadLedger { // their errors say what they are about
		s.cause = err
		return
	}
	s.cause = fmt.Errorf("%s of %s: %w", r, s.p.txnID, err)
}

// because is the error of a session that can't go on by itself.
func (s *Session) because(err error) error {
	switch {
	case s.cause == nil && err == nil:
		return errors.New("the session is closed")
	case s.cause == nil:
		return err
	case s.m.state == Fenced && !errors.Is(s.cause, ErrFenced):
		return fmt.Errorf("%w: %w", ErrFenced, s.cause)
	case err != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return fmt.Errorf("%w (last: %w)", err, s.cause)
	}
	return s.cause
}

// on takes an event to step. Of the effects, those that ask for a request are
// done by who gave the event: they follow from the state.
func (s *Session) on(ev event) {
	var todo []effect
	s.m, todo = step(s.m, ev)
	for _, e := range todo {
		switch e {
		case dropBuffered:
			s.p.drop()
		case deliverCommitted:
			s.outcome = Committed
		case deliverAborted:
			s.outcome = Aborted
		case deliverUnknown:
			s.outcome = Unknown
		case sendInit, reinit, readLedger, sendCommit, sendAbort:
		}
	}
}
