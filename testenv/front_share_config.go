package testenv

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeGroupConfigs adds to what kfake lists for groups the settings that the
// front looks at, as they hold.
func (b *shareBroker) describeGroupConfigs(x *exchange, next func() error) error {
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.DescribeConfigsResponse)
	changed := false
	for i := range resp.Resources {
		rr := &resp.Resources[i]
		if rr.ResourceType != kmsg.ConfigResourceTypeGroupConfig || rr.ErrorCode != 0 {
			continue
		}
		for key, value := range b.groupConfigs(rr.ResourceName) {
			at := slices.IndexFunc(rr.Configs, func(rc kmsg.DescribeConfigsResponseResourceConfig) bool { return rc.Name == key })
			if at < 0 {
				rc := kmsg.NewDescribeConfigsResponseResourceConfig()
				rc.Name, rc.Source = key, kmsg.ConfigSourceDefaultConfig
				rr.Configs = append(rr.Configs, rc)
				at = len(rr.Configs) - 1
			}
			rr.Configs[at].Value = &value
			changed = true
		}
	}
	if changed {
		x.setResponse(resp)
	}
	return nil
}

// groupConfigs are the settings of a group, its own or the broker's.
func (b *shareBroker) groupConfigs(name string) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]string{
		"share.auto.offset.reset":          "latest",
		"share.isolation.level":            "read_uncommitted",
		"share.record.lock.duration.ms":    strconv.FormatInt(b.o.Lock.Milliseconds(), 10),
		"share.delivery.count.limit":       strconv.Itoa(int(b.o.Deliveries)),
		"share.partition.max.record.locks": strconv.Itoa(b.o.MaxLocks),
		"share.renew.acknowledge.enable":   "true",
	}
	for key, value := range b.configs[name] {
		if _, known := out[key]; known {
			out[key] = value
		}
	}
	return out
}
