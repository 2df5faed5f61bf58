package txn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn/wire"
)

// ShareAsk is what a flow wants of its cluster for share acknowledgements in
// transactions (KIP-1289).
type ShareAsk struct {
	// Flow by its name: the transactional ids derive from it.
	Flow string
	// Group is the share group.
	Group string
	// Timeout of a transaction.
	Timeout time.Duration
	// Form of TxnShareAcknowledge.
	Form wire.Form
}

// ProbeShare finds out everything that the cluster lacks for share
// acknowledgements in transactions, in one go: what its brokers speak and have
// finalised, their limits, and the rights to the transactional ids and the
// group. caps is what [Probe] found there. Of a ledger it says nothing. As
// [ProbeTxn] it writes nothing and fences nobody, and errors of brokers that
// pass by themselves are tried again until ctx ends, and then come back.
func ProbeShare(ctx context.Context, cl *kgo.Client, caps *Capabilities, ask ShareAsk) (*TxnAbilities, error) {
	a := &TxnAbilities{Level: caps.Features[FeatureTransaction], Verified: caps.VerifiedTransactions()}
	a.Findings = append(a.Findings, caps.ShareTransactions(ask.Form)...)
	if caps.Features[FeatureShare] > 0 && !caps.ShareGroups() {
		a.find("not every broker serves share groups (ShareFetch v1, Kafka 4.1)", "upgrade the brokers, all of them")
	}
	if !caps.Transactions() {
		return a, nil // found already, as transaction.version 0
	}
	// What is not verified is not found here: transaction.version 2 takes it.
	p := &txnProbe{
		cl: cl, homeless: map[string]bool{}, found: a,
		ask: TxnAsk{Ledger: LedgerSpec{Flow: ask.Flow, TxnTimeout: ask.Timeout}, AllowUnverified: true},
	}
	for _, part := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"read the broker's transaction limits", func(ctx context.Context) error { return p.limits(ctx, caps.nodes) }},
		{"try the right to transactional ids", p.workerID},
		{"try the right to the share group", func(ctx context.Context) error { return p.mayShare(ctx, ask.Group) }},
	} {
		if err := part.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return a, nil
}

// workerID tries WRITE on the transactional id of a worker that does not exist:
// those of workers have names that are not known beforehand, so that the right
// has to be one on a prefix. The request is that of [txnProbe.ids].
func (p *txnProbe) workerID(ctx context.Context) error {
	if p.homeless[transactionState] {
		return nil
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = WorkerTxnID(p.ask.Ledger.Flow, "probe", 0)
	req.ProducerID, req.ProducerEpoch, req.Commit = math.MaxInt64, 0, false
	err := again(ctx, func() error {
		resp, err := req.RequestWith(ctx, p.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		return err
	})
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		p.found.find(notPermitted+"WRITE and DESCRIBE on the flow's transactional ids",
			fmt.Sprintf("grant WRITE and DESCRIBE on TRANSACTIONAL_ID onceover.%s.w. (prefixed)", p.ask.Ledger.Flow))
		return nil
	case errors.Is(err, kerr.InvalidProducerIDMapping), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidTxnState):
		return nil
	case err == nil:
		p.found.find("the cluster ends a transaction for a producer that it can't know", "it is not to be trusted with exactly-once")
		return nil
	case final(err):
		p.found.find(fmt.Sprintf("the cluster answers EndTxn with %v", err), "exactly-once needs brokers that answer as Kafka's do")
		return nil
	}
	return err
}

// mayShare tries READ on the share group.
func (p *txnProbe) mayShare(ctx context.Context, group string) error {
	if p.homeless[consumerOffsets] {
		return nil
	}
	may, err := MayJoin(ctx, p.cl, group)
	switch {
	case err == nil && !may:
		p.found.find(notPermitted+"READ on group "+group, "grant READ on GROUP "+group)
	case final(err):
		p.found.find(err.Error(), "exactly-once needs brokers that answer as Kafka's do")
		return nil
	}
	return err
}
