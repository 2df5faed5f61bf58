package mirror_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
)

var mirrorUser = testenv.User{Mechanism: topology.MechanismScramSHA256, Name: "mirror", Password: "mirror-password"}

// guarded is a cluster that denies what is not granted.
func guarded(configs map[string]string) testenv.EmbeddedOptions {
	o := quick(configs)
	o.SASL, o.ACLs, o.Users = true, true, []testenv.User{mirrorUser}
	return o
}

// grant allows the mirror's user operations on a resource; names that end in *
// are prefixes.
func (w *world) grant(c *testenv.Cluster, kind kmsg.ACLResourceType, name string, ops ...kmsg.ACLOperation) {
	w.Helper()
	b := kadm.NewACLs().Allow("User:" + mirrorUser.Name).AllowHosts().Operations(ops...)
	pattern := kadm.ACLPatternLiteral
	if n := len(name) - 1; n > 0 && name[n] == '*' {
		name, pattern = name[:n], kadm.ACLPatternPrefixed
	}
	b = b.ResourcePatternType(pattern)
	switch kind {
	case kmsg.ACLResourceTypeTopic:
		b = b.Topics(name)
	case kmsg.ACLResourceTypeGroup:
		b = b.Groups(name)
	default:
		b = b.Clusters()
	}
	made, err := c.Admin(w.T).CreateACLs(w.Context(), b)
	if err != nil {
		w.Fatal(err)
	}
	for _, m := range made {
		if m.Err != nil {
			w.Fatal(m.Err)
		}
	}
}

// Topics that may not be read, written or created are named with the right that
// is missing, and the others flow; a right that is granted heals the topic
// without a restart.
func TestCase60ForbiddenTopics(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		t.Run(string(read), func(t *testing.T) { testForbiddenTopics(t, read) })
	}
}

func testForbiddenTopics(t *testing.T, read topology.Reader) {
	const (
		topic, group    = kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
		describe        = kmsg.ACLOperationDescribe
		readOp, writeOp = kmsg.ACLOperationRead, kmsg.ACLOperationWrite
	)
	t.Parallel()
	w := &world{t, testenv.Embedded(t, guarded(nil)), testenv.Embedded(t, guarded(nil))}
	all := []string{"d11-a", "d11-b", "d11-noread", "d11-nowrite", "d11-nocreate"}
	for i, name := range all {
		w.fill(name, 2, 20, int64(i))
		if name != "d11-nocreate" {
			w.target.CreateTopic(t, name, 2, 1, nil)
		}
	}
	w.grant(w.source, group, "onceover.*", readOp, describe)
	w.grant(w.source, topic, "d11-*", describe)
	w.grant(w.target, topic, "d11-*", describe)
	for _, name := range all {
		if name != "d11-noread" {
			w.grant(w.source, topic, name, readOp)
		}
		if name != "d11-nowrite" {
			w.grant(w.target, topic, name, writeOp)
		}
	}
	f := w.flow("rights", "d11.*")
	f.Read = read
	top := w.topologyOf(f)
	for _, c := range top.Clusters {
		c.SASL = &topology.SASL{Mechanism: mirrorUser.Mechanism, Username: mirrorUser.Name, Password: topology.Secret(mirrorUser.Password)}
	}
	p := suite.Start(t, top)
	w.arrived("d11-a", 20)
	w.arrived("d11-b", 20)
	reasons := map[string]string{
		"d11-noread": "not permitted: READ on source", "d11-nowrite": "not permitted: WRITE on target",
		"d11-nocreate": "not permitted: CREATE of topic d11-nocreate on target",
	}
	st := w.until(p, "rights", "the others are listed", func(st mirror.FlowState) bool {
		return st.Phase == mirror.FlowRunning && len(st.Topics) == 5 && !slices.ContainsFunc(st.Topics, func(ts mirror.TopicState) bool {
			return ts.Ready != (reasons[ts.Topic] == "")
		})
	})
	for _, ts := range st.Topics {
		if ts.Reason != reasons[ts.Topic] || ts.Reason != "" && !says(ts.Hint, "grant", ts.Topic) {
			t.Errorf("%s: %q (%s), want %q", ts.Topic, ts.Reason, ts.Hint, reasons[ts.Topic])
		}
	}
	for _, name := range []string{"d11-noread", "d11-nowrite"} {
		if n := len(w.target.ReadAll(t, name)); n != 0 {
			t.Errorf("%d records of %s copied", n, name)
		}
	}
	w.grant(w.source, topic, "d11-noread", readOp)
	w.grant(w.target, topic, "d11-nowrite", writeOp)
	w.grant(w.target, topic, "d11-nocreate", kmsg.ACLOperationCreate)
	for _, name := range all {
		w.arrived(name, 20)
	}
	st = w.settled(p, "rights", 100)
	if i := slices.IndexFunc(st.Topics, func(ts mirror.TopicState) bool { return !ts.Ready }); i >= 0 {
		t.Errorf("%s is not copied: %s", st.Topics[i].Topic, st.Topics[i].Reason)
	}
	p.Stop()
	for _, name := range all {
		w.same(name, unordered)
	}
}

// A right that is taken away while the flow runs stops that topic alone, and
// burns no deliveries: given back, everything arrives once.
func TestCase60RightTakenAway(t *testing.T) {
	const topic = kmsg.ACLResourceTypeTopic
	t.Parallel()
	w := &world{t, testenv.Embedded(t, quick(nil)), testenv.Embedded(t, guarded(nil))}
	w.fill("d11-a", 1, 20, 1)
	w.fill("d11-b", 1, 20, 2)
	w.grant(w.target, topic, "d11-*", kmsg.ACLOperationDescribe, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate)
	f := w.flow("taken", "d11.*")
	top := w.topologyOf(f)
	top.Clusters["target"].SASL = &topology.SASL{Mechanism: mirrorUser.Mechanism, Username: mirrorUser.Name, Password: topology.Secret(mirrorUser.Password)}
	d := newDeliveries()
	p := suite.Start(t, top, d.options)
	w.arrived("d11-a", 20)
	w.arrived("d11-b", 20)
	w.settled(p, "taken", 40)

	deny := kadm.NewACLs().Deny("User:" + mirrorUser.Name).DenyHosts().Operations(kmsg.ACLOperationWrite).
		ResourcePatternType(kadm.ACLPatternLiteral).Topics("d11-b")
	if _, err := w.target.Admin(t).CreateACLs(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"d11-a", "d11-b"} {
		w.source.Produce(t, testenv.Records(name, 1, 20, int64(10+i))...)
	}
	w.arrived("d11-a", 40)
	w.until(p, "taken", "the right is named", func(st mirror.FlowState) bool {
		return slices.ContainsFunc(st.Topics, func(ts mirror.TopicState) bool {
			return ts.Topic == "d11-b" && ts.Reason == "not permitted: WRITE on target"
		})
	})
	if _, err := w.target.Admin(t).DeleteACLs(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	w.arrived("d11-b", 40)
	w.settled(p, "taken", 80)
	p.Stop()
	if d.highest() > 2 {
		t.Errorf("records were delivered up to %d times", d.highest())
	}
	w.same("d11-b", unordered)
}
