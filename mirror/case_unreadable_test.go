package mirror_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
)

// spoil flips a bit in the batch of ten records that begins at an offset, in
// whatever answer it comes.
func spoil(offset int64) *tamper {
	flip := func(records []byte) bool {
		for at := 0; at+12 < len(records); {
			size := 12 + int(binary.BigEndian.Uint32(records[at+8:]))
			if int64(binary.BigEndian.Uint64(records[at:])) == offset && binary.BigEndian.Uint32(records[at+57:]) == 10 {
				records[at+size-1] ^= 1
				return true
			}
			at += size
		}
		return false
	}
	return &tamper{
		keys: []kmsg.Key{kmsg.ShareFetch, kmsg.Fetch},
		change: func(_ string, resp kmsg.Response) (changed bool) {
			switch resp := resp.(type) {
			case *kmsg.ShareFetchResponse:
				for _, tp := range resp.Topics {
					for _, p := range tp.Partitions {
						changed = flip(p.Records) || changed
					}
				}
			case *kmsg.FetchResponse:
				for _, tp := range resp.Topics {
					for _, p := range tp.Partitions {
						changed = flip(p.RecordBatches) || changed
					}
				}
			}
			return changed
		},
	}
}

// A batch that can't be decoded stops its partition, or topic, with its place;
// with on_error: skip its offsets are left out and counted, and what comes
// behind is copied.
func TestUnreadableBatch(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		for _, first := range []int64{0, 20} { // what is known of the position differs
			for _, onError := range []topology.OnError{topology.OnErrorStop, topology.OnErrorSkip} {
				name := string(read) + "/" + map[int64]string{0: "First", 20: "Later"}[first] + "/" + string(onError)
				t.Run(name, func(t *testing.T) { testUnreadable(t, read, first, onError) })
			}
		}
	}
}

func testUnreadable(t *testing.T, read topology.Reader, first int64, onError topology.OnError) {
	w := newWorld(t, quick(map[string]string{"group.share.record.lock.duration.ms": "30000"}))
	w.source.CreateTopic(t, "bits", 1, 1, nil)
	w.fill("sound", 1, 20, 2)
	rs := testenv.Records("bits", 1, 50, 1)
	for i := 0; i < len(rs); i += 10 {
		w.source.Produce(t, rs[i:i+10]...)
	}
	f := w.flow("bits", "bits", "sound")
	f.Read, f.OnError = read, onError
	bad, d := spoil(first), newDeliveries()
	watchDeliveries := d.change
	change := bad.change
	bad.change = func(addr string, resp kmsg.Response) bool {
		if resp.Key() == int16(kmsg.ShareFetch) {
			watchDeliveries(addr, resp)
		}
		return change(addr, resp)
	}
	p := w.start(f, bad.options)
	w.arrived("sound", 20)
	if onError == topology.OnErrorSkip {
		w.arrived("bits", 40)
		st := w.settled(p, "bits", 60)
		if st.Skipped != 10 {
			t.Errorf("%d skipped, want 10", st.Skipped)
		}
		p.Stop()
		p = w.start(f)
		w.drained(p, "bits", 2)
		p.Stop()
		want := slices.Delete(w.source.ReadAll(t, "bits"), int(first), int(first)+10)
		testenv.AssertExactlyOnce(t, want, w.target.ReadAll(t, "bits"), testenv.Compare{Unordered: true, IgnoreHeaders: []string{testenv.Provenance}})
		return
	}
	st := w.until(p, "bits", "the partition is stopped", func(st mirror.FlowState) bool {
		return slices.ContainsFunc(st.Partitions, func(ps mirror.PartitionState) bool {
			return ps.Topic == "bits" && ps.Phase == mirror.PartitionStopped
		})
	})
	reason := st.Partitions[0].Reason
	if !strings.Contains(reason, "bits[0] stopped at offset "+map[int64]string{0: "0:", 20: "20:"}[first]) || !says(reason, "decoded", "crc") || st.Partitions[0].Hint == "" {
		t.Errorf("stopped because: %s (%s)", reason, st.Partitions[0].Hint)
	}
	if p.Mirror.Health().OK {
		t.Error("healthy, although a partition is stopped")
	}
	w.source.Produce(t, testenv.Records("sound", 1, 20, 3)...)
	w.arrived("sound", 40)
	p.Stop()
	// Given back once, by closing the session; that counts as a delivery here.
	if read == topology.ReaderShare && d.highest() > 2 {
		t.Errorf("records of the stopped topic were delivered up to %d times", d.highest())
	}

	// Sound again, everything arrives.
	p = w.start(f)
	if read == topology.ReaderShare {
		suite.Eventually(t, within, "the stop is cleared", func() (bool, string) {
			got, err := p.Mirror.Resume(t.Context(), "bits", "bits")
			return err == nil && len(got) == 1, ""
		})
	}
	w.arrived("bits", 50)
	w.drained(p, "bits", 2)
	p.Stop()
	w.same("bits", unordered)
}
