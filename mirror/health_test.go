package mirror_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// A source that is gone makes the flow unhealthy, with lag at the last look or
// without, and the reason is there.
func TestHealthSourceGone(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		t.Run(string(read), func(t *testing.T) {
			inBubble(t, func(w *world, change func(*mirror.Options)) {
				w.fill("gone", 1, 20, 1)
				f := w.flow("gone", "gone")
				f.Read = read
				p := w.start(f, change)
				w.arrived("gone", 20)
				w.drained(p, "gone", 1)
				if h := p.Mirror.Health(); !h.OK {
					w.Errorf("unhealthy before: %v", h.Problems)
				}
				began := time.Now()
				if err := w.source.Close(); err != nil {
					w.Fatal(err)
				}
				unhealthy(w, p, "gone", func(h mirror.Health) bool {
					return len(h.Problems) == 1 && says(h.Problems[0], "flow gone: ", "since")
				})
				if took := time.Since(began); took > mirror.StallAfter+20*time.Second {
					w.Errorf("unhealthy after %v", took)
				}
				st := p.Flow("gone")
				if len(st.Troubles) == 0 || st.Reason == "" {
					w.Errorf("troubles %v, reason %q", st.Troubles, st.Reason)
				}
				p.Stop()
			})
		})
	}
}

// Lag that was seen before looks began to fail stalls on time, with the trouble
// as the reason.
func TestHealthLooksFail(t *testing.T) {
	inBubble(t, func(w *world, change func(*mirror.Options)) {
		var denied atomic.Bool
		fired := answer(w.source, kmsg.DescribeShareGroupOffsets, func(req kmsg.Request) kmsg.Response {
			if !denied.Load() {
				return nil
			}
			resp := req.ResponseKind().(*kmsg.DescribeShareGroupOffsetsResponse)
			for _, g := range req.(*kmsg.DescribeShareGroupOffsetsRequest).Groups {
				rg := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
				rg.GroupID, rg.ErrorCode = g.GroupID, kerr.GroupAuthorizationFailed.Code
				resp.Groups = append(resp.Groups, rg)
			}
			return resp
		})
		w.fill("looks", 1, 20, 1)
		f := w.flow("looks", "looks")
		f.Read = topology.ReaderShare
		p := w.start(f, change)
		w.arrived("looks", 20)
		w.drained(p, "looks", 1)
		denied.Store(true)
		unhealthy(w, p, "looks", func(h mirror.Health) bool {
			return len(h.Problems) == 1 && says(h.Problems[0], "flow looks: lag, since", "GROUP_AUTHORIZATION_FAILED")
		})
		if hint := p.Flow("looks").Hint; !says(hint, "grant READ on GROUP") {
			w.Errorf("hint %q", hint)
		}
		// Records still flow: the others are no worse for it.
		w.source.Produce(w.T, testenv.Records("looks", 1, 5, 2)...)
		w.arrived("looks", 25)
		denied.Store(false)
		w.until(p, "looks", "the trouble is over", func(mirror.FlowState) bool { return p.Mirror.Health().OK })
		if fired.Load() == 0 {
			w.Error("nothing was denied")
		}
		p.Stop()
	})
}

// Status says what is there and does not claim that anything runs.
func TestStatusObserves(t *testing.T) {
	for _, read := range []topology.Reader{topology.ReaderShare, topology.ReaderPartition} {
		t.Run(string(read), func(t *testing.T) {
			w := newWorld(t, quick(nil))
			w.fill("seen", 2, 20, 1)
			w.target.CreateTopic(t, "seen", 2, 1, nil)
			f := w.flow("seen", "seen")
			f.Read = read
			var changes atomic.Int64
			for _, key := range []kmsg.Key{kmsg.OffsetCommit, kmsg.AlterShareGroupOffsets, kmsg.ShareGroupHeartbeat, kmsg.JoinGroup, kmsg.CreateTopics} {
				watch(w.source, key, func(kmsg.Request) { changes.Add(1) })
			}
			watch(w.source, kmsg.IncrementalAlterConfigs, func(req kmsg.Request) {
				if !req.(*kmsg.IncrementalAlterConfigsRequest).ValidateOnly {
					changes.Add(1)
				}
			})
			look := func(phase mirror.PartitionPhase, lag int64) {
				t.Helper()
				st := w.status(f)
				if st.Phase != mirror.FlowObserved || st.Reason != "" || st.Reader != string(read) {
					t.Errorf("phase %s, reason %q, reader %s", st.Phase, st.Reason, st.Reader)
				}
				sum := int64(0)
				for _, ps := range st.Partitions {
					sum += ps.Lag
					if ps.Phase != phase || lag > 0 && ps.LagSeconds < 0 {
						t.Errorf("%s[%d] is %s, want %s; lag time %v", ps.Topic, ps.Partition, ps.Phase, phase, ps.LagSeconds)
					}
				}
				if sum != lag || len(st.Partitions) != 2 {
					t.Errorf("lag %d in %d partitions, want %d in 2", sum, len(st.Partitions), lag)
				}
			}
			look(mirror.PartitionLagging, 20)
			if n := changes.Load(); n != 0 {
				t.Errorf("status changed something %d times", n)
			}
			p := w.start(f)
			w.arrived("seen", 20)
			w.drained(p, "seen", 2)
			look(mirror.PartitionIdle, 0)
			p.Stop()
			look(mirror.PartitionIdle, 0)
		})
	}
}

// Status and run decide alike where the share group can't be set up.
func TestStatusFallsBack(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.fill("seen", 1, 10, 1)
	fired := answer(w.source, kmsg.IncrementalAlterConfigs, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		for _, r := range req.(*kmsg.IncrementalAlterConfigsRequest).Resources {
			rr := kmsg.NewIncrementalAlterConfigsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ErrorCode = r.ResourceType, r.ResourceName, kerr.GroupAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, rr)
		}
		return resp
	})
	f := w.flow("falls", "seen")
	st := w.status(f)
	p := w.start(f)
	w.running(p, "falls")
	if run := p.Flow("falls"); run.Reader != string(topology.ReaderPartition) || st.Reader != run.Reader || st.Why != run.Why {
		t.Errorf("run reads by %s (%s), status says %s (%s)", run.Reader, run.Why, st.Reader, st.Why)
	}
	if fired.Load() < 2 {
		t.Errorf("%d requests denied", fired.Load())
	}
	p.Stop()
}

// A refusal names its flow, once, wherever it was made.
func TestStatusRefusalNamesFlow(t *testing.T) {
	w := newWorld(t, quick(nil))
	f := w.flow("named", "seen")
	top := w.topologyOf(f)
	top.Clusters["source"].TLS = &topology.TLS{CAFile: "nowhere.pem"}
	m, err := mirror.New(mirror.Options{Topology: top, ReadFile: func(string) ([]byte, error) { return nil, kerr.InvalidConfig }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Status(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "flow named: ") || strings.Count(err.Error(), "flow ") != 1 {
		t.Errorf("error %v", err)
	}
	if st := s.Flows[0]; st.Phase != mirror.FlowObserved || st.Reason == "" || says(st.Reason, "flow named") {
		t.Errorf("phase %s, reason %q", st.Phase, st.Reason)
	}
}

// Looking at lag opens no clients.
func TestLagOpensNoClients(t *testing.T) {
	w := newWorld(t, quick(nil))
	w.fill("lagging", 2, 20, 1)
	var (
		mu    sync.Mutex
		roles []string
	)
	sink := newRecorder(func(ctx context.Context, _ int, _ []*kgo.Record) error {
		<-ctx.Done()
		return mirror.Retriable(context.Cause(ctx))
	})
	p := w.start(w.flow("lag", "lagging"), sink.options("lag"), func(o *mirror.Options) {
		o.Hooks = func(_, role string) []kgo.Hook {
			mu.Lock()
			defer mu.Unlock()
			roles = append(roles, role)
			return nil
		}
	})
	w.until(p, "lag", "the age of the lag is known", func(st mirror.FlowState) bool {
		return len(st.Partitions) == 2 && st.Partitions[0].LagSeconds > 0 && st.Partitions[1].LagSeconds > 0
	})
	first := p.Flow("lag").Looked
	w.until(p, "lag", "another look", func(st mirror.FlowState) bool { return st.Looked.After(first) })
	p.Stop()
	slices.Sort(roles)
	if got := strings.Join(roles, " "); got != "source source-admin" {
		t.Errorf("clients for %s", got)
	}
}

// status asks a mirror that does not run.
func (w *world) status(f *topology.Flow, change ...func(*mirror.Options)) mirror.FlowState {
	w.Helper()
	opts := mirror.Options{Topology: w.topologyOf(f)}
	for _, c := range change {
		c(&opts)
	}
	m, err := mirror.New(opts)
	if err != nil {
		w.Fatal(err)
	}
	s, err := m.Status(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return s.Flows[0]
}
