package testenv

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/share"
)

// openTxn is a transactional id, as far as the front has to know: kfake decides
// what is valid, the front settles what is staged, and ends what lasts too long,
// since kfake's own clock could abort what the front has settled.
type openTxn struct {
	id string

	// mu is held while a request of it that others must not overtake is handled:
	// a stage, EndTxn, InitProducerId, the end by the clock.
	mu      sync.Mutex
	pid     int64
	epoch   int16
	timeout time.Duration
	timer   *time.Timer // runs while a transaction is open
	staged  bool        // kfake was told of the hidden partition
	late    time.Duration
	marked  time.Time // when the markers of the transaction before are written
}

// longestTxn is kfake's transaction.max.timeout.ms.
const longestTxn = 15 * time.Minute

// hiddenTopic has the partition that makes kfake know of a transaction in which
// nothing is produced. Brokers keep share group state under that name.
const hiddenTopic = "__share_group_state"

func (b *shareBroker) txn(id string) *openTxn {
	b.txnMu.Lock()
	defer b.txnMu.Unlock()
	t := b.txns[id]
	if t == nil {
		t = &openTxn{id: id, timeout: longestTxn}
		b.txns[id] = t
	}
	return t
}

// stop ends the clock.
func (t *openTxn) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended()
}

// ended: no transaction is open. t.mu is held.
func (t *openTxn) ended() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	t.staged = false
}

// begun: a transaction is open, and its clock runs. t.mu is held.
func (b *shareBroker) begun(t *openTxn) {
	if t.timer == nil {
		pid, epoch := t.pid, t.epoch
		t.timer = time.AfterFunc(t.timeout, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.timer != nil && t.pid == pid && t.epoch == epoch {
				_ = b.abort(t) // the client finds out
			}
		})
	}
}

func (b *shareBroker) initProducerID(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.InitProducerIDRequest)
	if req.TransactionalID == nil || *req.TransactionalID == "" {
		return next()
	}
	t := b.txn(*req.TransactionalID)
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := time.Duration(req.TransactionTimeoutMillis) * time.Millisecond
	if asked > 0 && asked < longestTxn {
		long := *req
		long.TransactionTimeoutMillis = int32(longestTxn.Milliseconds())
		x.setRequest(&long)
	}
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.InitProducerIDResponse)
	if resp.ErrorCode != 0 {
		return nil
	}
	b.settle(t, share.Txn{ID: t.pid, Epoch: t.epoch}, false)
	t.ended()
	t.pid, t.epoch, t.timeout = resp.ProducerID, resp.ProducerEpoch, asked
	b.wake()
	return nil
}

// produce starts the clock of a transaction, and wakes those who wait for
// records.
func (b *shareBroker) produce(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.ProduceRequest)
	if err := next(); err != nil {
		return err
	}
	if req.TransactionID != nil {
		t := b.txn(*req.TransactionID)
		t.mu.Lock()
		b.begun(t)
		t.mu.Unlock()
		return nil // nobody sees it yet
	}
	b.wake()
	return nil
}

func (b *shareBroker) addPartitions(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	if err := next(); err != nil {
		return err
	}
	if id := kreq.(*kmsg.AddPartitionsToTxnRequest).TransactionalID; id != "" {
		t := b.txn(id)
		t.mu.Lock()
		defer t.mu.Unlock()
		b.begun(t)
	}
	return nil
}

func (b *shareBroker) addOffsets(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	if err := next(); err != nil {
		return err
	}
	t := b.txn(kreq.(*kmsg.AddOffsetsToTxnRequest).TransactionalID)
	t.mu.Lock()
	defer t.mu.Unlock()
	b.begun(t)
	return nil
}

func (b *shareBroker) endTxn(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.EndTxnRequest)
	t := b.txn(req.TransactionalID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.EndTxnResponse)
	if resp.ErrorCode != 0 {
		return nil
	}
	t.ended()
	if resp.Version >= 5 && resp.ProducerID >= 0 {
		t.pid, t.epoch = resp.ProducerID, resp.ProducerEpoch
	}
	staged := share.Txn{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	if late := t.late; late > 0 {
		t.late = 0
		t.marked = time.Now().Add(late)
		time.AfterFunc(late, func() {
			b.settle(t, staged, req.Commit)
			b.wake()
		})
		return nil
	}
	b.settle(t, staged, req.Commit)
	b.wake()
	return nil
}

// settle ends what a transaction has pending in every group.
func (b *shareBroker) settle(_ *openTxn, staged share.Txn, commit bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.groups {
		c := b.config(g)
		for at, p := range g.parts {
			if p.Settle(c, staged, commit) && b.o.Defects.ReloadOnPending {
				g.parts[at] = share.Restore(p.Snapshot())
			}
		}
	}
}

// abort is the coordinator's abort of an open transaction: its producer is fenced
// by it. t.mu is held.
func (b *shareBroker) abort(t *openTxn) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = t.id, t.pid, t.epoch
	kresp, err := b.ask(b.fake().CoordinatorFor(t.id), req)
	if err != nil {
		return fmt.Errorf("abort transaction %s: %w", t.id, err)
	}
	resp := kresp.(*kmsg.EndTxnResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("abort transaction %s: %w", t.id, err)
	}
	staged := share.Txn{ID: t.pid, Epoch: t.epoch}
	t.ended()
	t.pid, t.epoch = resp.ProducerID, resp.ProducerEpoch
	b.settle(t, staged, false)
	b.wake()
	return nil
}

// EndTransaction aborts what is open under a transactional id, as the coordinator
// does when it has lasted too long. It panics unless the cluster has
// [EmbeddedOptions.Share].
func (f *Front) EndTransaction(txnID string) error {
	b := f.mustShare()
	t := b.txn(txnID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return fmt.Errorf("transaction %s is not open", txnID)
	}
	return b.abort(t)
}

// DelayMarkers has the markers of the next end of a transaction come so much
// later than its answer; until then the next one of that id meets
// CONCURRENT_TRANSACTIONS where it stages. It panics unless the cluster has
// [EmbeddedOptions.Share].
func (f *Front) DelayMarkers(txnID string, d time.Duration) {
	t := f.mustShare().txn(txnID)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = d
}
