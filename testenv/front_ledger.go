package testenv

import (
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// hiddenPolicies keeps kfake from compacting ledger topics: its compaction
// looks neither at the last stable offset nor at min.compaction.lag.ms, and
// would let a record of an open transaction replace a committed one. kfake
// gets cleanup.policy=delete, and clients see the policy that was set.
type hiddenPolicies struct {
	mu sync.Mutex
	of map[string]string // topic -> policy that was set, if it compacts
}

const cleanupPolicy = "cleanup.policy"

func isLedger(topic string) bool {
	return strings.HasPrefix(topic, "onceover.") && strings.HasSuffix(topic, ".ledger.internal")
}

// without returns what kfake gets for a policy, and whether that differs.
func (h *hiddenPolicies) without(policy *string) (*string, bool) {
	if policy == nil || !slices.Contains(strings.Split(*policy, ","), "compact") {
		return policy, false
	}
	return kmsg.StringPtr("delete"), true
}

// set notes the policy of a topic after kfake took it; nil for the default.
func (h *hiddenPolicies) set(topic string, policy *string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, hide := h.without(policy); hide {
		h.of[topic] = *policy
	} else {
		delete(h.of, topic)
	}
}

func (h *hiddenPolicies) get(topic string) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	policy, ok := h.of[topic]
	return policy, ok
}

func (h *hiddenPolicies) createTopics(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.CreateTopicsRequest)
	policies := make(map[string]*string)
	for i := range req.Topics {
		rt := &req.Topics[i]
		if !isLedger(rt.Topic) {
			continue
		}
		policies[rt.Topic] = nil
		for j := range rt.Configs {
			if rc := &rt.Configs[j]; rc.Name == cleanupPolicy {
				policies[rt.Topic] = rc.Value
				rc.Value, _ = h.without(rc.Value)
			}
		}
	}
	if len(policies) == 0 {
		return next()
	}
	x.setRequest(req)
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.CreateTopicsResponse)
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		policy, ok := policies[rt.Topic]
		if !ok || rt.ErrorCode != 0 {
			continue
		}
		for j := range rt.Configs {
			if rc := &rt.Configs[j]; rc.Name == cleanupPolicy {
				rc.Value = policy
			}
		}
		if !req.ValidateOnly {
			h.set(rt.Topic, policy)
		}
	}
	x.setResponse(resp)
	return nil
}

func (h *hiddenPolicies) describeConfigs(x *exchange, next func() error) error {
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.DescribeConfigsResponse)
	var changed bool
	for i := range resp.Resources {
		rr := &resp.Resources[i]
		policy, ok := h.get(rr.ResourceName)
		if !ok || rr.ResourceType != kmsg.ConfigResourceTypeTopic {
			continue
		}
		for j := range rr.Configs {
			// Otherwise the topic was made anew behind the front's back.
			if rc := &rr.Configs[j]; rc.Name == cleanupPolicy && rc.Source == kmsg.ConfigSourceDynamicTopicConfig {
				rc.Value, changed = &policy, true
			}
		}
	}
	if changed {
		x.setResponse(resp)
	}
	return nil
}

func (h *hiddenPolicies) alterConfigs(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.AlterConfigsRequest)
	policies := make(map[string]*string)
	for i := range req.Resources {
		rr := &req.Resources[i]
		if rr.ResourceType != kmsg.ConfigResourceTypeTopic || !isLedger(rr.ResourceName) {
			continue
		}
		policies[rr.ResourceName] = nil // what is not named goes back to its default
		for j := range rr.Configs {
			if rc := &rr.Configs[j]; rc.Name == cleanupPolicy {
				policies[rr.ResourceName] = rc.Value
				rc.Value, _ = h.without(rc.Value)
			}
		}
	}
	if len(policies) == 0 || req.ValidateOnly {
		return next()
	}
	x.setRequest(req)
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	for _, rr := range kresp.(*kmsg.AlterConfigsResponse).Resources {
		if policy, ok := policies[rr.ResourceName]; ok && rr.ErrorCode == 0 {
			h.set(rr.ResourceName, policy)
		}
	}
	return nil
}

func (h *hiddenPolicies) incrementalAlterConfigs(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.IncrementalAlterConfigsRequest)
	policies := make(map[string]*string)
	for i := range req.Resources {
		rr := &req.Resources[i]
		if rr.ResourceType != kmsg.ConfigResourceTypeTopic || !isLedger(rr.ResourceName) {
			continue
		}
		for j := range rr.Configs {
			rc := &rr.Configs[j]
			if rc.Name != cleanupPolicy {
				continue
			}
			policy := h.changed(rr.ResourceName, rc)
			policies[rr.ResourceName] = policy
			if policy != nil {
				rc.Op = kmsg.IncrementalAlterConfigOpSet
				rc.Value, _ = h.without(policy)
			}
		}
	}
	if len(policies) == 0 || req.ValidateOnly {
		return next()
	}
	x.setRequest(req)
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	for _, rr := range kresp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if policy, ok := policies[rr.ResourceName]; ok && rr.ErrorCode == 0 {
			h.set(rr.ResourceName, policy)
		}
	}
	return nil
}

// changed returns the policy of a topic after an incremental change, nil for
// the default.
func (h *hiddenPolicies) changed(topic string, rc *kmsg.IncrementalAlterConfigsRequestResourceConfig) *string {
	now, ok := h.get(topic)
	if !ok {
		now = "delete"
	}
	var value string
	if rc.Value != nil {
		value = *rc.Value
	}
	list := strings.Split(now, ",")
	switch rc.Op {
	case kmsg.IncrementalAlterConfigOpDelete:
		return nil
	case kmsg.IncrementalAlterConfigOpAppend:
		for _, v := range strings.Split(value, ",") {
			if !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
	case kmsg.IncrementalAlterConfigOpSubtract:
		list = slices.DeleteFunc(list, func(v string) bool { return slices.Contains(strings.Split(value, ","), v) })
	case kmsg.IncrementalAlterConfigOpSet:
		return rc.Value
	}
	return kmsg.StringPtr(strings.Join(list, ","))
}
