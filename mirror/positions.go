package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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

// copiedBefore reports whether the flow has got on in a source topic: this
// process has copied it, or one of the flow's groups has a position in it. What
// may not be read counts as none.
func (f *flow) copiedBefore(ctx context.Context, topic string) bool {
	f.mu.Lock()
	_, ready := f.ready[topic]
	_, blocked := f.blocked[topic]
	f.mu.Unlock()
	if ready || blocked {
		return true
	}
	got := false
	if committed, err := f.admin().FetchOffsets(ctx, f.settings.GroupID); err == nil {
		committed.Each(func(o kadm.OffsetResponse) { got = got || o.Topic == topic && o.Err == nil && o.At > 0 })
	}
	if got || !f.srcCap.ShareGroups() {
		return got
	}
	if share, err := shareOffsets(ctx, f.admin(), f.settings.ShareGroupID); err == nil {
		for _, o := range share[topic] {
			got = got || o.Err == nil && o.StartOffset > 0
		}
	}
	return got
}

// groupDenied adds to err which right is missing, if that is what it says.
func groupDenied(err error, group string) error {
	if errors.Is(err, kerr.GroupAuthorizationFailed) {
		return &hinted{err, "grant READ on GROUP " + group + " at the source"}
	}
	return err
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
		return nil, groupDenied(fmt.Errorf("read offsets of share group %s: %w", group, err), group)
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
		return nil, groupDenied(fmt.Errorf("describe share group %s: %w", group, err), group)
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
