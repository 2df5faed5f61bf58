package testenv

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Client returns a client of the cluster with further options; it is closed
// with the test.
func (c *Cluster) Client(t T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl := c.newClient(t, opts...)
	t.Cleanup(cl.Close)
	return cl
}

func (c *Cluster) newClient(t T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(c.Opts(), opts...)...)
	if err != nil {
		t.Fatalf("new client of cluster %s: %v", c.name, err)
	}
	return cl
}

// Admin returns an admin client of the cluster; it is closed with the test.
func (c *Cluster) Admin(t T) *kadm.Client {
	t.Helper()
	return kadm.NewClient(c.Client(t))
}

// CreateTopic makes a topic and waits until every running node says that each
// partition has a leader. rf -1 and partitions -1 are the broker's defaults.
func (c *Cluster) CreateTopic(t T, name string, partitions int32, rf int16, configs map[string]*string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := c.newClient(t)
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, rf, configs, name); err != nil {
		t.Fatalf("create topic %s on cluster %s: %v", name, c.name, err)
	}
	if err := c.waitTopic(ctx, cl, name, func(p *kmsg.MetadataResponseTopicPartition) bool {
		return p.ErrorCode == 0 && p.Leader >= 0
	}); err != nil {
		t.Fatalf("create topic %s on cluster %s: %v", name, c.name, err)
	}
}

// Produce writes recs, each to the partition it names, and returns when all
// are written. Order per partition is kept; Offset and, where zero, Timestamp
// are filled in.
func (c *Cluster) Produce(t T, recs ...*kgo.Record) {
	t.Helper()
	cl := c.newClient(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatalf("produce to cluster %s: %v", c.name, err)
	}
}
