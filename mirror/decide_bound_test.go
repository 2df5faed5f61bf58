package mirror

import (
	"strings"
	"testing"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
	"github.com/onceover-mirror/onceover/txn/wire"
)

// TestDecideBound: what is switched on is had, or everything that is missing is
// named; nobody gets less.
func TestDecideBound(t *testing.T) {
	t.Parallel()
	plain := able(t, nil)
	speaks := wire.Form{Key: 95, Draft: wire.DraftGaps}
	bound, err := txn.Probe(t.Context(), testenv.Embedded(t, testenv.EmbeddedOptions{Share: &testenv.ShareOptions{Form: speaks}}).Client(t))
	if err != nil {
		t.Fatal(err)
	}
	const (
		auto, alo, eo    = topology.GuaranteeAuto, topology.GuaranteeAtLeastOnce, topology.GuaranteeExactlyOnce
		share, partition = topology.ReaderShare, topology.ReaderPartition
	)
	fine := &txn.TxnAbilities{Level: 2, Verified: true}
	bad := &txn.TxnAbilities{Findings: []txn.Finding{
		{Problem: "share.version 2 is finalised, KIP-1289 needs 3", Hint: "wait for it"}, {Problem: "WRITE is not permitted", Hint: "grant it"},
	}}
	one := &txn.TxnAbilities{Findings: bad.Findings[:1]}
	for _, tc := range []struct {
		name    string
		ask     topology.Guarantee
		read    topology.Reader
		ordered topology.Ordered
		ev      evidence
		change  func(*topology.Flow)
		why     string
		refused []string
	}{
		{name: "auto", ask: auto, ev: evidence{src: bound, dst: bound, target: fine}, why: "share acknowledgements inside the transaction (KIP-1289, key 95, draft 3)"},
		{name: "asked for", ask: eo, read: share, ev: evidence{src: bound, dst: bound, target: fine}, why: "share acknowledgements inside the transaction (KIP-1289, key 95, draft 3)"},
		{
			name: "another form", ask: auto, ev: evidence{src: bound, dst: bound, target: fine},
			change: func(f *topology.Flow) { f.KIP1289 = &topology.KIP1289{Key: 200, Draft: 1} },
			why:    "share acknowledgements inside the transaction (KIP-1289, key 200, draft 1)",
		},
		{name: "never less", ask: auto, ev: evidence{src: plain, dst: plain, target: one}, refused: []string{"kip1289 is set and can't be had: share.version 2 is finalised", "wait for it"}},
		{
			name: "all at once", ask: eo, ev: evidence{src: plain, dst: plain, target: bad},
			refused: []string{"for 2 reasons:\n", "\n  - share.version 2 is finalised, KIP-1289 needs 3 (wait for it)", "\n  - WRITE is not permitted (grant it)", "or remove kip1289"},
		},
		{
			name: "compacted", ask: auto, ev: evidence{src: bound, dst: bound, target: fine, compacted: []string{"c", "u"}, unread: []string{"u"}},
			refused: []string{"does not keep order: compacted topics need it: c, u", "set ordered: false"},
		},
		{
			name: "perhaps compacted", ask: auto, ev: evidence{src: bound, dst: bound, target: fine, compacted: []string{"u"}, unread: []string{"u"}},
			why: "share acknowledgements inside the transaction (KIP-1289, key 95, draft 3); without DESCRIBE_CONFIGS at the source it can't be told whether topics are compacted and need it: u",
		},
		{
			name: "compacted and accepted", ask: auto, ordered: topology.OrderedFalse, ev: evidence{src: bound, dst: bound, target: fine, compacted: []string{"c"}},
			why: "share acknowledgements inside the transaction (KIP-1289, key 95, draft 3)",
		},
		{
			name: "contradictions", ask: alo, read: partition, ordered: topology.OrderedTrue, ev: evidence{src: bound, dst: bound, target: fine},
			refused: []string{"for 3 reasons", "at-least-once contradicts", "read: partition reads through no share group", "ordered: true can't be had"},
		},
		{
			name: "two clusters", ask: auto, ev: evidence{src: bound, dst: able(t, nil), target: fine}, change: func(f *topology.Flow) { f.To = "west" },
			refused: []string{"acknowledgements at east and copies at west", "keeps a ledger"},
		},
		{
			name: "one cluster under two names", ask: auto, ev: evidence{src: bound, dst: bound, target: fine}, change: func(f *topology.Flow) { f.To = "west" },
			refused: []string{"two names for one cluster"},
		},
		{name: "another sink", ask: auto, ev: evidence{src: bound}, refused: []string{"takes part in no transaction"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := topology.NewFlow("orders")
			f.From, f.To, f.Guarantee, f.KIP1289 = "east", "east", tc.ask, topology.NewKIP1289()
			if tc.ordered != "" {
				f.Ordered = tc.ordered
			}
			if tc.change != nil {
				tc.change(f)
			}
			r := &topology.Resolved{Read: share, Protocol: "share"}
			if tc.read != "" {
				r.Read = tc.read
			}
			d, refusal := decide(f, r, tc.ev)
			switch {
			case (refusal != nil) != (tc.refused != nil):
				t.Fatalf("refused: %v, decided: %+v", refusal, d)
			case refusal != nil:
				for _, part := range tc.refused {
					if text := refusal.Problem + "\n" + refusal.Hint; !strings.Contains(text, part) {
						t.Errorf("%q lacks %q", text, part)
					}
				}
				if refusal.Hint == "" || strings.Contains(refusal.Hint, "set guarantee: at-least-once") {
					t.Errorf("hint %q", refusal.Hint)
				}
			case d.guarantee != eo || d.reader != share || d.order() != "not kept" || d.binding == nil || *d.binding != *f.KIP1289 || d.why != tc.why:
				t.Errorf("%+v, binding %+v", d, d.binding)
			}
		})
	}
}

// TestDecideUnbound: a flow inside one cluster that has it switched off is
// decided on as before, and hears of it.
func TestDecideUnbound(t *testing.T) {
	t.Parallel()
	c := able(t, nil)
	f := topology.NewFlow("orders")
	f.From, f.To = "east", "east"
	fine := &txn.TxnAbilities{Level: 2, Verified: true}
	d, refusal := decide(f, &topology.Resolved{Read: topology.ReaderAuto}, evidence{src: c, dst: c, target: fine})
	if refusal != nil || d.guarantee != topology.GuaranteeExactlyOnce || d.reader != topology.ReaderPartition || d.binding != nil || !strings.Contains(d.why, "takes kip1289") {
		t.Errorf("%+v, %v", d, refusal)
	}
	f.Guarantee = topology.GuaranteeExactlyOnce
	_, refusal = decide(f, &topology.Resolved{Read: topology.ReaderShare, Protocol: "share"}, evidence{src: c, dst: c, target: fine})
	if refusal == nil || !strings.Contains(refusal.Problem, "takes kip1289") {
		t.Errorf("%v", refusal)
	}
}

// What the declaration says of the longest transaction holds for the lane.
func TestBoundTimeout(t *testing.T) {
	t.Parallel()
	if boundTimeout != topology.MaxKIP1289Timeout {
		t.Errorf("%v, and the declaration takes %v", boundTimeout, topology.MaxKIP1289Timeout)
	}
}
