package mirror_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

func TestExactlyOnceCopies(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	f := w.flow("eo", "orders")
	f.Guarantee = topology.GuaranteeExactlyOnce
	w.fill("orders", 4, 500, 1)
	p := w.start(f)
	w.arrived("orders", 500)
	w.same("orders", testenv.Compare{})
	s := w.drained(p, "eo", 4)
	if s.Guarantee != "exactly-once" || s.Reader != "partition" {
		t.Errorf("guarantee %s, reader %s", s.Guarantee, s.Reader)
	}
}

// Of two processes that are started under one name the second has it. The first
// goes on under another, and does not put the second out of the group.
func TestTakenNameStaysTaken(t *testing.T) {
	for _, g := range []topology.Guarantee{topology.GuaranteeAtLeastOnce, topology.GuaranteeExactlyOnce} {
		t.Run(string(g), func(t *testing.T) {
			w := newWorld(t, testenv.EmbeddedOptions{})
			f := w.flow("name", "orders")
			f.Guarantee, f.Read = g, topology.ReaderPartition
			named := func(o *mirror.Options) { o.Instance = "same" }
			w.fill("orders", 4, 100, 1)
			at := w.source
			if g == topology.GuaranteeExactlyOnce {
				at = w.target
			}
			leaves := at.Front().Watch(kmsg.LeaveGroup)
			first := w.start(f, named)
			w.arrived("orders", 100)
			second := w.start(f, named)
			w.until(second, "name", "the second copies", func(s mirror.FlowState) bool { return s.Lanes > 0 })
			w.source.Produce(t, testenv.Records("orders", 4, 100, 2)...)
			w.arrived("orders", 200)
			w.drained(first, "name", 4)
			for _, c := range leaves.Calls() {
				for _, m := range c.Request.(*kmsg.LeaveGroupRequest).Members {
					if m.InstanceID != nil {
						t.Errorf("%s was made to leave although it runs", *m.InstanceID)
					}
				}
			}
		})
	}
}
