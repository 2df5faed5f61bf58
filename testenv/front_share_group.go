package testenv

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/share"
)

// groupMember is a member of a share group.
type groupMember struct {
	id, clientID string
	epoch        int32 // as the member was told
	topics       []string
	assigned     map[[16]byte][]int32
	told         bool // the assignment
	last         time.Time
}

// group returns a group, which is made if there is none. b.mu is held.
func (b *shareBroker) group(name string) *shareGroup {
	g := b.groups[name]
	if g == nil {
		if b.configs[name] == nil {
			b.configs[name] = map[string]string{}
		}
		g = &shareGroup{
			name: name, members: map[string]*groupMember{}, parts: map[sharePart]*share.Partition{},
			configs: b.configs[name], counts: map[string]int{},
		}
		b.groups[name] = g
	}
	return g
}

// coordinates reports whether a node coordinates a group.
func (b *shareBroker) coordinates(node int32, group string) bool {
	return b.fake().CoordinatorFor(group) == node
}

const mostMemberID = 36

func (b *shareBroker) heartbeat(x *exchange, _ func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.ShareGroupHeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	resp.HeartbeatIntervalMillis = int32(b.o.Heartbeat.Milliseconds())
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.coordinates(x.node, req.GroupID):
		resp.ErrorCode = kerr.NotCoordinator.Code
	case req.MemberID == "" || len(req.MemberID) > mostMemberID || req.GroupID == "":
		resp.ErrorCode = kerr.InvalidRequest.Code
	default:
		resp.ErrorCode = b.beat(x.clientID, req, resp)
	}
	x.setResponse(resp)
	return nil
}

// beat is a heartbeat at the coordinator. b.mu is held.
func (b *shareBroker) beat(clientID string, req *kmsg.ShareGroupHeartbeatRequest, resp *kmsg.ShareGroupHeartbeatResponse) int16 {
	g := b.groups[req.GroupID]
	if g != nil {
		b.dropDead(g)
	}
	var m *groupMember
	if g != nil {
		m = g.members[req.MemberID]
	}
	switch {
	case req.MemberEpoch == -1:
		if g == nil {
			return kerr.GroupIDNotFound.Code
		}
		if m == nil {
			return kerr.UnknownMemberID.Code
		}
		delete(g.members, req.MemberID) // what it has acquired stays locked
		b.assign(g, true)
		resp.MemberID, resp.MemberEpoch = &req.MemberID, -1
		return 0
	case req.MemberEpoch == 0:
		if len(req.SubscribedTopicNames) == 0 {
			return kerr.InvalidRequest.Code
		}
		if g == nil {
			g = b.group(req.GroupID)
		}
		if m == nil {
			m = &groupMember{id: req.MemberID, clientID: clientID}
			g.members[m.id] = m
		}
		m.told = false
	case g == nil:
		return kerr.GroupIDNotFound.Code
	case m == nil:
		return kerr.UnknownMemberID.Code
	case req.MemberEpoch != m.epoch:
		return kerr.FencedMemberEpoch.Code
	}
	m.last = time.Now()
	if req.SubscribedTopicNames != nil && !slices.Equal(m.topics, req.SubscribedTopicNames) {
		m.topics = slices.Clone(req.SubscribedTopicNames)
		b.assign(g, true)
	} else {
		b.assign(g, req.MemberEpoch == 0)
	}
	if m.epoch != g.epoch {
		m.epoch = g.epoch
	}
	resp.MemberID, resp.MemberEpoch = &m.id, m.epoch
	if !m.told {
		m.told = true
		resp.Assignment = m.assignment()
	}
	return 0
}

func (m *groupMember) assignment() *kmsg.ShareGroupHeartbeatResponseAssignment {
	a := kmsg.NewShareGroupHeartbeatResponseAssignment()
	for id, ps := range m.assigned {
		t := kmsg.NewShareGroupHeartbeatResponseAssignmentTopicPartition()
		t.TopicID, t.Partitions = id, ps
		a.TopicPartitions = append(a.TopicPartitions, t)
	}
	return &a
}

// dropDead takes members out that have not been heard of. b.mu is held.
func (b *shareBroker) dropDead(g *shareGroup) {
	gone := false
	for id, m := range g.members {
		if time.Since(m.last) > b.o.SessionTimeout {
			delete(g.members, id)
			gone = true
		}
	}
	if gone {
		b.assign(g, true)
	}
}

// assign spreads the partitions over the members, each partition to one of them
// and, with more members than partitions, to several. Unless it must be, nothing
// happens while topics are as they were. b.mu is held.
func (b *shareBroker) assign(g *shareGroup, must bool) {
	topics := map[string]bool{}
	for _, m := range g.members {
		for _, t := range m.topics {
			topics[t] = true
		}
	}
	counts := map[string]int{}
	ids := map[string][16]byte{}
	for t := range topics {
		if info := b.fake().TopicInfo(t); info != nil {
			counts[t], ids[t] = len(b.fake().PartitionInfos(t)), info.TopicID
		}
	}
	if !must && maps.Equal(counts, g.counts) {
		return
	}
	g.counts = counts
	g.epoch++
	members := slices.Sorted(maps.Keys(g.members))
	next := map[string]map[[16]byte][]int32{}
	for _, id := range members {
		next[id] = map[[16]byte][]int32{}
	}
	for _, t := range slices.Sorted(maps.Keys(counts)) {
		var who []string
		for _, id := range members {
			if slices.Contains(g.members[id].topics, t) {
				who = append(who, id)
			}
		}
		for i := range max(counts[t], len(who)) {
			p := int32(i % counts[t])
			id := who[i%len(who)]
			next[id][ids[t]] = append(next[id][ids[t]], p)
		}
	}
	for id, a := range next {
		m := g.members[id]
		m.assigned, m.told = a, false
	}
}

func (b *shareBroker) describe(x *exchange, _ func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.ShareGroupDescribeRequest)
	resp := req.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range req.GroupIDs {
		rg := kmsg.NewShareGroupDescribeResponseGroup()
		rg.GroupID, rg.Assignor = name, "simple"
		g := b.groups[name]
		switch {
		case !b.coordinates(x.node, name):
			rg.ErrorCode = kerr.NotCoordinator.Code
		case g == nil:
			rg.ErrorCode, rg.GroupState = kerr.GroupIDNotFound.Code, "Dead"
		default:
			b.dropDead(g)
			rg.GroupEpoch, rg.AssignmentEpoch, rg.GroupState = g.epoch, g.epoch, g.state()
			for _, id := range slices.Sorted(maps.Keys(g.members)) {
				rg.Members = append(rg.Members, b.describeMember(g.members[id]))
			}
		}
		resp.Groups = append(resp.Groups, rg)
	}
	x.setResponse(resp)
	return nil
}

func (g *shareGroup) state() string {
	if len(g.members) == 0 {
		return "Empty"
	}
	return "Stable"
}

func (b *shareBroker) describeMember(m *groupMember) kmsg.ShareGroupDescribeResponseGroupMember {
	rm := kmsg.NewShareGroupDescribeResponseGroupMember()
	rm.MemberID, rm.MemberEpoch, rm.ClientID, rm.ClientHost = m.id, m.epoch, m.clientID, "/127.0.0.1"
	rm.SubscribedTopicNames = m.topics
	for id, ps := range m.assigned {
		tp := kmsg.NewShareGroupDescribeResponseGroupMemberAssignmentTopicPartition()
		tp.TopicID, tp.Partitions = id, ps
		if info := b.fake().TopicIDInfo(id); info != nil {
			tp.Topic = info.Topic
		}
		rm.Assignment.TopicPartitions = append(rm.Assignment.TopicPartitions, tp)
	}
	return rm
}

// listGroups adds the front's groups to kfake's.
func (b *shareBroker) listGroups(x *exchange, next func() error) error {
	if err := next(); err != nil {
		return err
	}
	kreq, err := x.request()
	if err != nil {
		return err
	}
	kresp, err := x.response()
	if err != nil {
		return err
	}
	req, resp := kreq.(*kmsg.ListGroupsRequest), kresp.(*kmsg.ListGroupsResponse)
	if resp.ErrorCode != 0 || len(req.TypesFilter) > 0 && !slices.Contains(req.TypesFilter, "share") && !slices.Contains(req.TypesFilter, "Share") {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.groups {
		if !b.coordinates(x.node, g.name) || len(req.StatesFilter) > 0 && !slices.Contains(req.StatesFilter, g.state()) {
			continue
		}
		rg := kmsg.NewListGroupsResponseGroup()
		rg.Group, rg.ProtocolType, rg.GroupState, rg.GroupType = g.name, "share", g.state(), "share"
		resp.Groups = append(resp.Groups, rg)
	}
	x.setResponse(resp)
	return nil
}

// deleteGroups takes the front's groups out of what kfake is asked for.
func (b *shareBroker) deleteGroups(x *exchange, next func() error) error {
	kreq, err := x.request()
	if err != nil {
		return err
	}
	req := kreq.(*kmsg.DeleteGroupsRequest)
	b.mu.Lock()
	var done []kmsg.DeleteGroupsResponseGroup
	rest := req.Groups[:0:0]
	for _, name := range req.Groups {
		g := b.groups[name]
		if g == nil || !b.coordinates(x.node, name) {
			rest = append(rest, name)
			continue
		}
		b.dropDead(g)
		rg := kmsg.NewDeleteGroupsResponseGroup()
		if rg.Group = name; len(g.members) > 0 {
			rg.ErrorCode = kerr.NonEmptyGroup.Code
		} else {
			delete(b.groups, name)
			delete(b.configs, name) // they go with it
		}
		done = append(done, rg)
	}
	b.mu.Unlock()
	if len(done) == 0 {
		return next()
	}
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	if len(rest) > 0 {
		req.Groups = rest
		x.setRequest(req)
		if err := next(); err != nil {
			return err
		}
		kresp, err := x.response()
		if err != nil {
			return err
		}
		resp = kresp.(*kmsg.DeleteGroupsResponse)
	}
	resp.Groups = append(resp.Groups, done...)
	x.setResponse(resp)
	return nil
}
