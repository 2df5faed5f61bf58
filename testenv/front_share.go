package testenv

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv/share"
)

// shareBroker is the share side of an embedded cluster: groups, members,
// sessions, record states, and transactions as far as they concern those. It
// stands for all nodes; which of them a request came to decides whether it is
// answered.
type shareBroker struct {
	o     ShareOptions
	front *Front

	mu       sync.Mutex
	cl       *kgo.Client // asks kfake; neither faults nor recorders see it
	groups   map[string]*shareGroup
	configs  map[string]map[string]string // of groups, which may be yet to come
	sessions map[sessionKey]*session
	changed  chan struct{} // closed with the next change that a fetch may wait for

	txnMu sync.Mutex
	txns  map[string]*openTxn
}

// shareGroup is one share group.
type shareGroup struct {
	name    string
	epoch   int32
	members map[string]*groupMember
	parts   map[sharePart]*share.Partition
	configs map[string]string
	counts  map[string]int // partitions of topics at the last assignment
}

// sharePart is a share partition of a group.
type sharePart struct {
	id        [16]byte
	topic     string
	partition int32
}

// sessionKey is a share session.
type sessionKey struct {
	group, member string
	node          int32
}

// session is what a node knows of a member's fetches.
type session struct {
	conn  *frontConn
	epoch int32
	parts []sharePart
}

// frontClient is the client id of the front's own requests.
const frontClient = "onceover-front"

func newShareBroker(f *Front, o ShareOptions) *shareBroker {
	return &shareBroker{
		o: o.filled(), front: f, groups: map[string]*shareGroup{}, configs: map[string]map[string]string{}, sessions: map[sessionKey]*session{},
		changed: make(chan struct{}), txns: map[string]*openTxn{},
	}
}

// own puts the broker's handlers into the front.
func (b *shareBroker) own(owners map[int16]owner) {
	for key, own := range map[kmsg.Key]owner{
		kmsg.ShareGroupHeartbeat:       b.heartbeat,
		kmsg.ShareGroupDescribe:        b.describe,
		kmsg.ShareFetch:                b.fetch,
		kmsg.ShareAcknowledge:          b.acknowledge,
		kmsg.DescribeShareGroupOffsets: b.describeOffsets,
		kmsg.AlterShareGroupOffsets:    b.alterOffsets,
		kmsg.DeleteShareGroupOffsets:   b.deleteOffsets,
		kmsg.ListGroups:                b.listGroups,
		kmsg.DeleteGroups:              b.deleteGroups,
		kmsg.ApiVersions:               b.apiVersions,
		kmsg.InitProducerID:            b.initProducerID,
		kmsg.AddPartitionsToTxn:        b.addPartitions,
		kmsg.AddOffsetsToTxn:           b.addOffsets,
		kmsg.Produce:                   b.produce,
		kmsg.EndTxn:                    b.endTxn,
	} {
		owners[int16(key)] = own
	}
	if b.o.Form.Key != 0 {
		owners[b.o.Form.Key] = b.txnAcknowledge
	}
	describe := owners[int16(kmsg.DescribeConfigs)]
	owners[int16(kmsg.DescribeConfigs)] = func(x *exchange, next func() error) error {
		return b.describeGroupConfigs(x, func() error { return describe(x, next) })
	}
	inner := owners[int16(kmsg.IncrementalAlterConfigs)]
	owners[int16(kmsg.IncrementalAlterConfigs)] = func(x *exchange, next func() error) error {
		return b.alterGroupConfigs(x, func() error { return inner(x, next) })
	}
}

// start opens the broker's own client.
func (b *shareBroker) start(opts []kgo.Opt) error {
	cl, err := kgo.NewClient(append(opts, kgo.ClientID(frontClient), kgo.DisableClientMetrics())...)
	if err != nil {
		return fmt.Errorf("open the front's client: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cl = cl
	return nil
}

func (b *shareBroker) close() {
	b.txnMu.Lock()
	for _, t := range b.txns {
		t.stop()
	}
	b.txnMu.Unlock()
	b.mu.Lock()
	cl := b.cl
	b.mu.Unlock()
	if cl != nil {
		cl.Close()
	}
}

func (b *shareBroker) fake() *kfake.Cluster {
	b.front.mu.Lock()
	defer b.front.mu.Unlock()
	return b.front.fake
}

// askTimeout bounds a question to kfake.
const askTimeout = 10 * time.Second

// ask puts a question to a node of kfake.
func (b *shareBroker) ask(node int32, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	return b.cl.Broker(int(node)).RetriableRequest(ctx, req)
}

// poke wakes fetches that wait. b.mu is held.
func (b *shareBroker) poke() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// wake is poke for those who don't hold b.mu.
func (b *shareBroker) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.poke()
}

// hungUp ends the sessions of a connection: what they hold is free at once.
func (b *shareBroker) hungUp(c *frontConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, s := range b.sessions {
		if s.conn == c {
			b.endSession(key)
		}
	}
}

// endSession forgets a session and frees what its member has acquired at its
// node. b.mu is held.
func (b *shareBroker) endSession(key sessionKey) {
	delete(b.sessions, key)
	g := b.groups[key.group]
	if g == nil {
		return
	}
	fake := b.fake()
	freed := false
	for at, p := range g.parts {
		if fake.LeaderFor(at.topic, at.partition) == key.node && p.Release(b.config(g), key.member) {
			freed = true
		}
	}
	if freed {
		b.poke()
	}
}

// part returns a group's share partition, which begins now if it has not yet.
// b.mu is held.
func (b *shareBroker) part(g *shareGroup, at sharePart) (*share.Partition, error) {
	if p := g.parts[at]; p != nil {
		return p, nil
	}
	info := b.fake().PartitionInfo(at.topic, at.partition)
	if info == nil {
		return nil, fmt.Errorf("no partition %s[%d]", at.topic, at.partition)
	}
	start := info.HighWatermark
	if g.configs["share.auto.offset.reset"] == "earliest" {
		start = info.LogStartOffset
	}
	p := share.NewPartition(start)
	g.parts[at] = p
	return p, nil
}

// find names the partition of a topic id; false if there is none.
func (b *shareBroker) find(id [16]byte, partition int32) (at sharePart, topic, ok bool) {
	info := b.fake().TopicIDInfo(id)
	if info == nil {
		return sharePart{}, false, false
	}
	at = sharePart{id, info.Topic, partition}
	return at, true, b.fake().PartitionInfo(info.Topic, partition) != nil
}

// ShareRuns returns what a group's share partition knows of its records, from its
// start offset on; nil where the group has not begun it. It panics unless the
// cluster has [EmbeddedOptions.Share].
func (f *Front) ShareRuns(group, topic string, partition int32) []share.Run {
	b := f.mustShare()
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.groups[group].at(topic, partition); p != nil {
		return p.Runs()
	}
	return nil
}

// ShareLag returns how many records of a topic a group has not finished. It
// panics unless the cluster has [EmbeddedOptions.Share].
func (f *Front) ShareLag(group, topic string) int64 {
	b := f.mustShare()
	b.mu.Lock()
	defer b.mu.Unlock()
	var lag int64
	for _, info := range b.fake().PartitionInfos(topic) {
		if p := b.groups[group].at(topic, info.Partition); p != nil {
			p.Truncate(info.LogStartOffset)
			lag += p.Lag(info.HighWatermark)
		} else {
			lag += info.HighWatermark - info.LogStartOffset
		}
	}
	return lag
}

func (g *shareGroup) at(topic string, partition int32) *share.Partition {
	if g == nil {
		return nil
	}
	for at, p := range g.parts {
		if at.topic == topic && at.partition == partition {
			return p
		}
	}
	return nil
}

// ExpireShareLocks lets all record locks of a group run out. It panics unless the
// cluster has [EmbeddedOptions.Share].
func (f *Front) ExpireShareLocks(group string) {
	b := f.mustShare()
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.groups[group]; g != nil {
		for _, p := range g.parts {
			if _, locked := p.NextExpiry(); locked {
				p.Expire(b.config(g), time.Now().Add(24*time.Hour))
			}
		}
	}
	b.poke()
}

// RestartShares is a restart of all brokers, as far as share groups go: sessions
// and members are forgotten, locks end, what is pending stays so. It panics
// unless the cluster has [EmbeddedOptions.Share].
func (f *Front) RestartShares() {
	b := f.mustShare()
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sessions)
	for _, g := range b.groups {
		clear(g.members)
		for at, p := range g.parts {
			g.parts[at] = share.Restore(p.Snapshot())
		}
	}
	b.poke()
}

// MoveShareLeader moves a partition to another node, which loads what was
// persisted of its share groups. It panics unless the cluster has
// [EmbeddedOptions.Share].
func (f *Front) MoveShareLeader(topic string, partition, node int32) error {
	b := f.mustShare()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.fake().MoveTopicPartition(topic, partition, node); err != nil {
		return fmt.Errorf("move %s[%d] to node %d: %w", topic, partition, node, err)
	}
	for _, g := range b.groups {
		for at, p := range g.parts {
			if at.topic == topic && at.partition == partition {
				g.parts[at] = share.Restore(p.Snapshot())
			}
		}
	}
	b.poke()
	return nil
}

func (f *Front) mustShare() *shareBroker {
	f.must()
	if f.share == nil {
		panic("testenv: the cluster has kfake's share groups, see EmbeddedOptions.Share")
	}
	return f.share
}
