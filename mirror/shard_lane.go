package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn"
)

// shardLane copies the source partitions of one shard, exactly once and in
// order: it is their only writer while it holds the fence (ledger section 4).
type shardLane struct {
	name  string
	shard int32
	f     *flow
	group *shardGroup
	chain transform.Chain

	// session and what follows belong to the lane's goroutine.
	session *txn.Session
	rd      *shardReader
	marks   map[txn.SourcePartition]txn.Mark // as committed
	parts   map[place]*shardPart             // being read
	bySrc   map[txn.SourcePartition]*shardPart
	ids     map[string][16]byte // of topics that rd was given
	rulings map[txn.SourcePartition]ruling
	holedAt time.Time  // since when a position waits to be written alone
	lookAt  time.Time  // when partitions are looked at again that could not be taken up
	cutAt   *shardPart // whose target log was seen to be cut in this transaction
	held    bool       // the target keeps the session waiting, and that was said
	faults  []arrival  // of the transaction that is open
	gotOn   bool       // a transaction committed since the ledger was read

	mu   sync.Mutex
	wake context.CancelFunc // ends the poll under way, nil between polls
	news bool               // the flow's topics have changed
}

// shardPart is a source partition that the lane reads.
type shardPart struct {
	at    place
	src   txn.SourcePartition
	route route
	// next is the position reached, committed the one that the ledger has.
	next, committed int64
	epoch           int32 // leader epoch of the record before next
	targetNext      int64 // offset after the last copy, -1 before the first

	// Of the transaction that is open:
	records, echoes int
	bytes           int64
	gaps            []txn.Entry
	stop            error // the partition ends before stopAt
	stopAt          int64
	waits           bool // its logs can not be asked for the moment
}

// ruling is what was decided on a record that can't be copied.
type ruling struct {
	offset int64
	err    error
	skip   bool
}

// run owns the shard and copies until ctx ends or the shard is lost. Work begun
// is finished under work, which outlives ctx by the shutdown limit. The error
// is for whoever starts the next lane.
func (l *shardLane) run(ctx, work context.Context) error {
	// A shard that moves to another process is not held up for as long as a stop
	// of the flow may take.
	work, cancel := context.WithCancel(work)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		pause(work, l.f.goodbye())
		cancel()
	})()
	defer l.f.board.disowned(l.shard)
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(work), l.f.goodbye())
		defer cancel()
		l.session.Close(bye)
	}()
	for try := 0; ; {
		ledger, err := l.own(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return l.f.ledgerProblem(err)
		}
		l.f.board.owned(l.shard, l.session.Resolved())
		if see := l.f.opts.Observer.Owned; see != nil {
			see(l.f.def.Name, int(l.shard), l.session.Resolved().String())
		}
		l.f.board.trouble(l.name, nil)
		l.gotOn = false
		err = l.copyFrom(ctx, work, ledger)
		if ctx.Err() != nil {
			return nil
		}
		var refusal *Refusal
		if errors.As(err, &refusal) {
			return err
		}
		if l.gotOn {
			try /= 2 // it gets on, if not without errors
		}
		try++
		l.f.board.retried(err)
		if see := l.f.opts.Observer.Aborted; see != nil {
			see(l.f.def.Name, int(l.shard), err)
		}
		l.f.log.Info("transaction given up", "lane", l.name, "outcome", l.session.Resolved(), "reason", err)
		if try > 1 {
			l.f.board.trouble(l.name, err)
		}
		pause(ctx, backoff(try, 10*time.Millisecond, 5*time.Second))
	}
}

// own makes the shard the lane's. When somebody else has used its transactional
// id, which can show at any step, the group has to confirm first that the shard is
// this process's: two that fence each other copy nothing.
func (l *shardLane) own(ctx context.Context) (*txn.Ledger, error) {
	for {
		if l.session.Fenced() {
			l.f.board.fenced()
			if err := l.group.confirmed(ctx, l.shard); err != nil {
				return nil, err
			}
		}
		ledger, err := l.session.Own(ctx)
		if !errors.Is(err, txn.ErrFenced) || ctx.Err() != nil {
			return ledger, err
		}
		l.f.board.trouble(l.name, err)
	}
}

// copyFrom copies from the positions of the ledger on, one transaction after the
// other, until ctx ends or something is not as clean as it has to be.
func (l *shardLane) copyFrom(ctx, work context.Context, ledger *txn.Ledger) error {
	l.marks = map[txn.SourcePartition]txn.Mark{}
	for _, p := range ledger.Partitions() {
		l.marks[p] = ledger.Mark(p)
	}
	l.parts, l.bySrc, l.ids = map[place]*shardPart{}, map[txn.SourcePartition]*shardPart{}, map[string][16]byte{}
	l.holedAt, l.lookAt, l.faults = time.Time{}, time.Time{}, nil
	var err error
	if l.rd, err = l.f.newShardReader(l.name); err != nil {
		return err
	}
	defer func() { l.rd.close() }()
	l.renew()
	if err := l.f.judgeLedger(ctx, l.shard, ledger); err != nil {
		return err
	}
	founding := ledger.Flow() == nil
	for ctx.Err() == nil {
		if l.renewed() || founding || !l.lookAt.IsZero() && !time.Now().Before(l.lookAt) {
			l.lookAt = time.Time{}
			if err := l.place(ctx, work, founding); err != nil {
				return err
			}
			founding = false
		}
		got := l.await(ctx)
		if len(got) == 0 && !l.holesDue() {
			continue
		}
		if err := l.transact(ctx, work, got); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// transact copies what is there, and what comes while it is being sent, in one
// transaction: at once when there is little, in large ones when there is much.
func (l *shardLane) transact(ctx, work context.Context, got []arrival) error {
	limits := &l.f.def.Limits
	until := time.Now().Add(l.f.def.Transaction.Interval)
	var bad error
	for {
		l.take(got)
		if l.session.IsOpen() {
			if bad = l.session.Send(work); bad != nil {
				l.f.board.ended(l.shard, txn.Aborted)
				break
			}
		}
		records, bytes, mapBytes := l.session.Size()
		if !l.session.IsOpen() {
			records, bytes, mapBytes = 0, 0, 0
		}
		if records >= limits.Records || bytes >= limits.Bytes || mapBytes >= maxMapBytes || !time.Now().Before(until) || ctx.Err() != nil {
			break
		}
		rest := l.session.Rest()
		if rest > 0 {
			pause(ctx, rest) // what comes meanwhile is gathered by the client
		}
		got = l.rd.poll(nil, limits.Records-records) //nolint:staticcheck // nil: do not wait
		if len(got) == 0 && rest == 0 {
			if !l.rd.more() {
				break
			}
			// What the source has is as good as at hand.
			more, cancel := context.WithDeadline(ctx, until)
			got = l.rd.poll(more, limits.Records-records)
			cancel()
		}
	}
	if bad == nil && (l.session.IsOpen() || l.movedOn() && (l.holesDue() || l.mustWrite())) {
		bad = l.commit(work)
	}
	if bad != nil {
		return l.given(bad)
	}
	l.settle()
	return l.face(ctx, work)
}

// maxMapBytes is how much of the offset map one transaction may hold (ledger
// section 7).
const maxMapBytes = 1 << 20

// commit ends the transaction with the positions that it reached.
func (l *shardLane) commit(work context.Context) error {
	if !l.session.IsOpen() {
		l.session.Begin()
	}
	records, _, _ := l.session.Size()
	began := time.Now()
	outcome, err := l.session.Commit(work, l.entries)
	l.f.board.ended(l.shard, outcome)
	if outcome != txn.Committed {
		return fmt.Errorf("commit (outcome %v): %w", outcome, err)
	}
	l.gotOn = true
	if l.held {
		l.held = false
		l.f.board.trouble(l.name+" target", nil)
	}
	if see := l.f.opts.Observer.Committed; see != nil {
		see(l.f.def.Name, int(l.shard), records, time.Since(began))
	}
	return nil
}

// given decides on the reason for which a transaction was given up.
func (l *shardLane) given(err error) error {
	var refused *txn.RefusedError
	var stuck *txn.StuckError
	if errors.As(err, &stuck) {
		for _, p := range l.parts {
			if p.route.target == stuck.Topic {
				l.f.block(p.at.topic, &topicError{Topic: stuck.Topic, Err: stuck.Err, Hint: topicHint(stuck.Err)})
				break
			}
		}
	}
	if p := l.cutAt; p != nil {
		l.cutAt = nil
		l.f.void(p.at, p.committed, &void{
			fmt.Sprintf("the target's log was cut: a copy went to a place before offset %d of %s[%d], up to which it had copies", p.targetNext, p.route.target, p.at.partition),
			cutHint,
		})
	}
	if errors.Is(err, txn.ErrRecreated) {
		l.f.refreshSoon() // the topic's id is to be looked at
	}
	if !errors.As(err, &refused) {
		return err
	}
	for _, p := range l.parts {
		if p.route.target != refused.Topic || p.at.partition != refused.Partition {
			continue
		}
		switch {
		case classify(refused.Err) == verdictTopic:
			l.f.block(p.at.topic, &topicError{Topic: refused.Topic, Err: refused.Err, Hint: topicHint(refused.Err)})
		case classify(refused.Err) == verdictRecord && refused.Source != nil && *refused.Source == p.src:
			l.rule(p, refused.Offset, refusedRecord(refused.Err))
		}
	}
	return err
}

// await waits for records, for news of the flow's topics, or until a position
// has to be written alone.
func (l *shardLane) await(ctx context.Context) []arrival {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if until := l.nextDuty(); !until.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, until)
		defer stop()
	}
	l.mu.Lock()
	if l.news {
		cancel()
	}
	l.wake = cancel
	l.mu.Unlock()
	got := l.rd.poll(ctx, l.f.def.Limits.Records)
	l.mu.Lock()
	l.wake = nil
	l.mu.Unlock()
	return got
}

// nextDuty is when the lane has something to do without a record, zero for never.
func (l *shardLane) nextDuty() time.Time {
	at := l.lookAt
	if !l.holedAt.IsZero() {
		if due := l.holedAt.Add(holes); at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at
}

// renew has the lane look at the flow's topics again. It does not block, and may
// be called from another goroutine.
func (l *shardLane) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news = true
	if l.wake != nil {
		l.wake()
	}
}

func (l *shardLane) renewed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.news
	l.news = false
	return was
}
