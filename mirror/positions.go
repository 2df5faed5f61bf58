package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/topology"
)

// commitOffsets commits as the member that cl is, and returns the positions
// that the broker refused.
func commitOffsets(ctx context.Context, cl *kgo.Client, offsets map[string]map[int32]kgo.EpochOffset) (map[place]error, error) {
	refused := map[place]error{}
	var failed error
	cl.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			failed = err
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					refused[place{t.Topic, p.Partition}] = err
				}
			}
		}
	})
	return refused, failed
}

// shareOffsets reads where a share group stands; empty when there is no such
// group.
func shareOffsets(ctx context.Context, adm *kadm.Client, group string) (kadm.ShareOffsets, error) {
	all, err := adm.DescribeShareGroupOffsets(ctx, group)
	if err == nil {
		err = all[group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return kadm.ShareOffsets{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read offsets of share group %s: %w", group, err)
	}
	return all[group].Offsets, nil
}

// shareMembers counts the members of a share group.
func shareMembers(ctx context.Context, adm *kadm.Client, group string) ([]string, error) {
	ds, err := adm.DescribeShareGroups(ctx, group)
	if err == nil {
		err = ds[group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe share group %s: %w", group, err)
	}
	var ids []string
	for _, m := range ds[group].Members {
		ids = append(ids, m.MemberID)
	}
	return ids, nil
}

// consumers counts the members of the fallback group. A group that runs the
// KIP-848 protocol is described by another request than a classic one.
func consumers(ctx context.Context, adm *kadm.Client, group string) (int, error) {
	listed, err := adm.ListGroups(ctx)
	if err != nil {
		return 0, fmt.Errorf("list groups: %w", err)
	}
	g, ok := listed[group]
	if !ok {
		return 0, nil
	}
	if g.GroupType == "consumer" || g.GroupType == "Consumer" {
		ds, err := adm.DescribeConsumerGroups(ctx, group)
		if err == nil {
			err = ds[group].Err
		}
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return 0, fmt.Errorf("describe group %s: %w", group, err)
		}
		return len(ds[group].Members), nil
	}
	ds, err := adm.DescribeGroups(ctx, group)
	if err == nil {
		err = ds[group].Err
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return 0, fmt.Errorf("describe group %s: %w", group, err)
	}
	return len(ds[group].Members), nil
}

// shareStart is the group's reset setting. start: latest holds for the topics
// that exist when the flow runs for the first time; what appears later is read
// from its beginning, or the records before its discovery would be skipped.
func (f *flow) shareStart(ctx context.Context) (topology.Start, error) {
	if f.def.Start == topology.StartEarliest {
		return topology.StartEarliest, nil
	}
	offsets, err := shareOffsets(ctx, f.admin(), f.settings.ShareGroupID)
	if err != nil {
		return "", err
	}
	for _, ps := range offsets {
		for _, p := range ps {
			if p.StartOffset >= 0 {
				return topology.StartEarliest, nil
			}
		}
	}
	return topology.StartLatest, nil
}

// carryPositions makes a change of reader continue where the other reader
// stopped. A share group and a consumer group can't have one name, so each
// reader has a group of its own, and its position is carried over when it is
// behind the other's.
func (f *flow) carryPositions(ctx context.Context) error {
	adm := f.admin()
	committed, err := adm.FetchOffsets(ctx, f.settings.GroupID)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return fmt.Errorf("read positions of group %s: %w", f.settings.GroupID, err)
	}
	if !f.srcCap.ShareGroups() {
		return f.seedLatest(ctx, committed)
	}
	share, err := shareOffsets(ctx, adm, f.settings.ShareGroupID)
	if err != nil {
		return err
	}
	if f.decision.reader == topology.ReaderShare {
		return f.carryToShare(ctx, committed, share)
	}
	if err := f.carryToGroup(ctx, committed, share); err != nil {
		return err
	}
	if len(share) > 0 {
		return nil
	}
	return f.seedLatest(ctx, committed)
}

func (f *flow) carryToShare(ctx context.Context, committed kadm.OffsetResponses, share kadm.ShareOffsets) error {
	adm := f.admin()
	if n, err := consumers(ctx, adm, f.settings.GroupID); err != nil {
		return err
	} else if n > 0 {
		return &Refusal{
			Problem: fmt.Sprintf("the flow runs with read: partition in %d other lanes (group %s)", n, f.settings.GroupID),
			Hint:    "stop them first: two readers at once copy everything twice",
		}
	}
	var ahead kadm.Offsets
	committed.Each(func(o kadm.OffsetResponse) {
		if o.Err != nil || o.At < 0 || !f.def.Match(o.Topic) {
			return
		}
		if s, ok := share.Lookup(o.Topic, o.Partition); ok && (s.StartOffset >= o.At || s.Lag == 0) {
			return
		}
		ahead.AddOffset(o.Topic, o.Partition, o.At, -1)
	})
	if len(ahead) == 0 {
		return nil
	}
	members, err := shareMembers(ctx, adm, f.settings.ShareGroupID)
	if err != nil {
		return err
	}
	if len(members) > 0 {
		return nil // a process that is already reading has carried them over
	}
	resp, err := adm.AlterShareGroupOffsets(ctx, f.settings.ShareGroupID, ahead)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return &hinted{fmt.Errorf("carry positions of group %s over to share group %s: %w", f.settings.GroupID, f.settings.ShareGroupID, err), "grant READ on both groups at the source"}
	}
	f.log.Info("positions carried over", "from", f.settings.GroupID, "to", f.settings.ShareGroupID)
	return nil
}

func (f *flow) carryToGroup(ctx context.Context, committed kadm.OffsetResponses, share kadm.ShareOffsets) error {
	if len(share) == 0 {
		return nil
	}
	adm := f.admin()
	members, err := shareMembers(ctx, adm, f.settings.ShareGroupID)
	if err != nil {
		return err
	}
	if len(members) > 0 {
		return &Refusal{
			Problem: fmt.Sprintf("the flow runs with read: share in %d other lanes (group %s)", len(members), f.settings.ShareGroupID),
			Hint:    "stop them first: two readers at once copy everything twice",
		}
	}
	var topics []string
	for t := range share {
		topics = append(topics, t)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	var ahead kadm.Offsets
	for t, ps := range share {
		for p, s := range ps {
			end, ok := ends.Lookup(t, p)
			if !ok || end.Err != nil || s.Err != nil {
				continue
			}
			at := s.StartOffset
			if s.Lag == 0 {
				at = end.Offset // everything is acknowledged; the start offset trails
			}
			if c, ok := committed.Lookup(t, p); at < 0 || ok && c.Err == nil && c.At >= at {
				continue
			}
			ahead.AddOffset(t, p, at, -1)
		}
	}
	return f.commitFirst(ctx, ahead, "share group "+f.settings.ShareGroupID)
}

// seedLatest makes start: latest a position, when the flow runs for the first
// time.
func (f *flow) seedLatest(ctx context.Context, committed kadm.OffsetResponses) error {
	if f.def.Start != topology.StartLatest || f.decision.reader != topology.ReaderPartition || len(committed) > 0 {
		return nil
	}
	adm := f.admin()
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("list topics of %s: %w", f.def.From, err)
	}
	var names []string
	for t := range topics {
		if f.def.Match(t) {
			names = append(names, t)
		}
	}
	if len(names) == 0 {
		return nil
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	return f.commitFirst(ctx, ends.Offsets(), "start: latest")
}

// commitFirst commits positions for a group that has no member yet. When it
// has one, that member's process has done this already.
func (f *flow) commitFirst(ctx context.Context, os kadm.Offsets, why string) error {
	if len(os) == 0 {
		return nil
	}
	n, err := consumers(ctx, f.admin(), f.settings.GroupID)
	if err != nil || n > 0 {
		return err
	}
	resp, err := f.admin().CommitOffsets(ctx, f.settings.GroupID, os)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return &hinted{fmt.Errorf("commit first positions of group %s: %w", f.settings.GroupID, err), "grant READ on GROUP " + f.settings.GroupID + " at the source"}
	}
	f.log.Info("positions carried over", "from", why, "to", f.settings.GroupID)
	return nil
}
