package mirror_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// plan is the plan of one flow; as is the login at both clusters, if any.
func (w *world) plan(f *topology.Flow, as ...testenv.User) mirror.Plan {
	w.Helper()
	top := w.topologyOf(f)
	for _, u := range as {
		for _, c := range top.Clusters {
			c.SASL = &topology.SASL{Mechanism: u.Mechanism, Username: u.Name, Password: topology.Secret(u.Password)}
		}
	}
	m, err := mirror.New(mirror.Options{Topology: top})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), within)
	defer cancel()
	p, err := m.Plan(ctx)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// inventory is everything on a cluster that a plan could have made.
func inventory(t *testing.T, c *testenv.Cluster) string {
	t.Helper()
	adm := c.Admin(t)
	topics, err := adm.ListTopicsWithInternal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := adm.ListGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids, err := adm.ListTransactions(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []string
	for _, name := range topics.Names() {
		// The broker makes these when it is asked for a coordinator.
		if name != "__consumer_offsets" && name != "__transaction_state" {
			sizes = append(sizes, fmt.Sprintf("%s:%d", name, len(topics[name].Partitions)))
		}
	}
	return fmt.Sprint(sizes, groups.Groups(), len(ids))
}

func change(p mirror.Plan, action, name string) *mirror.Change {
	for _, c := range p.Flows[0].Changes {
		if c.Action == action && c.Name == name {
			return &c
		}
	}
	return nil
}

// warning finds the one about a topic that has all the words.
func warning(p mirror.Plan, topic string, words ...string) bool {
	return slices.ContainsFunc(p.Flows[0].Warnings, func(a mirror.Advice) bool {
		return a.Topic == topic && a.Hint != "" && says(a.Problem, words...)
	})
}

func TestPlan(t *testing.T) {
	planned(newWorld(t, testenv.EmbeddedOptions{}))
}

func TestPlanReal(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"4.4.0", "3.9.2"}, {"3.9.2", "4.4.0"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			w := &world{t, testenv.Real(t, pair[0]), testenv.Real(t, pair[1])}
			planned(w)
			t.Run("Times", func(t *testing.T) { planTimes(&world{t, w.source, w.target}) })
		})
	}
}

// A plan names what would be made, and makes none of it.
func planned(w *world) {
	w.source.CreateTopic(w, "p-plain", 3, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("2000000")})
	w.source.CreateTopic(w, "p-compacted", 1, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")})
	w.source.CreateTopic(w, "p-grows", 3, 1, nil)
	w.target.CreateTopic(w, "p-grows", 1, 1, nil)
	w.source.CreateTopic(w, "p-there", 1, 1, nil)
	w.target.CreateTopic(w, "p-there", 2, 1, nil)
	f := w.flow("plans", "p-.*")
	f.Guarantee = topology.GuaranteeAuto
	before := inventory(w.T, w.source) + inventory(w.T, w.target)
	p := w.plan(f)
	if after := inventory(w.T, w.source) + inventory(w.T, w.target); after != before {
		w.Errorf("the plan changed the clusters from %s to %s", before, after)
	}
	fp := p.Flows[0]
	if fp.Guarantee != "exactly-once" || fp.Reader != "partition" || fp.Order != "per partition" || !says(fp.Why, "both clusters can do it") || fp.Reason != "" {
		w.Errorf("%+v", fp)
	}
	if !p.Pending() || p.Blocked() != 0 || len(fp.Missing) > 0 || len(fp.Changes) != 5 {
		w.Errorf("pending %v, %d blocked, missing %v, changes %+v", p.Pending(), p.Blocked(), fp.Missing, fp.Changes)
	}
	for _, want := range []mirror.Change{
		{Action: "create topic", Name: "p-plain", Partitions: 3, Configs: map[string]string{"max.message.bytes": "2000000", "message.timestamp.type": "CreateTime"}},
		{Action: "create topic", Name: "p-compacted", Partitions: 1, Configs: map[string]string{"cleanup.policy": "compact"}},
		{Action: "add partitions", Name: "p-grows", Partitions: 3},
		{Action: "create topic", Name: "onceover.plans.ledger.internal", Partitions: f.Ledger.Shards, Configs: map[string]string{"cleanup.policy": "compact", "segment.ms": "600000"}},
		{Action: "create topic", Name: "onceover.plans.map.internal", Partitions: f.Ledger.Shards, Configs: map[string]string{"cleanup.policy": "delete", "retention.ms": "-1"}},
	} {
		got := change(p, want.Action, want.Name)
		if got == nil || got.Partitions != want.Partitions || got.Cluster != "target" {
			w.Errorf("%s %s: %+v, want %d partitions", want.Action, want.Name, got, want.Partitions)
			continue
		}
		for k, v := range want.Configs {
			if got.Configs[k] != v {
				w.Errorf("%s has %s=%q, want %q", want.Name, k, got.Configs[k], v)
			}
		}
	}
	for _, tp := range fp.Topics {
		if !tp.Copied || tp.Compacted != (tp.Topic == "p-compacted") || tp.Partitions == 0 {
			w.Errorf("%+v", tp)
		}
	}
	if len(fp.Topics) != 4 || len(fp.Groups) != 2 || fp.Groups[0].Name != "onceover.plans.shards" || fp.Groups[0].Exists {
		w.Errorf("topics %v, groups %+v", fp.Topics, fp.Groups)
	}
	if !slices.ContainsFunc(fp.Notes, func(n string) bool { return says(n, "read_committed") }) {
		w.Errorf("notes %q", fp.Notes)
	}
}

// After a flow has run nothing is left to do.
func TestPlanAfterRun(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.fill("r-one", 2, 20, 1)
	f := w.flow("ran", "r-.*")
	p := w.plan(f)
	if fp := p.Flows[0]; fp.Guarantee != "at-least-once" || fp.Reader != "share" || fp.Order != "not kept" || len(fp.Groups) != 3 || fp.Groups[0].Exists {
		t.Errorf("%+v", fp)
	}
	if c := change(p, "set group configs", "onceover.ran"); c == nil || c.Cluster != "source" || c.Configs["share.auto.offset.reset"] != "earliest" {
		t.Errorf("share group settings: %+v", c)
	}
	if change(p, "create topic", "r-one") == nil || len(p.Flows[0].Changes) != 2 {
		t.Errorf("changes %+v", p.Flows[0].Changes)
	}
	run := w.start(f)
	w.arrived("r-one", 20)
	w.settled(run, "ran", 20)
	run.Stop()
	p = w.plan(f)
	if p.Pending() || p.Blocked() > 0 || !p.Flows[0].Groups[0].Exists {
		t.Errorf("after a run: %+v", p.Flows[0])
	}
	// Only one topic of two needs order: it is worth a flow of its own.
	w.source.CreateTopic(t, "r-two", 1, 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact")})
	p = w.plan(f)
	if fp := p.Flows[0]; fp.Reader != "partition" || !slices.ContainsFunc(fp.Notes, func(n string) bool { return says(n, "1 of 2 topics need order") }) {
		t.Errorf("reader %s, notes %q", fp.Reader, fp.Notes)
	}
}

// A ledger is not left without a word.
func TestPlanLeavesLedger(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	w.source.CreateTopic(t, "x", 1, 1, nil)
	w.target.CreateTopic(t, "x", 1, 1, nil)
	spec := txn.LedgerSpec{Flow: "left", Shards: 2, ReplicationFactor: 1, TxnTimeout: time.Second, MapRetention: -1}
	if _, _, err := spec.Ensure(t.Context(), w.target.Client(t)); err != nil {
		t.Fatal(err)
	}
	f := w.flow("left", "x")
	if p := w.plan(f); !warning(p, "", "the flow has a ledger") {
		t.Errorf("warnings %+v", p.Flows[0].Warnings)
	}
	f.Guarantee, f.Read = topology.GuaranteeAuto, topology.ReaderShare
	if p := w.plan(f); !says(p.Flows[0].Reason, "has a ledger", "read: share is not supported") {
		t.Errorf("%+v", p.Flows[0])
	}
	f.Read = topology.ReaderAuto
	if p := w.plan(f); p.Pending() || p.Blocked() > 0 || p.Flows[0].Guarantee != "exactly-once" || !slices.ContainsFunc(p.Flows[0].Notes, func(n string) bool { return says(n, "made with 2 shards") }) {
		t.Errorf("%+v", p.Flows[0])
	}
}

// What is in the way is named, all of it, and what is not is planned all the
// same.
func TestPlanRefused(t *testing.T) {
	t.Parallel()
	w := &world{t, testenv.Embedded(t), testenv.Embedded(t, testenv.Old(kversion.V3_5_0()))}
	w.fill("x", 1, 1, 1)
	f := w.flow("refused", "x")
	f.Guarantee = topology.GuaranteeExactlyOnce
	f.Transaction.Timeout = time.Hour
	p := w.plan(f)
	fp := p.Flows[0]
	if !says(fp.Reason, "verifies no transactions", "transaction.timeout 1h0m0s is above the 15m0s") || fp.Guarantee != "" || p.Blocked() != 1 {
		t.Errorf("%d blocked: %s (%s)", p.Blocked(), fp.Reason, fp.Hint)
	}
	if len(fp.Topics) != 1 || !fp.Topics[0].Copied {
		t.Errorf("topics %+v", fp.Topics)
	}
}

func TestPlanRights(t *testing.T) {
	t.Parallel()
	w := &world{t, testenv.Embedded(t, guarded(nil)), testenv.Embedded(t, guarded(nil))}
	for _, topic := range []string{"g-write", "g-create", "g-fine"} {
		w.fill(topic, 2, 5, 1)
	}
	w.target.CreateTopic(t, "g-write", 2, 1, nil)
	w.target.CreateTopic(t, "g-fine", 2, 1, nil)
	topic := kmsg.ACLResourceTypeTopic
	w.grant(w.source, topic, "g-*", kmsg.ACLOperationRead, kmsg.ACLOperationDescribeConfigs)
	w.grant(w.target, topic, "g-*", kmsg.ACLOperationDescribe)
	w.grant(w.target, topic, "g-fine", kmsg.ACLOperationWrite)
	f := w.flow("rights", "g-.*")
	f.Read = topology.ReaderPartition
	p := w.plan(f, mirrorUser)
	fp := p.Flows[0]
	if len(fp.Missing) != 1 || !says(fp.Missing[0].Problem, "READ on group onceover.rights.positions") || p.Blocked() != 3 {
		t.Errorf("%d blocked, missing %+v", p.Blocked(), fp.Missing)
	}
	for _, tp := range fp.Topics {
		want := map[string]string{"g-write": "not permitted: WRITE", "g-create": "not permitted: CREATE of topic g-create"}[tp.Topic]
		if tp.Copied != (want == "") || !says(tp.Reason, want) || want != "" && !says(tp.Hint, "grant") {
			t.Errorf("%+v", tp)
		}
	}
	// Exactly-once needs more, and names it.
	f.Guarantee = topology.GuaranteeExactlyOnce
	fp = w.plan(f, mirrorUser).Flows[0]
	if !says(fp.Reason, "for 4 reasons", "CREATE on topic onceover.rights.ledger.internal", "CREATE on topic onceover.rights.map.internal", "transactional ids", "READ on group onceover.rights.shards") {
		t.Errorf("%s", fp.Reason)
	}
}

func TestPlanTimes(t *testing.T) {
	planTimes(newWorld(t, testenv.EmbeddedOptions{}))
}

// What the target would refuse, delete again or change is told before the first
// record: cases 36 and 38 to 40.
func planTimes(w *world) {
	set := func(kv ...string) map[string]*string {
		m := map[string]*string{"retention.ms": kadm.StringPtr("-1")}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = &kv[i+1]
		}
		return m
	}
	day := fmt.Sprint((24 * time.Hour).Milliseconds())
	now := time.Now()
	for _, tp := range []struct {
		name     string
		src, dst map[string]*string
	}{
		{"w-size", set("max.message.bytes", "4194304"), set("max.message.bytes", "1048588")},
		{"w-append", set(), set("message.timestamp.type", "LogAppendTime")},
		{"w-expire", set(), set("retention.ms", day)},
		{"w-kept", set("retention.ms", day), set("retention.ms", day)},
		{"w-old", set(), set("message.timestamp.before.max.ms", day)},
		{"w-ahead", set("message.timestamp.after.max.ms", "9223372036854775807"), set("message.timestamp.after.max.ms", "3600000")},
		{"w-fine", set(), set()},
	} {
		w.source.CreateTopic(w, tp.name, 2, 1, tp.src)
		w.target.CreateTopic(w, tp.name, 2, 1, tp.dst)
		recs := []*kgo.Record{}
		for i := range 40 {
			r := kgo.KeySliceRecord([]byte("k"), []byte("v"))
			r.Topic, r.Partition, r.Timestamp = tp.name, int32(i%2), now.Add(-5*24*time.Hour)
			if i >= 30 {
				r.Timestamp = now
			}
			if i == 39 && tp.name == "w-ahead" {
				r.Timestamp = now.Add(3 * time.Hour)
			}
			if tp.name == "w-kept" {
				r.Timestamp = now
			}
			recs = append(recs, r)
		}
		w.source.Produce(w, recs...)
	}
	f := w.flow("warned", "w-.*")
	p := w.plan(f)
	for _, want := range []struct {
		topic string
		words []string
	}{
		{"w-size", []string{"max.message.bytes is 4194304 at the source and 1048588 at the target"}},
		{"w-append", []string{"LogAppendTime", "can't be kept"}},
		{"w-expire", []string{"about 30 records", "retention.ms 24h0m0s", "deleted there again"}},
		{"w-old", []string{"about 30 records", "before.max.ms 24h0m0s", "refused"}},
		{"w-ahead", []string{"ahead, and the target takes 1h0m0s at most", "refused"}},
	} {
		if !warning(p, want.topic, want.words...) {
			w.Errorf("no warning about %s has %q: %+v", want.topic, want.words, p.Flows[0].Warnings)
		}
	}
	if n := len(p.Flows[0].Warnings); n != 5 {
		w.Errorf("%d warnings: %+v", n, p.Flows[0].Warnings)
	}
	// What is not copied any more does not expire.
	f.Start = topology.StartLatest
	p = w.plan(f)
	if warning(p, "w-expire", "about") || warning(p, "w-old", "about") {
		w.Errorf("from the end on: %+v", p.Flows[0].Warnings)
	}
}

// A cluster that does not answer is an error, and the plan says which flow.
func TestPlanOutOfReach(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	top := w.topologyOf(w.flow("away", "x"))
	top.Clusters["target"].Bootstrap = []string{"127.0.0.1:1"}
	m, err := mirror.New(mirror.Options{Topology: top})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	p, err := m.Plan(ctx)
	if err == nil || !says(err.Error(), "flow away", "target") || len(p.Flows) != 1 || p.Flows[0].Reason == "" {
		t.Errorf("%v, %+v", err, p)
	}
}
