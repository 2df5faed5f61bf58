package mirror

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// spot is where to read in a partition. Brokers before 3.1 go by the topic's
// name, later ones by its id.
type spot struct {
	id     [16]byte
	offset int64
}

// piece is what a partition had at its spot: committed records, and the offset
// after the last that was looked at, which is the spot's own when nothing fit.
type piece struct {
	recs []*kgo.Record
	next int64
	err  error
}

// fetchAt reads committed records by offset with one request to a broker,
// outside of any group and session. It does not wait for records that are not
// there. Partitions that the answer leaves out have a piece with errNoAnswer.
// At least one batch of the first partition with data is read, whatever the
// limits in bytes.
func fetchAt(ctx context.Context, cl *kgo.Client, leader int32, spots map[place]spot, partitionBytes, allBytes int32) (map[place]piece, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MinBytes, req.MaxBytes, req.IsolationLevel = 0, allBytes, 1
	byTopic := map[string]int{}
	names := map[[16]byte]string{}
	out := make(map[place]piece, len(spots))
	for pl, s := range spots {
		out[pl] = piece{next: s.offset, err: errNoAnswer}
		i, ok := byTopic[pl.topic]
		if !ok {
			i = len(req.Topics)
			byTopic[pl.topic] = i
			names[s.id] = pl.topic
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = pl.topic, s.id
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = pl.partition, s.offset, partitionBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	kresp, err := cl.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == "" {
			t.Topic = names[t.TopicID]
		}
		for j := range t.Partitions {
			at := place{t.Topic, t.Partitions[j].Partition}
			s, ok := spots[at]
			if !ok {
				continue
			}
			got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
				Offset: s.offset, IsolationLevel: kgo.ReadCommitted(), Topic: at.topic, Partition: at.partition,
			}, &t.Partitions[j], decompressor, nil)
			out[at] = piece{got.Records, next, got.Err}
		}
	}
	return out, nil
}
