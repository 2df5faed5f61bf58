package testenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// patience bounds every wait of a helper.
	patience = 30 * time.Second
	// readyWithin bounds the start of a node, on a machine that is busy.
	readyWithin = 90 * time.Second
)

// permanentError ends a poll.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// poll calls fn until it returns nil or a permanentError, and returns its last
// error when ctx ends before that.
func poll(ctx context.Context, fn func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := fn()
		if err == nil {
			return nil
		}
		if errors.As(err, new(permanentError)) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-tick.C:
		}
	}
}

// WaitReady waits until every running node answers, knows a controller and
// shows every running node in its metadata.
func (c *Cluster) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	cl, err := kgo.NewClient(c.Opts()...)
	if err != nil {
		return fmt.Errorf("wait for cluster %s: %w", c.name, err)
	}
	defer cl.Close()
	err = poll(ctx, func() error {
		if c.real != nil {
			if err := c.real.crashed(); err != nil {
				return permanentError{err}
			}
		}
		for _, node := range c.Running() {
			resp, err := c.metadataOf(ctx, cl, node)
			if err != nil {
				return err
			}
			if resp.ControllerID < 0 {
				return fmt.Errorf("node %d knows no controller", node)
			}
			for _, want := range c.Running() {
				if !slices.ContainsFunc(resp.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == want }) {
					return fmt.Errorf("node %d does not show node %d", node, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wait for cluster %s: %w", c.name, err)
	}
	return nil
}

// errNotYet: the broker reports no error, and not yet what is waited for.
var errNotYet = errors.New("not yet")

// waitTopic waits until ok holds for each partition of the topic in the
// metadata of every running node.
func (c *Cluster) waitTopic(ctx context.Context, cl *kgo.Client, topic string, ok func(*kmsg.MetadataResponseTopicPartition) bool) error {
	return poll(ctx, func() error {
		for _, node := range c.Running() {
			resp, err := c.metadataOf(ctx, cl, node, topic)
			if err != nil {
				return err
			}
			for i := range resp.Topics {
				rt := &resp.Topics[i]
				if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
					return fmt.Errorf("node %d: topic %s: %w", node, topic, err)
				}
				for j := range rt.Partitions {
					if p := &rt.Partitions[j]; !ok(p) {
						return fmt.Errorf("node %d: topic %s partition %d: leader %d of %v: %w",
							node, topic, p.Partition, p.Leader, p.Replicas, cmp.Or(kerr.ErrorForCode(p.ErrorCode), errNotYet))
					}
				}
			}
		}
		return nil
	})
}

// metadataOf asks one node, not whichever the client picks.
func (c *Cluster) metadataOf(ctx context.Context, cl *kgo.Client, node int32, topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, topic := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
	}
	// Seeds keep the order of Bootstrap, which is that of Nodes.
	kresp, err := cl.SeedBrokers()[slices.Index(c.Nodes(), node)].Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("metadata of node %d: %w", node, err)
	}
	return kresp.(*kmsg.MetadataResponse), nil
}
