package mirror

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// progress is how far a partition has got, and what was written on the way
// since its position was last committed.
type progress struct {
	to             kgo.EpochOffset
	records, bytes int64
}

// errNotOwned: a partition went to another member, or its topic is gone, before
// its position was committed.
var errNotOwned = errors.New("the partition is not owned any more")

// commit writes the positions of done, and those that were refused before. A
// position that is refused is not an error of the lane: it is committed again
// while the partition is owned, and else the records come again, to whoever
// owns it then.
func (r *partitionReader) commit(ctx context.Context, done map[place]*progress) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	r.mu.Lock()
	for at, p := range done {
		if had := r.owed[at]; had != nil {
			p.records += had.records
			p.bytes += had.bytes
		}
		r.owed[at] = p
	}
	all := maps.Clone(r.owed)
	ids := maps.Clone(r.ids)
	r.mu.Unlock()
	if len(all) == 0 {
		if r.refusals > 0 { // of partitions that went since
			r.committed(nil)
		}
		return
	}
	for at, p := range all {
		if offsets[at.topic] == nil {
			offsets[at.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[at.topic][at.partition] = p.to
	}
	named := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		nameIDs(req, ids)
		return nil
	})
	refused, err := commitOffsets(named, r.cl, offsets)
	confirmed := map[place]*progress{}
	r.mu.Lock()
	for at, p := range all {
		if err == nil && refused[at] == nil && r.owed[at] == p {
			confirmed[at] = p
			delete(r.owed, at)
		}
	}
	r.mu.Unlock()
	for at, p := range confirmed {
		if p.records > 0 {
			r.cfg.board.copied(at.topic, at.partition, int(p.records), p.bytes)
		}
	}
	for at, cause := range refused {
		if err == nil {
			err = fmt.Errorf("%s[%d]: %w", at.topic, at.partition, cause)
		}
	}
	r.committed(err)
}

// committed notes how a commit ended, for when to try the next one.
func (r *partitionReader) committed(err error) {
	const quiet = 3 // refusals that a rebalance can explain
	if err == nil {
		r.refusals, r.commitAt = 0, time.Time{}
		r.cfg.board.trouble(r.cfg.lane+" positions", nil)
		return
	}
	r.refusals++
	r.commitAt = time.Now().Add(backoff(r.refusals, 100*time.Millisecond, 5*time.Second))
	r.cfg.log.Info("positions will be committed again", "lane", r.cfg.lane, "reason", err)
	if r.refusals >= quiet {
		r.cfg.board.trouble(r.cfg.lane+" positions", r.explain(fmt.Errorf("commit positions of group %s: %w", r.group, err)))
	}
}

// repeat commits positions again that were refused. Its error is that of ctx.
func (r *partitionReader) repeat(ctx context.Context) error {
	if !time.Now().Before(r.commitAt) {
		r.commit(ctx, nil)
	}
	return ctx.Err()
}

// forget drops what is known of partitions that come or go.
func (r *partitionReader) forget(ps map[string][]int32) {
	r.drop(func(at place) bool { return slices.Contains(ps[at.topic], at.partition) })
}

func (r *partitionReader) forgetTopics(topics []string) {
	r.drop(func(at place) bool { return slices.Contains(topics, at.topic) })
}

func (r *partitionReader) drop(gone func(place) bool) {
	lost := map[place]*progress{}
	r.mu.Lock()
	maps.DeleteFunc(r.next, func(at place, _ int64) bool { return gone(at) })
	for at, p := range r.owed {
		if gone(at) {
			lost[at] = p
			delete(r.owed, at)
		}
	}
	r.mu.Unlock()
	for at, p := range lost {
		if p.records > 0 {
			r.cfg.board.refused(at.topic, at.partition, int(p.records), errNotOwned)
		}
	}
}

func (r *partitionReader) wanted(topic string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.topics[topic]
}

// idPrefix begins the metadata of a committed position, which names the topic
// that it is a position of: a topic of the same name may be another one.
const idPrefix = "topic-id "

func idText(id [16]byte) string { return idPrefix + base64.RawURLEncoding.EncodeToString(id[:]) }

// positionOf reports whether metadata says nothing else than that a position is
// one of the topic of that id.
func positionOf(metadata string, id [16]byte) bool {
	return !strings.HasPrefix(metadata, idPrefix) || strings.HasPrefix(metadata, idText(id))
}

func nameIDs(req *kmsg.OffsetCommitRequest, ids map[string][16]byte) {
	for _, t := range req.Topics {
		id := ids[t.Topic]
		if id == [16]byte{} {
			continue
		}
		for i := range t.Partitions {
			t.Partitions[i].Metadata = kmsg.StringPtr(idText(id))
		}
	}
}

// adjust looks at the positions that the group has for newly assigned
// partitions. Those of a topic that was deleted, and created again since, say
// nothing about the new one, which is read from its start. Sources without topic
// ids can't tell the two apart; there the broker drops the positions of a topic
// with the topic.
func (r *partitionReader) adjust(ctx context.Context, starts map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	list, err := listTopics(ctx, r.cl, slices.Collect(maps.Keys(starts))...)
	if err != nil {
		return nil, fmt.Errorf("look at the topics of positions: %w", err)
	}
	kept, err := kadm.NewClient(r.cl).FetchOffsets(ctx, r.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	for topic, ps := range starts {
		id := list[topic].ID
		r.mu.Lock()
		r.ids[topic] = id
		r.mu.Unlock()
		if id == [16]byte{} {
			continue
		}
		for p := range ps {
			o, ok := kept.Lookup(topic, p)
			if !ok || o.Err != nil || o.At < 0 || positionOf(o.Metadata, id) {
				continue
			}
			r.cfg.log.Warn("topic was recreated; it is read from its start", "topic", topic, "partition", p, "old_position", o.At)
			ps[p] = kgo.NewOffset().AtStart()
		}
	}
	return starts, nil
}
