package testenv

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// HighWatermarkLags is a fault after an election: the new leader doesn't know
// its high watermark yet and answers ListOffsets for the end of a partition
// with OFFSET_NOT_AVAILABLE (KIP-207; LEADER_NOT_AVAILABLE below v5), this
// many times, -1 for as long as it is armed.
func HighWatermarkLags(topic string, partition int32, times int) Fault {
	const latest = -1
	asked := func(req *kmsg.ListOffsetsRequest) bool {
		for _, rt := range req.Topics {
			for _, rp := range rt.Partitions {
				if rt.Topic == topic && rp.Partition == partition && rp.Timestamp == latest {
					return true
				}
			}
		}
		return false
	}
	return Fault{
		Keys:  []kmsg.Key{kmsg.ListOffsets},
		Do:    AlterAnswer,
		Times: times,
		Match: func(req kmsg.Request) bool { return asked(req.(*kmsg.ListOffsetsRequest)) },
		Alter: func(_ kmsg.Request, kresp kmsg.Response) bool {
			resp := kresp.(*kmsg.ListOffsetsResponse)
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					rp := &resp.Topics[i].Partitions[j]
					if resp.Topics[i].Topic != topic || rp.Partition != partition || rp.ErrorCode != 0 {
						continue
					}
					rp.ErrorCode = kerr.OffsetNotAvailable.Code
					if resp.Version < 5 {
						rp.ErrorCode = kerr.LeaderNotAvailable.Code
					}
					rp.Offset, rp.Timestamp, rp.LeaderEpoch = -1, -1, -1
					return true
				}
			}
			return false
		},
	}
}

// HighWatermarkStale is the other side of [HighWatermarkLags]: what the new
// leader has from offset at on is not shown by Fetch, neither as high
// watermark or last stable offset nor as records, this many times, -1 for as
// long as it is armed. Such an answer is 50 ms late, or the client would ask
// again at once.
func (f *Front) HighWatermarkStale(topic string, partition int32, at int64, times int) Fault {
	f.must()
	return Fault{
		Keys:  []kmsg.Key{kmsg.Fetch},
		Do:    AlterAnswer,
		Times: times,
		Delay: 50 * time.Millisecond,
		Alter: func(_ kmsg.Request, kresp kmsg.Response) bool {
			resp := kresp.(*kmsg.FetchResponse)
			for i := range resp.Topics {
				rt := &resp.Topics[i]
				if resp.Version >= 13 && rt.TopicID != f.topicID(topic) || resp.Version < 13 && rt.Topic != topic {
					continue
				}
				for j := range rt.Partitions {
					rp := &rt.Partitions[j]
					if rp.Partition != partition || rp.ErrorCode != 0 || rp.HighWatermark <= at {
						continue
					}
					rp.HighWatermark = at
					rp.LastStableOffset = min(rp.LastStableOffset, at)
					rp.RecordBatches = batchesBefore(rp.RecordBatches, at)
					return true
				}
			}
			return false
		},
	}
}

// batchesBefore returns the record batches (v2) that end before an offset.
func batchesBefore(batches []byte, at int64) []byte {
	const (
		lengthAt = 8 // base offset before it
		deltaAt  = 23
	)
	kept := 0
	for rest := batches; len(rest) >= deltaAt+4; rest = batches[kept:] {
		base := int64(binary.BigEndian.Uint64(rest))
		size := lengthAt + 4 + int(binary.BigEndian.Uint32(rest[lengthAt:]))
		last := base + int64(binary.BigEndian.Uint32(rest[deltaAt:]))
		if last >= at || size > len(rest) {
			break
		}
		kept += size
	}
	return batches[:kept]
}
