package main

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// clientMetrics puts the metrics of all Kafka clients, onceover_kafka_*, into
// one registry. Their labels are flow, role (source, target, admin) and
// client, a number from 0 that is unique among the clients of a flow and role
// that live at the same time: a client that ended gives its number to the
// next, whose counters start again at zero.
type clientMetrics struct {
	registry prometheus.Registerer

	mu    sync.Mutex
	taken map[clientPlace]bool
}

type clientPlace struct {
	flow, role string
	number     int
}

func newClientMetrics(registry prometheus.Registerer) *clientMetrics {
	return &clientMetrics{registry: registry, taken: map[clientPlace]bool{}}
}

// clientHooks is a mirror.Options' Hooks.
type clientHooks func(flow, role string) []kgo.Hook

// hooks is a [clientHooks].
func (m *clientMetrics) hooks(flow, role string) []kgo.Hook {
	return []kgo.Hook{&clientHook{all: m, place: clientPlace{flow: flow, role: role}}}
}

func (m *clientMetrics) take(p clientPlace) clientPlace {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.taken[p] {
		p.number++
	}
	m.taken[p] = true
	return p
}

func (m *clientMetrics) free(p clientPlace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.taken, p)
}

// clientHook is the hook of one client. A client that could not be made never
// takes a number.
type clientHook struct {
	*kprom.Metrics
	all   *clientMetrics
	place clientPlace
}

var (
	_ kgo.HookNewClient    = (*clientHook)(nil)
	_ kgo.HookClientClosed = (*clientHook)(nil)
	_ kgo.HookBrokerE2E    = (*clientHook)(nil)
)

// OnNewClient registers the client's metrics. kgo calls it before the client
// does anything else.
func (h *clientHook) OnNewClient(client *kgo.Client) {
	h.place = h.all.take(h.place)
	h.Metrics = kprom.NewMetrics("onceover_kafka",
		kprom.Registerer(prometheus.WrapRegistererWith(prometheus.Labels{
			"flow": valid(h.place.flow), "role": h.place.role, "client": strconv.Itoa(h.place.number),
		}, h.all.registry)),
		// Per topic there is onceover_bytes_total already.
		kprom.FetchAndProduceDetail(kprom.ByNode, kprom.Records, kprom.CompressedBytes, kprom.UncompressedBytes, kprom.ConsistentNaming))
	h.Metrics.OnNewClient(client)
}

// OnClientClosed takes the client's metrics away.
func (h *clientHook) OnClientClosed(client *kgo.Client) {
	h.Metrics.OnClientClosed(client)
	h.all.free(h.place)
}
