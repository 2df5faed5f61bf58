package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A coordinator hands out an assignment only with a heartbeat, and a new
// member's first one comes back without: until it has one, a member asks more
// often than it was told to, for a while.
const (
	eagerEvery = 200 * time.Millisecond
	eagerFor   = 10 * time.Second
)

// metadataAge is how old a reader's view of leaders may grow without a reason
// to look again.
const metadataAge = 30 * time.Second

// manage keeps the membership alive until ctx ends: heartbeats, assignment,
// metadata.
func (r *shareReader) manage(ctx context.Context) {
	var (
		epoch     int32
		forgotten bool     // the group is to get its settings before it is joined again
		sent      []string // subscription that the coordinator knows
		fails     int
		looked    time.Time
		next      time.Time // heartbeat
		eager     time.Time // until then ask often while nothing is assigned
	)
	for ctx.Err() == nil {
		r.mu.Lock()
		topics := r.topics
		r.mu.Unlock()

		idle := epoch == 0 && len(topics) == 0 // the coordinator refuses to join for nothing
		changed := epoch != 0 && !slices.Equal(topics, sent)
		doubtful, doubt := r.doubtful()
		if forgotten && !time.Now().Before(next) {
			var refusal *Refusal
			err := r.cfg.rejoining(ctx)
			switch {
			case err == nil:
				forgotten, fails = false, 0
			case errors.As(err, &refusal):
				r.fail(err)
				return
			default:
				fails++
				next = time.Now().Add(backoff(fails, 100*time.Millisecond, 5*time.Second))
				r.cfg.board.trouble(r.cfg.lane+" membership", err)
			}
		}
		if !idle && !forgotten && (changed || doubtful && fails == 0 || !time.Now().Before(next)) {
			resp, err := r.heartbeat(ctx, epoch, topics, sent)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				if epoch == 0 || changed {
					eager = time.Now().Add(eagerFor)
				}
				epoch, sent, fails = resp.MemberEpoch, topics, 0
				r.epoch.Store(epoch)
				next = time.Now().Add(max(time.Duration(resp.HeartbeatIntervalMillis)*time.Millisecond, 100*time.Millisecond))
				r.cfg.board.trouble(r.cfg.lane+" membership", nil)
				r.trust(doubt) // what was raised since the heartbeat was sent stays
				if resp.Assignment != nil {
					r.assign(resp.Assignment)
				}
				if len(topics) > 0 && time.Now().Before(eager) && !r.complete(topics) {
					next = time.Now().Add(eagerEvery)
				}
			case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedMemberEpoch), errors.Is(err, kerr.GroupIDNotFound):
				r.cfg.log.Info("share group forgot this member; joining anew", "group", r.cfg.group, "reason", err)
				epoch, sent, forgotten = 0, nil, true
				r.epoch.Store(0)
				next = time.Now()
				r.doubt() // no fetching until it is a member again
			case errors.Is(err, kerr.UnsupportedVersion):
				r.fail(&Refusal{Problem: "the source's group coordinator does not serve share groups", Hint: "set read: partition, or finalise share.version at the source"})
				return
			default:
				fails++
				sent = nil // a new coordinator may not know it
				next = time.Now().Add(backoff(fails, 100*time.Millisecond, 5*time.Second))
				r.cfg.board.trouble(r.cfg.lane+" membership", r.explain(fmt.Errorf("heartbeat to share group %s: %w", r.cfg.group, err)))
			}
		}
		if r.stale() || time.Since(looked) > metadataAge {
			if err := r.metadata(ctx, topics); err == nil {
				looked = time.Now()
			} else if ctx.Err() == nil {
				r.cfg.log.Info("source metadata not read", "lane", r.cfg.lane, "reason", err)
			}
		}
		r.distribute()

		wait := time.Until(next)
		if idle {
			wait = metadataAge
		}
		if r.stale() {
			wait = min(wait, 200*time.Millisecond)
		}
		timer := time.NewTimer(max(wait, 10*time.Millisecond))
		select {
		case <-timer.C:
		case <-r.wake:
			// A storm of wakes must not become a storm of requests.
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (r *shareReader) heartbeat(ctx context.Context, epoch int32, topics, sent []string) (*kmsg.ShareGroupHeartbeatResponse, error) {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = r.cfg.group, r.member, epoch
	if epoch == 0 && r.cfg.rack != "" {
		req.RackID = &r.cfg.rack
	}
	if epoch == 0 || sent == nil || !slices.Equal(topics, sent) {
		req.SubscribedTopicNames = append([]string{}, topics...) // null would mean unchanged
	}
	return r.beat(ctx, req)
}

func (r *shareReader) assign(a *kmsg.ShareGroupHeartbeatResponseAssignment) {
	assigned := map[tip]bool{}
	for _, t := range a.TopicPartitions {
		for _, p := range t.Partitions {
			assigned[tip{t.TopicID, p}] = true
		}
	}
	r.mu.Lock()
	r.assigned = assigned
	r.mu.Unlock()
}

// complete reports whether something of each topic is assigned. With more
// members than partitions that never comes true, which eagerFor bounds.
func (r *shareReader) complete(topics []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := map[string]bool{}
	for t := range r.assigned {
		have[r.names[t.id]] = true
	}
	for _, t := range topics {
		if !have[t] {
			return false
		}
	}
	return true
}

// stale reports whether leaders may have moved, or an assigned partition has no
// known leader or name.
func (r *shareReader) stale() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dirty {
		return true
	}
	for t := range r.assigned {
		if node, ok := r.leaders[t]; !ok || node < 0 || r.names[t.id] == "" {
			return true
		}
	}
	return false
}

// metadata reads names and leaders of the subscribed topics. What an answer
// leaves out is kept as it was: one lagging broker is no deletion.
func (r *shareReader) metadata(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return fmt.Errorf("read source metadata: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty = false
	now := time.Now()
	for _, t := range resp.Topics {
		if t.Topic == nil || t.ErrorCode != 0 {
			continue
		}
		r.names[t.TopicID], r.shown[t.TopicID] = *t.Topic, now
		for _, p := range t.Partitions {
			if p.Leader >= 0 {
				r.leaders[tip{t.TopicID, p.Partition}] = p.Leader
			}
		}
	}
	r.forget(now.Add(-forgetAfter))
	return nil
}

// forgetAfter is how long a topic that is not shown any more is known by name:
// longer than anything of it may be held.
const forgetAfter = time.Hour

// forget drops topics that were last shown before then and of which nothing is
// assigned. r.mu is held.
func (r *shareReader) forget(then time.Time) {
	for t := range r.assigned {
		if _, ok := r.shown[t.id]; ok {
			r.shown[t.id] = time.Now()
		}
	}
	for id, at := range r.shown {
		if at.Before(then) {
			delete(r.shown, id)
			delete(r.names, id)
		}
	}
	maps.DeleteFunc(r.leaders, func(t tip, _ int32) bool { return r.names[t.id] == "" })
}

// leave tells the coordinator that this member is gone.
func (r *shareReader) leave(ctx context.Context) error {
	if !r.started {
		return nil
	}
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = r.cfg.group, r.member, -1
	_, err := r.beat(ctx, req)
	if err != nil && r.home == noHome {
		_, err = r.beat(ctx, req) // at the coordinator that it has by now
	}
	switch {
	case err == nil, errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.GroupIDNotFound):
		return nil
	}
	return fmt.Errorf("leave share group %s: %w", r.cfg.group, err)
}
