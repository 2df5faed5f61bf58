package testenv

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/share"
)

// sessionOf finds the session of a request, or opens one for epoch 0, and raises
// its epoch. Final closes it after the request. b.mu is held.
func (b *shareBroker) sessionOf(key sessionKey, conn *frontConn, epoch int32, opens bool) (*session, int16) {
	s := b.sessions[key]
	switch {
	case epoch == 0 && !opens:
		return nil, kerr.InvalidShareSessionEpoch.Code
	case epoch == 0:
		s = &session{conn: conn, epoch: 1}
		b.sessions[key] = s
	case s == nil:
		return nil, kerr.ShareSessionNotFound.Code
	case epoch == finalSession:
	case epoch != s.epoch:
		return nil, kerr.InvalidShareSessionEpoch.Code
	default:
		if s.epoch++; s.epoch <= 0 {
			s.epoch = 1
		}
	}
	return s, 0
}

// finalSession is the epoch that closes a session.
const finalSession = -1

func (b *shareBroker) fetch(x *exchange, _ func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.ShareFetchRequest)
	f := &shareFetch{b: b, x: x, req: req, acks: map[sharePart]int16{}}
	b.mu.Lock()
	code := f.begin()
	if code != 0 {
		b.mu.Unlock()
		resp := req.ResponseKind().(*kmsg.ShareFetchResponse)
		resp.ErrorCode = code
		x.setResponse(resp)
		return nil
	}
	until := time.Now().Add(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	// A session may be closed meanwhile, by a restart for one.
	for f.session == b.sessions[f.key] || req.ShareSessionEpoch == finalSession {
		done, err := f.collect()
		if err != nil {
			b.mu.Unlock()
			return err
		}
		if done || !time.Now().Before(until) {
			break
		}
		changed, at := b.changed, until
		if expiry, ok := f.nextExpiry(); ok && expiry.Before(at) {
			at = expiry
		}
		b.mu.Unlock()
		if !f.wait(changed, at) {
			return errHungUp
		}
		b.mu.Lock()
	}
	resp := f.answer()
	if req.ShareSessionEpoch == finalSession {
		b.endSession(f.key)
	}
	b.mu.Unlock()
	x.setResponse(resp)
	return nil
}

// shareFetch is one ShareFetch under way.
type shareFetch struct {
	b       *shareBroker
	x       *exchange
	req     *kmsg.ShareFetchRequest
	key     sessionKey
	group   *shareGroup
	session *session
	acks    map[sharePart]int16 // results of acknowledgements that came along
	order   []sharePart         // that have to be in the answer
	got     map[sharePart]*kmsg.ShareFetchResponseTopicPartition
}

// begin checks the request, brings the session up to date and does the
// acknowledgements that came along.
func (f *shareFetch) begin() int16 {
	req, b := f.req, f.b
	if req.GroupID == nil || req.MemberID == nil || *req.MemberID == "" || len(*req.MemberID) > mostMemberID {
		return kerr.InvalidRequest.Code
	}
	renew := req.Version >= 2 && req.IsRenewAck
	if renew && (req.MaxWaitMillis != 0 || req.MinBytes != 0 || req.MaxBytes != 0 || req.MaxRecords != 0) {
		return kerr.InvalidRequest.Code
	}
	f.key = sessionKey{*req.GroupID, *req.MemberID, f.x.node}
	f.group = b.group(*req.GroupID)
	var acks []ackPart
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if len(p.AcknowledgementBatches) == 0 {
				continue
			}
			if req.ShareSessionEpoch == 0 {
				return kerr.InvalidRequest.Code
			}
			a := ackPart{id: t.TopicID, partition: p.Partition}
			for _, ab := range p.AcknowledgementBatches {
				a.batches = append(a.batches, share.Batch{First: ab.FirstOffset, Last: ab.LastOffset, Types: ackTypes(ab.AcknowledgeTypes)})
			}
			acks = append(acks, a)
		}
	}
	var code int16
	if f.session, code = b.sessionOf(f.key, f.x.conn, req.ShareSessionEpoch, true); code != 0 {
		return code
	}
	if req.ShareSessionEpoch != finalSession {
		f.update()
	}
	for _, a := range acks {
		at, code := b.acknowledgePart(f.x.node, f.group, f.key.member, a, renew)
		f.acks[at] = code
	}
	f.got = map[sharePart]*kmsg.ShareFetchResponseTopicPartition{}
	return 0
}

// update adds partitions to the session, and takes some out.
func (f *shareFetch) update() {
	for _, t := range f.req.Topics {
		for _, p := range t.Partitions {
			at, _, _ := f.b.find(t.TopicID, p.Partition)
			at.id, at.partition = t.TopicID, p.Partition
			if !slices.Contains(f.session.parts, at) {
				f.session.parts = append(f.session.parts, at)
				f.order = append(f.order, at) // new ones are always answered
			}
		}
	}
	for _, t := range f.req.ForgottenTopicsData {
		for _, p := range t.Partitions {
			f.session.parts = slices.DeleteFunc(f.session.parts, func(at sharePart) bool { return at.id == t.TopicID && at.partition == p })
		}
	}
}

// collect acquires what there is. done: there is something to be said at once.
func (f *shareFetch) collect() (done bool, err error) {
	for _, code := range f.acks {
		done = done || code != 0
	}
	if f.req.ShareSessionEpoch == finalSession || f.req.Version >= 2 && f.req.IsRenewAck {
		return true, nil
	}
	left := int(f.req.MaxRecords)
	if left <= 0 {
		left = 500
	}
	bytes := int(f.req.MaxBytes)
	// Each time another one first, or the last would starve.
	parts := f.session.parts
	if n := len(parts); n > 0 {
		k := int(f.session.epoch) % n
		parts = append(slices.Clone(parts[k:]), parts[:k]...)
	}
	for _, at := range parts {
		if left <= 0 || bytes <= 0 {
			break
		}
		rp, n, err := f.b.acquire(f.x.node, f.group, f.key.member, at, left, bytes, f.whole())
		if err != nil {
			return false, err
		}
		if rp == nil {
			continue
		}
		done = true
		left -= n
		bytes -= len(rp.Records)
		f.got[at] = rp
	}
	return done, nil
}

// whole reports whether whole batches are to be acquired (KIP-1206: 0 is
// batch_optimized, 1 is record_limit).
func (f *shareFetch) whole() bool { return f.req.Version < 2 || f.req.ShareAcquireMode == 0 }

func (f *shareFetch) nextExpiry() (first time.Time, ok bool) {
	for _, at := range f.session.parts {
		if p := f.group.parts[at]; p != nil {
			if t, locked := p.NextExpiry(); locked && (!ok || t.Before(first)) {
				first, ok = t, true
			}
		}
	}
	return first, ok
}

// wait waits for a change, at most until then; false when the client has gone.
func (f *shareFetch) wait(changed <-chan struct{}, until time.Time) bool {
	timer := time.NewTimer(max(time.Until(until), time.Millisecond))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-f.x.conn.gone:
		return false
	case <-f.x.conn.broker.closed:
		return false
	}
	return true
}

func (f *shareFetch) answer() *kmsg.ShareFetchResponse {
	resp := f.req.ResponseKind().(*kmsg.ShareFetchResponse)
	resp.AcquisitionLockTimeoutMillis = int32(f.b.config(f.group).Lock.Milliseconds())
	parts := slices.Clone(f.order)
	for at := range f.acks {
		parts = append(parts, at)
	}
	for at := range f.got {
		parts = append(parts, at)
	}
	seen := map[sharePart]bool{}
	byTopic := map[[16]byte]int{}
	for _, at := range parts {
		if seen[at] {
			continue
		}
		seen[at] = true
		rp := f.got[at]
		if rp == nil {
			rp = newSharePartition(at.partition)
		}
		if code, ok := f.acks[at]; ok {
			rp.AcknowledgeErrorCode = code
		}
		i, ok := byTopic[at.id]
		if !ok {
			i = len(resp.Topics)
			byTopic[at.id] = i
			t := kmsg.NewShareFetchResponseTopic()
			t.TopicID = at.id
			resp.Topics = append(resp.Topics, t)
		}
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, *rp)
	}
	return resp
}

func newSharePartition(partition int32) *kmsg.ShareFetchResponseTopicPartition {
	rp := kmsg.NewShareFetchResponseTopicPartition()
	rp.Partition = partition
	rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = -1, -1
	return &rp
}

func ackTypes(types []int8) []share.AckType {
	out := make([]share.AckType, len(types))
	for i, t := range types {
		out[i] = share.AckType(t)
	}
	return out
}
