package mirror

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// able is what an embedded cluster can do that plays the version, nil for the
// newest.
func able(t *testing.T, v *kversion.Versions) *txn.Capabilities {
	t.Helper()
	c, err := txn.Probe(t.Context(), testenv.Embedded(t, testenv.EmbeddedOptions{MaxVersions: v}).Client(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDecide(t *testing.T) {
	t.Parallel()
	src, dst, old := able(t, nil), able(t, nil), able(t, kversion.V2_7_0())
	const (
		auto, alo, eo    = topology.GuaranteeAuto, topology.GuaranteeAtLeastOnce, topology.GuaranteeExactlyOnce
		share, partition = topology.ReaderShare, topology.ReaderPartition
	)
	unverified := txn.Finding{Problem: "it verifies no transactions", Hint: "upgrade it"}
	noGroup := txn.Finding{Problem: "READ is not permitted", Hint: "grant it"}
	fine := &txn.TxnAbilities{Level: 2, Verified: true}
	bad := &txn.TxnAbilities{Findings: []txn.Finding{unverified}}
	worse := &txn.TxnAbilities{Findings: []txn.Finding{unverified, noGroup}}
	kept := &txn.TxnAbilities{Ledger: true, Findings: []txn.Finding{noGroup}}
	for _, tc := range []struct {
		name    string
		ask     topology.Guarantee
		read    topology.Reader
		ordered topology.Ordered
		ev      evidence
		change  func(*topology.Flow)

		guarantee topology.Guarantee
		reader    topology.Reader
		why       []string // one line
		refused   []string // problem and hint
	}{
		{
			name: "auto takes the strongest", ask: auto, ev: evidence{src: src, dst: dst, target: fine}, guarantee: eo, reader: partition,
			why: []string{"exactly-once: both clusters can do it", "transaction.version 2", "read: partition, because exactly-once through share groups is not part of this version"},
		},
		{
			name: "asked for and there", ask: eo, read: partition, ev: evidence{src: src, dst: dst, target: fine}, guarantee: eo, reader: partition,
			why: []string{"both clusters can do it", "read: partition"},
		},
		{
			name: "unverified is allowed", ask: auto, ev: evidence{src: src, dst: dst, target: &txn.TxnAbilities{}}, guarantee: eo, reader: partition,
			why: []string{"unverified transactions are allowed"},
		},
		{
			name: "auto falls and says why", ask: auto, ev: evidence{src: src, dst: dst, target: bad}, guarantee: alo, reader: share,
			why: []string{"at-least-once: it verifies no transactions; ", "nothing needs order"},
		},
		{
			name: "auto falls for two reasons", ask: auto, ordered: topology.OrderedTrue, ev: evidence{src: src, dst: dst, target: worse}, guarantee: alo, reader: partition,
			why: []string{"at-least-once: it verifies no transactions, and 1 more (see mirror plan)", "ordered: true"},
		},
		{
			name: "a ledger is not left", ask: auto, ev: evidence{src: src, dst: dst, target: kept},
			refused: []string{"has a ledger", "READ is not permitted", "grant it"},
		},
		{
			name: "a ledger is not left for read: share", ask: auto, read: share, ev: evidence{src: src, dst: dst, target: &txn.TxnAbilities{Ledger: true}},
			refused: []string{"has a ledger", "read: share is not supported by this version"},
		},
		{
			name: "read: share under auto", ask: auto, read: share, ev: evidence{src: src, dst: dst, target: fine}, guarantee: alo, reader: share,
			why: []string{"at-least-once: exactly-once with read: share is not supported by this version", "; read: share"},
		},
		{
			name: "everything at once", ask: eo, read: share, ev: evidence{src: old, dst: dst, target: worse},
			refused: []string{"for 4 reasons:\n", "\n  - exactly-once with read: share", "set read: auto", "\n  - the source east has no topic ids", "allow_no_topic_ids", "\n  - it verifies no transactions (upgrade it)", "\n  - READ is not permitted (grant it)"},
		},
		{name: "one thing", ask: eo, ev: evidence{src: src, dst: dst, target: bad}, refused: []string{"can't be had: it verifies no transactions", "upgrade it"}},
		{
			name: "old source", ask: auto, ev: evidence{src: old, dst: dst, target: fine}, guarantee: alo, reader: partition,
			why: []string{"at-least-once: the source east has no topic ids", "no share groups"},
		},
		{
			name: "old source is allowed", ask: auto, ev: evidence{src: old, dst: dst, target: fine}, guarantee: eo, reader: partition,
			change: func(f *topology.Flow) { f.AllowNoTopicIDs = true }, why: []string{"exactly-once: "},
		},
		{
			name: "another sink", ask: auto, ev: evidence{src: src}, guarantee: alo, reader: share,
			why: []string{"at-least-once: a target other than a Kafka cluster takes part in no transaction"},
		},
		{name: "another sink, asked for", ask: eo, ev: evidence{src: src}, refused: []string{"other than a Kafka cluster"}},
		{name: "at-least-once", ask: alo, ev: evidence{src: src, dst: dst}, guarantee: alo, reader: share, why: []string{"the source has share groups and nothing needs order"}},
		{
			name: "compacted", ask: alo, ev: evidence{src: src, dst: dst, compacted: []string{"c"}}, guarantee: alo, reader: partition,
			why: []string{"order is kept: compacted topics need it: c"},
		},
		{name: "compacted, read: share", ask: alo, read: share, ev: evidence{src: src, dst: dst, compacted: []string{"c"}}, refused: []string{"does not keep order", "set read: partition"}},
		{name: "one cluster", ask: auto, ev: evidence{src: src, dst: src, target: fine}, refused: []string{"two names for one cluster"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := topology.NewFlow("orders")
			f.From, f.To, f.Guarantee = "east", "west", tc.ask
			if tc.ordered != "" {
				f.Ordered = tc.ordered
			}
			if tc.change != nil {
				tc.change(f)
			}
			r := &topology.Resolved{Read: topology.ReaderAuto, Protocol: "classic"}
			if tc.read != "" {
				r.Read = tc.read
			}
			d, refusal := decide(f, r, tc.ev)
			if (refusal != nil) != (tc.refused != nil) {
				t.Fatalf("refused: %v, decided: %+v", refusal, d)
			}
			text, parts := d.why, tc.why
			if refusal != nil {
				text, parts = refusal.Problem+"\n"+refusal.Hint, tc.refused
			} else if d.guarantee != tc.guarantee || d.reader != tc.reader || strings.Contains(d.why, "\n") {
				t.Errorf("%s through %s: %q", d.guarantee, d.reader, d.why)
			}
			for _, part := range parts {
				if !strings.Contains(text, part) {
					t.Errorf("%q lacks %q", text, part)
				}
			}
		})
	}
}
