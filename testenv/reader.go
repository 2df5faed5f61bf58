package testenv

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
	cl := c.newClient(t)
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
