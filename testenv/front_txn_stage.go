package testenv

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/share"
	"github.com/onceover-mirror/onceover/txn/wire"
)

// txnAcknowledge is TxnShareAcknowledge at the leader of source partitions. The
// checks have the order of the drafts; registration and staging can't be
// separated by the end of the transaction, which the drafts leave open.
func (b *shareBroker) txnAcknowledge(x *exchange, _ func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*wire.Request)
	resp := req.ResponseKind().(*wire.Response)
	resp.ErrorCode = b.stageAll(x.node, req, resp)
	if resp.ErrorCode != 0 {
		resp.Topics = nil
	}
	x.setResponse(resp)
	return nil
}

// stagePart is one partition of a request that is fit to be staged.
type stagePart struct {
	ackPart
	topic, index int // of its result
}

// stageAll does a request and returns its error code.
func (b *shareBroker) stageAll(node int32, req *wire.Request, resp *wire.Response) int16 {
	switch {
	case !b.o.transactional():
		return kerr.UnsupportedVersion.Code
	case req.TransactionalID == nil || req.MemberID == "" || len(req.MemberID) > mostMemberID:
		return kerr.InvalidRequest.Code
	}
	todo := b.fit(node, req, resp)
	if len(todo) == 0 {
		return 0
	}
	if code := b.knows(req); code != 0 {
		return code
	}
	t := b.txn(*req.TransactionalID)
	t.mu.Lock()
	defer t.mu.Unlock()
	if code := b.register(t, req); code != 0 {
		return code
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[req.GroupID]
	if g == nil {
		return kerr.GroupIDNotFound.Code
	}
	c := b.config(g)
	staged := share.Txn{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	for _, p := range todo {
		_, part, code := b.led(node, g, p.id, p.partition)
		if code == 0 {
			part.Expire(c, time.Now())
			code = part.Stage(c, time.Now(), req.MemberID, staged, p.batches, req.Form.Draft == wire.DraftGaps)
		}
		resp.Topics[p.topic].Partitions[p.index].ErrorCode = code
	}
	return 0
}

// fit answers the partitions that can't be staged here, and returns the others.
func (b *shareBroker) fit(node int32, req *wire.Request, resp *wire.Response) []stagePart {
	b.mu.Lock()
	defer b.mu.Unlock()
	var todo []stagePart
	for i, t := range req.Topics {
		resp.Topics = append(resp.Topics, wire.ResponseTopic{TopicID: t.TopicID})
		for j, p := range t.Partitions {
			rp := wire.ResponsePartition{Partition: p.Partition}
			at, topic, ok := b.find(t.TopicID, p.Partition)
			switch {
			case !topic:
				rp.ErrorCode = kerr.UnknownTopicID.Code
			case !ok:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case b.fake().LeaderFor(at.topic, p.Partition) != node:
				rp.ErrorCode = kerr.NotLeaderForPartition.Code
			default:
				s := stagePart{ackPart{id: t.TopicID, partition: p.Partition}, i, j}
				for _, ab := range p.Batches {
					s.batches = append(s.batches, share.Batch{First: ab.First, Last: ab.Last, Types: ackTypes(ab.Types)})
				}
				todo = append(todo, s)
			}
			resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, rp)
		}
	}
	return todo
}

// knows asks the group about the member.
func (b *shareBroker) knows(req *wire.Request) int16 {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[req.GroupID]
	if g == nil {
		return kerr.GroupIDNotFound.Code
	}
	b.dropDead(g)
	m := g.members[req.MemberID]
	switch {
	case m == nil:
		return kerr.UnknownMemberID.Code
	case m.epoch != req.MemberEpoch:
		return kerr.StaleMemberEpoch.Code
	}
	return 0
}

// register puts the transaction down as open with the coordinator. t.mu is held.
func (b *shareBroker) register(t *openTxn, req *wire.Request) int16 {
	if time.Now().Before(t.marked) {
		return kerr.ConcurrentTransactions.Code
	}
	if t.staged && t.pid == req.ProducerID && t.epoch == req.ProducerEpoch {
		return 0
	}
	if b.o.Defects.LateStage && (t.pid != req.ProducerID || t.epoch != req.ProducerEpoch) {
		return 0 // it was registered before, and nobody asks again
	}
	switch {
	case t.pid != req.ProducerID:
		return kerr.InvalidProducerIDMapping.Code
	case t.epoch != req.ProducerEpoch:
		return kerr.InvalidProducerEpoch.Code
	}
	if code := b.announce(t, req); code != 0 {
		return code
	}
	t.staged = true
	b.begun(t)
	return 0
}

// announce makes the transaction known to kfake.
func (b *shareBroker) announce(t *openTxn, req *wire.Request) int16 {
	fake := b.fake()
	if fake.TopicInfo(hiddenTopic) == nil {
		if err := fake.CreateTopic(hiddenTopic, 1, nil); err != nil && fake.TopicInfo(hiddenTopic) == nil {
			return kerr.CoordinatorNotAvailable.Code
		}
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = t.id, req.ProducerID, req.ProducerEpoch
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = hiddenTopic, []int32{0}
	add.Topics = append(add.Topics, rt)
	kresp, err := b.ask(fake.CoordinatorFor(t.id), &addPartitionsV3{add})
	if err != nil {
		return kerr.NetworkException.Code
	}
	for _, topic := range kresp.(*kmsg.AddPartitionsToTxnResponse).Topics {
		for _, p := range topic.Partitions {
			// The broker between translates PRODUCER_FENCED (KIP-890).
			if err := kerr.ErrorForCode(p.ErrorCode); errors.Is(err, kerr.ProducerFenced) {
				return kerr.InvalidProducerEpoch.Code
			}
			if p.ErrorCode != 0 {
				return p.ErrorCode
			}
		}
	}
	return 0
}

// addPartitionsV3 is the last version that clients use.
type addPartitionsV3 struct {
	*kmsg.AddPartitionsToTxnRequest
}

// MaxVersion is 3.
func (*addPartitionsV3) MaxVersion() int16 { return 3 }
