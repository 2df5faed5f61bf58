package mirror

import (
	"cmp"
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/txn"
)

// coverage is what the offset map has of one source partition.
type coverage struct {
	runs    int64
	offsets txn.RangeSet // at the source
	// By the id of the target topic: the offsets after the last copy there, and
	// after its original at the source.
	ends, reached map[[16]byte]int64
}

func (c *coverage) add(r txn.Run) {
	c.runs++
	c.offsets.Add(r.First, r.Last)
	if c.ends == nil {
		c.ends, c.reached = map[[16]byte]int64{}, map[[16]byte]int64{}
	}
	c.reached[r.TargetTopicID] = max(c.reached[r.TargetTopicID], r.Last+1)
	c.ends[r.TargetTopicID] = max(c.ends[r.TargetTopicID], r.TargetFirst+r.Last-r.First+1)
}

// bounds are the lowest and the highest source offset, -1 without any.
func (c *coverage) bounds() (first, last int64) {
	rs := c.offsets.Ranges()
	if len(rs) == 0 {
		return -1, -1
	}
	return rs[0].First, rs[len(rs)-1].Last
}

// coverage reads one partition of the map, as far as it is committed when it is
// called. start is the log start of that partition: above 0, the map has
// forgotten runs. After an error the map has what was read until then.
func (f *flow) coverage(ctx context.Context, shard int32) (by map[txn.SourcePartition]*coverage, start int64, err error) {
	const most = 8 << 20
	topic := txn.MapTopic(f.def.Name)
	by = map[txn.SourcePartition]*coverage{}
	list, err := listTopics(ctx, f.dst, topic)
	if err == nil {
		err = list[topic].Err
	}
	if err != nil {
		return by, 0, fmt.Errorf("look for the map: %w", err)
	}
	adm := kadm.NewClient(f.dst)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return by, 0, fmt.Errorf("list start offsets of %s: %w", topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return by, 0, fmt.Errorf("list end offsets of %s: %w", topic, err)
	}
	start = offsetOf(starts, topic, shard)
	at := place{topic, shard}
	for next, end := start, offsetOf(ends, topic, shard); next >= 0 && next < end; {
		got, err := fetchAt(ctx, f.dst, list[topic].Partitions[shard].Leader, map[place]spot{at: {list[topic].ID, next}}, most, most)
		if err != nil {
			return by, start, fmt.Errorf("read %s[%d] from offset %d: %w", topic, shard, next, err)
		}
		piece := got[at]
		if err := addRuns(by, piece.recs); err != nil {
			return by, start, fmt.Errorf("read %s[%d]: %w", topic, shard, err)
		}
		if piece.err != nil || piece.next == next {
			return by, start, fmt.Errorf("read %s[%d] from offset %d: %w", topic, shard, next, cmp.Or(piece.err, errNoAnswer))
		}
		next = piece.next
	}
	return by, start, nil
}

func addRuns(by map[txn.SourcePartition]*coverage, recs []*kgo.Record) error {
	for _, rec := range recs {
		runs, err := txn.DecodeRuns(rec.Value)
		if err != nil {
			return fmt.Errorf("offset %d: %w: %w", rec.Offset, txn.ErrDamaged, err)
		}
		for _, r := range runs {
			if by[r.Source] == nil {
				by[r.Source] = &coverage{}
			}
			by[r.Source].add(r)
		}
	}
	return nil
}
