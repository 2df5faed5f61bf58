package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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
	lock  time.Duration
	// dry: nothing is altered, but what would be refused is found all the same.
	dry bool
}

// settled is what holds after apply.
type settledSettings struct {
	deliveries int16
	lock       time.Duration // 0: unknown
	remarks    []string      // what is not as wanted, but not in the way
}

func (g groupSettings) wanted() map[string]string {
	return map[string]string{
		"share.auto.offset.reset":          "earliest", // start: latest is a position, see seedLatest
		"share.isolation.level":            "read_committed",
		"share.record.lock.duration.ms":    strconv.FormatInt(g.lock.Milliseconds(), 10),
		"share.delivery.count.limit":       strconv.Itoa(wantedDeliveries),
		"share.partition.max.record.locks": "4000",
		// The coordinator waits that long between two assignments (1 s as it
		// comes), and a flow's start takes it two or three of them.
		"share.assignment.interval.ms": "0",
	}
}

// must are the settings without which a share flow does not start.
var mustSettings = []string{"share.auto.offset.reset", "share.isolation.level"}

// apply sets what the group needs, reads it back and compares. Its error is
// final unless it is a transport error.
func (g groupSettings) apply(ctx context.Context, cl *kgo.Client) (settledSettings, error) {
	s := settledSettings{deliveries: defaultDeliveries}
	have, err := g.describe(ctx, cl)
	if err != nil {
		return s, err
	}
	setErr := g.setMissing(ctx, cl, have, &s)
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
		if len(wrong) == 0 || g.dry && setErr == nil {
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
		s.remarks = append(s.remarks, "records that on_error: skip leaves out also go to the broker's dead-letter topic "+dlq)
	}
	return s, nil
}

// setMissing sets what differs, in one request: each takes the controller a
// write. Refused as a whole, they are set one by one. The error names musts
// alone.
func (g groupSettings) setMissing(ctx context.Context, cl *kgo.Client, have map[string]string, s *settledSettings) error {
	keys := g.settable(have)
	if len(keys) == 0 || g.set(ctx, cl, keys...) == nil {
		return nil
	}
	var failed error
	for _, key := range keys {
		err := g.set(ctx, cl, key)
		switch {
		case err == nil:
		case slices.Contains(mustSettings, key):
			failed = errors.Join(failed, err)
		default:
			s.remarks = append(s.remarks, fmt.Sprintf("%s stays %s, %s was refused: %v", key, have[key], g.wanted()[key], err))
		}
	}
	return failed
}

// settable returns those of the missing settings that a broker may take.
func (g groupSettings) settable(have map[string]string) []string {
	return slices.DeleteFunc(g.missing(have), func(key string) bool {
		_, known := have[key] // a broker may not have the setting per group
		return !known && !slices.Contains(mustSettings, key)
	})
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

func (g groupSettings) set(ctx context.Context, cl *kgo.Client, keys ...string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = g.dry
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, g.group
	for _, key := range keys {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = key, kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(g.wanted()[key])
		res.Configs = append(res.Configs, c)
	}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("set %s of group %s: %w", strings.Join(keys, ", "), g.group, err)
	}
	for _, r := range resp.Resources {
		if err := withMessage(kerr.ErrorForCode(r.ErrorCode), r.ErrorMessage); err != nil {
			return fmt.Errorf("set %s of group %s: %w", strings.Join(keys, ", "), g.group, err)
		}
	}
	return nil
}
