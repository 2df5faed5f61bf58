package txn

import (
	"context"
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
	transaction
	cfg SessionConfig
	// due is the offset that the next ledger entry will have: nobody else writes
	// to the partition.
	due int64

	// Of the transaction that is open, or was last:
	runs   MapBuilder
	last   map[SourcePartition]int64 // offset after the last copy on the target
	counts [2]int                    // records of ledger and map that wait
}

// NewSession makes a session. It asks nothing of the target yet.
func NewSession(cfg SessionConfig) (*Session, error) {
	p, err := newProducer(cfg.Client, ShardTxnID(cfg.Flow, cfg.Shard), cfg.Timeout,
		target{LedgerTopic(cfg.Flow), int32(cfg.Shard)}, target{MapTopic(cfg.Flow), int32(cfg.Shard)})
	if err != nil {
		return nil, err
	}
	s := &Session{cfg: cfg, last: map[SourcePartition]int64{}}
	s.transaction = transaction{p: p, tell: cfg.Blocked, written: s.place, marked: func() { s.due++ }}
	return s, nil
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

// TargetTopicID returns the id of a target topic that was written to since the
// last [Session.Own]; all zeros where it is not known.
func (s *Session) TargetTopicID(topic string) [16]byte { return s.p.topics[topic].id }
