package mirror_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
	"github.com/onceover-mirror/onceover/txn/wire"
)

// bind switches KIP-1289 on in a flow inside the source cluster.
func bind(f *topology.Flow) *topology.Flow {
	f.To, f.Rename, f.Guarantee, f.KIP1289 = f.From, "copy.{topic}", topology.GuaranteeAuto, topology.NewKIP1289()
	return f
}

// oneCluster is a world of one embedded cluster.
func oneCluster(t *testing.T, o testenv.EmbeddedOptions) *world {
	t.Parallel()
	c := testenv.Embedded(t, o)
	return &world{t, c, c}
}

var speaks = &testenv.ShareOptions{Form: wire.Form{Key: 95, Draft: wire.DraftGaps}}

// A plan names the reader, the guarantee and what makes it so, and makes nothing;
// of a ledger there is nothing to make.
func TestPlanBound(t *testing.T) {
	w := oneCluster(t, testenv.EmbeddedOptions{Share: speaks})
	w.source.CreateTopic(t, "b-one", 3, 1, nil)
	f := bind(w.flow("bound", "b-.*"))
	before := inventory(t, w.source)
	p := w.plan(f)
	if after := inventory(t, w.source); after != before {
		t.Errorf("the plan changed the cluster from %s to %s", before, after)
	}
	fp := p.Flows[0]
	if fp.Guarantee != "exactly-once" || fp.Reader != "share" || fp.Order != "not kept" || fp.Why != "share acknowledgements inside the transaction (KIP-1289, key 95, draft 3)" || fp.Reason != "" {
		t.Errorf("%+v", fp)
	}
	if p.Blocked() != 0 || len(fp.Changes) != 2 {
		t.Errorf("%d blocked, changes %+v", p.Blocked(), fp.Changes)
	}
	if c := change(p, "create topic", "copy.b-one"); c == nil || c.Partitions != 3 {
		t.Errorf("changes %+v", fp.Changes)
	}
	if c := change(p, "set group configs", "onceover.bound"); c == nil || c.Configs["share.isolation.level"] != "read_committed" {
		t.Errorf("changes %+v", fp.Changes)
	}
	var groups []string
	for _, g := range fp.Groups {
		groups = append(groups, g.Name)
	}
	if !slices.Equal(groups, []string{"onceover.bound", "onceover.bound.stops"}) {
		t.Errorf("groups %+v", fp.Groups)
	}
	if !slices.ContainsFunc(fp.Notes, func(n string) bool { return says(n, "read_committed") }) {
		t.Errorf("notes %q", fp.Notes)
	}
	// What is compacted needs order, and is not given up for it.
	w.source.CreateTopic(t, "b-compacted", 1, 1, map[string]*string{"cleanup.policy": kmsg.StringPtr("compact")})
	if p := w.plan(f); !says(p.Flows[0].Reason, "kip1289", "does not keep order", "b-compacted") {
		t.Errorf("%+v", p.Flows[0])
	}
}

// Where it is not spoken, or not finalised, or in another form, the flow is
// refused by plan and run alike, whatever the guarantee: nothing is copied.
func TestPlanBoundRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		share *testenv.ShareOptions
		words []string
		not   string
	}{
		{"share groups as they are", nil, []string{"share.version 2 is finalised, KIP-1289 needs 3", "not every broker lists request 95"}, "transaction.version"},
		{"as Kafka 4.4", &testenv.ShareOptions{}, []string{"share.version 2 is finalised, KIP-1289 needs 3", "not every broker lists request 95"}, "transaction.version"},
		// The key alone means nothing: others have had it.
		{"listed and not finalised", &testenv.ShareOptions{Form: speaks.Form, Unfinalised: true}, []string{"share.version 2 is finalised, KIP-1289 needs 3", "no released Kafka has it"}, "lists request"},
		{"another key", &testenv.ShareOptions{Form: wire.Form{Key: 93, Draft: wire.DraftType}}, []string{"not every broker lists request 95", "kip1289.key"}, "share.version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := oneCluster(t, testenv.EmbeddedOptions{Share: tc.share})
			boundRefused(w, tc.not, tc.words...)
		})
	}
}

func TestPlanBoundRealRefused(t *testing.T) {
	t.Parallel()
	for version, share := range map[string]string{"4.4.0": "share.version 2", "3.9.2": "share.version 0"} {
		t.Run(version, func(t *testing.T) {
			c := testenv.Real(t, version)
			boundRefused(&world{t, c, c}, "not permitted", share+" is finalised, KIP-1289 needs 3", "no released Kafka has it", "not every broker lists request 95")
		})
	}
}

func boundRefused(w *world, not string, words ...string) {
	w.fill("r", 2, 10, 1)
	f := bind(w.flow("refused", "r"))
	for _, g := range []topology.Guarantee{topology.GuaranteeAuto, topology.GuaranteeExactlyOnce} {
		f.Guarantee = g
		fp := w.plan(f).Flows[0]
		if text := fp.Reason + " " + fp.Hint; !says(text, append(words, "kip1289 is set and can't be had")...) || says(text, not) || fp.Guarantee != "" {
			w.Errorf("%s: refused with %s (%s), want %q and not %q", g, fp.Reason, fp.Hint, words, not)
		}
		w.stops(f, words...)
	}
	ends, err := w.source.Admin(w.T).ListEndOffsets(w.Context(), "copy.r")
	if err != nil {
		w.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			w.Errorf("a refused flow has copied up to %d of partition %d", o.Offset, o.Partition)
		}
	})
}

// What is not permitted is named beside what is not spoken.
func TestPlanBoundRights(t *testing.T) {
	w := oneCluster(t, guarded(nil))
	w.fill("g", 1, 1, 1)
	topic, group := kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
	w.grant(w.source, topic, "*", kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribeConfigs)
	f := bind(w.flow("rights", "g"))
	const noID, noGroup = "WRITE and DESCRIBE on the flow's transactional ids", "READ on group onceover.rights"
	if fp := w.plan(f, mirrorUser).Flows[0]; !says(fp.Reason, noID, noGroup, "share.version") {
		t.Errorf("%s (%s)", fp.Reason, fp.Hint)
	}
	ids := kadm.NewACLs().Allow("User:" + mirrorUser.Name).AllowHosts().Operations(kmsg.ACLOperationWrite).
		ResourcePatternType(kadm.ACLPatternPrefixed).TransactionalIDs("onceover.rights.w.")
	if made, err := w.source.Admin(t).CreateACLs(t.Context(), ids); err != nil || made[0].Err != nil {
		t.Fatal(made, err)
	}
	w.grant(w.source, group, "onceover.rights", kmsg.ACLOperationRead)
	if fp := w.plan(f, mirrorUser).Flows[0]; says(fp.Reason, noID) || says(fp.Reason, noGroup) || !says(fp.Reason, "share.version") {
		t.Errorf("%s (%s)", fp.Reason, fp.Hint)
	}
}

// A transaction timeout that the brokers do not permit is found before the first
// transaction.
func TestPlanBoundTimeout(t *testing.T) {
	w := oneCluster(t, testenv.EmbeddedOptions{Share: speaks, Configs: map[string]string{"transaction.max.timeout.ms": "10000"}})
	w.fill("t", 1, 1, 1)
	f := bind(w.flow("slow", "t"))
	if fp := w.plan(f).Flows[0]; !says(fp.Reason, "transaction.timeout 15s is above the 10s") {
		t.Errorf("%s (%s)", fp.Reason, fp.Hint)
	}
	f.Transaction.Timeout = 10 * time.Second
	if fp := w.plan(f).Flows[0]; fp.Reason != "" {
		t.Errorf("%s (%s)", fp.Reason, fp.Hint)
	}
}

// A flow that has copied by its ledger is not taken further until the ledger was
// suspended, which hands its positions on: then every record is there once.
func TestBoundAfterLedger(t *testing.T) {
	w := oneCluster(t, testenv.EmbeddedOptions{Share: speaks})
	w.fill("t", 3, 90, 1)
	strong := w.exact("both", "t")
	strong.To, strong.Rename = "source", "copy.{topic}"
	weak := w.weak("both", topology.ReaderShare, "t")
	weak.To, weak.Rename = "source", "copy.{topic}"
	bound := bind(w.flow("both", "t"))
	w.runs(strong, "copy.t", 90)
	w.more("t", 3, 30, 2)
	if fp := w.plan(bound).Flows[0]; !says(fp.Reason, "has copied by its ledger, onceover.both.ledger.internal") || !says(fp.Hint, "guarantee: at-least-once") {
		t.Errorf("%s (%s)", fp.Reason, fp.Hint)
	}
	w.stops(bound, "has copied by its ledger")
	w.runs(weak, "copy.t", 120)
	w.more("t", 3, 60, 3)
	p := w.plan(bound)
	if p.Blocked() > 0 || !warning(p, "", "has a ledger", "through the share group is not in it") {
		t.Errorf("%+v", p.Flows[0])
	}
	run := w.start(bound)
	st := w.settled(run, "both", 60)
	if st.Guarantee != "exactly-once" || st.Reader != "share" || st.Order != "not kept" {
		t.Errorf("%+v", st)
	}
	run.Stop()
	w.arrived("copy.t", 180)
	testenv.AssertExactlyOnce(t, w.source.ReadStable(t, "t"), w.source.ReadStable(t, "copy.t"), unordered)
	// The ledger was no part of this, and takes it over when it is told to.
	w.stops(strong, "suspended", "mirror ledger resume")
	if _, err := w.change(strong, mirror.LedgerChange{Action: mirror.LedgerResume}); err != nil {
		t.Fatal(err)
	}
	w.more("t", 3, 30, 4)
	w.runs(strong, "copy.t", 210)
	testenv.AssertExactlyOnce(t, w.source.ReadStable(t, "t"), w.source.ReadStable(t, "copy.t"), unordered)
}

// A ledger that was made and never used is in nobody's way.
func TestPlanBoundBesideEmptyLedger(t *testing.T) {
	w := oneCluster(t, testenv.EmbeddedOptions{Share: speaks})
	w.fill("t", 1, 1, 1)
	spec := txn.LedgerSpec{Flow: "both", Shards: 2, ReplicationFactor: 1, TxnTimeout: time.Second, MapRetention: -1}
	if _, _, err := spec.Ensure(t.Context(), w.source.Client(t)); err != nil {
		t.Fatal(err)
	}
	if fp := w.plan(bind(w.flow("both", "t"))).Flows[0]; fp.Reason != "" || fp.Guarantee != "exactly-once" {
		t.Errorf("%+v", fp)
	}
}
