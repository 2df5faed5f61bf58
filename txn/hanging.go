package txn

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// EndHanging says what a person does to end a transaction that nobody will end,
// of which u is in shard's partition of the flow's ledger: the commands for each
// place where it hangs, as far as the target tells them, the ledger last. To end
// it in the ledger alone would have the shard go on, and the marker of its next
// transaction would then make the old copies count, too.
func EndHanging(ctx context.Context, cl *kgo.Client, flow string, shard int, u Undecided) string {
	const abort = "abort --topic %s --partition %d --start-offset %d"
	ledger := LedgerTopic(flow)
	var all []string
	found, err := kadm.NewClient(cl).DescribeProducers(ctx, nil)
	for _, p := range found.SortedProducers() {
		if p.ProducerID == u.ProducerID && p.ProducerEpoch == u.Epoch && p.CurrentTxnStartOffset >= 0 && p.Topic != ledger {
			all = append(all, fmt.Sprintf(abort, p.Topic, p.Partition, p.CurrentTxnStartOffset))
		}
	}
	all = append(all, fmt.Sprintf(abort, ledger, shard, u.Offset))
	more := ""
	if err != nil {
		more = fmt.Sprintf(" (it may hang elsewhere, too: describe producers: %v)", err)
	}
	return fmt.Sprintf("end it with kafka-transactions.sh --bootstrap-server ... and each of these, in this order: %s%s", strings.Join(all, "; "), more)
}

// hanging is the error of a transaction that hangs in the ledger.
func (s *Session) hanging(ctx context.Context, u Undecided) error {
	return fmt.Errorf("%w of producer %d epoch %d; %s", ErrHanging, u.ProducerID, u.Epoch, EndHanging(ctx, s.cfg.Client, s.cfg.Flow, s.cfg.Shard, u))
}
