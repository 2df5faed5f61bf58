package mirror_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// renew deletes the flow's topic on a cluster and makes it again, empty.
func (w *fakeWorld) renew(c *testenv.Cluster, partitions int32) {
	w.Helper()
	if _, err := c.Admin(w.T).DeleteTopics(w.Context(), "t"); err != nil {
		w.Fatal(err)
	}
	c.CreateTopic(w.T, "t", partitions, 1, nil)
}

// idle checks that a restart with nothing new writes nothing.
func (w *fakeWorld) idle() {
	w.Helper()
	before := w.written()
	l := w.live()
	w.copied(l)
	<-time.After(3 * time.Second)
	l.Stop()
	if after := w.written(); before != after {
		w.Errorf("an idle restart has written: %s, then %s", before, after)
	}
}

// A target topic is recreated right after the flow has looked at its topics, so
// that its lanes find out before the flow does: it is filled, and not mistaken for
// one whose log was cut.
func TestTargetRecreatedBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.OnTargetRecreate = topology.OnTargetRecreateRefill
		w.flow.Limits.Refresh = 20 * time.Second
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		looks := w.target.Front().Watch(kmsg.DescribeConfigs)
		if _, err := looks.Wait(w.Context(), func(kmsg.Request) bool { return true }); err != nil {
			w.Fatal(err)
		}
		<-time.After(100 * time.Millisecond) // the next look is not before a second is over
		w.renew(w.target, 2)
		w.more("t", 2, 10, 2)
		w.has("t", 50)
		w.copied(l)
		w.once(l)
	})
}

// A recreated target topic is filled once, on brokers also that do not say which
// topic they write to: it is not filled again by the next process.
func TestRefilledOnce(t *testing.T) {
	for name, target := range map[string]testenv.EmbeddedOptions{"4.x": {}, "3.9": testenv.Old(kversion.V3_9_0())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inFakeTime(t, 2, testenv.EmbeddedOptions{}, target, func(w *fakeWorld) {
				w.flow.OnTargetRecreate = topology.OnTargetRecreateRefill
				w.give(2, 40, 1)
				l := w.live()
				w.copied(l)
				w.renew(w.target, 2)
				w.has("t", 40)
				w.copied(l)
				w.once(l)
			})
		})
	}
}

// Where the source's log begins can't be told when its copies are to be made
// anew: the partition waits, and does not stop.
func TestRefillWaitsForTheSourcesStart(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.OnTargetRecreate = topology.OnTargetRecreateRefill
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		l.Stop()
		w.renew(w.target, 2)
		leaderless := untold(w.source, logStart, "t", 0)
		l = w.live()
		w.has("t", 20) // the other partition
		w.reached(leaderless)
		<-time.After(5 * time.Second)
		for _, p := range l.Flow("eo").Partitions {
			if p.Phase == mirror.PartitionStopped {
				w.Errorf("t[%d] is stopped: %s", p.Partition, p.Reason)
			}
		}
		leaderless.Disarm()
		w.has("t", 40)
		w.copied(l)
		w.once(l)
	})
}

// A source topic that is recreated while the flow runs is copied from its
// beginning, with the partitions that stay beside it read on from where they were.
func TestSourceRecreatedWhileRunning(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{Nodes: 2}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.OnRecreate = topology.OnRecreateRestart
		w.flow.Ledger.Shards = 1
		w.flow.Topics.Include = []string{"t", "beside"}
		w.give(2, 40, 1)
		w.fill("beside", 1, 20, 2)
		// On a node of its own: an embedded broker does not let a fetch session
		// forget a topic that is gone, and answers at once, for ever.
		apart := func() {
			for p := range int32(2) {
				w.source.MoveLeader(w.T, "t", p, 0)
			}
			w.source.MoveLeader(w.T, "beside", 0, 1)
		}
		apart()
		l := w.live()
		w.copied(l)
		w.has("beside", 20)
		w.renew(w.source, 2)
		apart()
		w.more("t", 2, 60, 3)
		w.more("beside", 1, 10, 4)
		w.has("t", 100)
		w.more("beside", 1, 10, 5)
		w.has("beside", 40)
		w.copied(l)
		l.Stop()
		// Partition after partition, the old ones first.
		got := w.target.ReadAll(w.T, "t")
		fresh := append(got[20:50:50], got[70:]...)
		testenv.AssertExactlyOnce(w.T, w.source.ReadAll(w.T, "t"), fresh, testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}})
		w.same("beside", testenv.Compare{})
		w.idle()
	})
}

// A topic was recreated and copied anew, with the decision of a person, long ago.
// A partition that is added to it is not held for one of a topic that was
// recreated just now.
func TestPartitionAddedToATopicRecreatedLongAgo(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.OnRecreate = topology.OnRecreateRestart
		w.flow.Ledger.Shards = 1
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		w.renew(w.source, 2)
		w.more("t", 2, 60, 2)
		w.has("t", 100)
		w.copied(l)
		l.Stop()

		w.flow.OnRecreate = topology.OnRecreateStop
		l = w.live()
		w.copied(l)
		if _, err := w.source.Admin(w.T).CreatePartitions(w.Context(), 1, "t"); err != nil {
			w.Fatal(err)
		}
		w.more("t", 3, 30, 3)
		w.has("t", 130)
		w.until(l.Process, "eo", "three partitions are copied", func(st mirror.FlowState) bool {
			for _, p := range st.Partitions {
				if p.Phase == mirror.PartitionStopped {
					w.Fatalf("t[%d] is stopped: %s", p.Partition, p.Reason)
				}
			}
			return len(st.Partitions) == 3
		})
		w.copied(l)
		l.Stop()
		w.idle()
	})
}

// A recreated topic has another id, and with that its partitions may be in other
// shards: a lane that had one of them before and has another one now reads it.
func TestRecreatedTopicChangesLanes(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.OnRecreate = topology.OnRecreateRestart
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		shard := func() int { return txn.SourcePartition{TopicID: w.source.Fake().TopicInfo("t").TopicID}.Shard(2) }
		for was := shard(); was == shard(); {
			w.renew(w.source, 2)
		}
		w.more("t", 2, 60, 2)
		w.has("t", 100)
		w.copied(l)
		l.Stop()
		w.idle()
	})
}

// A topic that goes, for so long that the flow takes note, and comes back is read
// under its new id.
func TestTopicThatComesBackIsCopied(t *testing.T) {
	t.Parallel()
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.flow.OnRecreate = topology.OnRecreateRestart
		w.flow.Ledger.Shards = 1
		w.give(2, 40, 1)
		l := w.live()
		w.copied(l)
		if _, err := w.source.Admin(w.T).DeleteTopics(w.Context(), "t"); err != nil {
			w.Fatal(err)
		}
		w.until(l.Process, "eo", "the topic has left", func(st mirror.FlowState) bool { return len(st.Topics) == 0 })
		w.give(2, 60, 2)
		w.has("t", 100)
		w.copied(l)
		l.Stop()
		w.idle()
	})
}
