package mirror

import (
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
			f.board.trouble("refresh", err)
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
	return f.refresh(ctx)
}

// refresh brings the set of topics up to date.
func (f *flow) refresh(ctx context.Context) error {
	if err := f.syncStops(ctx); err != nil {
		return err
	}
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

// adopt makes a view the flow's own. A topic that one answer leaves out stays:
// it is gone when three in a row leave it out.
func (f *flow) adopt(v *view) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[string]bool{}
	for i := range v.states {
		st := &v.states[i]
		seen[st.Topic] = true
		delete(f.absent, st.Topic)
		if f.decision.reader == topology.ReaderShare && f.def.Ordered != topology.OrderedFalse && slices.Contains(v.compacted, st.Topic) {
			st.Ready = false
			st.Reason, st.Hint = "a compacted topic needs order, which read: share does not keep", "give it a flow with ordered: true, or restart the mirror, or set ordered: false"
			delete(v.ready, st.Topic)
		}
		if st.Ready {
			delete(f.blocked, st.Topic)
		}
	}
	for topic, rt := range f.ready {
		if seen[topic] {
			continue
		}
		if f.absent[topic]++; f.absent[topic] < 3 {
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
