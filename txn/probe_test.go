package txn_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/txn"
)

// guest may do what it is granted and nothing else.
var guest = testenv.User{Mechanism: "SCRAM-SHA-256", Name: "mirror", Password: "mirror-password"}

func spec() txn.LedgerSpec {
	return txn.LedgerSpec{Flow: "orders", Shards: 4, ReplicationFactor: -1, TxnTimeout: 30 * time.Second, MapRetention: -1}
}

func probeTxn(t *testing.T, cl *kgo.Client, ask txn.TxnAsk) *txn.TxnAbilities {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	caps, err := txn.Probe(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	a, err := txn.ProbeTxn(ctx, cl, caps, ask)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// wantFindings fails unless there is one finding for each part, in any order,
// each with a hint.
func wantFindings(t *testing.T, have []txn.Finding, parts ...string) {
	t.Helper()
	left := slices.Clone(have)
	for _, part := range parts {
		i := slices.IndexFunc(left, func(f txn.Finding) bool { return strings.Contains(f.Problem, part) })
		if i < 0 {
			t.Errorf("no finding has %q:\n%v", part, have)
			continue
		}
		if left[i].Hint == "" {
			t.Errorf("no hint: %s", left[i].Problem)
		}
		left = slices.Delete(left, i, i+1)
	}
	if len(left) > 0 {
		t.Errorf("findings that should not be there: %v", left)
	}
}

func TestProbeTxnFindsNothing(t *testing.T) {
	t.Parallel()
	findsNothing(t, testenv.Embedded(t))
}

func TestProbeTxnRealFindsNothing(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.4.0", "3.9.2"} {
		t.Run(version, func(t *testing.T) { findsNothing(t, testenv.Real(t, version)) })
	}
}

// A probe leaves nothing behind: no topic, no transactional id, no group.
func findsNothing(t *testing.T, c *testenv.Cluster) {
	a := probeTxn(t, c.Client(t), txn.TxnAsk{Ledger: spec()})
	wantFindings(t, a.Findings)
	if !a.Verified || a.Ledger || a.MaxTimeout != 15*time.Minute || a.IDExpiration != 7*24*time.Hour || len(a.Remarks) > 0 {
		t.Errorf("%+v", a)
	}
	if len(a.Creates) != 2 || a.Creates[1].Name != "onceover.orders.ledger.internal" || a.Creates[1].Partitions != 4 || a.Creates[1].Configs["cleanup.policy"] != "compact" {
		t.Errorf("would make %+v", a.Creates)
	}
	adm := c.Admin(t)
	ids, err := adm.ListTransactions(t.Context(), nil, nil)
	if err != nil || len(ids) > 0 {
		t.Errorf("transactional ids %v, %v", ids, err)
	}
	topics, err := adm.ListTopics(t.Context())
	if err != nil || len(topics) > 0 {
		t.Errorf("topics %v, %v", topics.Names(), err)
	}
	groups, err := adm.ListGroups(t.Context())
	if err != nil || len(groups) > 0 {
		t.Errorf("groups %v, %v", groups, err)
	}
}

func TestProbeTxnOldTargets(t *testing.T) {
	t.Parallel()
	const unverified, noIDs = "verifies no transactions (before Kafka 3.6)", "no topic ids (before Kafka 2.8)"
	for _, tc := range []struct {
		v    *kversion.Versions
		ask  txn.TxnAsk
		want []string
	}{
		{kversion.V3_6_0(), txn.TxnAsk{}, nil},
		{kversion.V3_5_0(), txn.TxnAsk{}, []string{unverified}},
		{kversion.V3_5_0(), txn.TxnAsk{AllowUnverified: true}, nil},
		{kversion.V2_7_0(), txn.TxnAsk{}, []string{unverified, noIDs}},
		{kversion.V2_7_0(), txn.TxnAsk{AllowUnverified: true, AllowNoTopicIDs: true}, nil},
		{kversion.V2_1_0(), txn.TxnAsk{AllowUnverified: true, AllowNoTopicIDs: true}, []string{"ListOffsets before v5"}},
	} {
		t.Run(fmt.Sprintf("%s %+v", tc.v.VersionGuess(), tc.ask), func(t *testing.T) {
			c := testenv.Embedded(t, testenv.Old(tc.v))
			tc.ask.Ledger = spec()
			// Before 2.4 there is no default for replicas that a client can ask for.
			tc.ask.Ledger.ReplicationFactor = 1
			wantFindings(t, probeTxn(t, c.Client(t, kgo.MaxVersions(tc.v)), tc.ask).Findings, tc.want...)
		})
	}
}

// A timeout that the brokers do not permit is found before the first
// transaction (case 27), with the one that they do.
func TestCase27TransactionTimeout(t *testing.T) {
	t.Parallel()
	c := testenv.Embedded(t, testenv.EmbeddedOptions{Nodes: 3, Configs: map[string]string{"transaction.max.timeout.ms": "60000"}})
	ask := txn.TxnAsk{Ledger: spec()}
	ask.Ledger.TxnTimeout = time.Minute
	wantFindings(t, probeTxn(t, c.Client(t), ask).Findings)
	ask.Ledger.TxnTimeout++
	a := probeTxn(t, c.Client(t), ask)
	wantFindings(t, a.Findings, "above the 1m0s that the target permits")
	if len(a.Findings) == 1 && !strings.Contains(a.Findings[0].Hint, "at most 1m0s") {
		t.Errorf("hint %q", a.Findings[0].Hint)
	}
}

func TestProbeTxnRights(t *testing.T) {
	t.Parallel()
	rights(t, testenv.Embedded(t, testenv.EmbeddedOptions{SASL: true, ACLs: true, Users: []testenv.User{guest}}))
}

func TestProbeTxnRealRights(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.4.0", "3.9.2"} {
		t.Run(version, func(t *testing.T) {
			rights(t, testenv.Real(t, version, testenv.RealOptions{SASL: true, ACLs: true, Users: []testenv.User{guest}}))
		})
	}
}

// acl is a right of the guest on names with a prefix, or on the cluster.
type acl struct {
	kind   kmsg.ACLResourceType
	prefix string
	op     kmsg.ACLOperation
}

func (a acl) set(t *testing.T, c *testenv.Cluster, allow bool) {
	t.Helper()
	b := kadm.NewACLs().Allow("User:" + guest.Name).AllowHosts().Operations(a.op).ResourcePatternType(kadm.ACLPatternPrefixed)
	switch a.kind {
	case kmsg.ACLResourceTypeTopic:
		b = b.Topics(a.prefix)
	case kmsg.ACLResourceTypeGroup:
		b = b.Groups(a.prefix)
	case kmsg.ACLResourceTypeTransactionalId:
		b = b.TransactionalIDs(a.prefix)
	default:
		b = b.ResourcePatternType(kadm.ACLPatternLiteral).Clusters()
	}
	var err error
	if allow {
		_, err = c.Admin(t).CreateACLs(t.Context(), b)
	} else {
		_, err = c.Admin(t).DeleteACLs(t.Context(), b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Without any right all of them are named in one go; with all none is; and with
// all but one it is the one that is named.
func rights(t *testing.T, c *testenv.Cluster) {
	ask := txn.TxnAsk{Ledger: spec()}
	a := probeTxn(t, guestClient(t, c), ask)
	wantFindings(t, a.Findings,
		"READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, CREATE on topic onceover.orders.ledger.internal",
		"READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, CREATE on topic onceover.orders.map.internal",
		"WRITE and DESCRIBE on the flow's transactional ids (all)", "READ on group onceover.orders.shards")
	if len(a.Remarks) != 1 || a.MaxTimeout != 0 {
		t.Errorf("limits that may not be read: %q, %v", a.Remarks, a.MaxTimeout)
	}

	const prefix, ledger, mapped = "onceover.orders.", "onceover.orders.ledger.internal", "onceover.orders.map.internal"
	topic, id, group := kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeTransactionalId, kmsg.ACLResourceTypeGroup
	all := []acl{
		{topic, prefix, kmsg.ACLOperationRead},
		{topic, prefix, kmsg.ACLOperationWrite},
		{topic, prefix, kmsg.ACLOperationDescribeConfigs},
		{topic, prefix, kmsg.ACLOperationCreate},
		{id, prefix, kmsg.ACLOperationWrite},
		{group, prefix, kmsg.ACLOperationRead},
		{kmsg.ACLResourceTypeCluster, "", kmsg.ACLOperationDescribeConfigs},
	}
	for _, one := range all {
		one.set(t, c, true)
	}
	if a := settledProbe(t, c, ask, 0); len(a.Remarks) > 0 || len(a.Creates) != 2 {
		t.Errorf("%+v", a)
	}
	for _, missing := range []struct {
		acl
		want []string
	}{
		{all[0], []string{"READ on topic " + ledger, "READ on topic " + mapped}},
		{all[1], []string{"WRITE on topic " + ledger, "WRITE on topic " + mapped}},
		{all[2], []string{"DESCRIBE_CONFIGS on topic " + ledger, "DESCRIBE_CONFIGS on topic " + mapped}},
		{all[3], []string{"CREATE of topic " + ledger, "CREATE of topic " + mapped}},
		{all[4], []string{"transactional ids (all)"}},
		{all[5], []string{"READ on group"}},
	} {
		missing.set(t, c, false)
		wantFindings(t, settledProbe(t, c, ask, len(missing.want)).Findings, missing.want...)
		missing.set(t, c, true)
	}
	settledProbe(t, c, ask, 0)

	// Literal rights on some of the ids are not enough.
	all[4].set(t, c, false)
	b := kadm.NewACLs().Allow("User:"+guest.Name).AllowHosts().Operations(kmsg.ACLOperationWrite).
		ResourcePatternType(kadm.ACLPatternLiteral).TransactionalIDs(txn.ShardTxnID("orders", 0), txn.ShardTxnID("orders", 3))
	if _, err := c.Admin(t).CreateACLs(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	probeUntil(t, c, ask, "two ids are permitted", func(a *txn.TxnAbilities) bool {
		return len(a.Findings) == 1 && strings.Contains(a.Findings[0].Problem, "2 of 4, the first onceover.orders.1")
	})
}

// settledProbe is a probe with that many findings.
func settledProbe(t *testing.T, c *testenv.Cluster, ask txn.TxnAsk, findings int) *txn.TxnAbilities {
	t.Helper()
	return probeUntil(t, c, ask, fmt.Sprintf("%d findings", findings), func(a *txn.TxnAbilities) bool { return len(a.Findings) == findings })
}

// probeUntil probes until a change of rights has reached the broker.
func probeUntil(t *testing.T, c *testenv.Cluster, ask txn.TxnAsk, what string, ok func(*txn.TxnAbilities) bool) (a *txn.TxnAbilities) {
	t.Helper()
	if !repeatedly(t, func() bool {
		// A new client each time: one that found a coordinator does not ask for the
		// right to find it again.
		a = probeTxn(t, guestClient(t, c), ask)
		return ok(a)
	}) {
		t.Fatalf("waited for %s, found %v", what, a.Findings)
	}
	return a
}

func guestClient(t *testing.T, c *testenv.Cluster) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(c.OptsAs(guest)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func TestProbeTxnFencesNobody(t *testing.T) {
	t.Parallel()
	fencesNobody(t, testenv.Embedded(t))
}

func TestProbeTxnRealFencesNobody(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.4.0", "3.9.2"} {
		t.Run(version, func(t *testing.T) { fencesNobody(t, testenv.Real(t, version)) })
	}
}

// A shard that is in the middle of a transaction commits it all the same.
func fencesNobody(t *testing.T, c *testenv.Cluster) {
	c.CreateTopic(t, "copies", 1, 1, nil)
	for range 2 { // with an id that the coordinator knows, too
		owner := c.Client(t, kgo.TransactionalID(txn.ShardTxnID("orders", 2)), kgo.DefaultProduceTopic("copies"))
		if err := owner.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := owner.ProduceSync(t.Context(), kgo.StringRecord("one")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		wantFindings(t, probeTxn(t, c.Client(t), txn.TxnAsk{Ledger: spec()}).Findings)
		if err := owner.ProduceSync(t.Context(), kgo.StringRecord("two")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := owner.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		owner.Close()
	}
	if n := len(c.ReadAll(t, "copies")); n != 4 {
		t.Errorf("%d records committed, want 4", n)
	}
}

// Verification can be switched off on brokers that have it.
func TestProbeTxnRealVerificationOff(t *testing.T) {
	t.Parallel()
	c := testenv.Real(t, "4.4.0", testenv.RealOptions{Config: map[string]string{"transaction.partition.verification.enable": "false"}})
	ask := txn.TxnAsk{Ledger: spec()}
	wantFindings(t, probeTxn(t, c.Client(t), ask).Findings, "transaction.partition.verification.enable=false")
	ask.AllowUnverified = true
	wantFindings(t, probeTxn(t, c.Client(t), ask).Findings)
}

func TestMayJoin(t *testing.T) {
	t.Parallel()
	c := testenv.Embedded(t, testenv.EmbeddedOptions{SASL: true, ACLs: true, Users: []testenv.User{guest}})
	cl := guestClient(t, c)
	acl{kmsg.ACLResourceTypeGroup, "mine", kmsg.ACLOperationRead}.set(t, c, true)
	for group, want := range map[string]bool{"mine": true, "theirs": false} {
		if may, err := txn.MayJoin(t.Context(), cl, group); err != nil || may != want {
			t.Errorf("%s: %v, %v", group, may, err)
		}
	}
}

// A target with fewer brokers than the coordinators' topics have replicas is no
// reason to wait for ever.
func TestProbeTxnRealTooFewBrokers(t *testing.T) {
	t.Parallel()
	c := testenv.Real(t, "4.4.0", testenv.RealOptions{Config: map[string]string{
		"transaction.state.log.replication.factor": "3", "offsets.topic.replication.factor": "2",
	}})
	wantFindings(t, probeTxn(t, c.Client(t), txn.TxnAsk{Ledger: spec()}).Findings,
		"transaction.state.log.replication.factor=3, live brokers: 1", "offsets.topic.replication.factor=2")
}

// Brokers that answer as no Kafka does are no reason to wait for ever, either.
func TestProbeTxnStrangeAnswers(t *testing.T) {
	t.Parallel()
	c := testenv.Embedded(t)
	for key, code := range map[kmsg.Key]int16{kmsg.EndTxn: 0, kmsg.Heartbeat: kerr.UnsupportedVersion.Code} {
		c.Fake().ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.Fake().KeepControl()
			switch resp := req.ResponseKind().(type) {
			case *kmsg.EndTxnResponse:
				resp.ErrorCode = code
				return resp, nil, true
			case *kmsg.HeartbeatResponse:
				resp.ErrorCode = code
				return resp, nil, true
			}
			return nil, nil, false
		})
	}
	wantFindings(t, probeTxn(t, c.Client(t), txn.TxnAsk{Ledger: spec()}).Findings, "for a producer that it can't know", "UNSUPPORTED_VERSION")
}

// A ledger that is there keeps its shards, and they are what is tried.
func TestProbeTxnLedgerThere(t *testing.T) {
	t.Parallel()
	c := testenv.Embedded(t)
	have, _, err := spec().Ensure(t.Context(), c.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	ask := txn.TxnAsk{Ledger: spec()}
	ask.Ledger.Shards = 16
	a := probeTxn(t, c.Client(t), ask)
	wantFindings(t, a.Findings)
	if !a.Ledger || a.Topics != have || len(a.Creates) > 0 || len(a.Remarks) != 1 || !strings.Contains(a.Remarks[0], "made with 4 shards") {
		t.Errorf("%+v", a)
	}
	alter(t, c, ledgerName, "cleanup.policy", "delete")
	wantFindings(t, probeTxn(t, c.Client(t), ask).Findings, "cleanup.policy=delete")
}
