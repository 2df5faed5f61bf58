package testenv

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const transactionVersion = "transaction.version"

// SetTransactionVersion finalises a level of transaction.version (0, 1 or 2)
// while the cluster runs, and waits until every running node shows it. On an
// embedded cluster that changes what clients are told, and thereby which
// requests they send.
func (c *Cluster) SetTransactionVersion(t T, level int16) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := c.newClient(t)
	defer cl.Close()
	if err := c.setTransactionVersion(ctx, cl, level); err != nil {
		t.Fatalf("set %s of cluster %s to %d: %v", transactionVersion, c.name, level, err)
	}
}

func (c *Cluster) setTransactionVersion(ctx context.Context, cl *kgo.Client, level int16) error {
	now, err := c.finalised(ctx, cl, c.Running()[0], transactionVersion)
	if err != nil {
		return err
	}
	const upgrade, safeDowngrade = 1, 2
	update := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	update.Feature = transactionVersion
	update.MaxVersionLevel = level
	update.UpgradeType = upgrade
	if level < now {
		update.UpgradeType, update.AllowDowngrade = safeDowngrade, true
	}
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.FeatureUpdates = append(req.FeatureUpdates, update)
	req.TimeoutMillis = int32(patience / time.Millisecond)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return err
		}
	}
	return poll(ctx, func() error {
		for _, node := range c.Running() {
			switch now, err := c.finalised(ctx, cl, node, transactionVersion); {
			case err != nil:
				return err
			case now != level:
				return fmt.Errorf("node %d shows level %d: %w", node, now, errNotYet)
			}
		}
		return nil
	})
}

// finalised returns the level of a feature as a node shows it, 0 without.
func (c *Cluster) finalised(ctx context.Context, cl *kgo.Client, node int32, feature string) (int16, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "onceover", "test"
	// Seeds keep the order of Bootstrap, which is that of Nodes.
	kresp, err := cl.SeedBrokers()[slices.Index(c.Nodes(), node)].Request(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("features of node %d: %w", node, err)
	}
	for _, f := range kresp.(*kmsg.ApiVersionsResponse).FinalizedFeatures {
		if f.Name == feature {
			return f.MaxVersionLevel, nil
		}
	}
	return 0, nil
}
