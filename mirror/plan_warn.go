package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/onceover-mirror/onceover/topology"
)

// Topic settings that decide what becomes of a copy.
const (
	cfgPolicy    = "cleanup.policy"
	cfgMaxBytes  = "max.message.bytes"
	cfgRetention = "retention.ms"
	cfgTimeType  = "message.timestamp.type"
	cfgOldest    = "message.timestamp.before.max.ms"
	cfgNewest    = "message.timestamp.after.max.ms"
	cfgApart     = "message.timestamp.difference.max.ms" // of both, before Kafka 3.6
)

var deciding = []string{cfgPolicy, cfgMaxBytes, cfgRetention, cfgTimeType, cfgOldest, cfgNewest, cfgApart}

// endless: a limit of that age is none, and a time before it can't be told.
const endless = 100 * 365 * 24 * time.Hour

// sides are the settings of a topic and of its target, as they are or will be.
type sides struct {
	topic, target string
	src, dst      map[string]string
}

// warn compares each topic with its target: what would be refused, lost again
// soon, or changed on the way.
func (f *flow) warn(ctx context.Context, fp *FlowPlan) error {
	if f.dst == nil {
		return nil
	}
	all, err := f.bothSides(ctx, fp)
	if err != nil {
		return err
	}
	for _, s := range all {
		if from, to, ok := limits(s, cfgMaxBytes); ok && to < from {
			fp.warn(s.topic, fmt.Sprintf("%s is %d at the source and %d at the target: larger records are refused there", cfgMaxBytes, from, to),
				"raise it on "+s.target+", or see on_error for what becomes of them")
		}
		if s.dst[cfgTimeType] == "LogAppendTime" {
			fp.warn(s.topic, "the target has "+cfgTimeType+"=LogAppendTime: record times can't be kept", "set it to CreateTime on "+s.target)
		}
	}
	if err := f.warnOld(ctx, all, fp); err != nil {
		return err
	}
	return f.warnAhead(ctx, all, fp)
}

func (fp *FlowPlan) warn(topic, problem, hint string) {
	fp.Warnings = append(fp.Warnings, Advice{topic, problem, hint})
}

// bothSides reads the settings. A topic whose settings may not be read on either
// side has none there.
func (f *flow) bothSides(ctx context.Context, fp *FlowPlan) ([]sides, error) {
	made := map[string]Change{}
	for _, c := range fp.Changes {
		if c.Action == "create topic" {
			made[c.Name] = c
		}
	}
	var sources, targets []string
	for _, t := range fp.Topics {
		if t.Copied {
			sources = append(sources, t.Topic)
			if _, ok := made[t.Target]; !ok {
				targets = append(targets, t.Target)
			}
		}
	}
	src, err := readConfigs(ctx, f.src, sources, deciding, true)
	if err != nil {
		return nil, fmt.Errorf("describe configs of topics of %s: %w", f.def.From, err)
	}
	dst, err := readConfigs(ctx, f.dst, targets, deciding, true)
	if err != nil {
		return nil, fmt.Errorf("describe configs of topics of %s: %w", f.def.To, err)
	}
	var all []sides
	for _, t := range fp.Topics {
		if !t.Copied {
			continue
		}
		s := sides{t.Topic, t.Target, src[t.Topic], dst[t.Target]}
		if c, ok := made[t.Target]; ok {
			if s.dst, err = f.settingsOfNew(ctx, c); err != nil {
				return nil, err
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// settingsOfNew are those that a topic would have once it is made.
func (f *flow) settingsOfNew(ctx context.Context, c Change) (map[string]string, error) {
	asked := map[string]*string{}
	for k, v := range c.Configs {
		asked[k] = &v
	}
	resp, err := kadm.NewClient(f.dst).ValidateCreateTopics(ctx, int32(c.Partitions), c.ReplicationFactor, asked, c.Name)
	if err != nil {
		return nil, fmt.Errorf("try to create topic %s: %w", c.Name, err)
	}
	have := map[string]string{}
	for k, v := range resp[c.Name].Configs {
		if v.Value != nil && slices.Contains(deciding, k) {
			have[k] = *v.Value
		}
	}
	for k, v := range c.Configs {
		have[k] = v
	}
	return have, nil
}

// limits are the numbers of one setting on both sides.
func limits(s sides, key string) (from, to int64, ok bool) {
	from, ferr := strconv.ParseInt(s.src[key], 10, 64)
	to, terr := strconv.ParseInt(s.dst[key], 10, 64)
	return from, to, ferr == nil && terr == nil
}

// age is a setting in milliseconds as a duration, false when it sets no limit.
func age(cfg map[string]string, key string) (time.Duration, bool) {
	ms, err := strconv.ParseInt(cfg[key], 10, 64)
	if err != nil || ms < 0 || ms >= endless.Milliseconds() {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

func deletes(cfg map[string]string) bool {
	return cfg[cfgPolicy] == "" || cfg[cfgPolicy] != "compact"
}

// warnOld counts the records that are too old for the target: those that it
// would delete again, and those that it would refuse.
func (f *flow) warnOld(ctx context.Context, all []sides, fp *FlowPlan) error {
	expire, refuse := map[time.Duration][]string{}, map[time.Duration][]string{}
	for _, s := range all {
		keep, limited := age(s.dst, cfgRetention)
		kept, sourceLimited := age(s.src, cfgRetention)
		if limited && deletes(s.dst) && (!sourceLimited || !deletes(s.src) || kept > keep) {
			expire[keep] = append(expire[keep], s.topic)
		}
		oldest, limited := age(s.dst, cfgOldest)
		if apart, ok := age(s.dst, cfgApart); ok && (!limited || apart < oldest) {
			oldest, limited = apart, true
		}
		if limited && s.dst[cfgTimeType] != "LogAppendTime" {
			refuse[oldest] = append(refuse[oldest], s.topic)
		}
	}
	if len(expire)+len(refuse) == 0 {
		return nil
	}
	from, err := f.remaining(ctx, all, fp)
	if err != nil {
		return err
	}
	for limit, topics := range expire {
		err := f.olderThan(ctx, limit, topics, from, func(topic string, n int64) {
			fp.warn(topic, fmt.Sprintf("about %d records to be copied are older than the target keeps them (%s %v): they would be deleted there again", n, cfgRetention, limit), "raise "+cfgRetention+" at the target")
		})
		if err != nil {
			return err
		}
	}
	for limit, topics := range refuse {
		err := f.olderThan(ctx, limit, topics, from, func(topic string, n int64) {
			fp.warn(topic, fmt.Sprintf("about %d records to be copied are older than the target takes (%s %v): they would be refused", n, cfgOldest, limit), "raise "+cfgOldest+" at the target, or see on_error for what becomes of them")
		})
		if err != nil {
			return err
		}
	}
	slices.SortStableFunc(fp.Warnings, func(a, b Advice) int { return cmp.Compare(a.Topic, b.Topic) })
	return nil
}

// remaining are the offsets from which the flow would copy. Without the right
// to read its positions these are the starts of the logs.
func (f *flow) remaining(ctx context.Context, all []sides, fp *FlowPlan) (map[place]int64, error) {
	var topics []string
	for _, s := range all {
		topics = append(topics, s.topic)
	}
	latest := f.def.Start == topology.StartLatest && !slices.ContainsFunc(fp.Groups, func(g GroupPlan) bool { return g.Cluster == f.def.From && g.Exists })
	out := map[place]int64{}
	at, err := f.standings(ctx, topics)
	if err == nil {
		for pl, s := range at {
			out[pl] = s.position
			if latest {
				out[pl] = s.end
			}
		}
		return out, nil
	}
	if !denies(err) {
		return nil, err
	}
	starts, err := f.admin().ListStartOffsets(ctx, topics...)
	if err != nil && len(starts) == 0 {
		return nil, fmt.Errorf("list start offsets of %s: %w", f.def.From, err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			out[place{o.Topic, o.Partition}] = o.Offset
		}
	})
	return out, nil
}

// olderThan tells of each topic how many records are to be copied before the
// first one that is younger than limit, where there are any.
func (f *flow) olderThan(ctx context.Context, limit time.Duration, topics []string, from map[place]int64, tell func(topic string, n int64)) error {
	young, err := f.admin().ListOffsetsAfterMilli(ctx, time.Now().Add(-limit).UnixMilli(), topics...)
	if err != nil && len(young) == 0 {
		return fmt.Errorf("list offsets by time of %s: %w", f.def.From, err)
	}
	old := map[string]int64{}
	young.Each(func(o kadm.ListedOffset) {
		if at, ok := from[place{o.Topic, o.Partition}]; ok && o.Err == nil {
			old[o.Topic] += max(0, o.Offset-at)
		}
	})
	for _, topic := range topics {
		if n := old[topic]; n > 0 {
			tell(topic, n)
		}
	}
	return nil
}

// warnAhead names topics with a record whose time is further ahead than the
// target takes.
func (f *flow) warnAhead(ctx context.Context, all []sides, fp *FlowPlan) error {
	ahead := map[string]time.Duration{}
	var topics []string
	for _, s := range all {
		limit, limited := age(s.dst, cfgNewest)
		if apart, ok := age(s.dst, cfgApart); ok && (!limited || apart < limit) {
			limit, limited = apart, true
		}
		if limited && s.dst[cfgTimeType] != "LogAppendTime" {
			ahead[s.topic] = limit
			topics = append(topics, s.topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	newest, err := f.admin().ListMaxTimestampOffsets(ctx, topics...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("list the newest record times of %s: %w", f.def.From, err)
	}
	// Sources before Kafka 3.0 can't tell: what they can't tell is no warning.
	last := map[string]time.Time{}
	newest.Each(func(o kadm.ListedOffset) {
		if t := time.UnixMilli(o.Timestamp); o.Err == nil && o.Timestamp > 0 && t.After(last[o.Topic]) {
			last[o.Topic] = t
		}
	})
	for _, topic := range topics {
		if by := time.Until(last[topic]); by > ahead[topic] {
			fp.warn(topic, fmt.Sprintf("a record's time is %v ahead, and the target takes %v at most (%s): it would be refused", by.Round(time.Second), ahead[topic], cfgNewest),
				"raise "+cfgNewest+" at the target, or see on_error for what becomes of it")
		}
	}
	return nil
}
