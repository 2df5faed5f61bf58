package robust

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/onceover-mirror/onceover/txn"
)

// A broker that was killed may come back with a transaction that nobody can
// end. While it starts, its coordinator has the decision of the log and not yet
// the leaders of the partitions; it takes those for deleted, skips their markers
// ("Couldn't find leader endpoint for partitions ... likely deleted already") and
// notes the transaction as complete. Seen on 4.4.0 with one node. The mirror
// stops the shard then and says so; a person has to end the transaction.
var hanging = regexp.MustCompile(`a hanging transaction of producer (\d+) epoch (\d+)`)

// recoveredByHand is recovered, and does what a person does about transactions
// that hang meanwhile.
func (c *campaign) recoveredByHand(how string, r *recovery) {
	c.t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		select {
		case <-r.done:
			c.recovered(how, r)
			return
		case <-tick.C:
		}
		for _, p := range c.procs {
			s, err := p.state(c.t.Context())
			if err != nil {
				continue // it is asked again
			}
			for _, trouble := range s.Troubles {
				if m := hanging.FindStringSubmatch(trouble.Reason); m != nil {
					id, _ := strconv.ParseInt(m[1], 10, 64)    // digits
					epoch, _ := strconv.ParseInt(m[2], 10, 16) // digits
					c.endHanging(id, int16(epoch), trouble.Reason)
				}
			}
		}
	}
	c.t.Fatalf("%s: no new record of partitions %v within %v", how, slices.Sorted(maps.Keys(r.left)), patience)
}

// endHanging aborts a transaction in every partition in which it hangs, as
// kafka-transactions.sh does; each has to be named by what the mirror said.
func (c *campaign) endHanging(id int64, epoch int16, said string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	adm := kadm.NewClient(c.targetClient)
	var where kadm.TopicsSet
	for p := range c.partitions {
		where.Add(c.topic, p)
	}
	for k := range int32(c.flow.Ledger.Shards) {
		where.Add(txn.LedgerTopic(c.flow.Name), k)
		where.Add(txn.MapTopic(c.flow.Name), k)
	}
	found, err := adm.DescribeProducers(ctx, where)
	if err != nil {
		c.t.Fatalf("describe producers: %v", err)
	}
	for _, p := range found.SortedProducers() {
		if p.ProducerID != id || p.ProducerEpoch != epoch || p.CurrentTxnStartOffset < 0 {
			continue
		}
		if at := fmt.Sprintf("--topic %s --partition %d --start-offset %d", p.Topic, p.Partition, p.CurrentTxnStartOffset); !strings.Contains(said, at) {
			c.t.Errorf("a transaction hangs at %s, and all that is said is: %s", at, said)
		}
		m := kadm.TxnMarkers{ProducerID: id, ProducerEpoch: epoch, CoordinatorEpoch: max(0, p.CoordinatorEpoch)}
		m.Topics.Add(p.Topic, p.Partition)
		rs, err := adm.WriteTxnMarkers(ctx, m)
		for _, r := range rs.SortedPartitions() {
			if err == nil {
				err = r.Err
			}
		}
		if err != nil {
			c.t.Fatalf("end a hanging transaction in %s[%d]: %v", p.Topic, p.Partition, err)
		}
		c.history.fire(faultHanging, "of producer %d epoch %d in %s[%d] from offset %d, aborted by hand", id, epoch, p.Topic, p.Partition, p.CurrentTxnStartOffset)
	}
}
