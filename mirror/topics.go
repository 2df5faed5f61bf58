package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onceover-mirror/onceover/topology"
)

// watchTopics looks again at topics, partitions, stops and the share group's
// settings at each refresh. It returns when ctx ends, or with the refusal when
// somebody altered those settings and they can't be set back: reading on would
// copy what was rolled back.
func (f *flow) watchTopics(ctx context.Context) error {
	last := time.Now()
	for ctx.Err() == nil {
		timer := time.NewTimer(f.def.Limits.Refresh)
		select {
		case <-timer.C:
		case <-f.wake:
			// Somebody found a topic that can't be copied; but a topic that
			// flaps must not turn into a storm.
			pause(ctx, time.Until(last.Add(time.Second)))
		case <-ctx.Done():
		}
		timer.Stop()
		last = time.Now()
		err := f.lookAgain(ctx)
		var refusal *Refusal
		if ctx.Err() == nil && errors.As(err, &refusal) {
			return err
		}
		if ctx.Err() == nil {
			f.board.trouble(whereRefresh, err)
		}
	}
	return nil
}

func (f *flow) lookAgain(ctx context.Context) error {
	if f.decision.reader == topology.ReaderShare {
		if err := f.setGroup(ctx); err != nil {
			return err
		}
	}
	if f.exactly() {
		if err := f.checkLedger(ctx); err != nil {
			return err
		}
		f.tryHalted()
	}
	return f.refresh(ctx)
}

// refresh brings the set of topics up to date.
func (f *flow) refresh(ctx context.Context) error {
	f.syncStops(ctx)
	f.mu.Lock()
	stopped := maps.Clone(f.stopped)
	f.mu.Unlock()
	v, err := f.cat.refresh(ctx, stopped)
	if err != nil {
		return err
	}
	f.adopt(v)
	return nil
}

// missedLooks is how many looks in a row have to find a topic gone, or kept from
// being copied by what may pass, before it leaves the flow.
const missedLooks = 3

// adopt makes a view the flow's own. A topic that one look does not find as it
// should be stays, see [missedLooks], unless somebody denies or stops it.
func (f *flow) adopt(v *view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string]bool{}
	for i := range v.states {
		st := &v.states[i]
		seen[st.Topic] = true
		f.keepPassing(v, st)
		if f.decision.reader == topology.ReaderShare && f.def.Ordered != topology.OrderedFalse && slices.Contains(v.compacted, st.Topic) &&
			(f.settings.Read != topology.ReaderShare || !slices.Contains(v.unread, st.Topic)) {
			st.Ready = false
			st.Reason, st.Hint = "a compacted topic needs order, which read: share does not keep", "give it a flow with ordered: true, or restart the mirror, or set ordered: false"
			if slices.Contains(v.unread, st.Topic) {
				st.Reason, st.Hint = "it can't be told whether the topic is compacted and needs order", "grant DESCRIBE_CONFIGS on TOPIC "+st.Topic+" at the source, or set ordered: false"
			}
			delete(v.ready, st.Topic)
		}
		if b := f.blocked[st.Topic]; b != nil && b.holds(v.began, st.Ready) {
			st.Ready, st.Reason, st.Hint = false, cmp.Or(st.Reason, b.err.Error()), cmp.Or(st.Hint, hintOf(b.err))
			delete(v.ready, st.Topic)
		}
		f.compareIDs(v, st.Topic)
	}
	for topic, rt := range f.ready {
		if seen[topic] {
			continue
		}
		if f.absent[topic]++; f.absent[topic] < missedLooks {
			v.ready[topic] = rt
			v.states = append(v.states, TopicState{Topic: topic, Target: rt.target, Ready: true})
		}
	}
	f.ready = v.ready
	for topic := range f.stopped {
		delete(f.ready, topic)
	}
	f.subscribe()
	f.board.setTopics(v.states)
	switch {
	case len(v.states) == 0:
		f.board.phase(FlowWaiting, "no topic of "+f.def.From+" matches", "see topics.include and topics.exclude, and DESCRIBE rights at the source")
	case len(f.ready) == 0:
		f.board.phase(FlowWaiting, fmt.Sprintf("none of %d matching topics can be copied: %s", len(v.states), v.states[0].Reason), v.states[0].Hint)
	default:
		f.board.phase(FlowRunning, "", "")
	}
}

// keepPassing leaves a topic in the flow for which a look found a reason that
// may pass. f.mu is held.
func (f *flow) keepPassing(v *view, st *TopicState) {
	rt, was := f.ready[st.Topic]
	if !was || st.Ready || !v.passing[st.Topic] {
		delete(f.absent, st.Topic)
		return
	}
	if f.absent[st.Topic]++; f.absent[st.Topic] < missedLooks {
		st.Ready = true // with the reason beside it
		v.ready[st.Topic] = rt
	}
}

// compareIDs tells the readers of a topic that is another one than at the last
// look. f.mu is held.
func (f *flow) compareIDs(v *view, topic string) {
	was, had := f.ready[topic]
	is, ready := v.ready[topic]
	if !had || !ready || was.id == is.id || was.id == [16]byte{} || is.id == [16]byte{} {
		return
	}
	if f.exactly() { // what becomes of it its lanes say
		maps.DeleteFunc(f.parts, func(at place, _ string) bool { return at.topic == topic })
		f.log.Warn("topic was recreated", "topic", topic)
		return
	}
	f.log.Warn("topic was recreated; the new one is read from its start", "topic", topic)
	for _, r := range f.readers {
		if pr, ok := r.(*partitionReader); ok {
			pr.recreated(topic)
		}
	}
}
