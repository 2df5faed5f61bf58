package testenv

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/share"
)

// ackPart is what is acknowledged of one partition.
type ackPart struct {
	id        [16]byte
	partition int32
	batches   []share.Batch
}

// acknowledgePart is a plain acknowledgement. b.mu is held.
func (b *shareBroker) acknowledgePart(node int32, g *shareGroup, member string, a ackPart, renew bool) (sharePart, int16) {
	at, p, code := b.led(node, g, a.id, a.partition)
	if code != 0 {
		return at, code
	}
	c := b.config(g)
	p.Expire(c, time.Now())
	code = p.Acknowledge(c, time.Now(), member, a.batches, renew)
	b.poke()
	return at, code
}

// led returns a group's share partition if the node leads it. b.mu is held.
func (b *shareBroker) led(node int32, g *shareGroup, id [16]byte, partition int32) (sharePart, *share.Partition, int16) {
	at, topic, ok := b.find(id, partition)
	switch {
	case !topic:
		return sharePart{id: id, partition: partition}, nil, kerr.UnknownTopicID.Code
	case !ok:
		return at, nil, kerr.UnknownTopicOrPartition.Code
	case b.fake().LeaderFor(at.topic, partition) != node:
		return at, nil, kerr.NotLeaderForPartition.Code
	}
	p, err := b.part(g, at)
	if err != nil {
		return at, nil, kerr.UnknownTopicOrPartition.Code
	}
	return at, p, 0
}

func (b *shareBroker) acknowledge(x *exchange, _ func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.ShareAcknowledgeRequest)
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	resp.ErrorCode = b.acknowledgeAll(x, req, resp)
	x.setResponse(resp)
	return nil
}

// acknowledgeAll does a ShareAcknowledge and returns its error code. b.mu is held.
func (b *shareBroker) acknowledgeAll(x *exchange, req *kmsg.ShareAcknowledgeRequest, resp *kmsg.ShareAcknowledgeResponse) int16 {
	if req.GroupID == nil || req.MemberID == nil || *req.MemberID == "" || len(*req.MemberID) > mostMemberID {
		return kerr.InvalidRequest.Code
	}
	key := sessionKey{*req.GroupID, *req.MemberID, x.node}
	g := b.group(*req.GroupID)
	resp.AcquisitionLockTimeoutMillis = int32(b.config(g).Lock.Milliseconds())
	if _, code := b.sessionOf(key, x.conn, req.ShareSessionEpoch, false); code != 0 {
		return code
	}
	for _, t := range req.Topics {
		rt := kmsg.NewShareAcknowledgeResponseTopic()
		rt.TopicID = t.TopicID
		for _, p := range t.Partitions {
			a := ackPart{id: t.TopicID, partition: p.Partition}
			for _, ab := range p.AcknowledgementBatches {
				a.batches = append(a.batches, share.Batch{First: ab.FirstOffset, Last: ab.LastOffset, Types: ackTypes(ab.AcknowledgeTypes)})
			}
			_, code := b.acknowledgePart(x.node, g, key.member, a, req.Version >= 2 && req.IsRenewAck)
			rp := kmsg.NewShareAcknowledgeResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = -1, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if req.ShareSessionEpoch == finalSession {
		b.endSession(key)
	}
	return 0
}
