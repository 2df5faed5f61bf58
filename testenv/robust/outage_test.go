package robust

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/topology"
)

// The target is down and processes are killed meanwhile: no record uses up its
// deliveries, none is archived, and all arrive when the target is back (case
// 2).
func TestCase2OutageReal(t *testing.T) {
	t.Parallel()
	outage := time.Duration(times(21, 60)) * time.Second
	const kills = 3
	c := begin(t, *seed, setting{source: realSource(t, 1), target: realTarget(t), reader: topology.ReaderShare, rate: 1000})
	for slot := range c.procs {
		c.hit(slot, 500*time.Millisecond)
	}
	if err := c.target.KillNode(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	c.history.fire(faultTargetKill, "for %v", outage)
	for i := range kills {
		time.Sleep(outage / (kills + 1))
		slot := i % c.processes
		c.kill(slot)
		c.history.fire(faultKill, "w%d, during the outage", slot)
		c.start(slot)
	}
	time.Sleep(outage / (kills + 1))
	for slot := range c.procs {
		c.kill(slot)
		c.history.fire(faultKill, "w%d, at the end of the outage", slot)
	}
	// A record was handed out once when the outage began, at most once more to
	// each process that had found the target up, and now to the observer.
	if n := c.deliveries(); n > 4 {
		t.Errorf("a record was handed out %d times during the outage", n)
	}
	if err := c.target.StartNode(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	c.history.note("target is back")
	for slot := range c.procs {
		c.start(slot)
	}
	for slot := range c.procs {
		c.copying(slot)
	}
	c.finish(map[fault]int{faultTargetKill: 1, faultKill: kills + c.processes})
}

// deliveries looks how often the oldest records of each partition have been
// handed out, this time included, and gives them back. It opens a share session
// of its own beside the group: a consumer would have to wait until the killed
// members' partitions are assigned to it. The source has one node.
func (c *campaign) deliveries() int16 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	cl := c.source.Client(c.t)
	ts, err := c.adm.ListTopics(ctx, c.topic)
	if err != nil {
		c.t.Fatal(err)
	}
	var most int16
	for p := range c.partitions {
		n, err := lookAt(ctx, cl.Broker(0), c.groups.ShareGroupID, ts[c.topic].ID, p)
		if err != nil {
			c.t.Fatalf("look at delivery counts of partition %d: %v", p, err)
		}
		most = max(most, n)
	}
	c.history.note("records of each partition looked at: handed out %d times at most", most)
	return most
}

// lookAt acquires the oldest records of a partition, closes the session, which
// releases them, and returns their highest delivery count.
func lookAt(ctx context.Context, broker *kgo.Broker, group string, topic [16]byte, partition int32) (int16, error) {
	member := "observer"
	req := kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID = &group, &member
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.MaxRecords, req.BatchSize = 5000, 1, 1<<20, 5000, 5000
	rt := kmsg.NewShareFetchRequestTopic()
	rt.TopicID = topic
	rp := kmsg.NewShareFetchRequestTopicPartition()
	rp.Partition, rp.PartitionMaxBytes = partition, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := broker.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.ShareFetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, err
	}
	var most int16
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, err
			}
			for _, r := range p.AcquiredRecords {
				most = max(most, r.DeliveryCount)
			}
		}
	}
	if most == 0 {
		return 0, errors.New("no record was handed out")
	}
	end := kmsg.NewPtrShareAcknowledgeRequest()
	end.GroupID, end.MemberID, end.ShareSessionEpoch = &group, &member, -1
	kresp, err = broker.Request(ctx, end)
	if err == nil {
		err = kerr.ErrorForCode(kresp.(*kmsg.ShareAcknowledgeResponse).ErrorCode)
	}
	return most, err
}
