package main

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Several clients of one flow and role live in one registry, and one that
// ended makes room for the next.
func TestClientMetrics(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	registry := prometheus.NewPedanticRegistry()
	clients := newClientMetrics(registry)
	open := func(role string) *kgo.Client {
		c, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.WithHooks(clients.hooks("a", role)...))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// seen lists role/client of each client that has connected.
	seen := func() []string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, f := range families {
			if f.GetName() != "onceover_kafka_connects_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				list = append(list, labels["flow"]+"/"+labels["role"]+"/"+labels["client"])
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	first, second, target := open("source"), open("source"), open("target")
	defer target.Close()
	defer second.Close()
	if got, want := seen(), []string{"a/source/0", "a/source/1", "a/target/0"}; !slices.Equal(got, want) {
		t.Errorf("clients %q, want %q", got, want)
	}
	first.Close()
	if got, want := seen(), []string{"a/source/1", "a/target/0"}; !slices.Equal(got, want) {
		t.Errorf("after a close: clients %q, want %q", got, want)
	}
	third := open("source")
	defer third.Close()
	if got, want := seen(), []string{"a/source/0", "a/source/1", "a/target/0"}; !slices.Equal(got, want) {
		t.Errorf("after a new one: clients %q, want %q", got, want)
	}
}
