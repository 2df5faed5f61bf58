package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
)

// lagEvery is how often a running flow looks at its lag.
const lagEvery = 3 * time.Second

// standing is where a flow stands in one source partition.
type standing struct {
	id       [16]byte
	start    int64 // a share group's own start offset, -1 before it has one; it trails
	done     int64 // of a share group: where it would start if things were finished in order
	position int64 // the oldest offset that is there and not finished, with the same proviso
	end      int64 // last stable offset
	lag      int64 // records not finished
}

// standings reads the positions of the flow's topics from the source.
func (f *flow) standings(ctx context.Context, topics []string) (map[place]standing, error) {
	out := map[place]standing{}
	topics, err := seen(ctx, f.src, topics)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", f.def.From, err)
	}
	if len(topics) == 0 {
		return out, nil
	}
	adm := f.admin()
	ends, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil && len(ends) == 0 {
		return nil, fmt.Errorf("list end offsets of %s: %w", f.def.From, err)
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil && len(starts) == 0 {
		return nil, fmt.Errorf("list start offsets of %s: %w", f.def.From, err)
	}
	position, err := f.positions(ctx)
	if err != nil {
		return nil, err
	}
	ends.Each(func(e kadm.ListedOffset) {
		if e.Err != nil {
			return
		}
		s, ok := position[place{e.Topic, e.Partition}]
		if !ok {
			s = standing{start: -1, position: -1, lag: -1}
		}
		s.end = e.Offset
		if s.lag >= 0 {
			s.position = s.end - s.lag
		}
		s.done = s.position
		if start, ok := starts.Lookup(e.Topic, e.Partition); ok && start.Err == nil {
			s.position = max(s.position, start.Offset)
		}
		if s.lag < 0 {
			s.lag = max(0, s.end-s.position)
		}
		out[place{e.Topic, e.Partition}] = s
	})
	return out, nil
}

// positions reads what the reader's group has: for a share group lag is the
// broker's own, exact figure, or -1 where it gives none.
func (f *flow) positions(ctx context.Context) (map[place]standing, error) {
	out := map[place]standing{}
	if f.decision.reader == topology.ReaderShare {
		offsets, err := shareOffsets(ctx, f.admin(), f.settings.ShareGroupID)
		if err != nil {
			return nil, err
		}
		for t, ps := range offsets {
			for p, o := range ps {
				if o.Err == nil {
					out[place{t, p}] = standing{id: o.TopicID, start: o.StartOffset, position: o.StartOffset, lag: o.Lag}
				}
			}
		}
		return out, nil
	}
	committed, err := f.admin().FetchOffsets(ctx, f.settings.GroupID)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, groupDenied(fmt.Errorf("read positions of group %s: %w", f.settings.GroupID, err), f.settings.GroupID)
	}
	committed.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil {
			out[place{o.Topic, o.Partition}] = standing{position: o.At, lag: -1}
		}
	})
	return out, nil
}

// watchLag keeps lag and progress up to date.
func (f *flow) watchLag(ctx context.Context) {
	for {
		err := f.lookAtLag(ctx)
		if ctx.Err() != nil {
			return
		}
		f.board.trouble("lag", err)
		if sleep(ctx, lagEvery) != nil {
			return
		}
	}
}

func (f *flow) lookAtLag(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	f.mu.Lock()
	topics := slices.Sorted(maps.Keys(f.ready))
	for t := range f.stopped {
		topics = append(topics, t)
	}
	f.mu.Unlock()
	at, err := f.standings(ctx, topics)
	if err != nil {
		return err
	}
	if err := f.auditLost(ctx, at); err != nil {
		return err
	}
	f.post(ctx, at)
	return nil
}

// post puts standings on the board, with the age of the oldest record that is
// not finished.
func (f *flow) post(ctx context.Context, at map[place]standing) {
	oldest := f.oldest(ctx, at)
	for pl, s := range at {
		seconds := float64(0)
		if s.lag > 0 {
			seconds = -1
			if ts, ok := oldest[pl]; ok {
				seconds = max(0, time.Since(ts).Seconds())
			}
		}
		f.board.lagged(pl.topic, pl.partition, s.lag, s.end, seconds)
	}
}

// oldest reads the timestamp of the record at each lagging position. What
// can't be read in a second is left out.
func (f *flow) oldest(ctx context.Context, at map[place]standing) map[place]time.Time {
	from := map[string]map[int32]kgo.Offset{}
	for pl, s := range at {
		if s.lag > 0 {
			if from[pl.topic] == nil {
				from[pl.topic] = map[int32]kgo.Offset{}
			}
			from[pl.topic][pl.partition] = kgo.NewOffset().At(s.position)
		}
	}
	out := map[place]time.Time{}
	if len(from) == 0 {
		return out
	}
	cl, err := f.client(f.def.From, "source-lag", kgo.ConsumePartitions(from),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxPartitionBytes(1), kgo.FetchMaxBytes(1<<20))
	if err != nil {
		return out
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	wanted := 0
	for _, ps := range from {
		wanted += len(ps)
	}
	for len(out) < wanted && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if _, ok := out[place{p.Topic, p.Partition}]; !ok && len(p.Records) > 0 {
				out[place{p.Topic, p.Partition}] = p.Records[0].Timestamp
				cl.PauseFetchPartitions(map[string][]int32{p.Topic: {p.Partition}})
			}
		})
	}
	return out
}
