package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/topology"
)

// wantedDeliveries is the delivery limit asked of the group: the highest that
// brokers take.
const wantedDeliveries = 10

// defaultDeliveries is group.share.delivery.count.limit as brokers come; it
// holds where the limit can't be set per group.
const defaultDeliveries = 5

// groupSettings are the group-level settings of a share group. Clients can't
// pass them when they join: the defaults would skip history (reset: latest)
// and copy what was rolled back (isolation: read_uncommitted).
type groupSettings struct {
	group string
	start topology.Start
	lock  time.Duration
}

// settled is what holds after apply.
type settledSettings struct {
	deliveries int16
	lock       time.Duration // 0: unknown
}

func (g groupSettings) wanted() map[string]string {
	return map[string]string{
		"share.auto.offset.reset":          string(g.start),
		"share.isolation.level":            "read_committed",
		"share.record.lock.duration.ms":    strconv.FormatInt(g.lock.Milliseconds(), 10),
		"share.delivery.count.limit":       strconv.Itoa(wantedDeliveries),
		"share.partition.max.record.locks": "4000",
	}
}

// must are the settings without which a share flow does not start.
var mustSettings = []string{"share.auto.offset.reset", "share.isolation.level"}

// apply sets what the group needs, reads it back and compares. Its error is
// final unless it is a transport error.
func (g groupSettings) apply(ctx context.Context, cl *kgo.Client, log *slog.Logger) (settledSettings, error) {
	s := settledSettings{deliveries: defaultDeliveries}
	have, err := g.describe(ctx, cl)
	if err != nil {
		return s, err
	}
	var setErr error
	for _, must := range []bool{true, false} {
		for _, key := range g.missing(have) {
			if must != slices.Contains(mustSettings, key) {
				continue
			}
			if _, known := have[key]; !known && !must {
				continue // this broker has no such setting per group
			}
			err := g.set(ctx, cl, key, g.wanted()[key])
			switch {
			case err == nil:
			case must:
				setErr = errors.Join(setErr, err)
			default:
				log.Warn("share group setting not taken; the broker's stays", "group", g.group, "setting", key,
					"wanted", g.wanted()[key], "is", have[key], "reason", err)
			}
		}
	}
	for try := 1; ; try++ {
		if have, err = g.describe(ctx, cl); err != nil {
			return s, err
		}
		var wrong []string
		for _, key := range g.missing(have) {
			if slices.Contains(mustSettings, key) {
				wrong = append(wrong, fmt.Sprintf("%s is %q and must be %q", key, have[key], g.wanted()[key]))
			}
		}
		if len(wrong) == 0 {
			break
		}
		// A change takes a moment to reach the broker that is asked.
		if setErr != nil || try > 8 {
			problem := "settings of share group " + g.group + ": " + strings.Join(wrong, "; ")
			if setErr != nil {
				problem += ": " + setErr.Error()
			}
			return s, &Refusal{Problem: problem, Hint: "grant ALTER_CONFIGS and DESCRIBE_CONFIGS on GROUP " + g.group + " at the source, or set them with kafka-configs --entity-type groups"}
		}
		if err := sleep(ctx, backoff(try, 20*time.Millisecond, 500*time.Millisecond)); err != nil {
			return s, err
		}
	}
	if n, err := strconv.Atoi(have["share.delivery.count.limit"]); err == nil && n > 0 {
		s.deliveries = int16(min(n, 1<<10))
	}
	if ms, err := strconv.Atoi(have["share.record.lock.duration.ms"]); err == nil && ms > 0 {
		s.lock = time.Duration(ms) * time.Millisecond
	}
	if dlq := have["errors.deadletterqueue.topic.name"]; dlq != "" {
		log.Info("the share group has a dead-letter topic of the broker's; rejected records go there too", "group", g.group, "topic", dlq)
	}
	return s, nil
}

// missing returns the settings that differ from what is wanted, sorted.
func (g groupSettings) missing(have map[string]string) []string {
	var keys []string
	for k, v := range g.wanted() {
		if have[k] != v {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func (g groupSettings) describe(ctx context.Context, cl *kgo.Client) (map[string]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, g.group
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("describe configs of group %s: %w", g.group, err)
	}
	have := map[string]string{}
	for _, r := range resp.Resources {
		if err := withMessage(kerr.ErrorForCode(r.ErrorCode), r.ErrorMessage); err != nil {
			if errors.Is(err, kerr.GroupAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
				return nil, &Refusal{Problem: "settings of share group " + g.group + " may not be read: " + err.Error(), Hint: "grant DESCRIBE_CONFIGS on GROUP " + g.group + " at the source"}
			}
			return nil, fmt.Errorf("describe configs of group %s: %w", g.group, err)
		}
		for _, c := range r.Configs {
			if c.Value != nil {
				have[c.Name] = *c.Value
			}
		}
	}
	return have, nil
}

func (g groupSettings) set(ctx context.Context, cl *kgo.Client, key, value string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, g.group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, kmsg.IncrementalAlterConfigOpSet, &value
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("set %s of group %s: %w", key, g.group, err)
	}
	for _, r := range resp.Resources {
		if err := withMessage(kerr.ErrorForCode(r.ErrorCode), r.ErrorMessage); err != nil {
			return fmt.Errorf("set %s=%s of group %s: %w", key, value, g.group, err)
		}
	}
	return nil
}
