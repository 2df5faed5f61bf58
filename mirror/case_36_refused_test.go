package mirror_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// The target has a lower limit for a record than the source.
func TestCase36Oversized(t *testing.T) {
	const size = 60_000
	refusedRecord(t, kerr.MessageTooLarge, func(r *kgo.Record) {
		r.Value = make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{36}).Read(r.Value)
	}, func(r *kgo.Record) bool { return len(r.Value) == size })
}

// The target is compacted, and a record has no key.
func TestCase37Keyless(t *testing.T) {
	refusedRecord(t, kerr.InvalidRecord,
		func(r *kgo.Record) { r.Key = nil },
		func(r *kgo.Record) bool { return r.Key == nil })
}

// The target takes no times that are too far from its own.
func TestCase38OldTimestamp(t *testing.T) {
	refusedRecord(t, kerr.InvalidTimestamp,
		func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(-240 * time.Hour).Truncate(time.Millisecond) },
		func(r *kgo.Record) bool { return time.Since(r.Timestamp) > 200*time.Hour })
}

// refusedRecord has the target refuse one record for good. on_error: stop ends its
// partition exactly there, with the offset in the reason, and goes on when the
// cause is mended; on_error: skip leaves out that record alone, with a trace in
// the ledger. Neither the neighbours nor the other partition of the lane suffer.
func refusedRecord(t *testing.T, code *kerr.Error, spoil func(*kgo.Record), spoilt func(*kgo.Record) bool) {
	t.Helper()
	for _, policy := range []topology.OnError{topology.OnErrorStop, topology.OnErrorSkip} {
		for _, at := range []int{0, 50, 99} {
			t.Run(fmt.Sprintf("%s/%d", policy, at), func(t *testing.T) {
				t.Parallel()
				inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
					w.flow.OnError, w.flow.Ledger.Shards, w.flow.Limits.Records = policy, 1, 40
					w.source.CreateTopic(w.T, "t", 2, 1, nil)
					w.target.CreateTopic(w.T, "t", 2, 1, nil)
					rs := testenv.Records("t", 2, 200, 36)
					spoil(rs[2*at]) // they are dealt out in turn
					w.source.Produce(w.T, rs...)
					refusing := w.refusing(code, spoilt)
					l := w.live()
					if policy == topology.OnErrorStop {
						w.halted(l, 0, fmt.Sprintf("t[0] stopped at offset %d", at))
						w.until(l.Process, "eo", "the other partition is complete", func(st mirror.FlowState) bool {
							return len(st.Partitions) > 1 && st.Partitions[1].Lag == 0 && !st.Looked.IsZero()
						})
						l.Stop()
						if n := len(w.target.ReadAll(w.T, "t")); n != 100+at {
							w.Errorf("%d records, want %d", n, 100+at)
						}
						refusing.Disarm()
						l = w.live()
						w.copied(l)
						w.once(l)
						return
					}
					w.copied(l)
					if n := l.Flow("eo").Skipped; n != 1 {
						w.Errorf("%d records skipped", n)
					}
					l.Stop()
					var want []*kgo.Record
					for _, r := range w.source.ReadAll(w.T, "t") {
						if r.Partition != 0 || r.Offset != int64(at) {
							want = append(want, r)
						}
					}
					testenv.AssertExactlyOnce(w.T, want, w.target.ReadAll(w.T, "t"), testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}})
					for _, row := range w.ledgerIn().Positions {
						if row.Partition == 0 && (len(row.Gaps) != 1 || row.Gaps[0].First != int64(at) || row.Gaps[0].Last != int64(at)) {
							w.Errorf("gaps %+v", row.Gaps)
						}
					}
				})
			})
		}
	}
}
