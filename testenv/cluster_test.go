package testenv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// odd are records that lose something in careless hands.
func odd(topic string) []*kgo.Record {
	at := time.Now().Truncate(time.Millisecond)
	return []*kgo.Record{
		{Topic: topic, Partition: 1, Timestamp: at},
		{Topic: topic, Partition: 1, Key: []byte{}, Value: []byte{}, Timestamp: at},
		{Topic: topic, Partition: 1, Key: []byte("tombstone"), Timestamp: at.Add(-time.Hour)},
		{Topic: topic, Partition: 1, Value: []byte("headers"), Timestamp: at, Headers: []kgo.RecordHeader{
			{Key: "b", Value: []byte("1")},
			{Key: "a"},
			{Key: "b", Value: []byte{}},
			{Key: "", Value: []byte("no name")},
		}},
	}
}

// smoke checks what every cluster can do, and returns the records it left in
// the topic "smoke".
func smoke(t *testing.T, c *testenv.Cluster) []*kgo.Record {
	t.Helper()
	c.CreateTopic(t, "smoke", 2, -1, map[string]*string{"cleanup.policy": kadm.StringPtr("delete")})
	want := append(testenv.Records("smoke", 2, 100, 1), odd("smoke")...)
	c.Produce(t, want...)
	testenv.AssertExactlyOnce(t, want, c.ReadAll(t, "smoke"))

	// A committed and an aborted transaction: the topic ends with markers, and
	// one with nothing to read before it.
	cl := c.Client(t, kgo.TransactionalID("smoke"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	transact := func(seed int64, end kgo.TransactionEndTry) []*kgo.Record {
		t.Helper()
		recs := testenv.Records("smoke", 2, 10, seed)
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
		return recs
	}
	want = append(want, transact(2, kgo.TryCommit)...)
	transact(3, kgo.TryAbort)
	testenv.AssertExactlyOnce(t, want, c.ReadAll(t, "smoke"))

	// An open transaction hides what comes after it, and only from ReadStable.
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	open := testenv.Records("smoke", 2, 10, 4)
	if err := cl.ProduceSync(t.Context(), open...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	after := testenv.Records("smoke", 2, 10, 5)
	c.Produce(t, after...)
	testenv.AssertExactlyOnce(t, want, c.ReadStable(t, "smoke"))
	all := make(chan []*kgo.Record)
	go func() { all <- c.ReadAll(t, "smoke") }()
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	want = append(append(want, open...), after...)
	testenv.AssertExactlyOnce(t, want, <-all)
	return want
}

func TestEmbedded(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts testenv.EmbeddedOptions
	}{
		{"embedded", testenv.EmbeddedOptions{}},
		{"embedded 2.8", testenv.Old(kversion.V2_8_0())},
		{"embedded", testenv.EmbeddedOptions{Nodes: 3, ClusterID: "mine", TLS: true, SASL: true, ACLs: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := testenv.Embedded(t, tc.opts)
			if c.Name() != tc.name {
				t.Errorf("name %q, want %q", c.Name(), tc.name)
			}
			if err := c.WaitReady(t.Context()); err != nil {
				t.Error(err)
			}
			smoke(t, c)
			if err := c.KillNode(t.Context(), 0); !errors.Is(err, testenv.ErrEmbedded) {
				t.Errorf("kill a node: %v, want ErrEmbedded", err)
			}
			if nodes := c.Nodes(); len(nodes) > 1 {
				for _, node := range nodes {
					c.MoveLeader(t, "smoke", 1, node)
				}
			}
			if id := tc.opts.ClusterID; id != "" {
				if m, err := c.Admin(t).BrokerMetadata(t.Context()); err != nil || m.Cluster != id {
					t.Errorf("cluster id %q, %v; want %q", m.Cluster, err, id)
				}
			}
		})
	}
}

func TestEmbeddedInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net kfake.VirtualNetwork
		a := testenv.Embedded(t, testenv.EmbeddedOptions{Network: &net, Nodes: 2})
		b := testenv.Embedded(t, testenv.EmbeddedOptions{Network: &net})
		for _, c := range []*testenv.Cluster{a, b} {
			if c.Dial() == nil {
				t.Error("no dialer for a virtual network")
			}
			smoke(t, c)
		}
	})
}

func TestEmbeddedImpossibleOptions(t *testing.T) {
	var net kfake.VirtualNetwork
	for _, tc := range []struct {
		say string
		run func() error
	}{
		{"ACLs need SASL", func() error {
			_, err := testenv.StartEmbedded(testenv.EmbeddedOptions{ACLs: true})
			return err
		}},
		{"TLS needs TCP", func() error {
			_, err := testenv.StartEmbedded(testenv.EmbeddedOptions{TLS: true, Network: &net})
			return err
		}},
	} {
		if err := tc.run(); err == nil || !strings.Contains(err.Error(), tc.say) {
			t.Errorf("error %v, want it to contain %q", err, tc.say)
		}
	}
}

// checkSecure wants logins, ACLs and the declaration of a secured cluster to
// work. The cluster must have plainUser and ACLs.
func checkSecure(t *testing.T, c *testenv.Cluster) {
	t.Helper()
	ask := func(u testenv.User, topic string) error {
		cl, err := kgo.NewClient(append(c.OptsAs(u), kgo.RequestRetries(1))...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(t.Context(), cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	wrong := plainUser
	wrong.Password = "guess"
	// kfake hangs up without a word.
	if err := ask(wrong, "smoke"); err == nil || c.Fake() == nil && !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("wrong password: %v", err)
	}
	if err := ask(plainUser, "smoke"); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without an ACL: %v", err)
	}
	b := kadm.NewACLs().Allow("User:" + plainUser.Name).AllowHosts("*").Topics("smoke").
		ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpDescribe)
	results, err := c.Admin(t).CreateACLs(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	// Real brokers take an ACL over a little after it was answered.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for err = ask(plainUser, "smoke"); err != nil && ctx.Err() == nil; err = ask(plainUser, "smoke") {
	}
	if err != nil {
		t.Errorf("with an ACL: %v", err)
	}
	decl := c.Topology("east")
	if decl.Name != "east" || decl.TLS == nil || decl.TLS.CAPEM == "" || decl.SASL == nil || decl.SASL.Mechanism != topology.MechanismScramSHA512 {
		t.Errorf("declaration %+v lacks something", decl)
	}
}

var plainUser = testenv.User{Mechanism: topology.MechanismPlain, Name: "reader", Password: "reader-password"}

func TestEmbeddedSecure(t *testing.T) {
	c := testenv.Embedded(t, testenv.EmbeddedOptions{TLS: true, SASL: true, ACLs: true, Users: []testenv.User{plainUser}})
	smoke(t, c)
	checkSecure(t, c)
}
