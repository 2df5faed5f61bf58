package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/txn"
)

// prepareLedger makes or finds the ledger, and has the positions of an earlier
// at-least-once run at hand for a new one.
func (f *flow) prepareLedger(ctx context.Context) error {
	if err := f.insist(ctx, f.openLedger); err != nil {
		return err
	}
	founded := false
	look := func(ctx context.Context) (err error) {
		founded, err = f.founded(ctx)
		return err
	}
	if err := f.insist(ctx, look); err != nil {
		return err
	}
	if founded {
		return nil
	}
	return f.insist(ctx, func(ctx context.Context) error {
		n, err := consumers(ctx, f.admin(), f.settings.GroupID)
		if err != nil {
			return err
		}
		if n > 0 {
			return waitForOthers(fmt.Errorf("group %s, of an at-least-once run, has %d members", f.settings.GroupID, n))
		}
		return f.gather(ctx, &LedgerPlan{}, true)
	})
}

// openLedger makes the ledger's topics where they are missing, and checks them.
func (f *flow) openLedger(ctx context.Context) error {
	spec := f.ledgerSpec()
	have, created, err := spec.Ensure(ctx, f.dst)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return &hinted{err, fmt.Sprintf("grant CREATE, READ, WRITE and DESCRIBE on TOPIC onceover.%s. (prefixed) at the target", f.def.Name)}
	case err != nil:
		return err
	}
	f.ledger = ledgerHome{have.LedgerID, have.Shards}
	if created {
		f.log.Info("ledger created", "topic", txn.LedgerTopic(f.def.Name), "shards", have.Shards)
		return nil
	}
	return f.checkLedger(ctx)
}

// checkLedger refuses a ledger whose topics are not as they have to be. One look
// may find what a broker has not heard of yet.
func (f *flow) checkLedger(ctx context.Context) error {
	for look := 1; ; look++ {
		err := f.lookAtLedger(ctx)
		var refusal *Refusal
		if !errors.As(err, &refusal) || look == missedLooks {
			return err
		}
		if err := sleep(ctx, backoff(look, time.Second, 4*time.Second)); err != nil {
			return err
		}
	}
}

func (f *flow) lookAtLedger(ctx context.Context) error {
	found, err := f.ledgerSpec().Check(ctx, f.dst, f.ledger.shards)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return refuseAll(f.def.Name, "the ledger can't be relied on", found)
	}
	have, err := listTopics(ctx, f.dst, txn.LedgerTopic(f.def.Name))
	if err != nil {
		return fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	if id := have[txn.LedgerTopic(f.def.Name)].ID; id != f.ledger.id {
		return f.refuse(txn.LedgerTopic(f.def.Name)+" was deleted and created again while the flow ran", "see mirror ledger init")
	}
	return nil
}

// founded reports whether any partition of the ledger has an entry.
func (f *flow) founded(ctx context.Context) (bool, error) {
	ls, err := f.readLedger(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(ls, func(l *txn.Ledger) bool { return !l.Empty() }), nil
}
