package suite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// stuck is a target that takes nothing.
type stuck struct{ asked chan struct{} }

func (*stuck) Open(context.Context) error  { return nil }
func (*stuck) Close(context.Context) error { return nil }

func (s *stuck) Put(ctx context.Context, _ []*kgo.Record) error {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return mirror.Retriable(errors.New("the target is down"))
}

// More orderly stops than the group has deliveries, each with records in hand
// that the target did not take, lose none (G1): what the broker archives after
// its last delivery is noted, and copied by offset.
func TestRealShareGivingBackLosesNothing(t *testing.T) {
	t.Parallel()
	w := World{Source: testenv.Real(t, "4.4.0"), Target: testenv.Embedded(t), Reader: topology.ReaderShare, Guarantee: topology.GuaranteeAtLeastOnce}
	const topic, rounds = "giveback", 12
	w.Source.CreateTopic(t, topic, 1, 1, nil)
	w.Source.Produce(t, testenv.Records(topic, 1, 50, 81)...)
	f := w.flow("giveback", topic)
	f.Limits.Shutdown = 2 * time.Second
	f.Lanes = 1
	for range rounds {
		s := &stuck{asked: make(chan struct{}, 1)}
		p := Start(t, w.topologyOf(f), func(o *mirror.Options) {
			o.Instance = "giveback" // its place in the group is there at once
			o.Sinks = map[string]func(int) (mirror.Sink, error){"giveback": func(int) (mirror.Sink, error) { return s, nil }}
		})
		select {
		case <-s.asked:
		case <-time.After(within):
			t.Fatal("no record reached the target: none is left to deliver")
		}
		p.Stop()
	}
	p := Start(t, w.topologyOf(f))
	w.arrived(t, topic, 50, within)
	w.drained(t, p, "giveback", 1)
	if st := p.Flow("giveback"); st.Lost != 0 {
		t.Errorf("%d offsets lost", st.Lost)
	}
	p.Stop()
	w.same(t, topic)
}
