package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn/wire"
)

// The binder puts share acknowledgements into the open transaction (KIP-1289):
// the producer sends them to the leaders of the source partitions, each leader
// one request with all of its partitions. Several requests of one transaction to
// one broker would get in each other's way there: the broker has one question
// to the transaction coordinator under way for a transactional id.

// planStage sorts acknowledgements by partition, and merges what touches. Two for
// one offset are an error: it was copied twice.
func planStage(f wire.Form, acks []ShareAck) (map[StagedPartition][]wire.Batch, error) {
	if len(acks) == 0 {
		return nil, errors.New("a transaction without acknowledgements")
	}
	acks = slices.Clone(acks)
	slices.SortFunc(acks, func(a, b ShareAck) int { return cmp.Compare(a.First, b.First) })
	plan := map[StagedPartition][]wire.Batch{}
	for _, a := range acks {
		at := StagedPartition{a.TopicID, a.Partition}
		bs := plan[at]
		if n := len(bs); n > 0 {
			last := &bs[n-1]
			if a.First <= last.Last {
				return nil, fmt.Errorf("offset %d of partition %d is acknowledged twice in one transaction", a.First, a.Partition)
			}
			if a.First == last.Last+1 && last.Types[0] == int8(a.Kind) && a.Last >= a.First {
				last.Last = a.Last
				continue
			}
		}
		plan[at] = append(bs, wire.Batch{First: a.First, Last: a.Last, Types: []int8{int8(a.Kind)}})
	}
	req := &wire.Request{Form: f}
	for at, bs := range plan {
		req.Topics = append(req.Topics, wire.RequestTopic{
			TopicID: at.TopicID, Partitions: []wire.RequestPartition{{Partition: at.Partition, Batches: bs}},
		})
	}
	return plan, req.Check()
}

// stage sends plan to the leaders, and what fails in passing again, for as long
// as the transaction has time. The error is a *[StageError], or of the whole;
// the action is what it obliges to.
func (s *ShareSession) stage(ctx context.Context, plan map[StagedPartition][]wire.Batch) (Action, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	began := time.Now()
	todo := maps.Clone(plan)
	var last error
	var stale int
	for try := 0; len(todo) > 0; try++ {
		if try > 0 {
			first, most := 10*time.Millisecond, 500*time.Millisecond
			if errors.Is(last, kerr.ConcurrentTransactions) {
				// The markers of the transaction before are being written.
				first, most = 2*time.Millisecond, 20*time.Millisecond
			}
			if err := wait(ctx, backoff(try, first, most)); err != nil {
				return RestartLane, fmt.Errorf("stage share acknowledgements: %w (last: %w)", err, last)
			}
			s.blocked(began, last)
		}
		if rest := s.Rest(); rest > 0 {
			if err := wait(ctx, rest); err != nil {
				return RestartLane, fmt.Errorf("stage share acknowledgements: %w", err)
			}
		}
		member, err := s.cfg.Member()
		if err != nil {
			return RestartLane, fmt.Errorf("stage share acknowledgements: %w", err)
		}
		byLeader, err := s.byLeader(ctx, todo)
		if err != nil {
			if s.classify(Inspect, err) != Retry {
				return s.classify(Inspect, err), fmt.Errorf("find leaders of source partitions: %w", err)
			}
			last = err
			continue
		}
		refused := map[StagedPartition]error{}
		action := Action(0)
		for at, err := range s.stageAt(ctx, member, byLeader, todo) {
			if err == nil {
				delete(todo, at)
				continue
			}
			last = err
			a := Classify(StageShare, err)
			if errors.Is(err, kerr.StaleMemberEpoch) && stale == 0 {
				a = Retry // nothing was staged; the epoch may be known by now
			}
			if a != Retry {
				refused[at] = err
				action = max(action, a)
			}
		}
		if errors.Is(last, kerr.StaleMemberEpoch) {
			stale++
		}
		if len(refused) > 0 {
			return action, newStageError(refused)
		}
	}
	return 0, nil
}

func newStageError(refused map[StagedPartition]error) *StageError {
	e := &StageError{Partitions: refused}
	first := slices.SortedFunc(maps.Keys(refused), func(a, b StagedPartition) int {
		return cmp.Or(slices.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.Partition, b.Partition))
	})[0]
	e.Err = fmt.Errorf("partition %d: %w", first.Partition, refused[first])
	return e
}

// byLeader sorts partitions by the nodes that lead them. Partitions without a
// leader are left out.
func (s *ShareSession) byLeader(ctx context.Context, todo map[StagedPartition][]wire.Batch) (map[int32][]StagedPartition, error) {
	ask := map[[16]byte]bool{}
	for at := range todo {
		if _, ok := s.leaders[at.TopicID][at.Partition]; !ok {
			ask[at.TopicID] = true
		}
	}
	if len(ask) > 0 {
		req := kmsg.NewPtrMetadataRequest()
		for id := range ask {
			t := kmsg.NewMetadataRequestTopic()
			t.TopicID = id
			req.Topics = append(req.Topics, t)
		}
		resp, err := req.RequestWith(ctx, s.cfg.Client)
		if err != nil {
			return nil, err
		}
		for _, t := range resp.Topics {
			s.leaders[t.TopicID] = map[int32]int32{}
			for _, p := range t.Partitions {
				if p.Leader >= 0 {
					s.leaders[t.TopicID][p.Partition] = p.Leader
				}
			}
		}
	}
	out := map[int32][]StagedPartition{}
	for at := range todo {
		if leader, ok := s.leaders[at.TopicID][at.Partition]; ok {
			out[leader] = append(out[leader], at)
		}
	}
	return out, nil
}

// stageAt sends one request to each leader and returns the result of every
// partition of todo, LEADER_NOT_AVAILABLE where nobody was asked. Leaders that
// may have moved are forgotten.
func (s *ShareSession) stageAt(ctx context.Context, member ShareMember, byLeader map[int32][]StagedPartition, todo map[StagedPartition][]wire.Batch) map[StagedPartition]error {
	type reply struct {
		parts []StagedPartition
		resp  *wire.Response
		err   error
	}
	replies := make(chan reply)
	for leader, parts := range byLeader {
		req := s.request(member, parts, todo)
		go func() {
			kresp, err := s.cfg.Client.Broker(int(leader)).Request(ctx, req)
			r := reply{parts: parts, err: err}
			if err == nil {
				r.resp = kresp.(*wire.Response)
			}
			replies <- r
		}()
	}
	out := make(map[StagedPartition]error, len(todo))
	for at := range todo {
		out[at] = kerr.LeaderNotAvailable
	}
	for range byLeader {
		r := <-replies
		err := r.err
		if err == nil {
			err = kerr.ErrorForCode(r.resp.ErrorCode)
		}
		for _, at := range r.parts {
			if out[at] = err; err == nil {
				out[at] = errNoAnswer // until there is one
			}
		}
		if err != nil {
			continue
		}
		for i := range r.resp.Topics {
			t := &r.resp.Topics[i]
			for j := range t.Partitions {
				rp := &t.Partitions[j]
				at := StagedPartition{t.TopicID, rp.Partition}
				if !slices.Contains(r.parts, at) {
					continue
				}
				if out[at] = kerr.ErrorForCode(rp.ErrorCode); out[at] != nil && rp.ErrorMessage != nil && *rp.ErrorMessage != "" {
					out[at] = fmt.Errorf("%w: %s", out[at], *rp.ErrorMessage)
				}
			}
		}
	}
	for at, err := range out {
		if err != nil && !errors.Is(err, kerr.ConcurrentTransactions) && !errors.Is(err, kerr.StaleMemberEpoch) {
			delete(s.leaders[at.TopicID], at.Partition) // the answer names no leader
		}
	}
	return out
}

// request builds one leader's request.
func (s *ShareSession) request(member ShareMember, parts []StagedPartition, todo map[StagedPartition][]wire.Batch) *wire.Request {
	req := &wire.Request{
		Form: s.cfg.Form, TransactionalID: &s.p.txnID, GroupID: member.Group,
		ProducerID: s.p.id.id, ProducerEpoch: s.p.id.epoch, MemberID: member.ID, MemberEpoch: member.Epoch,
	}
	byTopic := map[[16]byte]int{}
	for _, at := range parts {
		i, ok := byTopic[at.TopicID]
		if !ok {
			i = len(req.Topics)
			byTopic[at.TopicID] = i
			req.Topics = append(req.Topics, wire.RequestTopic{TopicID: at.TopicID})
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, wire.RequestPartition{Partition: at.Partition, Batches: todo[at]})
	}
	return req
}
