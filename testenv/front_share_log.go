package testenv

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/share"
)

// logBatch is a record batch as it is in the log.
type logBatch struct {
	share.Range
	bytes   []byte
	control bool
	// producer of a transactional batch, -1 for any other; aborted tells that
	// its transaction was.
	producer int64
	aborted  bool
}

// acquire acquires what a partition has for a member and returns it with the
// number of offsets, nil when there is nothing. b.mu is held.
func (b *shareBroker) acquire(node int32, g *shareGroup, member string, at sharePart, most, bytes int, whole bool) (*kmsg.ShareFetchResponseTopicPartition, int, error) {
	rp := newSharePartition(at.partition)
	_, topic, ok := b.find(at.id, at.partition)
	if !topic || !ok {
		rp.ErrorCode = kerr.UnknownTopicID.Code
		if topic {
			rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		return rp, 0, nil
	}
	info := b.fake().PartitionInfo(at.topic, at.partition)
	if info == nil || info.Leader != node {
		rp.ErrorCode = kerr.NotLeaderForPartition.Code
		if info != nil {
			rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = info.Leader, info.Epoch
		}
		return rp, 0, nil
	}
	p, err := b.part(g, at)
	if err != nil {
		return nil, 0, err
	}
	c := b.config(g)
	now := time.Now()
	p.Expire(c, now)
	p.Truncate(info.LogStartOffset)
	committed := g.configs["share.isolation.level"] == "read_committed"
	end := info.HighWatermark
	if committed {
		end = info.LastStableOffset
	}
	from := firstFree(p)
	if from >= end || from >= p.Start()+int64(c.MaxLocks) {
		return nil, 0, nil
	}
	batches, err := b.read(node, at, from, bytes, committed)
	if err != nil {
		return nil, 0, err
	}
	var log []share.Range
	for _, lb := range batches {
		if lb.aborted {
			p.Archive(lb.Range)
			continue
		}
		log = append(log, lb.Range)
	}
	got := p.Acquire(c, now, member, log, most, whole)
	if len(got) == 0 {
		return nil, 0, nil
	}
	n := 0
	first, last := got[0].First, got[len(got)-1].Last
	for _, a := range got {
		n += int(a.Last - a.First + 1)
		ar := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
		ar.FirstOffset, ar.LastOffset, ar.DeliveryCount = a.First, a.Last, a.Delivery
		rp.AcquiredRecords = append(rp.AcquiredRecords, ar)
	}
	for _, lb := range batches {
		if lb.Last >= first && lb.First <= last {
			rp.Records = append(rp.Records, lb.bytes...)
		}
	}
	return rp, n, nil
}

// firstFree is the first offset that can be acquired, as far as p knows.
func firstFree(p *share.Partition) int64 {
	next := p.Start()
	for _, r := range p.Runs() {
		if r.First > next || r.State == share.Available {
			break
		}
		next = r.Last + 1
	}
	return next
}

// read returns the batches of a partition from an offset on, and marks those of
// aborted transactions if only committed ones are to be seen. b.mu is held.
func (b *shareBroker) read(node int32, at sharePart, from int64, bytes int, committed bool) ([]logBatch, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, int32(max(bytes, 1))
	req.SessionEpoch = -1
	if committed {
		req.IsolationLevel = 1
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = at.topic, at.id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = at.partition, from, int32(max(bytes, 1)), -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := b.ask(node, req)
	if err != nil {
		return nil, fmt.Errorf("read %s[%d] for a share fetch: %w", at.topic, at.partition, err)
	}
	resp := kresp.(*kmsg.FetchResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, nil
	}
	part := &resp.Topics[0].Partitions[0]
	if part.ErrorCode != 0 {
		return nil, nil // it moved, or was cut, just now
	}
	batches := splitBatches(part.RecordBatches)
	if committed {
		markAborted(batches, part.AbortedTransactions)
	}
	return batches, nil
}

// markAborted marks the batches of aborted transactions: from their first offset
// to the producer's next marker.
func markAborted(batches []logBatch, txns []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	slices.SortFunc(txns, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	open := map[int64]bool{}
	for i := range batches {
		lb := &batches[i]
		for len(txns) > 0 && txns[0].FirstOffset <= lb.Last {
			open[txns[0].ProducerID] = true
			txns = txns[1:]
		}
		switch {
		case lb.producer < 0:
		case lb.control:
			delete(open, lb.producer)
		default:
			lb.aborted = open[lb.producer]
		}
	}
}

// splitBatches cuts records into batches (v2).
func splitBatches(data []byte) []logBatch {
	const (
		header       = 12 // base offset and length
		attributesAt = 21
		deltaAt      = 23
		producerAt   = 43
		least        = 61
	)
	var out []logBatch
	for len(data) >= least {
		size := int(binary.BigEndian.Uint32(data[8:])) + header
		if size < least || size > len(data) {
			break
		}
		first := int64(binary.BigEndian.Uint64(data))
		attributes := binary.BigEndian.Uint16(data[attributesAt:])
		lb := logBatch{
			Range:    share.Range{First: first, Last: first + int64(binary.BigEndian.Uint32(data[deltaAt:]))},
			bytes:    data[:size:size],
			control:  attributes&0x20 != 0,
			producer: -1,
		}
		if attributes&0x10 != 0 {
			lb.producer = int64(binary.BigEndian.Uint64(data[producerAt:]))
		}
		out = append(out, lb)
		data = data[size:]
	}
	return out
}
