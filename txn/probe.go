package txn

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/txn/wire"
)

// Capabilities is what a cluster can do, the weakest of its brokers deciding.
type Capabilities struct {
	// ClusterID is the cluster's own id; two names with one id are one
	// cluster. Empty for brokers that report none.
	ClusterID string
	// Brokers is the number of live brokers at the time of the probe.
	Brokers int
	// Features are the finalised feature levels (KIP-584), such as
	// share.version; a missing one is level 0.
	Features map[string]int16
	// versions are the highest request versions that every broker speaks.
	versions map[int16]int16
	// nodes are the ids of the live brokers.
	nodes []int32
}

// Feature names, as brokers finalise them.
const (
	FeatureShare       = "share.version"
	FeatureGroup       = "group.version"
	FeatureTransaction = "transaction.version"
)

// MaxVersion returns the highest version of the request key that every broker
// speaks, and whether they all speak it.
func (c *Capabilities) MaxVersion(key int16) (int16, bool) {
	v, ok := c.versions[key]
	return v, ok
}

// ShareGroups reports whether share groups (KIP-932) are finalised and every
// broker serves them in their released form (ShareFetch v1, Kafka 4.1).
func (c *Capabilities) ShareGroups() bool {
	v, ok := c.versions[int16(kmsg.ShareFetch)]
	return ok && v >= 1 && c.Features[FeatureShare] >= 1
}

// Renew reports whether record locks can be renewed (ShareAcknowledge v2,
// Kafka 4.2).
func (c *Capabilities) Renew() bool {
	v, ok := c.versions[int16(kmsg.ShareAcknowledge)]
	return ok && v >= 2
}

// ShareTransactions is what is missing for share acknowledgements inside a
// transaction (KIP-1289) in that form; empty when nothing is. The finalised
// features decide: Kafka 4.4 lists the keys of the first two drafts for other
// requests. The key has to be listed besides.
func (c *Capabilities) ShareTransactions(f wire.Form) []Finding {
	var out []Finding
	if v := c.Features[FeatureShare]; v < 3 {
		out = append(out, Finding{
			fmt.Sprintf("share.version %d is finalised, KIP-1289 needs 3", v),
			"no released Kafka has it yet (4.4 has 2); remove kip1289 from the flow",
		})
	}
	if v := c.Features[FeatureTransaction]; v < 2 {
		out = append(out, Finding{
			fmt.Sprintf("transaction.version %d is finalised, KIP-1289 needs 2", v),
			"finalise it (kafka-features.sh upgrade --feature transaction.version=2)",
		})
	}
	if _, ok := c.versions[f.Key]; !ok {
		out = append(out, Finding{
			fmt.Sprintf("not every broker lists request %d (TxnShareAcknowledge)", f.Key),
			"set kip1289.key and kip1289.draft to what the brokers speak",
		})
	}
	return out
}

// ConsumerProtocol reports whether the KIP-848 consumer protocol is finalised
// and every broker serves its stable form (v1, Kafka 4.0).
func (c *Capabilities) ConsumerProtocol() bool {
	v, ok := c.versions[int16(kmsg.ConsumerGroupHeartbeat)]
	return ok && v >= 1 && c.Features[FeatureGroup] >= 1
}

// IdempotentProduce reports whether producers can be idempotent (Kafka 0.11).
func (c *Capabilities) IdempotentProduce() bool {
	_, ok := c.versions[int16(kmsg.InitProducerID)]
	return ok
}

// TopicIDs reports whether every broker knows topic ids (Metadata v10, Kafka
// 2.8).
func (c *Capabilities) TopicIDs() bool {
	v, ok := c.versions[int16(kmsg.Metadata)]
	return ok && v >= 10
}

// Probe asks every live broker for its api versions and features. It fails
// when a broker does not answer: its abilities are then unknown.
func Probe(ctx context.Context, cl *kgo.Client) (*Capabilities, error) {
	adm := kadm.NewClient(cl)
	meta, err := adm.BrokerMetadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("list brokers: %w", err)
	}
	if len(meta.Brokers) == 0 {
		return nil, errors.New("list brokers: the cluster reports no broker")
	}
	c := &Capabilities{ClusterID: meta.Cluster, Brokers: len(meta.Brokers), Features: map[string]int16{}}
	epoch := int64(-2)
	for _, b := range meta.Brokers {
		c.nodes = append(c.nodes, b.NodeID)
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "onceover", "1"
		kresp, err := cl.Broker(int(b.NodeID)).RetriableRequest(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("ask broker %d for its api versions: %w", b.NodeID, err)
		}
		resp := kresp.(*kmsg.ApiVersionsResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return nil, fmt.Errorf("ask broker %d for its api versions: %w", b.NodeID, err)
		}
		c.merge(resp)
		// Features are cluster-wide; brokers learn of a change one after the
		// other, so the answer with the newest epoch counts.
		if resp.FinalizedFeaturesEpoch > epoch {
			epoch = resp.FinalizedFeaturesEpoch
			clear(c.Features)
			for _, f := range resp.FinalizedFeatures {
				c.Features[f.Name] = f.MaxVersionLevel
			}
		}
	}
	return c, nil
}

func (c *Capabilities) merge(resp *kmsg.ApiVersionsResponse) {
	have := make(map[int16]int16, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		have[k.ApiKey] = k.MaxVersion
	}
	if c.versions == nil {
		c.versions = have
		return
	}
	for k, v := range c.versions {
		if h, ok := have[k]; !ok {
			delete(c.versions, k)
		} else if h < v {
			c.versions[k] = h
		}
	}
}
