package mirror_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/topology"
)

// The group's reset setting is put right again when somebody changed it and
// deleted the group: what is there already is not skipped.
func TestCase1GroupSetToLatest(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.fill("a1", 2, 50, 1)
	f := w.flow("history", "a1")
	p := w.start(f)
	w.arrived("a1", 50)
	w.settled(p, "history", 50)
	p.Stop()

	group := w.shareGroup(f)
	w.dropGroup(group)
	w.setGroup(group, "share.auto.offset.reset", "latest")
	w.fill("a1-later", 1, 50, 2)
	f = w.flow("history", "a1-later")
	p = w.start(f)
	w.arrived("a1-later", 50)
	w.settled(p, "history", 50)
	p.Stop()
	if got := w.groupSetting(group, "share.auto.offset.reset"); got != "earliest" {
		t.Errorf("share.auto.offset.reset is %q", got)
	}
	w.same("a1-later", unordered)
}

// Without the right to alter the group a share flow does not start blind: it
// is refused, or another reader is taken, and the missing right is named.
func TestCase1GroupMayNotBeAltered(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.fill("a1", 2, 50, 1)
	f := w.flow("blind", "a1")
	denied := answer(w.source, kmsg.IncrementalAlterConfigs, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		for _, r := range req.(*kmsg.IncrementalAlterConfigsRequest).Resources {
			rr := kmsg.NewIncrementalAlterConfigsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ErrorCode = r.ResourceType, r.ResourceName, kerr.GroupAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, rr)
		}
		return resp
	})
	f.Read = topology.ReaderShare
	p := w.start(f)
	st := w.until(p, "blind", "the flow is refused", func(st mirror.FlowState) bool { return st.Phase == mirror.FlowStopped })
	if !says(st.Reason+st.Hint, "share.auto.offset.reset", "GROUP_AUTHORIZATION_FAILED", "ALTER_CONFIGS", w.shareGroup(f)) {
		t.Errorf("the refusal does not say what is missing: %s (%s)", st.Reason, st.Hint)
	}
	if st.Records != 0 {
		t.Errorf("%d records copied", st.Records)
	}
	if denied.Load() == 0 {
		t.Error("the right was not asked for")
	}

	f = w.flow("blind", "a1")
	p = w.start(f)
	w.arrived("a1", 50)
	st = w.settled(p, "blind", 50)
	if st.Reader != string(topology.ReaderPartition) || !says(st.Why, "GROUP_AUTHORIZATION_FAILED", "ALTER_CONFIGS") {
		t.Errorf("reader %s because of: %s", st.Reader, st.Why)
	}
	p.Stop()
	w.same("a1", unordered)
}
