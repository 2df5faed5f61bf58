package mirror_test

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
)

// A reader that goes to a follower and back to the leader, again and again,
// passes on no record twice, also when the follower does not have the log's
// beginning or is behind.
func TestCase47FollowerAndBack(t *testing.T) {
	const n = 10000
	o := quick(nil)
	o.Nodes = 2
	w := newWorld(t, o)
	w.source.CreateTopic(t, "c14", 2, 1, nil)
	fake := w.source.Fake()
	leader := fake.LeaderFor("c14", 0)
	follower := 1 - leader
	// A client knows a broker only once it leads something.
	if err := fake.MoveTopicPartition("c14", 1, follower); err != nil {
		t.Fatal(err)
	}
	fake.SetFollowers("c14", 0, []int32{follower})
	// The leader sends the reader on to the follower with every second answer,
	// and the follower, whose log begins later, sends it back with every third.
	var there, back, n0, n1 atomic.Int64
	moves := &tamper{keys: []kmsg.Key{kmsg.Fetch}}
	at := w.source.Bootstrap()
	moves.change = func(addr string, resp kmsg.Response) bool {
		for _, tp := range resp.(*kmsg.FetchResponse).Topics {
			for i := range tp.Partitions {
				p := &tp.Partitions[i]
				switch {
				case p.Partition != 0 || len(p.RecordBatches) == 0:
				case addr == at[leader] && n0.Add(1)%2 == 1:
					p.PreferredReadReplica, p.RecordBatches = follower, nil
					there.Add(1)
					return true
				case addr == at[follower] && n1.Add(1)%3 == 0:
					p.ErrorCode, p.LogStartOffset, p.RecordBatches = kerr.OffsetOutOfRange.Code, n, nil
					back.Add(1)
					return true
				}
			}
		}
		return false
	}
	f := w.flow("rack", "c14")
	f.Read = topology.ReaderPartition
	f.Limits.Bytes = 64 << 10
	f.Properties = map[string]topology.Value{"consumer.override.client.rack": {Text: "krack"}}
	p := w.start(f, moves.options)
	rs := testenv.Records("c14", 2, n, 14)
	for i := 0; i < n; i += n / 50 {
		w.source.Produce(t, rs[i:i+n/50]...)
	}
	w.arrived("c14", n)
	w.settled(p, "rack", n)
	p.Stop()
	if there.Load() < 2 || back.Load() < 2 {
		t.Errorf("sent to the follower %d times, and back %d times", there.Load(), back.Load())
	}
	w.same("c14", testenv.Compare{})
}

// Brokers that know no leader epochs answer -1; positions advance all the
// same, and restarts repeat nothing.
func TestCase49NoLeaderEpochs(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.fill("c16", 1, 100, 16)
	none := &tamper{keys: []kmsg.Key{kmsg.Metadata, kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetFetch, kmsg.OffsetForLeaderEpoch}}
	none.change = func(_ string, resp kmsg.Response) bool {
		switch resp := resp.(type) {
		case *kmsg.MetadataResponse:
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					resp.Topics[i].Partitions[j].LeaderEpoch = -1
				}
			}
		case *kmsg.FetchResponse:
			for _, tp := range resp.Topics {
				for _, p := range tp.Partitions {
					for at := 0; at+16 <= len(p.RecordBatches); {
						copy(p.RecordBatches[at+12:at+16], "\xff\xff\xff\xff") // not covered by the CRC
						at += 12 + int(uint32(p.RecordBatches[at+8])<<24|uint32(p.RecordBatches[at+9])<<16|uint32(p.RecordBatches[at+10])<<8|uint32(p.RecordBatches[at+11]))
					}
				}
			}
		case *kmsg.ListOffsetsResponse:
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					resp.Topics[i].Partitions[j].LeaderEpoch = -1
				}
			}
		default:
			return false
		}
		return true
	}
	f := w.flow("epochs", "c16")
	f.Read = topology.ReaderPartition
	var said lines
	for range 3 {
		p := w.start(f, none.options, func(o *mirror.Options) { o.Log = slog.New(slog.NewTextHandler(&said, nil)) })
		w.arrived("c16", 100)
		w.drained(p, "epochs", 1)
		p.Stop()
	}
	if none.fired.Load() == 0 {
		t.Error("no answer was changed")
	}
	// Only the first run sees records.
	if n := said.count("gives no leader epochs"); n != 1 {
		t.Errorf("it is said %d times, not once, that truncation can't be told", n)
	}
	r, err := w.topologyOf(f).Resolve(f)
	if err != nil {
		t.Fatal(err)
	}
	at, err := w.source.Admin(t).FetchOffsets(t.Context(), r.GroupID)
	if o, ok := at.Lookup("c16", 0); err != nil || !ok || o.At != 100 {
		t.Errorf("position %v, error %v, want 100", o, err)
	}
	w.same("c16", testenv.Compare{})
}

// A broker that does not know a new partition yet is no reason to fail
// records, and the partition is read once all agree.
func TestCase51LaggingMetadata(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		t.Run(string(read), func(t *testing.T) {
			o := quick(nil)
			o.Nodes = 2
			t.Parallel()
			w := &world{t, testenv.Embedded(t, o), testenv.Embedded(t, testenv.EmbeddedOptions{Nodes: 2})}
			w.fill("d2", 3, 90, 2)
			f := w.flow("lagging", "d2")
			f.Read = read
			var heal atomic.Bool
			stale := &tamper{keys: []kmsg.Key{kmsg.Metadata}}
			late := []string{w.source.Bootstrap()[1], w.target.Bootstrap()[1]}
			stale.change = func(addr string, resp kmsg.Response) (changed bool) {
				if heal.Load() || addr != late[0] && addr != late[1] {
					return false
				}
				meta := resp.(*kmsg.MetadataResponse)
				for i := range meta.Topics {
					ps := meta.Topics[i].Partitions[:0]
					for _, p := range meta.Topics[i].Partitions {
						if p.Partition < 3 {
							ps = append(ps, p)
						}
					}
					changed = changed || len(ps) < len(meta.Topics[i].Partitions)
					meta.Topics[i].Partitions = ps
				}
				return changed
			}
			p := w.start(f, stale.options)
			w.arrived("d2", 90)
			resp, err := w.source.Admin(t).UpdatePartitions(t.Context(), 4, "d2")
			if err == nil {
				err = resp.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
			w.source.Produce(t, testenv.Records("d2", 4, 80, 3)...)
			suite.Eventually(t, within, "stale answers are given", func() (bool, string) { return stale.fired.Load() > 3, "" })
			heals := time.AfterFunc(2*time.Second, func() { heal.Store(true) })
			defer heals.Stop()
			w.arrived("d2", 170)
			heal.Store(true)
			st := w.settled(p, "lagging", 170)
			p.Stop()
			if st.Skipped != 0 || st.Lost != 0 {
				t.Errorf("%d skipped, %d lost", st.Skipped, st.Lost)
			}
			for _, ps := range st.Partitions {
				if ps.Phase == mirror.PartitionStopped {
					t.Errorf("%s[%d] stopped: %s", ps.Topic, ps.Partition, ps.Reason)
				}
			}
			w.same("d2", unordered)
		})
	}
}

// lines is a log that can be searched while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}
