package mirror

import (
	"context"
	"maps"
)

// setTopics implements [reader]. The lane brings the client up to date before
// its next poll: taking topics out of a client can wait for the source.
func (r *partitionReader) setTopics(topics []string) {
	want := make(map[string]bool, len(topics))
	for _, t := range topics {
		want[t] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if maps.Equal(want, r.topics) {
		return
	}
	r.topics = want
	if r.wake != nil {
		r.wake()
	}
}

// recreated: the topic was deleted and created again. The client goes on asking
// for the old one until it is told to forget it. Does not block.
func (r *partitionReader) recreated(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.anew[topic] = true
	if r.wake != nil {
		r.wake()
	}
}

// subscribe makes the client read the wanted topics. Its error is that of ctx.
func (r *partitionReader) subscribe(ctx context.Context) error {
	var add, drop []string
	r.mu.Lock()
	for t := range r.subscribed {
		if !r.topics[t] || r.anew[t] {
			drop = append(drop, t)
		}
	}
	for t := range r.topics {
		if !r.subscribed[t] || r.anew[t] {
			add = append(add, t)
		}
	}
	r.subscribed = maps.Clone(r.topics)
	clear(r.anew)
	r.mu.Unlock()
	if len(add)+len(drop) == 0 {
		return ctx.Err()
	}
	for _, t := range drop {
		for at := range r.rest {
			if at.topic == t {
				delete(r.rest, at)
				r.cfg.board.hindered(at.topic, at.partition, nil)
			}
		}
	}
	done := make(chan struct{})
	r.changes.Go(func() {
		defer close(done)
		r.cl.PurgeTopicsFromConsuming(drop...)
		r.forgetTopics(drop)
		paused := r.cl.PauseFetchPartitions(nil)
		maps.DeleteFunc(paused, func(t string, _ []int32) bool { return !r.wanted(t) })
		r.cl.ResumeFetchPartitions(paused)
		r.cl.AddConsumeTopics(add...)
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
	return ctx.Err()
}
