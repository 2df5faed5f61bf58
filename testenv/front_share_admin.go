package testenv

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/share"
)

// config is what holds for a group: its own settings before the broker's. b.mu is
// held.
func (b *shareBroker) config(g *shareGroup) share.Config {
	number := func(key string, def int64) int64 {
		if n, err := strconv.ParseInt(g.configs[key], 10, 64); err == nil {
			return n
		}
		return def
	}
	return share.Config{
		Lock:           time.Duration(number("share.record.lock.duration.ms", b.o.Lock.Milliseconds())) * time.Millisecond,
		Deliveries:     int16(number("share.delivery.count.limit", int64(b.o.Deliveries))),
		MaxLocks:       int(number("share.partition.max.record.locks", int64(b.o.MaxLocks))),
		Renew:          g.configs["share.renew.acknowledge.enable"] != "false",
		ArchiveOnAbort: b.o.Defects.ArchiveOnAbort,
		BelowStartOK:   b.o.Defects.BelowStartOK,
	}
}

// groupRanges are what a group may set, as a broker of 4.4 that is not configured
// otherwise permits it. A lock may be as short as a test likes.
var groupRanges = map[string][2]int64{
	"share.record.lock.duration.ms":    {1, 60000},
	"share.delivery.count.limit":       {2, 10},
	"share.partition.max.record.locks": {100, 4000},
}

// refuses reports whether a group may not have that setting.
func refuses(key string, value *string) bool {
	limits, ok := groupRanges[key]
	if !ok || value == nil {
		return false
	}
	n, err := strconv.ParseInt(*value, 10, 64)
	return err != nil || n < limits[0] || n > limits[1]
}

// alterGroupConfigs keeps what groups set; kfake stores it, for those who ask.
func (b *shareBroker) alterGroupConfigs(x *exchange, next func() error) error {
	const group = kmsg.ConfigResourceTypeGroupConfig
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.IncrementalAlterConfigsRequest)
	for _, rr := range req.Resources {
		for _, rc := range rr.Configs {
			if rr.ResourceType == group && rc.Op == kmsg.IncrementalAlterConfigOpSet && refuses(rc.Name, rc.Value) {
				x.setResponse(refuseConfigs(req))
				return nil
			}
		}
	}
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, done := range kresp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if done.ErrorCode != 0 || done.ResourceType != group || req.ValidateOnly {
			continue
		}
		for _, rr := range req.Resources {
			if rr.ResourceType == group && rr.ResourceName == done.ResourceName {
				b.setConfigs(rr)
			}
		}
	}
	b.poke()
	return nil
}

// setConfigs notes a group's settings. b.mu is held.
func (b *shareBroker) setConfigs(rr kmsg.IncrementalAlterConfigsRequestResource) {
	g := b.configs[rr.ResourceName]
	if g == nil {
		g = map[string]string{}
		b.configs[rr.ResourceName] = g
	}
	for _, rc := range rr.Configs {
		if rc.Op == kmsg.IncrementalAlterConfigOpSet && rc.Value != nil {
			g[rc.Name] = *rc.Value
		} else {
			delete(g, rc.Name)
		}
	}
}

func refuseConfigs(req *kmsg.IncrementalAlterConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, rr := range req.Resources {
		r := kmsg.NewIncrementalAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName, r.ErrorCode = rr.ResourceType, rr.ResourceName, kerr.InvalidConfig.Code
		r.ErrorMessage = kmsg.StringPtr("a value is out of range")
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

func (b *shareBroker) describeOffsets(x *exchange, _ func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.DescribeShareGroupOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeShareGroupOffsetsResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rg := range req.Groups {
		out := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		out.GroupID = rg.GroupID
		g := b.groups[rg.GroupID]
		switch {
		case !b.coordinates(x.node, rg.GroupID):
			out.ErrorCode = kerr.NotCoordinator.Code
		case g == nil:
			out.ErrorCode = kerr.GroupIDNotFound.Code
		case rg.Topics == nil: // all
			b.describeAll(g, &out)
		default:
			for _, t := range rg.Topics {
				for _, p := range t.Partitions {
					b.describeOne(g, &out, t.Topic, p)
				}
			}
		}
		resp.Groups = append(resp.Groups, out)
	}
	x.setResponse(resp)
	return nil
}

// describeAll is all that the group has begun. b.mu is held.
func (b *shareBroker) describeAll(g *shareGroup, out *kmsg.DescribeShareGroupOffsetsResponseGroup) {
	for at := range g.parts {
		if _, _, ok := b.find(at.id, at.partition); ok {
			b.describeOne(g, out, at.topic, at.partition)
		}
	}
}

func (b *shareBroker) describeOne(g *shareGroup, out *kmsg.DescribeShareGroupOffsetsResponseGroup, topic string, partition int32) {
	rp := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
	rp.Partition, rp.StartOffset, rp.Lag = partition, -1, -1
	info := b.fake().PartitionInfo(topic, partition)
	if info == nil {
		rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
	} else if p := g.at(topic, partition); p != nil {
		// The log's start shows with the next fetch, as on real brokers.
		p.Expire(b.config(g), time.Now())
		rp.StartOffset, rp.Lag, rp.LeaderEpoch = p.Start(), p.Lag(info.HighWatermark), info.Epoch
	}
	for i := range out.Topics {
		if out.Topics[i].Topic == topic {
			out.Topics[i].Partitions = append(out.Topics[i].Partitions, rp)
			return
		}
	}
	rt := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
	rt.Topic = topic
	if info := b.fake().TopicInfo(topic); info != nil {
		rt.TopicID = info.TopicID
	}
	rt.Partitions = append(rt.Partitions, rp)
	out.Topics = append(out.Topics, rt)
}

func (b *shareBroker) alterOffsets(x *exchange, _ func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.AlterShareGroupOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[req.GroupID]
	switch {
	case !b.coordinates(x.node, req.GroupID):
		resp.ErrorCode = kerr.NotCoordinator.Code
	case g != nil && b.occupied(g):
		resp.ErrorCode = kerr.NonEmptyGroup.Code
	default:
		g = b.group(req.GroupID)
		for _, t := range req.Topics {
			rt := kmsg.NewAlterShareGroupOffsetsResponseTopic()
			rt.Topic = t.Topic
			info := b.fake().TopicInfo(t.Topic)
			for _, p := range t.Partitions {
				rp := kmsg.NewAlterShareGroupOffsetsResponseTopicPartition()
				rp.Partition = p.Partition
				if info == nil || b.fake().PartitionInfo(t.Topic, p.Partition) == nil {
					rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
				} else {
					rt.TopicID = info.TopicID
					// What is pending is forgotten: its marker finds nothing.
					g.parts[sharePart{info.TopicID, t.Topic, p.Partition}] = share.NewPartition(p.StartOffset)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		b.poke()
	}
	x.setResponse(resp)
	return nil
}

func (b *shareBroker) occupied(g *shareGroup) bool {
	b.dropDead(g)
	return len(g.members) > 0
}

func (b *shareBroker) deleteOffsets(x *exchange, _ func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.DeleteShareGroupOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteShareGroupOffsetsResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[req.GroupID]
	switch {
	case !b.coordinates(x.node, req.GroupID):
		resp.ErrorCode = kerr.NotCoordinator.Code
	case g == nil:
		resp.ErrorCode = kerr.GroupIDNotFound.Code
	case b.occupied(g):
		resp.ErrorCode = kerr.NonEmptyGroup.Code
	default:
		for _, t := range req.Topics {
			rt := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
			rt.Topic = t.Topic
			if info := b.fake().TopicInfo(t.Topic); info == nil {
				rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			} else {
				rt.TopicID = info.TopicID
				for at := range g.parts {
					if at.topic == t.Topic {
						delete(g.parts, at)
					}
				}
			}
			resp.Topics = append(resp.Topics, rt)
		}
	}
	x.setResponse(resp)
	return nil
}

// apiVersions says what the front can do in place of kfake.
func (b *shareBroker) apiVersions(x *exchange, next func() error) error {
	if err := next(); err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	if resp.ErrorCode != 0 {
		return nil
	}
	if key := b.o.Form.Key; key != 0 {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey = key
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	level := int16(2)
	if b.o.transactional() {
		level = 3
	}
	const feature = "share.version"
	supported, finalised := false, false
	for i := range resp.SupportedFeatures {
		if f := &resp.SupportedFeatures[i]; f.Name == feature {
			f.MaxVersion, supported = 3, true
		}
	}
	for i := range resp.FinalizedFeatures {
		if f := &resp.FinalizedFeatures[i]; f.Name == feature {
			f.MinVersionLevel, f.MaxVersionLevel, finalised = level, level, true
		}
	}
	if !supported {
		f := kmsg.NewApiVersionsResponseSupportedFeature()
		f.Name, f.MinVersion, f.MaxVersion = feature, 0, 3
		resp.SupportedFeatures = append(resp.SupportedFeatures, f)
	}
	if !finalised {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = feature, level, level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
		resp.FinalizedFeaturesEpoch = max(resp.FinalizedFeaturesEpoch, 0)
	}
	x.setResponse(resp)
	return nil
}
