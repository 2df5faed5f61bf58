package testenv

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Nodes returns the ids of all nodes, running or not, in the order of
// [Cluster.Bootstrap].
func (c *Cluster) Nodes() []int32 {
	ids := make([]int32, len(c.bootstrap))
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// Running returns the ids of the nodes that are neither stopped, killed nor
// paused.
func (c *Cluster) Running() []int32 {
	if c.real == nil {
		return c.Nodes()
	}
	return c.real.running()
}

// StopNode ends a node in the orderly way (SIGTERM) and returns when its
// process is gone. [ErrEmbedded] on an embedded cluster, as for all methods
// that act on nodes.
func (c *Cluster) StopNode(ctx context.Context, node int32) error {
	n, err := c.node(node)
	if err == nil {
		err = n.stop(ctx)
	}
	return c.nodeErr("stop", node, err)
}

// KillNode ends a node at once (SIGKILL) and returns when its process is gone.
func (c *Cluster) KillNode(ctx context.Context, node int32) error {
	n, err := c.node(node)
	if err == nil {
		err = n.kill(ctx)
	}
	return c.nodeErr("kill", node, err)
}

// PauseNode freezes a node (SIGSTOP): its connections stay open and nothing
// is answered.
func (c *Cluster) PauseNode(node int32) error {
	n, err := c.node(node)
	if err == nil {
		err = n.pause()
	}
	return c.nodeErr("pause", node, err)
}

// ResumeNode lets a paused node go on (SIGCONT) and waits until the cluster
// is ready.
func (c *Cluster) ResumeNode(ctx context.Context, node int32) error {
	n, err := c.node(node)
	if err == nil {
		err = n.resume()
	}
	if err == nil {
		err = c.WaitReady(ctx)
	}
	return c.nodeErr("resume", node, err)
}

// StartNode starts stopped or killed nodes on the data and ports they had,
// and waits until the cluster is ready. Nodes that need each other for a
// quorum are to be started in one call.
func (c *Cluster) StartNode(ctx context.Context, nodes ...int32) error {
	for _, node := range nodes {
		n, err := c.node(node)
		if err == nil {
			err = n.start()
		}
		if err != nil {
			return c.nodeErr("start", node, err)
		}
	}
	return c.WaitReady(ctx)
}

func (c *Cluster) node(id int32) (*node, error) {
	if c.real == nil {
		return nil, ErrEmbedded
	}
	if id < 0 || int(id) >= len(c.real.nodes) {
		return nil, fmt.Errorf("no such node, the cluster has %v", c.Nodes())
	}
	return c.real.nodes[id], nil
}

func (c *Cluster) nodeErr(what string, node int32, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s node %d of cluster %s: %w", what, node, c.name, err)
}

// MoveLeader makes a node the leader of a partition and waits until every
// running node says so. On a real cluster the node takes a replica when it
// has none, in place of the present first one.
func (c *Cluster) MoveLeader(t T, topic string, partition, node int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := c.newClient(t)
	defer cl.Close()
	var err error
	if c.fake != nil {
		err = c.fake.MoveTopicPartition(topic, partition, node)
	} else {
		err = moveLeader(ctx, kadm.NewClient(cl), topic, partition, node)
	}
	if err == nil {
		err = c.waitTopic(ctx, cl, topic, func(p *kmsg.MetadataResponseTopicPartition) bool {
			return p.Partition != partition || p.Leader == node
		})
	}
	if err != nil {
		t.Fatalf("move the leader of %s/%d on cluster %s to node %d: %v", topic, partition, c.name, node, err)
	}
}

func moveLeader(ctx context.Context, adm *kadm.Client, topic string, partition, node int32) error {
	meta, err := adm.Metadata(ctx, topic)
	if err != nil {
		return err
	}
	p, ok := meta.Topics[topic].Partitions[partition]
	if !ok {
		return fmt.Errorf("no such partition (topic error: %w)", meta.Topics[topic].Err)
	}
	replicas := slices.DeleteFunc(slices.Clone(p.Replicas), func(r int32) bool { return r == node })
	if len(replicas) == len(p.Replicas) {
		replicas = replicas[1:]
	}
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, partition, append([]int32{node}, replicas...))
	resp, err := adm.AlterPartitionAssignments(ctx, req)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return err
	}
	// The first replica is the preferred leader, but leads only once it has
	// caught up, and only when asked to.
	return poll(ctx, func() error {
		var set kadm.TopicsSet
		set.Add(topic, partition)
		results, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		if err != nil {
			return err
		}
		if err := results[topic][partition].Err; !errors.Is(err, kerr.ElectionNotNeeded) {
			return err
		}
		return nil
	})
}
