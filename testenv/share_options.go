package testenv

import (
	"time"

	"github.com/onceover-mirror/onceover/txn/wire"
)

// ShareOptions have the front of an embedded cluster own its share groups. They
// behave as those of Kafka 4.4 do, where kfake's differ, and know transactional
// acknowledgements (KIP-1289) if there is a Form. A fault or a recorder may name
// the key of the Form; its requests are *wire.Request.
type ShareOptions struct {
	// Form of TxnShareAcknowledge. The zero Form is a broker that does not speak
	// it, with share.version 2, as Kafka 4.4.
	Form wire.Form
	// Unfinalised is a broker that lists the key of the Form while share.version
	// is still 2.
	Unfinalised bool
	// Lock is group.share.record.lock.duration.ms, default 30 s. A group's own
	// share.record.lock.duration.ms goes before it.
	Lock time.Duration
	// SessionTimeout and Heartbeat are those of members, default 45 s and 5 s.
	SessionTimeout, Heartbeat time.Duration
	// Deliveries is group.share.delivery.count.limit, default 5. A group's own
	// share.delivery.count.limit goes before it.
	Deliveries int16
	// MaxLocks is group.share.partition.max.record.locks, default 2000. A group's
	// own share.partition.max.record.locks goes before it.
	MaxLocks int
	// Defects of the KIP's drafts, default none.
	Defects ShareDefects
}

// ShareDefects are things that the drafts of KIP-1289 get wrong, or leave open.
type ShareDefects struct {
	// BelowStartOK answers a stage below the start offset with success.
	BelowStartOK bool
	// ReloadOnPending has a leader forget what members have acquired of a
	// partition when a transaction that has something pending in it ends.
	ReloadOnPending bool
	// LateStage does not ask whether the transaction is still open: a stage that
	// was on its way while it ended stays pending for ever.
	LateStage bool
	// ArchiveOnAbort archives a record at its delivery limit when its
	// transaction aborts.
	ArchiveOnAbort bool
}

func (o ShareOptions) filled() ShareOptions {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&o.Lock, 30*time.Second)
	def(&o.SessionTimeout, 45*time.Second)
	def(&o.Heartbeat, 5*time.Second)
	if o.Deliveries == 0 {
		o.Deliveries = 5
	}
	if o.MaxLocks == 0 {
		o.MaxLocks = 2000
	}
	return o
}

// transactional reports whether acknowledgements in transactions are taken.
func (o *ShareOptions) transactional() bool { return o.Form.Key != 0 && !o.Unfinalised }
