package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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
	leader   int32
	logStart int64
	start    int64 // a share group's own start offset, -1 before it has one; it trails
	position int64 // the oldest offset that is there and not finished; of a share group: if things were finished in order
	end      int64 // last stable offset
	high     int64 // high watermark at least, -1 when not known
	lag      int64 // records not finished
	told     int64 // the lag that the broker itself tells of a share group, -1 where it does not (before Kafka 4.2)
}

// standings reads the positions of the flow's topics from the source.
func (f *flow) standings(ctx context.Context, topics []string) (map[place]standing, error) {
	out := map[place]standing{}
	list, err := listTopics(ctx, f.src, topics...)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", f.def.From, err)
	}
	topics = slices.DeleteFunc(slices.Clone(topics), func(t string) bool {
		d, ok := list[t]
		return !ok || d.Err != nil
	})
	if len(topics) == 0 {
		return out, nil
	}
	adm := f.admin()
	// The high watermarks are read first: one that is ahead of the last stable
	// offset proves that something was open in between.
	highs, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil && len(highs) == 0 {
		return nil, fmt.Errorf("list end offsets of %s: %w", f.def.From, err)
	}
	// The positions are read last: a lag of 0 then proves that everything below
	// the end is finished.
	ends, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil && len(ends) == 0 {
		return nil, fmt.Errorf("list end offsets of %s: %w", f.def.From, err)
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil && len(starts) == 0 {
		return nil, fmt.Errorf("list start offsets of %s: %w", f.def.From, err)
	}
	position, err := f.positions(ctx, list)
	if err != nil {
		return nil, err
	}
	ends.Each(func(e kadm.ListedOffset) {
		if e.Err != nil {
			return
		}
		topic := list[e.Topic]
		s, ok := position[place{e.Topic, e.Partition}]
		if !ok || s.id != ([16]byte{}) && s.id != topic.ID { // or of a topic that was deleted
			s = standing{start: -1, position: -1, lag: -1}
		}
		s.id, s.leader, s.end, s.told = topic.ID, topic.Partitions[e.Partition].Leader, e.Offset, s.lag
		s.high = offsetOf(highs, e.Topic, e.Partition)
		if s.lag >= 0 {
			// Brokers count up to the high watermark, which can't be read yet.
			s.lag = max(0, s.lag-max(0, s.unstable()))
			s.position = s.end - s.lag
		}
		if start, ok := starts.Lookup(e.Topic, e.Partition); ok && start.Err == nil {
			s.logStart = start.Offset
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
func (f *flow) positions(ctx context.Context, list kadm.TopicDetails) (map[place]standing, error) {
	if f.exactly() {
		return f.ledgerPositions(ctx, list)
	}
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

// watchLag keeps lag and progress up to date. It returns when ctx ends, or with
// the refusal when the ledger says that this process may not copy any more: an
// idle lane would see that only with its next transaction.
func (f *flow) watchLag(ctx context.Context) error {
	for ; ctx.Err() == nil; pause(ctx, lagEvery) {
		err := f.lookAndJudge(ctx)
		var refusal *Refusal
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &refusal):
			return err
		default:
			f.board.trouble(whereLag, err)
		}
	}
	return nil
}

func (f *flow) lookAndJudge(ctx context.Context) error {
	if err := f.lookAtLag(ctx); err != nil {
		return err
	}
	return f.judgeTails(ctx)
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
	f.board.looked()
	f.post(ctx, at)
	return f.auditLost(ctx, at)
}

// post puts standings on the board, with the age of the oldest record that is
// not finished, and with who holds back what can't be read.
func (f *flow) post(ctx context.Context, at map[place]standing) {
	oldest, bare := f.oldest(ctx, at)
	held := f.lookForHolders(ctx, at)
	for pl, s := range at {
		lag := s.lag
		if held[pl] != nil && bare[pl] {
			lag = 0
		}
		seconds := float64(0)
		if lag > 0 {
			seconds = -1
			if ts, ok := oldest[pl]; ok {
				seconds = max(0, time.Since(ts).Seconds())
			}
		}
		f.board.held(pl.topic, pl.partition, s.unstable(), held[pl])
		f.board.lagged(pl.topic, pl.partition, lag, s.end, seconds)
	}
	f.board.sharded(f.ledger.shards, f.lastCommit())
}

// oldest reads the timestamp of the record at each lagging position. bare are
// those with nothing but what nobody copies (aborted records, markers) up to the
// last stable offset. What can't be read in a second is left out.
func (f *flow) oldest(ctx context.Context, at map[place]standing) (times map[place]time.Time, bare map[place]bool) {
	byLeader := map[int32]map[place]spot{}
	for pl, s := range at {
		if s.lag <= 0 || s.leader < 0 {
			continue
		}
		if byLeader[s.leader] == nil {
			byLeader[s.leader] = map[place]spot{}
		}
		byLeader[s.leader][pl] = spot{s.id, s.position}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	times, bare = map[place]time.Time{}, map[place]bool{}
	for leader, spots := range byLeader {
		wg.Go(func() {
			for len(spots) > 0 {
				found, ok := firsts(ctx, f.src, leader, spots)
				mu.Lock()
				maps.Copy(times, found)
				for pl, s := range spots {
					bare[pl] = s.offset >= at[pl].end
				}
				mu.Unlock()
				if !ok {
					return
				}
			}
		})
	}
	wg.Wait()
	return times, bare
}

// firsts reads the times of the records at spots as far as one answer goes. It
// takes out those spots that are done with, and moves on those where no record
// is. ok: another request leads further.
func firsts(ctx context.Context, cl *kgo.Client, leader int32, spots map[place]spot) (found map[place]time.Time, ok bool) {
	const little, most = 32 << 10, 1 << 20
	got, err := fetchAt(ctx, cl, leader, spots, little, most)
	if err != nil {
		return nil, false
	}
	found = map[place]time.Time{}
	for pl, s := range spots {
		switch p := got[pl]; {
		case len(p.recs) > 0:
			found[pl] = p.recs[0].Timestamp
			delete(spots, pl)
			ok = true
		case p.err != nil:
			delete(spots, pl)
		case p.next > s.offset:
			spots[pl] = spot{s.id, p.next}
			ok = true
		}
	}
	return found, ok
}
