package mirror_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
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

// Whoever was fenced, at whatever step, asks the group before it fences anybody.
func TestFencedLaneAsksTheGroupFirst(t *testing.T) {
	w := newWorld(t, testenv.EmbeddedOptions{})
	f := w.flow("asks", "orders")
	f.Guarantee = topology.GuaranteeExactlyOnce
	w.fill("orders", 1, 100, 1)
	p := w.start(f)
	w.arrived("orders", 100)
	seen := w.target.Front().Watch(kmsg.InitProducerID, kmsg.Heartbeat, kmsg.Produce)
	fence := w.target.Front().Arm(testenv.Fault{Keys: []kmsg.Key{kmsg.Produce}, Do: testenv.AlterAnswer, Alter: func(_ kmsg.Request, resp kmsg.Response) bool {
		for i := range resp.(*kmsg.ProduceResponse).Topics {
			for j := range resp.(*kmsg.ProduceResponse).Topics[i].Partitions {
				resp.(*kmsg.ProduceResponse).Topics[i].Partitions[j].ErrorCode = kerr.InvalidProducerEpoch.Code
			}
		}
		return true
	}})
	w.source.Produce(t, testenv.Records("orders", 1, 50, 2)...)
	w.arrived("orders", 150)
	w.drained(p, "asks", 1)
	w.same("orders", testenv.Compare{})
	fence.MustHaveFired(t)
	asked := false
	calls := seen.Calls()
	first := slices.IndexFunc(calls, func(c testenv.Call) bool { return c.Key() == kmsg.Produce })
	for _, c := range calls[first:] {
		asked = asked || c.Key() == kmsg.Heartbeat
		if c.Key() == kmsg.InitProducerID {
			break
		}
	}
	if !asked {
		t.Error("InitProducerID without a heartbeat after the fence")
	}
	if st := p.Flow("asks"); st.Shards.Fenced == 0 {
		t.Errorf("%+v", st.Shards)
	}
}
