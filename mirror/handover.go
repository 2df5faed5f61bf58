package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/topology"
)

// carryPositions makes a change of reader continue where the other reader
// stopped. A share group and a consumer group can't have one name, so each
// reader has a group of its own, and its position is carried over when it is
// behind the other's.
func (f *flow) carryPositions(ctx context.Context) error {
	adm := f.admin()
	committed, err := adm.FetchOffsets(ctx, f.settings.GroupID)
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed) && f.decision.reader == topology.ReaderShare:
		f.log.Info("no positions taken over", "from", f.settings.GroupID, "reason", err) // as below
		committed = nil
	case err != nil && !errors.Is(err, kerr.GroupIDNotFound):
		return groupDenied(fmt.Errorf("read positions of group %s: %w", f.settings.GroupID, err), f.settings.GroupID)
	}
	var share kadm.ShareOffsets
	if f.srcCap.ShareGroups() {
		share, err = shareOffsets(ctx, adm, f.settings.ShareGroupID)
		if errors.Is(err, kerr.GroupAuthorizationFailed) && f.decision.reader == topology.ReaderPartition {
			// Who may not look at the share group has not read through it. Should
			// the right have been taken away since, records are copied again.
			f.log.Info("no positions taken over", "from", f.settings.ShareGroupID, "reason", err)
			share, err = nil, nil
		}
		if err != nil {
			return err
		}
	}
	if f.decision.reader == topology.ReaderShare {
		err = f.carryToShare(ctx, committed, share)
	} else {
		err = f.carryToGroup(ctx, committed, share)
	}
	if err != nil || len(committed) > 0 || len(share) > 0 || f.exactly() { // start entries say it there
		return err
	}
	return f.seedLatest(ctx)
}

func (f *flow) carryToShare(ctx context.Context, committed kadm.OffsetResponses, share kadm.ShareOffsets) error {
	adm := f.admin()
	if n, err := consumers(ctx, adm, f.settings.GroupID); err != nil {
		return err
	} else if n > 0 {
		return waitForOthers(fmt.Errorf("group %s, of read: partition, has %d members", f.settings.GroupID, n))
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
	return f.alterFirst(ctx, ahead, "group "+f.settings.GroupID)
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
		return waitForOthers(fmt.Errorf("group %s, of read: share, has %d members", f.settings.ShareGroupID, len(members)))
	}
	var topics []string
	for t := range share {
		topics = append(topics, t)
	}
	// In this order: what has no lag after an end was read is finished up to
	// that end, whatever was produced meanwhile.
	ends, err := adm.ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list end offsets: %w", err)
	}
	if share, err = shareOffsets(ctx, adm, f.settings.ShareGroupID); err != nil {
		return err
	}
	at := map[place]int64{}
	open := map[place]kadm.ShareOffset{} // partitions of which only a part is finished
	for t, ps := range share {
		for p, s := range ps {
			switch end, ok := ends.Lookup(t, p); {
			case !ok || end.Err != nil || s.Err != nil || s.StartOffset < 0:
			case s.Lag == 0:
				at[place{t, p}] = end.Offset // the start offset trails
			case end.Offset-s.StartOffset == s.Lag:
				at[place{t, p}] = s.StartOffset
			default:
				open[place{t, p}] = s
			}
		}
	}
	if err := f.firstOpen(ctx, open, ends, at); err != nil {
		return err
	}
	var ahead kadm.Offsets
	for pl, o := range at {
		if c, ok := committed.Lookup(pl.topic, pl.partition); !ok || c.Err != nil || c.At < o {
			ahead.AddOffset(pl.topic, pl.partition, o, -1)
		}
	}
	return f.commitFirst(ctx, ahead, "share group "+f.settings.ShareGroupID)
}

// waitForOthers is an error that passes when a person stops the other
// processes, or when the group has noticed that a member is dead.
func waitForOthers(err error) error {
	return &hinted{
		fmt.Errorf("waiting for the other reader of the flow to end: %w", err),
		"stop the processes that run with it: two readers at once copy everything twice; a killed one is gone after its session timeout",
	}
}

// firstOpen finds the first unfinished offset of partitions whose share group
// has finished more than its start offset tells: it acquires what comes first,
// and gives it back. That is the first one only if as many records are
// unfinished as there are from it to the end: others may still be locked by a
// process that died. Where that can't be told, the start offset is taken, which
// is never too late, and records are copied again.
func (f *flow) firstOpen(ctx context.Context, open map[place]kadm.ShareOffset, ends kadm.ListedOffsets, at map[place]int64) error {
	if len(open) == 0 {
		return nil
	}
	topics := map[string]bool{}
	for pl := range open {
		topics[pl.topic] = true
	}
	r, err := f.newShareReader("positions", newBoard(f.def.Name, "", "", &Observer{}, slog.New(slog.DiscardHandler)), &writtenSet{})
	if err != nil {
		return err
	}
	r.setTopics(slices.Collect(maps.Keys(topics)))
	look, cancel := context.WithTimeout(ctx, askTimeout*2/3)
	defer cancel()
	first := map[place]int64{}
	var held []*batch
	for len(first) < len(open) {
		b, err := r.poll(look)
		if err != nil {
			break
		}
		held = append(held, b)
		for i := range b.items {
			rec := b.items[i].rec
			pl := place{rec.Topic, rec.Partition}
			if _, ok := open[pl]; !ok {
				continue
			}
			if o, ok := first[pl]; !ok || rec.Offset < o {
				first[pl] = rec.Offset
			}
		}
	}
	for _, b := range held {
		if err := r.settle(ctx, b); err != nil { // every record is open: given back
			return err
		}
	}
	if err := r.close(ctx); err != nil {
		return err
	}
	for pl, s := range open {
		at[pl] = s.StartOffset
		end, _ := ends.Lookup(pl.topic, pl.partition)
		if o, ok := first[pl]; ok && end.Offset-o == s.Lag {
			at[pl] = o
		} else {
			f.log.Warn("records may be copied again", "topic", pl.topic, "partition", pl.partition, "from", s.StartOffset,
				"reason", "the share group does not tell which ones are finished")
		}
	}
	return nil
}

// seedLatest turns start: latest into positions, when the flow runs for the
// first time. It holds for the topics that exist then; what appears later is
// read from its beginning, or the records before its discovery would be
// skipped. (The share group's own reset setting is earliest, for the same
// reason: with latest a broker that restarts before the group's first write would
// resolve it anew.)
func (f *flow) seedLatest(ctx context.Context) error {
	if f.def.Start != topology.StartLatest {
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
	if f.decision.reader == topology.ReaderShare {
		return f.alterFirst(ctx, ends.Offsets(), "start: latest")
	}
	return f.commitFirst(ctx, ends.Offsets(), "start: latest")
}

// alterFirst sets where a share group without members begins. When it has one,
// that member's process has done this already.
func (f *flow) alterFirst(ctx context.Context, os kadm.Offsets, why string) error {
	if len(os) == 0 {
		return nil
	}
	members, err := shareMembers(ctx, f.admin(), f.settings.ShareGroupID)
	if err != nil || len(members) > 0 {
		return err
	}
	resp, err := f.admin().AlterShareGroupOffsets(ctx, f.settings.ShareGroupID, os)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return &hinted{fmt.Errorf("set where share group %s begins: %w", f.settings.ShareGroupID, err), "grant READ on GROUP " + f.settings.ShareGroupID + " at the source"}
	}
	f.log.Info("positions carried over", "from", why, "to", f.settings.ShareGroupID)
	return nil
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
