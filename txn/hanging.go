package txn

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// hanging is the error of a transaction that nobody will end, with what to do in
// each place where it hangs, as far as the target tells them, the ledger last. To
// end it in the ledger alone would have the shard go on, and the marker of its
// next transaction would then make the old copies count, too.
func (s *Session) hanging(ctx context.Context, u Undecided) error {
	const abort = "abort --topic %s --partition %d --start-offset %d"
	ledger := LedgerTopic(s.cfg.Flow)
	var all []string
	found, err := kadm.NewClient(s.cfg.Client).DescribeProducers(ctx, nil)
	for _, p := range found.SortedProducers() {
		if p.ProducerID == u.ProducerID && p.ProducerEpoch == u.Epoch && p.CurrentTxnStartOffset >= 0 && p.Topic != ledger {
			all = append(all, fmt.Sprintf(abort, p.Topic, p.Partition, p.CurrentTxnStartOffset))
		}
	}
	all = append(all, fmt.Sprintf(abort, ledger, s.cfg.Shard, u.Offset))
	more := ""
	if err != nil {
		more = fmt.Sprintf(" (it may hang elsewhere, too: describe producers: %v)", err)
	}
	return fmt.Errorf("%w of producer %d epoch %d; end it with kafka-transactions.sh --bootstrap-server ... and each of these, in this order: %s%s",
		ErrHanging, u.ProducerID, u.Epoch, strings.Join(all, "; "), more)
}
