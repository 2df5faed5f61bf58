package mirror

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn"
)

// tip names a source partition by topic id, so that a topic that was deleted
// and made again is another one.
type tip struct {
	id        [16]byte
	partition int32
}

// Acknowledgement types of ShareAcknowledge (KIP-932; renew: KIP-1222).
const (
	ackGap     int8 = 0
	ackAccept  int8 = 1
	ackRelease int8 = 2
	ackReject  int8 = 3
	ackRenew   int8 = 4
)

// finalEpoch closes a share session.
const finalEpoch int32 = -1

// ackRange acknowledges first..last, both included, with one type.
type ackRange struct {
	first, last int64
	kind        int8
	// records and bytes that were written to the target, for the counters.
	records int
	bytes   int64
}

// hold is a run of offsets that the broker has locked for this member until
// the deadline. grant tells one acquisition of an offset from the next.
type hold struct {
	txn.Range
	deadline time.Time
	grant    int64
	// staged: its acknowledgement is in a transaction, and nothing is sent for
	// it in the session any more.
	staged bool
}

// shareSession is what is known of one share session with one broker. It is
// pure: no I/O, no clock; the pump that owns it feeds it what it sent and what
// came back. What is held may be asked for by others at the same time.
//
// The broker keeps a list of partitions per session and an epoch that each
// request must raise by one. epoch 0 means that there is no session: the next
// fetch opens one and names every wanted partition. After reset nothing is
// held any more: the broker releases a session's records when it goes.
type shareSession struct {
	epoch int32
	want  map[tip]bool // what shall be fetched
	known map[tip]bool // what the broker's session has

	mu    sync.Mutex
	holds map[tip][]hold
	grant int64 // of the last acquisition
}

func newShareSession() *shareSession {
	return &shareSession{want: map[tip]bool{}, known: map[tip]bool{}, holds: map[tip][]hold{}}
}

// fetchPlan returns the partitions to add to and to drop from the broker's
// session, each sorted.
func (s *shareSession) fetchPlan() (add, forget []tip) {
	for t := range s.want {
		if !s.known[t] {
			add = append(add, t)
		}
	}
	for t := range s.known {
		if !s.want[t] {
			forget = append(forget, t)
		}
	}
	slices.SortFunc(add, compareTips)
	slices.SortFunc(forget, compareTips)
	return add, forget
}

// fetched notes that the broker took a fetch with that plan.
func (s *shareSession) fetched(add, forget []tip) {
	for _, t := range add {
		s.known[t] = true
	}
	for _, t := range forget {
		delete(s.known, t)
	}
	s.raise()
}

// raise moves the epoch on after a request that the broker took. It wraps to
// 1, since 0 would open a new session.
func (s *shareSession) raise() {
	if s.epoch++; s.epoch <= 0 {
		s.epoch = 1
	}
}

// reset forgets the session and every hold, and returns the holds that are
// lost by it.
func (s *shareSession) reset() map[tip][]hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.holds
	s.epoch, s.known, s.holds = 0, map[tip]bool{}, map[tip][]hold{}
	return lost
}

// granted begins an acquisition: what is acquired from here on is told apart
// from what was before.
func (s *shareSession) granted() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant++
	return s.grant
}

// acquired notes that the broker locked r until the deadline.
func (s *shareSession) acquired(t tip, r txn.Range, deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(t, r, func(hold) bool { return true })
	s.holds[t] = append(s.holds[t], hold{Range: r, deadline: deadline, grant: s.grant})
}

// settled takes r out of the holds: its fate was sent.
func (s *shareSession) settled(t tip, r txn.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(t, r, func(hold) bool { return true })
}

// ended takes r out of the holds as far as it is of that grant.
func (s *shareSession) ended(t tip, r txn.Range, grant int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(t, r, func(h hold) bool { return h.grant == grant })
}

// drop takes r out of those holds for which of says so. s.mu is held.
func (s *shareSession) drop(t tip, r txn.Range, of func(hold) bool) {
	var keep []hold
	for _, h := range s.holds[t] {
		if h.Last < r.First || h.First > r.Last || !of(h) {
			keep = append(keep, h)
			continue
		}
		keep = append(keep, h.without(r)...)
	}
	if len(keep) == 0 {
		delete(s.holds, t)
		return
	}
	s.holds[t] = keep
}

// without is what is left of h when r is taken out.
func (h hold) without(r txn.Range) (rest []hold) {
	if h.First < r.First {
		a := h
		a.Last = r.First - 1
		rest = append(rest, a)
	}
	if h.Last > r.Last {
		b := h
		b.First = r.Last + 1
		rest = append(rest, b)
	}
	return rest
}

// holding reports whether every offset of r is held.
func (s *shareSession) holding(t tip, r txn.Range) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.have(t, r, func(hold) bool { return true })
}

// holdingAt reports whether every offset of r is held by that grant beyond the
// given time.
func (s *shareSession) holdingAt(t tip, r txn.Range, grant int64, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.have(t, r, func(h hold) bool { return h.grant == grant && h.deadline.After(at) })
}

// have reports whether every offset of r is in holds for which of says so.
// s.mu is held.
func (s *shareSession) have(t tip, r txn.Range, of func(hold) bool) bool {
	var set txn.RangeSet
	for _, h := range s.holds[t] {
		if of(h) {
			set.Add(h.First, h.Last)
		}
	}
	return len(set.Missing(r.First, r.Last)) == 0
}

// staged notes that r, of that grant, is in a transaction from now on.
func (s *shareSession) staged(t tip, r txn.Range, grant int64) { s.stage(t, r, grant, true) }

// unstaged notes that the broker has refused to take r into a transaction.
func (s *shareSession) unstaged(t tip, r txn.Range, grant int64) { s.stage(t, r, grant, false) }

func (s *shareSession) stage(t tip, r txn.Range, grant int64, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []hold
	for _, h := range s.holds[t] {
		if h.grant != grant || h.Last < r.First || h.First > r.Last {
			all = append(all, h)
			continue
		}
		all = append(all, h.without(r)...)
		h.First, h.Last, h.staged = max(h.First, r.First), min(h.Last, r.Last), is
		all = append(all, h)
	}
	s.holds[t] = all
}

// extended notes that h is locked until the deadline, as far as it is still held
// as it was.
func (s *shareSession) extended(t tip, h hold, deadline time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.holds[t] {
		if at := &s.holds[t][i]; at.grant == h.grant && !at.staged && h.First <= at.First && at.Last <= h.Last {
			at.deadline = deadline
		}
	}
}

// due returns the holds whose deadline is before the given time, apart from
// those in a transaction.
func (s *shareSession) due(before time.Time) map[tip][]hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out map[tip][]hold
	for t, hs := range s.holds {
		for _, h := range hs {
			if !h.staged && h.deadline.Before(before) {
				if out == nil {
					out = map[tip][]hold{}
				}
				out[t] = append(out[t], h)
			}
		}
	}
	return out
}

// nextDeadline is the earliest deadline of a hold, zero without one.
func (s *shareSession) nextDeadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for _, hs := range s.holds {
		for _, h := range hs {
			if h.staged {
				continue
			}
			if first.IsZero() || h.deadline.Before(first) {
				first = h.deadline
			}
		}
	}
	return first
}

func compareTips(a, b tip) int {
	return cmp.Or(slices.Compare(a.id[:], b.id[:]), cmp.Compare(a.partition, b.partition))
}

// byTopic groups sorted tips for a request.
func byTopic[T any](tips []tip, add func(id [16]byte) *T, put func(*T, tip)) {
	var at *T
	for i, t := range tips {
		if i == 0 || t.id != tips[i-1].id {
			at = add(t.id)
		}
		put(at, t)
	}
}

// fetchRequest builds the next ShareFetch; partitionBytes bounds one
// partition's data.
func (s *shareSession) fetchRequest(add, forget []tip, partitionBytes int32) *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.ShareSessionEpoch = s.epoch
	byTopic(add, func(id [16]byte) *kmsg.ShareFetchRequestTopic {
		rt := kmsg.NewShareFetchRequestTopic()
		rt.TopicID = id
		req.Topics = append(req.Topics, rt)
		return &req.Topics[len(req.Topics)-1]
	}, func(rt *kmsg.ShareFetchRequestTopic, t tip) {
		rp := kmsg.NewShareFetchRequestTopicPartition()
		rp.Partition, rp.PartitionMaxBytes = t.partition, partitionBytes
		rt.Partitions = append(rt.Partitions, rp)
	})
	byTopic(forget, func(id [16]byte) *kmsg.ShareFetchRequestForgottenTopicsData {
		rt := kmsg.NewShareFetchRequestForgottenTopicsData()
		rt.TopicID = id
		req.ForgottenTopicsData = append(req.ForgottenTopicsData, rt)
		return &req.ForgottenTopicsData[len(req.ForgottenTopicsData)-1]
	}, func(rt *kmsg.ShareFetchRequestForgottenTopicsData, t tip) {
		rt.Partitions = append(rt.Partitions, t.partition)
	})
	return req
}

// ackRequest builds a ShareAcknowledge. Ranges are sorted and merged where
// they touch and agree: the broker refuses overlapping ones.
func (s *shareSession) ackRequest(acks map[tip][]ackRange) *kmsg.ShareAcknowledgeRequest {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.ShareSessionEpoch = s.epoch
	tips := make([]tip, 0, len(acks))
	for t := range acks {
		tips = append(tips, t)
	}
	slices.SortFunc(tips, compareTips)
	byTopic(tips, func(id [16]byte) *kmsg.ShareAcknowledgeRequestTopic {
		rt := kmsg.NewShareAcknowledgeRequestTopic()
		rt.TopicID = id
		req.Topics = append(req.Topics, rt)
		return &req.Topics[len(req.Topics)-1]
	}, func(rt *kmsg.ShareAcknowledgeRequestTopic, t tip) {
		rp := kmsg.NewShareAcknowledgeRequestTopicPartition()
		rp.Partition = t.partition
		for _, r := range mergeAcks(acks[t]) {
			b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
			b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = r.first, r.last, []int8{r.kind}
			rp.AcknowledgementBatches = append(rp.AcknowledgementBatches, b)
			req.IsRenewAck = req.IsRenewAck || r.kind == ackRenew
		}
		rt.Partitions = append(rt.Partitions, rp)
	})
	return req
}

// mergeAcks sorts ranges and joins neighbours of one type. Offsets that two
// ranges name go to the one that starts first.
func mergeAcks(rs []ackRange) []ackRange {
	rs = slices.Clone(rs)
	slices.SortStableFunc(rs, func(a, b ackRange) int { return cmp.Compare(a.first, b.first) })
	var out []ackRange
	for _, r := range rs {
		if n := len(out); n > 0 {
			p := &out[n-1]
			if r.first <= p.last {
				r.first = p.last + 1
				if r.first > r.last {
					continue
				}
			}
			if p.kind == r.kind && p.last+1 == r.first {
				p.last, p.records, p.bytes = r.last, p.records+r.records, p.bytes+r.bytes
				continue
			}
		}
		out = append(out, r)
	}
	return out
}
