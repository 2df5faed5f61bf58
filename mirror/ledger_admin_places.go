package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/txn"
)

// ledgerSources are the source partitions that the flow's declaration matches,
// with where their logs begin and end.
func (f *flow) ledgerSources(ctx context.Context) ([]LedgerPlace, error) {
	topics, err := listTopics(ctx, f.src)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", f.def.From, err)
	}
	made := f.newCatalog().made(topics)
	var names []string
	for name := range topics {
		if f.def.Match(name) && !made[name] && topics[name].Err == nil {
			names = append(names, name)
		}
	}
	if names = unique(names); len(names) == 0 {
		return nil, nil
	}
	starts, err := f.admin().ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("list start offsets of %s: %w", f.def.From, err)
	}
	ends, err := f.admin().ListCommittedOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("list end offsets of %s: %w", f.def.From, err)
	}
	var out []LedgerPlace
	for _, name := range names {
		for p := range int32(len(topics[name].Partitions)) {
			start, end := offsetOf(starts, name, p), offsetOf(ends, name, p)
			if start < 0 || end < 0 {
				return nil, fmt.Errorf("no offsets of %s[%d] at %s", name, p, f.def.From)
			}
			out = append(out, LedgerPlace{
				Topic: name, Partition: p, From: -1, Reached: -1, Start: start, End: end,
				src: f.sourcePartition(route{topic: name, id: topics[name].ID}, p),
			})
		}
	}
	return out, nil
}

// groupPositions are those of the flow's group at the source that are about the
// topics that there are now.
func (f *flow) groupPositions(ctx context.Context, at []LedgerPlace) (map[place]int64, error) {
	committed, err := f.admin().FetchOffsets(ctx, f.settings.GroupID)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, groupDenied(fmt.Errorf("read positions of group %s: %w", f.settings.GroupID, err), f.settings.GroupID)
	}
	ids := map[place][16]byte{}
	for _, p := range at {
		ids[place{p.Topic, p.Partition}] = p.src.TopicID
	}
	out := map[place]int64{}
	committed.Each(func(o kadm.OffsetResponse) {
		pl := place{o.Topic, o.Partition}
		if id, ok := ids[pl]; ok && o.Err == nil && o.At >= 0 && positionOf(o.Metadata, id) {
			out[pl] = o.At
		}
	})
	return out, nil
}

// startsOf are the start entries of a shard.
func startsOf(at []LedgerPlace, shard, shards int) []txn.Entry {
	var out []txn.Entry
	for _, p := range at {
		if p.src.Shard(shards) == shard {
			out = append(out, startEntry(p.src, p.From, p.prior, p.Why))
		}
	}
	return out
}

// idle refuses while a process of the flow reads at-least-once: its position
// moves on.
func (f *flow) idle(ctx context.Context) error {
	n, err := consumers(ctx, f.admin(), f.settings.GroupID)
	if err != nil {
		return err
	}
	group := f.settings.GroupID
	if n == 0 && f.srcCap.ShareGroups() {
		members, err := shareMembers(ctx, f.admin(), f.settings.ShareGroupID)
		if err != nil && !errors.Is(err, kerr.GroupAuthorizationFailed) { // who may not look has not read through it
			return err
		}
		n, group = len(members), f.settings.ShareGroupID
	}
	if n > 0 {
		return f.refuse(fmt.Sprintf("group %s has %d members: the flow is being copied at-least-once", group, n),
			"stop all of its processes first; one that was killed is a member until its session timeout (10 s, 45 s for a share group)")
	}
	return nil
}

// gather brings what a share group has reached into the group that positions are
// taken from; do is false to tell only whether there is something.
func (f *flow) gather(ctx context.Context, plan *LedgerPlan, do bool) error {
	if !f.srcCap.ShareGroups() {
		return nil
	}
	owed, err := f.owedNotes(ctx)
	if err != nil {
		return err
	}
	for at := range owed {
		return f.refuse(fmt.Sprintf("records of %s[%d] are owed: the share group gave up on them and they are not copied yet", at.topic, at.partition),
			"run the flow with guarantee: at-least-once until mirror status shows no lag, then try again")
	}
	share, err := shareOffsets(ctx, f.admin(), f.settings.ShareGroupID)
	if err != nil && !errors.Is(err, kerr.GroupAuthorizationFailed) {
		return err
	}
	if len(share) == 0 {
		return nil
	}
	if !do {
		plan.say("the positions of share group %s go to group %s where they are ahead; the figures are without that", f.settings.ShareGroupID, f.settings.GroupID)
		return nil
	}
	committed, err := f.admin().FetchOffsets(ctx, f.settings.GroupID)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return groupDenied(fmt.Errorf("read positions of group %s: %w", f.settings.GroupID, err), f.settings.GroupID)
	}
	return f.carryToGroup(ctx, committed, share)
}
