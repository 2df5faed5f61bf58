package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// mirrorUser is whom the mirror logs in as in a secured world; it may do what
// it was granted and nothing else.
var mirrorUser = testenv.User{Mechanism: topology.MechanismScramSHA512, Name: "mirror", Password: "mirror-password-4711"}

// secured is a world with TLS, logins and an authorizer on both sides.
type secured struct{ World }

// TestRealSecured: one pair of clusters, what they permit differs from test to
// test.
func TestRealSecured(t *testing.T) {
	t.Parallel()
	o := testenv.RealOptions{TLS: true, SASL: true, ACLs: true, Users: []testenv.User{mirrorUser}}
	w := secured{World{Source: testenv.Real(t, "4.4.0", o), Target: testenv.Real(t, "4.4.0", o), Reader: topology.ReaderShare, Guarantee: topology.GuaranteeAtLeastOnce}}
	for _, c := range []struct {
		name string
		test func(*testing.T, secured)
	}{
		{"Declared", testDeclared},
		{"WrongPassword", testWrongPassword},
		{"WrongAuthority", testWrongAuthority},
		{"Case60ForbiddenTopics", testForbiddenTopics},
		{"Case1cGroupSettings", testGroupSettingsDenied},
		{"ShareGroupRead", testShareGroupReadDenied},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

// asMirror is [World.topologyOf] with the mirror's own login.
func (w secured) asMirror(flows ...*topology.Flow) *topology.Topology {
	top := w.topologyOf(flows...)
	for _, c := range top.Clusters {
		c.SASL = &topology.SASL{Mechanism: mirrorUser.Mechanism, Username: mirrorUser.Name, Password: topology.Secret(mirrorUser.Password)}
	}
	return top
}

// right is an access rule for the mirror's user.
type right struct {
	group, topic string // one of them
	ops          []kadm.ACLOperation
}

func (r right) acl() *kadm.ACLBuilder {
	b := kadm.NewACLs().Allow("User:" + mirrorUser.Name).AllowHosts("*").Operations(r.ops...).ResourcePatternType(kadm.ACLPatternLiteral)
	if r.group != "" {
		return b.Groups(r.group)
	}
	return b.Topics(r.topic)
}

func grant(t *testing.T, c *testenv.Cluster, rights ...right) {
	t.Helper()
	for _, r := range rights {
		results, err := c.Admin(t).CreateACLs(t.Context(), r.acl())
		if err != nil {
			t.Fatalf("grant %+v: %v", r, err)
		}
		for _, res := range results {
			if res.Err != nil {
				t.Fatalf("grant %+v: %v", r, res.Err)
			}
		}
	}
}

func revoke(t *testing.T, c *testenv.Cluster, rights ...right) {
	t.Helper()
	for _, r := range rights {
		results, err := c.Admin(t).DeleteACLs(t.Context(), r.acl())
		if err != nil {
			t.Fatalf("revoke %+v: %v", r, err)
		}
		for _, res := range results {
			if res.Err != nil || len(res.Deleted) != 1 {
				t.Fatalf("revoke %+v: %d deleted, %v", r, len(res.Deleted), res.Err)
			}
		}
	}
}

// flowGroups are the rights of a share flow on its groups at the source.
func flowGroups(flow string) []right {
	return []right{
		{group: "onceover." + flow, ops: []kadm.ACLOperation{kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpAlterConfigs}},
		{group: "onceover." + flow + ".positions", ops: []kadm.ACLOperation{kadm.OpRead, kadm.OpDescribe}},
		{group: "onceover." + flow + ".stops", ops: []kadm.ACLOperation{kadm.OpRead, kadm.OpDescribe}},
	}
}

func toRead(topic string) right {
	return right{topic: topic, ops: []kadm.ACLOperation{kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs}}
}

func toWrite(topic string) right {
	return right{topic: topic, ops: []kadm.ACLOperation{kadm.OpWrite, kadm.OpDescribe}}
}

func justDescribe(topic string) right {
	return right{topic: topic, ops: []kadm.ACLOperation{kadm.OpDescribe}}
}

// both makes a topic with n records at the source, and an empty one at the
// target, where the mirror may create none.
func (w secured) both(t *testing.T, topic string, n int, seed int64) {
	t.Helper()
	w.Source.CreateTopic(t, topic, 2, 1, nil)
	w.Target.CreateTopic(t, topic, 2, 1, nil)
	w.Source.Produce(t, testenv.Records(topic, 2, n, seed)...)
}

// listed waits until the flow says of a topic that it is not copied, and why.
func listed(t *testing.T, p *Process, flow, topic, reason, hint string) {
	t.Helper()
	Eventually(t, within, topic+" is listed as "+reason, func() (bool, string) {
		for _, ts := range p.Flow(flow).Topics {
			if ts.Topic == topic {
				return !ts.Ready && ts.Reason == reason && ts.Hint == hint, fmt.Sprintf("%+v", ts)
			}
		}
		return false, "not at all"
	})
}

// What is not permitted on one topic is said of that topic, with the right
// that lacks; the others flow, and a grant heals without a restart.
func testForbiddenTopics(t *testing.T, w secured) {
	const flow = "forbidden"
	free := []string{"d60-a", "d60-b", "d60-c"}
	for i, topic := range append(slices.Clone(free), "d60-noread", "d60-nowrite", "d60-nothing") {
		w.both(t, topic, 20, int64(600+i))
	}
	w.Source.CreateTopic(t, "d60-nocreate", 2, 1, nil)
	w.Source.Produce(t, testenv.Records("d60-nocreate", 2, 20, 610)...)
	grant(t, w.Source, flowGroups(flow)...)
	for _, topic := range free {
		grant(t, w.Source, toRead(topic))
		grant(t, w.Target, toWrite(topic))
	}
	grant(t, w.Source, justDescribe("d60-noread"), toRead("d60-nowrite"), toRead("d60-nothing"), toRead("d60-nocreate"))
	grant(t, w.Target, toWrite("d60-noread"), justDescribe("d60-nowrite"), justDescribe("d60-nocreate"))

	p := Start(t, w.asMirror(unordered(w.flow(flow, "d60-.*"))))
	for _, topic := range free {
		w.arrived(t, topic, 20, within)
	}
	listed(t, p, flow, "d60-noread", "not permitted: READ on source", "grant READ on TOPIC d60-noread")
	listed(t, p, flow, "d60-nowrite", "not permitted: WRITE on target", "grant WRITE on TOPIC d60-nowrite")
	listed(t, p, flow, "d60-nothing", "not permitted: DESCRIBE on target", "grant DESCRIBE and WRITE on TOPIC d60-nothing")
	listed(t, p, flow, "d60-nocreate", "not permitted: CREATE of topic d60-nocreate on target", "grant CREATE on TOPIC d60-nocreate, or create it with 2 partitions")
	if st := p.Flow(flow); st.Phase != mirror.FlowRunning || st.Reader != string(topology.ReaderShare) {
		t.Errorf("flow is %s with reader %s: %s", st.Phase, st.Reader, st.Reason)
	}
	if p.Mirror.Health().OK {
		t.Error("healthy, although four topics are not copied")
	}

	// A right that goes while the topic is copied stops that topic alone.
	revoke(t, w.Source, right{topic: "d60-c", ops: []kadm.ACLOperation{kadm.OpRead}})
	revoke(t, w.Target, right{topic: "d60-b", ops: []kadm.ACLOperation{kadm.OpWrite}})
	for i, topic := range free {
		w.Source.Produce(t, testenv.Records(topic, 2, 10, int64(620+i))...)
	}
	w.arrived(t, "d60-a", 30, within)
	listed(t, p, flow, "d60-c", "not permitted: READ on source", "grant READ on TOPIC d60-c")
	listed(t, p, flow, "d60-b", "not permitted: WRITE on target", "grant WRITE on TOPIC d60-b")

	grant(t, w.Source, toRead("d60-noread"), toRead("d60-c"))
	grant(t, w.Target, toWrite("d60-nowrite"), toWrite("d60-nothing"), toWrite("d60-b"),
		right{topic: "d60-nocreate", ops: []kadm.ACLOperation{kadm.OpCreate, kadm.OpWrite}})
	for _, topic := range free {
		w.arrived(t, topic, 30, within)
	}
	for _, topic := range []string{"d60-noread", "d60-nowrite", "d60-nothing", "d60-nocreate"} {
		w.arrived(t, topic, 20, within)
	}
	// Lag may stay until a lock ends: what was acquired when READ went could not
	// be acknowledged without it.
	Eventually(t, within, "the flow is healthy after the grants", func() (bool, string) {
		h := p.Mirror.Health()
		return h.OK, fmt.Sprint(h.Problems)
	})
	p.Stop()
	for _, topic := range append(slices.Clone(free), "d60-noread", "d60-nowrite", "d60-nothing", "d60-nocreate") {
		w.same(t, topic)
	}
}

// A share group whose settings may not be changed would begin at the end of
// the log: read: share is refused, read: auto takes the other reader.
func testGroupSettingsDenied(t *testing.T, w secured) {
	const topic, flow = "a1c", "settings"
	w.both(t, topic, 20, 11)
	groups := flowGroups(flow)
	groups[0].ops = []kadm.ACLOperation{kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs}
	grant(t, w.Source, append(groups, toRead(topic))...)
	grant(t, w.Target, toWrite(topic))

	const missing = "ALTER_CONFIGS and DESCRIBE_CONFIGS on GROUP onceover.settings"
	f := unordered(w.flow(flow, topic))
	f.Read = topology.ReaderShare
	p := Start(t, w.asMirror(f))
	Eventually(t, within, "the flow is refused", func() (bool, string) {
		st := p.Flow(flow)
		return st.Phase == mirror.FlowStopped && strings.Contains(st.Reason, "share.auto.offset.reset") && strings.Contains(st.Hint, missing),
			fmt.Sprintf("%s: %s (%s)", st.Phase, st.Reason, st.Hint)
	})
	if err := p.wait(); err == nil {
		t.Error("the refusal is not returned by Run")
	}

	p = Start(t, w.asMirror(unordered(w.flow(flow, topic))))
	w.arrived(t, topic, 20, within)
	w.drained(t, p, flow, 2)
	st := p.Flow(flow)
	if st.Reader != string(topology.ReaderPartition) || !strings.Contains(st.Why, "share groups can't be used here") || !strings.Contains(st.Why, "share.auto.offset.reset") {
		t.Errorf("reader %s because %q, want partition with the setting that can't be had", st.Reader, st.Why)
	}
	p.Stop()
	testenv.AssertExactlyOnce(t, w.Source.ReadAll(t, topic), w.Target.ReadAll(t, topic), testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}})
}

// Without READ on its share group the flow says so, and goes on when it is
// granted.
func testShareGroupReadDenied(t *testing.T, w secured) {
	const topic, flow = "a1d", "no-group"
	w.both(t, topic, 20, 12)
	groups := flowGroups(flow)
	groups[0].ops = []kadm.ACLOperation{kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpAlterConfigs}
	grant(t, w.Source, append(groups, toRead(topic))...)
	grant(t, w.Target, toWrite(topic))
	p := Start(t, w.asMirror(unordered(w.flow(flow, topic))))
	Eventually(t, within, "the missing right is named", func() (bool, string) {
		st := p.Flow(flow)
		return strings.Contains(st.Reason, "GROUP_AUTHORIZATION_FAILED") && st.Hint == "grant READ on GROUP onceover.no-group at the source",
			fmt.Sprintf("%s: %s (%s)", st.Phase, st.Reason, st.Hint)
	})
	grant(t, w.Source, flowGroups(flow)[0])
	w.arrived(t, topic, 20, within)
	w.drained(t, p, flow, 2)
	p.Stop()
	w.same(t, topic)
}

// unordered has a flow that may not read topic configs use the share reader all
// the same.
func unordered(f *topology.Flow) *topology.Flow {
	f.Ordered = topology.OrderedFalse
	return f
}
