package testenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// patience bounds every wait of a helper.
	patience = 30 * time.Second
	// readyWithin bounds the start of a node, on a machine that is busy.
	readyWithin = 90 * time.Second
)

// Client returns a client of the cluster with further options; it is closed
// with the test.
func (c *Cluster) Client(t T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(c.Opts(), opts...)...)
	if err != nil {
		t.Fatalf("new client of cluster %s: %v", c.name, err)
	}
	t.Cleanup(cl.Close)
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
	cl := c.Client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, rf, configs, name); err != nil {
		t.Fatalf("create topic %s on cluster %s: %v", name, c.name, err)
	}
	if err := c.waitTopic(ctx, cl, name, func(p *kmsg.MetadataResponseTopicPartition) bool {
		return p.ErrorCode == 0 && p.Leader >= 0
	}); err != nil {
		t.Fatalf("create topic %s on cluster %s: %v", name, c.name, err)
	}
}

// waitTopic waits until ok holds for each partition of the topic in the
// metadata of every running node.
func (c *Cluster) waitTopic(ctx context.Context, cl *kgo.Client, topic string, ok func(*kmsg.MetadataResponseTopicPartition) bool) error {
	return poll(ctx, func() error {
		for _, node := range c.Running() {
			resp, err := c.metadataOf(ctx, cl, node, topic)
			if err != nil {
				return err
			}
			for i := range resp.Topics {
				rt := &resp.Topics[i]
				if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
					return fmt.Errorf("node %d: topic %s: %w", node, topic, err)
				}
				for j := range rt.Partitions {
					if p := &rt.Partitions[j]; !ok(p) {
						return fmt.Errorf("node %d: topic %s partition %d: leader %d of %v, error %v",
							node, topic, p.Partition, p.Leader, p.Replicas, kerr.ErrorForCode(p.ErrorCode))
					}
				}
			}
		}
		return nil
	})
}

// metadataOf asks one node, not whichever the client picks.
func (c *Cluster) metadataOf(ctx context.Context, cl *kgo.Client, node int32, topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, topic := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
	}
	// Seeds keep the order of Bootstrap, which is that of Nodes.
	kresp, err := cl.SeedBrokers()[slices.Index(c.Nodes(), node)].Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("metadata of node %d: %w", node, err)
	}
	return kresp.(*kmsg.MetadataResponse), nil
}

// Produce writes recs, each to the partition it names, and returns when all
// are written. Order per partition is kept; Offset and, where zero, Timestamp
// are filled in.
func (c *Cluster) Produce(t T, recs ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(append(c.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatalf("produce to cluster %s: %v", c.name, err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatalf("produce to cluster %s: %v", c.name, err)
	}
}

// ReadAll returns every committed record of a topic from the log start to the
// end offsets at the time of the call, partition after partition, in offset
// order. It waits until transactions open at that time have ended, up to 30
// s; see [Cluster.ReadStable] for topics where one stays open.
func (c *Cluster) ReadAll(t T, topic string) []*kgo.Record {
	t.Helper()
	return c.read(t, topic, true)
}

// ReadStable is [Cluster.ReadAll] up to the last stable offset: it neither
// waits for open transactions nor reads what was written behind one.
func (c *Cluster) ReadStable(t T, topic string) []*kgo.Record {
	t.Helper()
	return c.read(t, topic, false)
}

func (c *Cluster) read(t T, topic string, all bool) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := kgo.NewClient(c.Opts()...)
	if err != nil {
		t.Fatalf("read topic %s of cluster %s: %v", topic, c.name, err)
	}
	defer cl.Close()
	recs, err := readTopic(ctx, cl, topic, all)
	if err != nil {
		t.Fatalf("read topic %s of cluster %s: %v", topic, c.name, err)
	}
	return recs
}

// reader reads one topic by hand: a consumer does not tell how far it is when
// the last offsets are markers, aborted or compacted away.
type reader struct {
	cl    *kgo.Client
	topic string
	meta  kadm.TopicDetail
}

func readTopic(ctx context.Context, cl *kgo.Client, topic string, all bool) ([]*kgo.Record, error) {
	r := &reader{cl: cl, topic: topic}
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, err
	}
	list := adm.ListCommittedOffsets
	if all {
		list = adm.ListEndOffsets
	}
	ends, err := list(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	var recs []*kgo.Record
	for _, p := range r.meta.Partitions.Sorted() {
		start, _ := starts.Lookup(topic, p.Partition)
		end, _ := ends.Lookup(topic, p.Partition)
		got, err := r.partition(ctx, p.Partition, start.Offset, end.Offset)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Partition, err)
		}
		recs = append(recs, got...)
	}
	return recs, nil
}

func (r *reader) refresh(ctx context.Context) error {
	meta, err := kadm.NewClient(r.cl).Metadata(ctx, r.topic)
	if err != nil {
		return err
	}
	r.meta = meta.Topics[r.topic]
	return r.meta.Err
}

func (r *reader) partition(ctx context.Context, partition int32, from, to int64) ([]*kgo.Record, error) {
	var recs []*kgo.Record
	for from < to {
		p, err := r.fetch(ctx, partition, from)
		if kerr.IsRetriable(err) && ctx.Err() == nil {
			err = r.refresh(ctx) // the leader moved
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("at offset %d of %d (is a transaction still open?): %w", from, to, err)
		}
		fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Offset: from, IsolationLevel: kgo.ReadCommitted(), Topic: r.topic, Partition: partition,
		}, p, kgo.DefaultDecompressor(), nil)
		if fp.Err != nil {
			return nil, fmt.Errorf("at offset %d: %w", from, fp.Err)
		}
		for _, rec := range fp.Records {
			if rec.Offset < to {
				recs = append(recs, rec)
			}
		}
		from = next
	}
	return recs, nil
}

// fetch asks for one partition from one offset on and waits up to half a
// second for something to be there.
func (r *reader) fetch(ctx context.Context, partition int32, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 16<<20
	req.IsolationLevel = 1 // read_committed
	req.SessionEpoch = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = r.topic, r.meta.ID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, offset, 16<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	kresp, err := r.cl.Broker(int(r.meta.Partitions[partition].Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("fetch of one partition answered %d topics", len(resp.Topics))
	}
	p := &resp.Topics[0].Partitions[0]
	return p, kerr.ErrorForCode(p.ErrorCode)
}

// permanentError ends a poll.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// poll calls fn until it returns nil or a permanentError, and returns its last
// error when ctx ends before that.
func poll(ctx context.Context, fn func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := fn()
		if err == nil {
			return nil
		}
		if errors.As(err, new(permanentError)) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-tick.C:
		}
	}
}
