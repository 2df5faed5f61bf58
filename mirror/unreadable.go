package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batchEnd is the last offset of the batch that holds offset from, as its
// header says, for a batch that can't be decoded. A header that makes no sense
// is worth one offset.
func batchEnd(ctx context.Context, cl *kgo.Client, topic string, partition int32, from int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	meta, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("find leader of %s[%d]: %w", topic, partition, err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(time.Second.Milliseconds()), 1, 1<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, meta.Topics[topic].ID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, from, 1 // a whole batch comes all the same
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := cl.Broker(int(meta.Topics[topic].Partitions[partition].Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("fetch %s[%d] at offset %d: %w", topic, partition, from, err)
	}
	resp := kresp.(*kmsg.FetchResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.Join(errNoAnswer, kerr.ErrorForCode(resp.ErrorCode))
	}
	p := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return 0, fmt.Errorf("fetch %s[%d] at offset %d: %w", topic, partition, from, err)
	}
	const lastDeltaAt, header, most = 23, 27, 1 << 24
	if len(p.RecordBatches) < header {
		return from, nil
	}
	last := int64(binary.BigEndian.Uint64(p.RecordBatches)) + int64(binary.BigEndian.Uint32(p.RecordBatches[lastDeltaAt:]))
	if last < from || last > from+most {
		return from, nil
	}
	return last, nil
}
