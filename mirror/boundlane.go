package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
	"github.com/onceover-mirror/onceover/txn"
	"github.com/onceover-mirror/onceover/txn/wire"
)

// boundLane copies inside one cluster through a share group, exactly once: the
// acknowledgement of each record goes into the transaction of its copy
// (KIP-1289). Nothing is remembered from one transaction to the next: what did
// not commit is handed out again by the broker.
type boundLane struct {
	name    string
	number  int32
	f       *flow
	reader  *shareReader
	session *txn.ShareSession
	chain   transform.Chain

	rulings map[spotOf]error // records that the target refuses, and why
	kept    []*batch         // of a transaction given up before anything was staged
	alone   *batch           // taken from the reader, for a transaction of its own
	held    bool             // the target keeps the session waiting, and that was said
	gotOn   bool             // a transaction committed since the last failure

	// Of the transaction that is open:
	batches []*batch
	sources map[string]string // source topic by target topic
	left    []leftOut
	staged  bool // a stage request may have been sent
}

// spotOf is one source record.
type spotOf struct {
	src    tip
	offset int64
}

// leftOut is a record that is acknowledged without a copy.
type leftOut struct {
	at     place
	offset int64
	reason string // as of [Observer.Left]
	why    error
}

// boundTimeout bounds transaction.timeout for acknowledgements inside of it: a
// worker that dies leaves its records pending and its readers waiting for that
// long, and nobody else can fence it.
const boundTimeout = 15 * time.Second

// binds reports whether acknowledgements go into transactions.
func (f *flow) binds() bool { return f.decision.binding != nil }

func (f *flow) form() wire.Form {
	return wire.Form{Key: f.decision.binding.Key, Draft: wire.Draft(f.decision.binding.Draft)}
}

// oneBoundLane is the life of one such lane: join, copy, leave.
func (f *flow) oneBoundLane(ctx, work context.Context, n int, name string) error {
	more, err := producerOpts(f.settings.Producer)
	if err != nil {
		return f.refuse(err.Error(), hintOf(err))
	}
	opts, err := f.clientOpts(f.def.To, "target")
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(append(append([]kgo.Opt{
		kgo.ProducerBatchCompression(kgo.Lz4Compression(), kgo.NoCompression()), kgo.ProducerBatchMaxBytes(defaultBatch),
		kgo.MaxVersions(txn.ShareVersions(f.form())),
	}, opts...), more...)...)
	if err != nil {
		return f.refuse(fmt.Sprintf("open target client: %v", err), "")
	}
	defer cl.Close()
	rd, err := f.newShareReader(name, f.board, f.written)
	if err != nil {
		return err
	}
	f.addReader(n, rd)
	defer f.dropReader(n)
	f.board.lanes(1)
	defer f.board.lanes(-1)
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(work), f.goodbye())
		defer cancel()
		if cerr := rd.close(bye); cerr != nil {
			f.log.Info("group not left in order; what was held comes back when the locks or the session end", "lane", name, "reason", cerr)
		}
	}()
	l := &boundLane{name: name, number: int32(n), f: f, reader: rd, chain: f.chain(), rulings: map[spotOf]error{}}
	l.session, err = txn.NewShareSession(txn.ShareSessionConfig{
		Client: cl, TxnID: txn.WorkerTxnID(f.def.Name, rd.member, n), Timeout: min(f.def.Transaction.Timeout, boundTimeout),
		Form: f.form(), Member: rd.membership,
		Blocked: func(since time.Time, err error) {
			l.held = true
			f.board.trouble(name+" target", fmt.Errorf("nothing written since %s: %w", since.Format(time.TimeOnly), err))
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(work), f.goodbye())
		defer cancel()
		l.session.Close(bye)
		f.board.trouble(name+" target", nil)
	}()
	return l.run(ctx, work)
}

// run copies until ctx ends. Work begun is finished under work. A transaction
// that did not come off is no end; an error of the reader is, and so is one of
// the session that a person has to mend.
func (l *boundLane) run(ctx, work context.Context) error {
	for try := 0; ctx.Err() == nil; {
		err := l.session.Own(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // told to end
		case errors.Is(err, txn.ErrFenced):
			l.f.board.fenced()
		case err != nil:
			return fmt.Errorf("%s: %w", side("target", l.f.def.To), err)
		default:
			l.f.board.trouble(l.name, nil)
			l.gotOn = false
			var final bool
			if final, err = l.copy(ctx, work); final || err == nil {
				return err
			}
			if l.gotOn {
				try = 0
			}
		}
		try++
		l.f.board.retried(err)
		if see := l.f.opts.Observer.Aborted; see != nil {
			see(l.f.def.Name, int(l.number), err)
		}
		l.f.log.Info("transaction given up", "lane", l.name, "reason", err)
		if try > 2 {
			l.f.board.trouble(l.name, err)
		}
		pause(ctx, backoff(try, 10*time.Millisecond, 5*time.Second))
	}
	return nil
}

// copy makes one transaction after the other until ctx ends or one of them does
// not come off. final: the error is the reader's.
func (l *boundLane) copy(ctx, work context.Context) (final bool, err error) {
	for {
		first, err := l.first(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return true, nil //nolint:nilerr // told to end
		case err != nil:
			return true, err
		}
		if err := l.transact(ctx, work, first); err != nil {
			return false, err
		}
	}
}

// first returns what the next transaction begins with.
func (l *boundLane) first(ctx context.Context) ([]*batch, error) {
	var kept []*batch
	for _, b := range l.kept {
		all := b.runsOf(func(*item) bool { return true })
		if b.holds(all, time.Now()) == nil {
			kept = append(kept, b)
		} else {
			b.giveBack(all) // what there is of it still
		}
	}
	l.kept = nil
	if len(kept) > 0 {
		if kept[0].alone {
			l.kept = kept[1:]
			return kept[:1], nil
		}
		return kept, nil
	}
	if b := l.alone; b != nil {
		l.alone = nil
		return []*batch{b}, nil
	}
	b, err := l.reader.poll(ctx)
	if err != nil {
		return nil, err
	}
	return []*batch{b}, nil
}

// transact copies what is there, and what comes while it is being sent, in one
// transaction, together with its acknowledgements.
func (l *boundLane) transact(ctx, work context.Context, first []*batch) error {
	l.batches, l.left, l.staged, l.sources = nil, nil, false, map[string]string{}
	for _, b := range first {
		l.add(b)
	}
	limits := &l.f.def.Limits
	until := time.Now().Add(l.f.def.Transaction.Interval)
	for !first[0].alone {
		if l.session.IsOpen() {
			if err := l.session.Send(work); err != nil {
				return l.given(txn.Aborted, err)
			}
		}
		records, bytes := l.size()
		if records >= limits.Records || bytes >= limits.Bytes || !time.Now().Before(until) || ctx.Err() != nil {
			break
		}
		rest := l.session.Rest()
		if rest > 0 {
			pause(ctx, rest) // what comes meanwhile is gathered by the reader
		}
		b := l.reader.next()
		if b == nil {
			if rest > 0 {
				continue
			}
			break
		}
		if b.alone {
			l.alone = b
			break
		}
		l.add(b)
	}
	return l.commit(work)
}

func (l *boundLane) size() (records, bytes int) {
	if !l.session.IsOpen() {
		return 0, 0
	}
	return l.session.Size()
}

// add decides on the records of a batch and puts their copies into the
// transaction, which begins with the first.
func (l *boundLane) add(b *batch) {
	l.batches = append(l.batches, b)
	for i := range b.items {
		it := &b.items[i]
		it.fate, it.written = fateOpen, false
		rec := it.rec
		if !l.f.copies(rec.Topic, rec.Partition) {
			continue
		}
		if err := l.ruled(it); err != nil {
			l.fail(it, err)
			continue
		}
		out, verdict, reason := l.chain.Apply(rec)
		switch verdict {
		case transform.Keep:
			if !l.session.IsOpen() {
				l.session.Begin()
			}
			l.session.Add(l.source(it), rec.Offset, out)
			l.sources[out.Topic] = rec.Topic
			it.fate, it.written = fateDone, true
		case transform.Drop:
			it.fate = fateDone
			l.left = append(l.left, leftOut{place{rec.Topic, rec.Partition}, rec.Offset, leftEcho, nil})
		case transform.Reject:
			l.fail(it, errors.New(reason))
		}
	}
}

func (l *boundLane) source(it *item) txn.SourcePartition {
	return txn.SourcePartition{Cluster: l.f.srcCap.ClusterID, TopicID: it.src.id, Partition: it.src.partition}
}

// ruled says why a record is not to be copied, nil if it is. A record that came
// so often that the group would give it up after the next time is decided on
// while it can still be given back; when it comes once more, as after a resume,
// it is tried a last time.
func (l *boundLane) ruled(it *item) error {
	if err := l.rulings[spotOf{it.src, it.rec.Offset}]; err != nil {
		return err
	}
	limit := l.reader.cfg.deliveryLimit
	if limit > 2 && it.delivery == limit-1 {
		return &hinted{
			fmt.Errorf("handed out %d times without a commit; the group gives a record up after %d", it.delivery, limit),
			"see the log for what ended those transactions",
		}
	}
	return nil
}

// fail decides on a record that can't be copied.
func (l *boundLane) fail(it *item, err error) {
	rec := it.rec
	if l.f.def.OnError == topology.OnErrorSkip {
		it.fate = fateRejected
		l.left = append(l.left, leftOut{place{rec.Topic, rec.Partition}, rec.Offset, leftSkipped, err})
		return
	}
	delete(l.rulings, spotOf{it.src, rec.Offset}) // the next time it is tried anew
	l.f.stop(rec.Topic, rec.Partition, rec.Offset, err)
}
