package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// plan fills in fp. A refusal is no reason not to look at the rest: it is
// returned at the end.
func (f *flow) plan(ctx context.Context, fp *FlowPlan) error {
	if err := f.open(); err != nil {
		return err
	}
	if err := f.probe(ctx); err != nil {
		return err
	}
	f.cat = f.newCatalog()
	f.cat.readOnly = true
	v, err := f.cat.refresh(ctx, nil)
	if err != nil {
		return err
	}
	if err := f.probeTxn(ctx); err != nil {
		return err
	}
	err = f.choose(ctx, v, f.tryGroup)
	refusal, refused := errors.AsType[*Refusal](err)
	if err != nil && !refused {
		return err
	}
	if !refused {
		d := f.decision
		fp.Guarantee, fp.Reader, fp.Order, fp.Why = string(d.guarantee), string(d.reader), d.order(), d.why
	}
	if err := f.planTopics(ctx, v, fp); err != nil {
		return err
	}
	if refused {
		return refusal
	}
	if err := f.planGroups(ctx, fp); err != nil {
		return err
	}
	if err := f.planLedger(ctx, fp); err != nil {
		return err
	}
	f.planSplit(v, fp)
	return f.warn(ctx, fp)
}

// planTopics says of each topic whether it would be copied, and which changes
// that takes. Each change is tried with the target, which makes nothing.
func (f *flow) planTopics(ctx context.Context, v *view, fp *FlowPlan) error {
	tried, err := f.tryChanges(ctx, v.planned)
	if err != nil {
		return err
	}
	for _, st := range v.states {
		tp := TopicPlan{Topic: st.Topic, Target: st.Target, Copied: st.Ready, Reason: st.Reason, Hint: st.Hint, Compacted: slices.Contains(v.compacted, st.Topic) && !slices.Contains(v.unread, st.Topic)}
		if rt, ok := v.ready[st.Topic]; ok {
			tp.Partitions = rt.partitions
		}
		if pl, ok := v.planned[st.Topic]; ok {
			tp.Partitions = pl.partitions
			if err := tried[st.Topic]; err != nil {
				tp.Reason, tp.Hint = err.Error(), hintOf(err)
			} else {
				tp.Copied, tp.Reason, tp.Hint = true, "", ""
				fp.Changes = append(fp.Changes, f.change(pl))
			}
		}
		fp.Topics = append(fp.Topics, tp)
	}
	if len(v.states) == 0 {
		fp.Warnings = append(fp.Warnings, Advice{Problem: "no topic of " + f.def.From + " matches", Hint: "see topics.include and topics.exclude, and DESCRIBE rights at the source"})
	}
	return nil
}

func (f *flow) change(pl planned) Change {
	c := Change{Action: "add partitions", Cluster: f.def.To, Name: pl.target, Partitions: pl.partitions}
	if pl.has == 0 {
		c.Action, c.ReplicationFactor, c.Configs = "create topic", f.def.Create.ReplicationFactor, map[string]string{}
		for k, v := range pl.configs {
			c.Configs[k] = *v
		}
	}
	return c
}

// tryChanges asks the target whether it would carry out what is planned, and
// returns what is in the way by source topic.
func (f *flow) tryChanges(ctx context.Context, all map[string]planned) (map[string]error, error) {
	tried := map[string]error{}
	if len(all) == 0 {
		return tried, nil
	}
	adm := kadm.NewClient(f.dst)
	for _, topic := range slices.Sorted(maps.Keys(all)) {
		pl := all[topic]
		if pl.has > 0 {
			resp, err := adm.ValidateUpdatePartitions(ctx, pl.partitions, pl.target)
			if err != nil {
				return nil, fmt.Errorf("try to add partitions to %s: %w", pl.target, err)
			}
			if err := resp.Error(); err != nil {
				tried[topic] = &hinted{fmt.Errorf("%w: %w", pl.error, err), "grant ALTER on TOPIC " + pl.target + ", or add the partitions"}
			}
			continue
		}
		resp, err := adm.ValidateCreateTopics(ctx, int32(pl.partitions), f.def.Create.ReplicationFactor, pl.configs, pl.target)
		if err != nil {
			return nil, fmt.Errorf("try to create topic %s: %w", pl.target, err)
		}
		if r := resp[pl.target]; r.Err != nil && !errors.Is(r.Err, kerr.TopicAlreadyExists) {
			tried[topic] = notMade(f.def.To, pl.target, pl.partitions, r.Err, &r.ErrMessage)
		}
	}
	return tried, nil
}

// planLedger adds what exactly-once makes on the target, and what becomes of a
// ledger that is there without being used.
func (f *flow) planLedger(ctx context.Context, fp *FlowPlan) error {
	if f.decision.guarantee == topology.GuaranteeExactlyOnce {
		for _, t := range f.dstTxn.Creates {
			fp.Changes = append(fp.Changes, Change{"create topic", f.def.To, t.Name, t.Partitions, t.ReplicationFactor, t.Configs})
		}
		fp.Notes = append(fp.Notes, "consumers at "+f.def.To+" have to read with isolation.level=read_committed to see each record once")
		fp.Notes = append(fp.Notes, f.dstTxn.Remarks...)
	}
	if f.exactly() || f.dst == nil {
		return nil
	}
	name := txn.LedgerTopic(f.def.Name)
	have, err := listTopics(ctx, f.dst, name)
	if err != nil {
		return fmt.Errorf("list topics of %s: %w", f.def.To, err)
	}
	if t, ok := have[name]; ok && t.Err == nil {
		what := "what is copied at-least-once is not in it"
		if f.binds() {
			what = "what is copied through the share group is not in it"
		}
		fp.warn("", "the flow has a ledger, "+name+": "+what, "exactly-once does not go on from it by itself afterwards; see mirror ledger")
	}
	return nil
}

// planSplit suggests a flow of their own for the topics that need order.
func (f *flow) planSplit(v *view, fp *FlowPlan) {
	if n := len(v.compacted); f.decision.guarantee == topology.GuaranteeAtLeastOnce && f.srcCap.ShareGroups() && f.settings.Read == topology.ReaderAuto &&
		f.def.Ordered == topology.OrderedAuto && n > 0 && n < len(v.states) {
		fp.Notes = append(fp.Notes, fmt.Sprintf("%d of %d topics need order: in a flow of their own they would let the others be read through a share group", n, len(v.states)))
	}
}

// planGroups tells which groups the flow joins, whether it may, and which
// settings of a share group would be set.
func (f *flow) planGroups(ctx context.Context, fp *FlowPlan) error {
	source, err := f.listGroups(ctx, f.admin())
	if err != nil {
		return err
	}
	join := func(name, purpose, without string) error {
		fp.Groups = append(fp.Groups, GroupPlan{f.def.From, name, purpose, source[name]})
		may, err := txn.MayJoin(ctx, f.src, name)
		if err != nil || may {
			return err
		}
		a := Advice{Problem: "not permitted: READ on group " + name + " of " + f.def.From, Hint: "grant READ on GROUP " + name + " at the source"}
		if without == "" {
			fp.Missing = append(fp.Missing, a)
		} else {
			a.Problem += ": " + without
			fp.Warnings = append(fp.Warnings, a)
		}
		return nil
	}
	if f.exactly() {
		target, err := f.listGroups(ctx, kadm.NewClient(f.dst))
		if err != nil {
			return err
		}
		name := txn.ShardGroup(f.def.Name)
		fp.Groups = append(fp.Groups, GroupPlan{f.def.To, name, "hands out the shards", target[name]}) // the right was tried
		return join(f.settings.GroupID, "shows positions to people", "positions are not shown there")
	}
	if f.decision.reader == topology.ReaderPartition {
		return join(f.settings.GroupID, "hands out the partitions", "")
	}
	groups := []struct{ name, purpose, without string }{
		{f.settings.ShareGroupID, "hands out the records", ""},
		{f.settings.StopsGroupID, "keeps stops", "a stop lasts only as long as the process"},
	}
	owed := struct{ name, purpose, without string }{f.owedGroup(), "keeps what is owed", "a record that is not written at its last delivery is lost"}
	if f.binds() {
		// Only an at-least-once run before may have left something there.
		owed.without = "what an at-least-once run has left to be copied is not seen"
	}
	if !f.binds() || source[owed.name] {
		groups = append(groups, owed)
	}
	for _, g := range groups {
		if err := join(g.name, g.purpose, g.without); err != nil {
			return err
		}
	}
	g := groupSettings{group: f.settings.ShareGroupID, lock: f.def.Limits.Lock}
	have, err := g.describe(ctx, f.src)
	if err != nil {
		return err
	}
	if keys := g.settable(have); len(keys) > 0 {
		c := Change{Action: "set group configs", Cluster: f.def.From, Name: g.group, Configs: map[string]string{}}
		for _, key := range keys {
			c.Configs[key] = g.wanted()[key]
		}
		fp.Changes = append(fp.Changes, c)
	}
	return nil
}

// listGroups are the groups that the cluster lists. Without the right to see one
// it is not listed.
func (f *flow) listGroups(ctx context.Context, adm *kadm.Client) (map[string]bool, error) {
	listed, err := adm.ListGroups(ctx)
	if err != nil && len(listed) == 0 && !errors.Is(err, kerr.ClusterAuthorizationFailed) && !errors.Is(err, kerr.GroupAuthorizationFailed) {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	have := map[string]bool{}
	for name := range listed {
		have[name] = true
	}
	return have, nil
}

// denies reports whether an error is about a right.
func denies(err error) bool {
	return slices.ContainsFunc([]error{kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed},
		func(k error) bool { return errors.Is(err, k) })
}
