package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/topology"
)

// catalog finds the topics of a flow and prepares their targets. refresh is
// called by the flow's own goroutine only.
type catalog struct {
	flow     *topology.Flow
	src, dst *kgo.Client // dst is nil for a sink other than Kafka
	// sameCluster: targets are left out of the sources.
	sameCluster bool
	// readOnly: nothing is created or altered.
	readOnly bool

	// copied reports whether the flow has copied records of a source topic
	// before, in this process or another, as far as can be told.
	copied func(ctx context.Context, topic string) bool
	log    *slog.Logger
}

// passing is a reason not to copy a topic that may be gone at the next look.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

// route is a source topic that is ready to be copied.
type route struct {
	topic, target string
	id, targetID  [16]byte
	partitions    int
}

// view is what one refresh found.
type view struct {
	states    []TopicState // every matching topic, sorted
	ready     map[string]route
	compacted []string // matching topics with a compact policy, or with one that may not be read
	unread    []string // those of the latter kind
	began     time.Time
	passing   map[string]bool // topics whose reason may be gone at the next look
	planned   map[string]planned
}

// planned is what a look that alters nothing leaves undone at a target topic,
// and the reason not to copy its source topic yet.
type planned struct {
	error
	topic, target string
	// partitions that the target has, 0 when it is to be made, and is to have.
	has, partitions int
	configs         map[string]*string
}

// portable are the topic configs that travel, where somebody set them at the
// source's topic or broker. message.timestamp.type is not among them: targets
// take CreateTime, so that the source's times are kept (ADR 0005).
var portable = []string{
	"cleanup.policy", "compression.type", "max.message.bytes", "retention.ms", "retention.bytes",
	"delete.retention.ms", "min.compaction.lag.ms", "max.compaction.lag.ms",
}

// refresh looks at both clusters. The error is one that concerns all topics;
// what concerns one stands in its state.
func (c *catalog) refresh(ctx context.Context, stopped map[string]string) (*view, error) {
	v := &view{began: time.Now(), ready: map[string]route{}, passing: map[string]bool{}, planned: map[string]planned{}}
	all, err := listTopics(ctx, c.src)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", c.flow.From, err)
	}
	made := c.made(all)
	targets := map[string][]string{}
	var sources []string
	for _, name := range all.Names() {
		if c.flow.Match(name) && !made[name] {
			sources = append(sources, name)
			to := c.flow.TargetTopic(name)
			targets[to] = append(targets[to], name)
		}
	}
	// Topics whose configs may not be read get the target's defaults.
	cfgs, err := topicConfigs(ctx, c.src, sources, portable)
	if err != nil {
		return nil, fmt.Errorf("describe configs of topics of %s: %w", c.flow.From, err)
	}
	have, err := c.targets(ctx, slices.Collect(maps.Keys(targets)))
	if err != nil {
		return nil, err
	}
	for _, name := range sources {
		st := TopicState{Topic: name, Target: c.flow.TargetTopic(name)}
		rt := route{topic: name, target: st.Target, id: all[name].ID, partitions: len(all[name].Partitions)}
		cfg, known := cfgs[name]
		if !known && !errors.Is(all[name].Err, kerr.TopicAuthorizationFailed) {
			v.unread = append(v.unread, name)
		}
		if compacts(cfg["cleanup.policy"]) || !known {
			v.compacted = append(v.compacted, name)
		}
		err := c.judge(ctx, all[name], targets[st.Target], stopped[name], cfgs[name], have, &rt)
		if err != nil {
			st.Reason, st.Hint = err.Error(), hintOf(err)
			v.passing[name] = errors.As(err, &passing{})
			if p, ok := errors.AsType[planned](err); ok {
				v.planned[name] = p
			}
		} else {
			st.Ready = true
			v.ready[name] = rt
		}
		v.states = append(v.states, st)
	}
	return v, nil
}

// made are the names that the flow gives to copies of other topics, where they
// are among its sources.
func (c *catalog) made(all kadm.TopicDetails) map[string]bool {
	made := map[string]bool{}
	if !c.sameCluster {
		return made
	}
	for name := range all {
		if to := c.flow.TargetTopic(name); to != name && c.flow.Match(name) {
			made[to] = true
		}
	}
	return made
}

// judge decides whether one topic can be copied, and makes its target ready.
func (c *catalog) judge(ctx context.Context, src kadm.TopicDetail, rivals []string, stop string, cfg map[string]string, have kadm.TopicDetails, rt *route) error {
	switch {
	case stop != "":
		return &hinted{errors.New(stop), "mend the cause, then: mirror resume --flow " + c.flow.Name + " --topic " + src.Topic}
	case src.Err != nil:
		err := fmt.Errorf("source topic: %w", src.Err)
		if errors.Is(src.Err, kerr.TopicAuthorizationFailed) {
			return err
		}
		return passing{err}
	case len(src.Partitions) == 0:
		return passing{errors.New("source topic reports no partitions")}
	case len(rivals) > 1:
		return &hinted{fmt.Errorf("%d source topics have the target %s: %s", len(rivals), rt.target, some(rivals)), "change rename or exclude all but one"}
	case denied(src.AuthorizedOperations, kmsg.ACLOperationRead):
		return &hinted{fmt.Errorf("not permitted: READ on %s", c.flow.From), "grant READ on TOPIC " + src.Topic}
	case c.dst == nil:
		return nil
	}
	dst, ok := have[rt.target]
	if !ok || errors.Is(dst.Err, kerr.UnknownTopicOrPartition) {
		return c.create(ctx, src, rt, cfg)
	}
	if errors.Is(dst.Err, kerr.TopicAuthorizationFailed) {
		return &hinted{fmt.Errorf("not permitted: DESCRIBE on %s", c.flow.To), "grant DESCRIBE and WRITE on TOPIC " + rt.target}
	}
	if dst.Err != nil {
		return passing{fmt.Errorf("target topic %s: %w", rt.target, dst.Err)}
	}
	if denied(dst.AuthorizedOperations, kmsg.ACLOperationWrite) {
		return &hinted{fmt.Errorf("not permitted: WRITE on %s", c.flow.To), "grant WRITE on TOPIC " + rt.target}
	}
	rt.targetID = dst.ID
	if len(dst.Partitions) < rt.partitions {
		return c.grow(ctx, dst, rt)
	}
	for p := range int32(rt.partitions) {
		if d, ok := dst.Partitions[p]; !ok || d.Leader < 0 {
			return passing{fmt.Errorf("target partition %s[%d] has no leader", rt.target, p)}
		}
	}
	return nil
}

// denied reports whether the broker says that the operation is not permitted.
// A broker that says nothing (no authorizer, or before 2.3) denies nothing.
func denied(ops []kadm.ACLOperation, need kmsg.ACLOperation) bool {
	return len(ops) > 0 && !slices.Contains(ops, need) && !slices.Contains(ops, kmsg.ACLOperationAll)
}

// create makes the target topic with its configs in the same request, so that
// no record arrives before them. It is ready at the next refresh, or now when
// the broker shows it already.
func (c *catalog) create(ctx context.Context, src kadm.TopicDetail, rt *route, cfg map[string]string) error {
	if !c.flow.Create.Enabled {
		return &hinted{fmt.Errorf("target topic %s does not exist", rt.target), "create it, or set create.enabled: true"}
	}
	ct := kadm.StringPtr("CreateTime")
	configs := map[string]*string{"message.timestamp.type": ct}
	for _, k := range portable {
		if v, ok := cfg[k]; ok {
			configs[k] = &v
		}
	}
	if c.readOnly {
		return planned{fmt.Errorf("target topic %s does not exist yet", rt.target), rt.topic, rt.target, 0, rt.partitions, configs}
	}
	resp, err := kadm.NewClient(c.dst).CreateTopic(ctx, int32(rt.partitions), c.flow.Create.ReplicationFactor, configs, rt.target)
	if err == nil {
		err = resp.Err
	}
	switch {
	case err == nil:
		if c.copied != nil && c.copied(ctx, src.Topic) {
			c.log.Warn("target topic was deleted, and is made anew without what was copied before",
				"topic", src.Topic, "target", rt.target, "hint", "to copy it again from the start, stop the flow and reset its group at the source")
		}
	case errors.Is(err, kerr.TopicAlreadyExists): // another process was faster
	default:
		return notMade(c.flow.To, rt.target, rt.partitions, err, &resp.ErrMessage)
	}
	return c.await(ctx, rt)
}

// notMade says why a target topic can't be made.
func notMade(to, target string, partitions int, err error, msg *string) error {
	if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return &hinted{fmt.Errorf("not permitted: CREATE of topic %s on %s", target, to), "grant CREATE on TOPIC " + target + ", or create it with " + strconv.Itoa(partitions) + " partitions"}
	}
	return &hinted{fmt.Errorf("create target topic %s: %w", target, withMessage(err, msg)), "tried again at each refresh"}
}

// grow adds the partitions that the target lacks.
func (c *catalog) grow(ctx context.Context, dst kadm.TopicDetail, rt *route) error {
	fewer := fmt.Errorf("target topic %s has %d partitions, the source %d", rt.target, len(dst.Partitions), rt.partitions)
	if !c.flow.Create.Enabled {
		return &hinted{fewer, "add partitions, or set create.enabled: true"}
	}
	if c.readOnly {
		return planned{fewer, rt.topic, rt.target, len(dst.Partitions), rt.partitions, nil}
	}
	resp, err := kadm.NewClient(c.dst).UpdatePartitions(ctx, rt.partitions, rt.target)
	if err == nil {
		err = resp.Error()
	}
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return &hinted{fewer, "grant ALTER on TOPIC " + rt.target + ", or add the partitions"}
	case err != nil && !errors.Is(err, kerr.InvalidPartitions): // InvalidPartitions: another process was faster
		return fmt.Errorf("add partitions to %s: %w", rt.target, err)
	}
	return c.await(ctx, rt)
}

// await waits until every partition of a new target shows a leader.
func (c *catalog) await(ctx context.Context, rt *route) error {
	var last error
	for try := 1; try <= 8; try++ {
		have, err := listTopics(ctx, c.dst, rt.target)
		switch d := have[rt.target]; {
		case err != nil:
			last = err
		case d.Err != nil:
			last = d.Err
		default:
			led := 0
			for p := range int32(rt.partitions) {
				if pd, ok := d.Partitions[p]; ok && pd.Leader >= 0 && pd.Err == nil {
					led++
				}
			}
			if led == rt.partitions {
				rt.targetID = d.ID
				return nil
			}
			last = fmt.Errorf("%d of %d partitions have a leader", led, rt.partitions)
		}
		if err := sleep(ctx, backoff(try, 20*time.Millisecond, 500*time.Millisecond)); err != nil {
			return err
		}
	}
	return fmt.Errorf("target topic %s is being created: %w", rt.target, last)
}

func (c *catalog) targets(ctx context.Context, names []string) (kadm.TopicDetails, error) {
	if c.dst == nil || len(names) == 0 {
		return nil, nil
	}
	have, err := listTopics(ctx, c.dst, names...)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", c.flow.To, err)
	}
	return have, nil
}

func compacts(policy string) bool {
	return slices.ContainsFunc(strings.Split(policy, ","), func(p string) bool { return strings.TrimSpace(p) == "compact" })
}
