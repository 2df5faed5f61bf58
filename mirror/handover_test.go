package mirror_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// Records that are produced between the two questions of a change of reader,
// where the share group stands and where the source ends, are not skipped.
func TestChangeOfReaderUnderLoad(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.fill("h13", 1, 50, 13)
	f := w.flow("handover", "h13")
	f.Read = topology.ReaderShare
	p := w.start(f)
	w.arrived("h13", 50)
	w.drained(p, "handover", 1)
	p.Stop()

	fake := w.source.Fake()
	var asked, produced atomic.Bool
	fake.ControlKey(int16(kmsg.DescribeShareGroupOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		asked.Store(true)
		return nil, nil, false
	})
	fake.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if asked.Load() && !produced.Swap(true) {
			fake.SleepControl(func() { w.source.Produce(t, testenv.Records("h13", 1, 10, 14)...) })
		}
		return nil, nil, false
	})
	f = w.flow("handover", "h13")
	f.Read = topology.ReaderPartition
	p = w.start(f)
	w.arrived("h13", 60)
	w.drained(p, "handover", 1)
	p.Stop()
	if !produced.Load() {
		t.Error("nothing was produced in between")
	}
	w.same("h13", unordered)
}
