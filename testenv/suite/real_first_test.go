package suite

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// milestones notes when each kind of request was first answered.
type milestones struct {
	t     *testing.T
	began time.Time
}

var _ kgo.HookBrokerE2E = (*milestones)(nil)

// OnBrokerE2E logs a request.
func (m *milestones) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	at := time.Since(m.began).Milliseconds()
	fmt.Printf("LAT %d ms: %s (%v) %v\n", at, kmsg.NameForKey(key), e.DurationE2E(), e.Err())
}

func TestRealFirst(t *testing.T) {
	w := World{testenv.Real(t, "4.4.0"), testenv.Real(t, "4.4.0"), topology.ReaderShare}
	for i := range 3 {
		topic := fmt.Sprintf("first-%d", i)
		w.Source.CreateTopic(t, topic, 2, 1, nil)
		w.Source.Produce(t, testenv.Records(topic, 2, 10, 1)...)
		m := &milestones{t: t, began: time.Now()}
		var first atomic.Int64
		p := Start(t, w.topologyOf(w.flow(topic, topic)), func(o *mirror.Options) {
			o.Hooks = func(string, string) []kgo.Hook { return []kgo.Hook{m} }
			o.Observer.Copied = func(string, string, int32, int, int64) { first.CompareAndSwap(0, int64(time.Since(m.began))) }
		})
		w.arrived(t, topic, 10, within)
		Eventually(t, within, "copied", func() (bool, string) { return first.Load() != 0, "" })
		fmt.Printf("LAT ==== first copied after %v\n", time.Duration(first.Load()))
		w.drained(t, p, topic, 2)
		p.Stop()
	}
}
