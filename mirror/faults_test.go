package mirror_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/testenv/suite"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
)

// within is how long a few hundred records may take on a busy machine.
const within = 30 * time.Second

// quick are broker settings that make share groups forget soon.
func quick(more map[string]string) testenv.EmbeddedOptions {
	configs := map[string]string{
		"group.share.record.lock.duration.ms": "1500",
		"share.record.lock.sweep.interval.ms": "50",
		"group.share.heartbeat.interval.ms":   "200",
	}
	for k, v := range more {
		configs[k] = v
	}
	return testenv.EmbeddedOptions{Configs: configs}
}

// world is a source and a target for one test.
type world struct {
	*testing.T
	source, target *testenv.Cluster
}

// newWorld starts an embedded source with the given options, and a plain
// target. The test runs in parallel to others.
func newWorld(t *testing.T, source testenv.EmbeddedOptions) *world {
	t.Parallel()
	return &world{t, testenv.Embedded(t, source), testenv.Embedded(t)}
}

// flow declares a flow from source to target with short periods and one lane.
func (w *world) flow(name string, topics ...string) *topology.Flow {
	f := topology.NewFlow(name)
	f.From, f.To = "source", "target"
	f.Topics.Include = topics
	f.Guarantee = topology.GuaranteeAtLeastOnce
	f.Limits.Refresh = 300 * time.Millisecond
	f.Limits.Shutdown = 10 * time.Second
	f.Limits.Lock = 15 * time.Second
	f.Lanes = 1
	return f
}

func (w *world) topologyOf(flows ...*topology.Flow) *topology.Topology {
	return &topology.Topology{
		Clusters: map[string]*topology.Cluster{"source": w.source.Topology("source"), "target": w.target.Topology("target")},
		Flows:    flows,
	}
}

func (w *world) start(f *topology.Flow, change ...func(*mirror.Options)) *suite.Process {
	w.Helper()
	return suite.Start(w.T, w.topologyOf(f), change...)
}

// fill makes a topic on the source and writes n records to it.
func (w *world) fill(topic string, partitions, n int, seed int64) []*kgo.Record {
	w.Helper()
	w.source.CreateTopic(w.T, topic, int32(partitions), -1, nil)
	recs := testenv.Records(topic, partitions, n, seed)
	w.source.Produce(w.T, recs...)
	return recs
}

// arrived waits until a target topic has at least n records.
func (w *world) arrived(topic string, n int) []*kgo.Record {
	w.Helper()
	var got []*kgo.Record
	suite.Eventually(w.T, within, "records on the target", func() (bool, string) {
		ts, err := w.target.Admin(w.T).ListTopics(w.Context(), topic)
		if err != nil || !ts.Has(topic) {
			return false, "no topic " + topic
		}
		got = w.target.ReadStable(w.T, topic)
		return len(got) >= n, fmt.Sprintf("%s has %d of %d", topic, len(got), n)
	})
	return got
}

// same compares a target topic with its source, record by record.
func (w *world) same(topic string, c testenv.Compare) {
	w.Helper()
	c.IgnoreHeaders = []string{transform.ProvenanceHeader}
	testenv.AssertExactlyOnce(w.T, w.source.ReadAll(w.T, topic), w.target.ReadAll(w.T, topic), c)
}

var unordered = testenv.Compare{Unordered: true}

// until waits for a condition on the state of a flow.
func (w *world) until(p *suite.Process, flow, what string, ok func(mirror.FlowState) bool) mirror.FlowState {
	w.Helper()
	var st mirror.FlowState
	suite.Eventually(w.T, within, what, func() (bool, string) {
		st = p.Flow(flow)
		return ok(st), fmt.Sprintf("%+v", st)
	})
	return st
}

// drained waits until n partitions are known and none has lag.
func (w *world) drained(p *suite.Process, flow string, n int) mirror.FlowState {
	w.Helper()
	return w.until(p, flow, "no lag", func(st mirror.FlowState) bool {
		return len(st.Partitions) >= n && !slices.ContainsFunc(st.Partitions, func(ps mirror.PartitionState) bool { return ps.Lag != 0 })
	})
}

// settled waits until n records are copied and acknowledged by p; unlike the
// lag, that is known at once.
func (w *world) settled(p *suite.Process, flow string, n int64) mirror.FlowState {
	w.Helper()
	st := w.until(p, flow, "records are acknowledged", func(st mirror.FlowState) bool { return st.Records >= n })
	if st.Records > n {
		w.Errorf("%d records copied, want %d", st.Records, n)
	}
	return st
}

// running waits until lanes are reading.
func (w *world) running(p *suite.Process, flow string) {
	w.Helper()
	w.until(p, flow, "the flow runs", func(st mirror.FlowState) bool {
		return st.Phase == mirror.FlowRunning && st.Lanes > 0
	})
}

// fired fails the test when the faults never answered a request.
func (w *world) fired(h *kfake.FaultHandle, n int) {
	w.Helper()
	if h.Hits() < n {
		w.Errorf("the fault fired %d times, want %d", h.Hits(), n)
	}
}

// answer lets reply answer requests of a key, as long as it returns something;
// the count of those is returned.
func answer(c *testenv.Cluster, key kmsg.Key, reply func(kmsg.Request) kmsg.Response) *atomic.Int64 {
	var fired atomic.Int64
	c.Fake().ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake().KeepControl()
		resp := reply(req)
		if resp == nil {
			return nil, nil, false
		}
		fired.Add(1)
		return resp, nil, true
	})
	return &fired
}

// watch lets see see every request of a key, without touching it.
func watch(c *testenv.Cluster, key kmsg.Key, see func(kmsg.Request)) {
	c.Fake().ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake().KeepControl()
		see(req)
		return nil, nil, false
	})
}

// shareGroup is the name of a flow's share group.
func (w *world) shareGroup(f *topology.Flow) string {
	w.Helper()
	r, err := w.topologyOf(f).Resolve(f)
	if err != nil {
		w.Fatal(err)
	}
	return r.ShareGroupID
}

// groupSetting reads one setting of a group of the source, "" when unset.
func (w *world) groupSetting(group, key string) string {
	w.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeGroupConfig, group, []string{key}
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(w.Context(), w.source.Client(w.T))
	if err != nil || len(resp.Resources) != 1 || resp.Resources[0].ErrorCode != 0 {
		w.Fatalf("describe configs of group %s: %v, %+v", group, err, resp)
	}
	for _, c := range resp.Resources[0].Configs {
		if c.Name == key && c.Value != nil {
			return *c.Value
		}
	}
	return ""
}

func (w *world) setGroup(group, key, value string) {
	w.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, kmsg.IncrementalAlterConfigOpSet, &value
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(w.Context(), w.source.Client(w.T))
	if err != nil || len(resp.Resources) != 1 || resp.Resources[0].ErrorCode != 0 {
		w.Fatalf("set %s of group %s: %v, %+v", key, group, err, resp)
	}
}

// dropGroup deletes a share group with its state, members or not.
func (w *world) dropGroup(group string) {
	w.Helper()
	cl := w.source.Client(w.T)
	adm := kadm.NewClient(cl)
	suite.Eventually(w.T, within, "the group is deleted", func() (bool, string) {
		ds, err := adm.DescribeShareGroups(w.Context(), group)
		if err != nil {
			return false, err.Error()
		}
		for _, m := range ds[group].Members {
			req := kmsg.NewPtrShareGroupHeartbeatRequest()
			req.GroupID, req.MemberID, req.MemberEpoch = group, m.MemberID, -1
			if _, err := req.RequestWith(w.Context(), cl); err != nil {
				return false, err.Error()
			}
		}
		deleted, err := adm.DeleteGroups(w.Context(), group)
		if err == nil {
			err = deleted[group].Err
		}
		return err == nil, fmt.Sprint(err)
	})
}

// ranges are the acknowledged runs of one type in a request.
func ranges(req kmsg.Request, kind int8) (out [][2]int64) {
	ack, ok := req.(*kmsg.ShareAcknowledgeRequest)
	if !ok {
		return nil
	}
	for _, t := range ack.Topics {
		for _, p := range t.Partitions {
			for _, b := range p.AcknowledgementBatches {
				if len(b.AcknowledgeTypes) == 1 && b.AcknowledgeTypes[0] == kind {
					out = append(out, [2]int64{b.FirstOffset, b.LastOffset})
				}
			}
		}
	}
	return out
}

// Acknowledgement types of ShareAcknowledge.
const (
	accept int8 = 1
	reject int8 = 3
	renew  int8 = 4
)

func touches(rs [][2]int64, first, last int64) bool {
	return slices.ContainsFunc(rs, func(r [2]int64) bool { return r[0] <= last && r[1] >= first })
}

// tamper changes answers on their way to the mirror's clients: what an
// embedded broker can't be made to say, a changed answer can.
type tamper struct {
	fired atomic.Int64
	// change gets each answer of the named keys with the broker's address and
	// says whether it changed it. Called from several goroutines.
	change func(addr string, resp kmsg.Response) bool
	keys   []kmsg.Key
}

func (t *tamper) options(o *mirror.Options) { o.Dial = t.dial }

func (t *tamper) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &tamperedConn{Conn: conn, t: t, addr: addr, asked: map[int32][2]int16{}}, nil
}

type tamperedConn struct {
	net.Conn
	t    *tamper
	addr string

	mu      sync.Mutex
	asked   map[int32][2]int16 // key and version by correlation id
	sent    []byte             // of a request that is not complete yet
	got     []byte             // of an answer that is not complete yet
	through []byte             // answers to be handed on
}

// frame cuts the first whole frame off b.
func frame(b []byte) (whole, rest []byte) {
	if len(b) < 4 {
		return nil, b
	}
	n := 4 + int(binary.BigEndian.Uint32(b))
	if len(b) < n {
		return nil, b
	}
	return b[:n:n], b[n:]
}

func (c *tamperedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.sent = append(c.sent, p...)
	for {
		f, rest := frame(c.sent)
		if f == nil {
			break
		}
		c.sent = rest
		c.asked[int32(binary.BigEndian.Uint32(f[8:]))] = [2]int16{
			int16(binary.BigEndian.Uint16(f[4:])), int16(binary.BigEndian.Uint16(f[6:])),
		}
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *tamperedConn) Read(p []byte) (int, error) {
	for len(c.through) == 0 {
		buf := make([]byte, 64<<10)
		n, err := c.Conn.Read(buf)
		c.got = append(c.got, buf[:n]...)
		for {
			f, rest := frame(c.got)
			if f == nil {
				break
			}
			c.got = rest
			c.through = append(c.through, c.rewrite(f)...)
		}
		if err != nil && len(c.through) == 0 {
			return 0, err
		}
	}
	n := copy(p, c.through)
	c.through = c.through[n:]
	return n, nil
}

func (c *tamperedConn) rewrite(f []byte) []byte {
	id := int32(binary.BigEndian.Uint32(f[4:]))
	c.mu.Lock()
	asked := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	if !slices.Contains(c.t.keys, kmsg.Key(asked[0])) {
		return f
	}
	resp := kmsg.ResponseForKey(asked[0])
	resp.SetVersion(asked[1])
	head := 8
	if resp.IsFlexible() && asked[0] != int16(kmsg.ApiVersions) {
		head++ // no tags
	}
	if err := resp.ReadFrom(slices.Clone(f[head:])); err != nil || !c.t.change(c.addr, resp) {
		return f
	}
	c.t.fired.Add(1)
	out := resp.AppendTo(slices.Clone(f[:head]))
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// says reports whether some part of text holds every word.
func says(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}
