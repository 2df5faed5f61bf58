package mirror

import (
	"context"
	"fmt"

	"github.com/onceover-mirror/onceover/txn"
)

// LedgerAction is a change that a person makes to a ledger. Each leaves its
// trace there.
type LedgerAction string

// The actions.
const (
	// LedgerInit founds a ledger that is empty, or was lost, although there are
	// traces of earlier work.
	LedgerInit LedgerAction = "init"
	// LedgerAccept takes the declaration as it is now as that of the ledger.
	LedgerAccept LedgerAction = "accept"
	// LedgerResume ends a suspension: exactly-once goes on where the
	// at-least-once run got to.
	LedgerResume LedgerAction = "resume"
)

// LedgerFrom is where a new ledger begins.
type LedgerFrom string

// The values of LedgerFrom.
const (
	// LedgerFromCommitted is the position of the flow's group at the source, or
	// where the offset map ends if that is further; what has neither begins at
	// its earliest record.
	LedgerFromCommitted LedgerFrom = "committed"
	LedgerFromEarliest  LedgerFrom = "earliest"
	LedgerFromLatest    LedgerFrom = "latest"
)

// LedgerChange is what is to be done, see [Mirror.ChangeLedger].
type LedgerChange struct {
	// Flow by its name.
	Flow string
	// Action to be done.
	Action LedgerAction
	// From is for LedgerInit, default LedgerFromCommitted.
	From LedgerFrom
}

// LedgerPlan is what a [LedgerChange] does.
type LedgerPlan struct {
	// Steps in words, in their order; none when there is nothing to do.
	Steps []string
	// Places are the source partitions that get a position, by topic and
	// partition.
	Places []LedgerPlace
}

// LedgerPlace is the position that a source partition gets.
type LedgerPlace struct {
	// Topic and Partition at the source.
	Topic     string
	Partition int32
	// From is the next offset to copy, and Why says where it comes from.
	From int64
	Why  string
	// Reached is up to where the flow has copied before, as far as anything
	// tells, -1 when nothing does.
	Reached int64
	// Start and End are those of the source's log.
	Start, End int64

	src   txn.SourcePartition
	prior bool
}

// Meaning says what becomes of the records.
func (p LedgerPlace) Meaning() string {
	switch {
	case p.Reached >= 0 && p.From < p.Reached:
		return fmt.Sprintf("up to %d offsets are copied AGAIN", p.Reached-max(p.From, p.Start))
	case p.Reached >= 0 && p.From > p.Reached:
		return fmt.Sprintf("up to %d offsets are SKIPPED", p.From-max(p.Reached, p.Start))
	case p.Reached >= 0:
		return "goes on where it stopped"
	case p.From <= p.Start:
		return "all records are copied, those that are on the target AGAIN"
	}
	return fmt.Sprintf("up to %d offsets before are SKIPPED", p.From-p.Start)
}

// PlanLedger tells what [Mirror.ChangeLedger] would do, and changes nothing. A
// change that can't be made is a *[Refusal].
func (m *Mirror) PlanLedger(ctx context.Context, c LedgerChange) (LedgerPlan, error) {
	return m.ledgerChange(ctx, c, false)
}

// ChangeLedger makes a change to a flow's ledger and returns what was done. It
// may be called instead of Run. Each shard is changed in one transaction, which
// fences whoever copies into it; a call that ended half-way is completed by the
// next. A change that can't be made is a *[Refusal].
func (m *Mirror) ChangeLedger(ctx context.Context, c LedgerChange) (LedgerPlan, error) {
	return m.ledgerChange(ctx, c, true)
}

func (m *Mirror) ledgerChange(ctx context.Context, c LedgerChange, do bool) (LedgerPlan, error) {
	f, err := m.flow(c.Flow)
	if err != nil {
		return LedgerPlan{}, err
	}
	if !f.hasTarget() {
		return LedgerPlan{}, f.refuse("the target is no Kafka cluster: the flow has no ledger", "")
	}
	var plan LedgerPlan
	err = f.patiently(ctx, func(ctx context.Context) (err error) {
		if err := f.open(); err != nil {
			return err
		}
		if err := f.probe(ctx); err != nil {
			return err
		}
		switch c.Action {
		case LedgerInit:
			plan, err = f.initLedger(ctx, c.From, do)
		case LedgerAccept:
			plan, err = f.acceptLedger(ctx, do)
		case LedgerResume:
			plan, err = f.resumeLedger(ctx, do)
		default:
			err = fmt.Errorf("unknown ledger action %q", c.Action)
		}
		return err
	})
	return plan, f.named(err)
}

// say adds a step.
func (p *LedgerPlan) say(format string, args ...any) {
	p.Steps = append(p.Steps, fmt.Sprintf(format, args...))
}
