package txn

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ids tries WRITE on each shard's transactional id with an EndTxn from a
// producer id that no coordinator gives out: one that may write is told that
// the id is not its own, or, while the owner's transaction is being ended, that
// it should come again. DESCRIBE is needed to find the coordinator.
func (p *txnProbe) ids(ctx context.Context) error {
	if p.homeless[transactionState] {
		return nil
	}
	var denied []int
	for shard := range p.shards {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID = ShardTxnID(p.ask.Ledger.Flow, shard)
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
			denied = append(denied, shard)
		case errors.Is(err, kerr.InvalidProducerIDMapping), errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidTxnState),
			errors.Is(err, kerr.ConcurrentTransactions):
		case err == nil:
			p.found.find("the target ends a transaction for a producer that it can't know", "it is not to be trusted with exactly-once")
			return nil
		case final(err):
			p.found.find(fmt.Sprintf("the target answers EndTxn with %v", err), "exactly-once needs brokers that answer as Kafka's do")
			return nil
		default:
			return err
		}
	}
	if len(denied) > 0 {
		which := "all"
		if len(denied) < p.shards {
			which = fmt.Sprintf("%d of %d, the first %s", len(denied), p.shards, ShardTxnID(p.ask.Ledger.Flow, denied[0]))
		}
		p.found.find(fmt.Sprintf("%sWRITE and DESCRIBE on the flow's transactional ids (%s)", notPermitted, which),
			fmt.Sprintf("grant WRITE and DESCRIBE on TRANSACTIONAL_ID onceover.%s. (prefixed)", p.ask.Ledger.Flow))
	}
	return nil
}

// group tries READ on the shard group.
func (p *txnProbe) group(ctx context.Context) error {
	group := ShardGroup(p.ask.Ledger.Flow)
	if p.homeless[consumerOffsets] {
		return nil
	}
	may, err := MayJoin(ctx, p.cl, group)
	if err == nil && !may {
		p.found.find(notPermitted+"READ on group "+group, "grant READ on GROUP "+group)
	}
	if final(err) {
		p.found.find(err.Error(), "exactly-once needs brokers that answer as Kafka's do")
		return nil
	}
	return err
}

// final reports whether err is a broker's word that does not change by itself.
func final(err error) bool {
	_, answered := errors.AsType[*kerr.Error](err)
	return answered && !kerr.IsRetriable(err)
}

// MayJoin reports whether the client has READ on a group, with a heartbeat from
// a member that the group does not have. The group need not exist, and is not
// made.
func MayJoin(ctx context.Context, cl *kgo.Client, group string) (bool, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = group, 0, "probe"
	err := again(ctx, func() error {
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		return err
	})
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return false, nil
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.GroupIDNotFound),
		errors.Is(err, kerr.InconsistentGroupProtocol), errors.Is(err, kerr.RebalanceInProgress):
		return true, nil
	case err == nil:
		return true, nil
	}
	return false, fmt.Errorf("try READ on group %s: %w", group, err)
}
