package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TxnAsk is what a flow wants of its target for exactly-once.
type TxnAsk struct {
	// Ledger with the flow's name, its shards and its transaction timeout.
	Ledger LedgerSpec
	// AllowUnverified takes a target that does not verify transactions.
	AllowUnverified bool
	// AllowNoTopicIDs takes a target that has no topic ids.
	AllowNoTopicIDs bool
}

// TxnAbilities is what a target has for exactly-once.
type TxnAbilities struct {
	// Level is the finalised transaction.version: 2 and above is protocol v2
	// (KIP-890).
	Level int16
	// Verified tells that brokers check each transactional write against the
	// coordinator, so that no transaction is left hanging (KIP-890, Kafka 3.6).
	Verified bool
	// MaxTimeout is the longest transaction timeout that the brokers permit
	// (transaction.max.timeout.ms), IDExpiration how long they remember an idle
	// transactional id (transactional.id.expiration.ms). 0: may not be read.
	MaxTimeout, IDExpiration time.Duration
	// Ledger tells that the ledger topic exists, Topics what it is then.
	Ledger bool
	Topics LedgerTopics
	// Creates are the topics that are missing and would be made.
	Creates []NewTopic
	// Findings is everything that is in the way of exactly-once, empty when
	// nothing is.
	Findings []Finding
	// Remarks are worth knowing, and in the way of nothing.
	Remarks []string
}

func (a *TxnAbilities) find(problem, hint string) {
	a.Findings = append(a.Findings, Finding{problem, hint})
}

// ProbeTxn finds out everything that the target lacks for exactly-once, in one
// go. caps is what [Probe] found there. It writes nothing and fences nobody:
// each request is one that brokers check for rights, and then refuse because it
// is from nobody they know. Errors of brokers that pass by themselves are tried
// again until ctx ends, and then come back.
func ProbeTxn(ctx context.Context, cl *kgo.Client, caps *Capabilities, ask TxnAsk) (*TxnAbilities, error) {
	a := &TxnAbilities{Level: caps.Features[FeatureTransaction], Verified: caps.VerifiedTransactions()}
	if !caps.Transactions() {
		a.find("the target has no transactions", "exactly-once needs Kafka 3.6 or later at the target")
		return a, nil
	}
	if v, _ := caps.MaxVersion(int16(kmsg.ListOffsets)); v < offsetNotAvailable {
		a.find("the target's new leaders may answer with an end that is too low (ListOffsets before v5, Kafka 2.2)", "upgrade the target's brokers")
	}
	if !caps.TopicIDs() && !ask.AllowNoTopicIDs {
		a.find("the target has no topic ids (before Kafka 2.8): a topic that is made anew can't be told from the old one", "upgrade it, or set allow_no_topic_ids: true")
	}
	p := &txnProbe{cl: cl, ask: ask, shards: ask.Ledger.Shards, homeless: map[string]bool{}, found: a}
	for _, part := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"read the broker's transaction limits", func(ctx context.Context) error { return p.limits(ctx, caps.nodes) }},
		{"look at the ledger's topics", p.topics},
		{"try the right to the shards' transactional ids", p.ids},
		{"try the right to the shard group", p.group},
	} {
		if err := part.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return a, nil
}

// offsetNotAvailable is the version of ListOffsets from which a new leader says
// that its high watermark still lags (KIP-207).
const offsetNotAvailable = 5

// Transactions reports whether brokers have transactions (Kafka 0.11).
func (c *Capabilities) Transactions() bool {
	for _, key := range []kmsg.Key{kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.EndTxn} {
		if _, ok := c.versions[int16(key)]; !ok {
			return false
		}
	}
	return true
}

// VerifiedTransactions reports whether every broker can check transactional
// writes against the coordinator (AddPartitionsToTxn v4, KIP-890, Kafka 3.6).
// Whether it is switched on, ProbeTxn finds out.
func (c *Capabilities) VerifiedTransactions() bool {
	v, ok := c.versions[int16(kmsg.AddPartitionsToTxn)]
	return ok && v >= 4
}

// txnProbe is one run of ProbeTxn.
type txnProbe struct {
	cl     *kgo.Client
	ask    TxnAsk
	shards int // of the ledger that exists, else those asked for
	// homeless are internal topics that the brokers are too few to make: to ask for
	// a coordinator would be to wait for ever.
	homeless map[string]bool
	found    *TxnAbilities
}

// Internal topics of the coordinators.
const (
	transactionState = "__transaction_state"
	consumerOffsets  = "__consumer_offsets"
)

// homes are the settings for the replicas of the coordinators' topics.
var homes = map[string]string{
	"transaction.state.log.replication.factor": transactionState,
	"offsets.topic.replication.factor":         consumerOffsets,
}

// limits reads broker settings. Every broker may become the coordinator: the
// least generous one counts.
func (p *txnProbe) limits(ctx context.Context, nodes []int32) error {
	const longest, expiration, verify = "transaction.max.timeout.ms", "transactional.id.expiration.ms", "transaction.partition.verification.enable"
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, node := range nodes {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(node))
		r.ConfigNames = append([]string{longest, expiration, verify}, slices.Sorted(maps.Keys(homes))...)
		req.Resources = append(req.Resources, r)
	}
	var resp *kmsg.DescribeConfigsResponse
	err := again(ctx, func() (err error) {
		if resp, err = req.RequestWith(ctx, p.cl); err != nil {
			return err
		}
		for _, r := range resp.Resources {
			if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
				return err
			}
		}
		return nil
	})
	if final(err) {
		p.found.Remarks = append(p.found.Remarks, fmt.Sprintf(
			"the target's transaction limits may not be read (%v; DESCRIBE_CONFIGS on CLUSTER): whether it permits transaction.timeout %v, the first transaction tells", err, p.ask.Ledger.TxnTimeout))
		p.verified()
		return nil
	}
	if err != nil {
		return err
	}
	off, few := false, map[string]int{}
	for _, r := range resp.Resources {
		for _, c := range r.Configs {
			if c.Value == nil {
				continue
			}
			ms, err := strconv.ParseInt(*c.Value, 10, 64)
			d := time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
			switch {
			case c.Name == verify:
				off = off || *c.Value == "false"
			case err != nil || ms <= 0:
			case homes[c.Name] != "":
				if int(ms) > len(nodes) {
					few[c.Name] = int(ms)
				}
			case c.Name == longest:
				p.found.MaxTimeout = least(p.found.MaxTimeout, d)
			case c.Name == expiration:
				p.found.IDExpiration = least(p.found.IDExpiration, d)
			}
		}
	}
	if off {
		p.found.Verified = false
		if !p.ask.AllowUnverified {
			p.found.find("the target has "+verify+"=false: a late write can leave a transaction open for ever", "set it to true, or set allow_unverified_transactions: true")
		}
	} else {
		p.verified()
	}
	if m := p.found.MaxTimeout; m > 0 && p.ask.Ledger.TxnTimeout > m {
		p.found.find(fmt.Sprintf("transaction.timeout %v is above the %v that the target permits", p.ask.Ledger.TxnTimeout, m),
			fmt.Sprintf("set it to at most %v, or raise transaction.max.timeout.ms at the target", m))
	}
	return p.tooFew(ctx, few, len(nodes))
}

// tooFew finds coordinators that can't come to be: their topic is not there, and
// the brokers are fewer than the replicas that it has to have.
func (p *txnProbe) tooFew(ctx context.Context, few map[string]int, brokers int) error {
	for _, key := range slices.Sorted(maps.Keys(few)) {
		topic := homes[key]
		have, err := topicMetadata(ctx, p.cl, topic)
		if err != nil {
			return err
		}
		if errors.Is(have[topic].err, kerr.UnknownTopicOrPartition) {
			p.homeless[topic] = true
			p.found.find(fmt.Sprintf("the target can't make %s: %s=%d, live brokers: %d", topic, key, few[key], brokers), "add brokers, or lower "+key+" at the target")
		}
	}
	return nil
}

// verified looks at what the brokers' request versions say.
func (p *txnProbe) verified() {
	if !p.found.Verified && !p.ask.AllowUnverified {
		p.found.find("the target verifies no transactions (before Kafka 3.6): a late write can leave one open for ever", "upgrade the target's brokers, or set allow_unverified_transactions: true")
	}
}

func least(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// topics looks at the rights on the ledger and map topics, and at the topics
// themselves.
func (p *txnProbe) topics(ctx context.Context) error {
	spec := p.ask.Ledger
	return again(ctx, func() error {
		have, err := spec.find(ctx, p.cl)
		if err != nil {
			return err
		}
		var (
			findings []Finding
			remarks  []string
		)
		for _, name := range []string{LedgerTopic(spec.Flow), MapTopic(spec.Flow)} {
			t := have[name]
			if t.hidden() {
				findings = append(findings, t.denied("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE"))
				continue
			}
			if lacks := t.lacks(kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribeConfigs); len(lacks) > 0 {
				findings = append(findings, t.denied(lacks...))
			}
		}
		ledger := have[LedgerTopic(spec.Flow)]
		if n := len(ledger.partitions); n > 0 {
			p.shards = n
		}
		if ledger.exists() {
			voids, thin, err := spec.examine(ctx, p.cl, 0)
			if err != nil {
				return err
			}
			remarks = thin
			for _, v := range voids { // the rights were told
				if !strings.HasPrefix(v.Problem, notPermitted) {
					findings = append(findings, v)
				}
			}
		}
		creates, blocked, err := spec.Preview(ctx, p.cl)
		if err != nil {
			return err
		}
		p.found.Creates = creates
		if p.found.Ledger = ledger.exists(); p.found.Ledger {
			p.found.Topics = LedgerTopics{ledger.id, have[MapTopic(spec.Flow)].id, len(ledger.partitions)}
		}
		if p.shards != spec.Shards {
			p.found.Remarks = append(p.found.Remarks, fmt.Sprintf("the ledger was made with %d shards and keeps them, whatever ledger.shards says (%d)", p.shards, spec.Shards))
		}
		p.found.Remarks = append(p.found.Remarks, remarks...)
		p.found.Findings = append(append(p.found.Findings, findings...), blocked...)
		return nil
	})
}

const unforeseenTries = 6

// again repeats do while its error is one that passes by itself. What a broker did
// not foresee may pass, too, but need not: it is tried a few times.
func again(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil || !kerr.IsRetriable(err) && !unanswered(err) && (!errors.Is(err, kerr.UnknownServerError) || try >= unforeseenTries) {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		if werr := wait(ctx, backoff(try, 20*time.Millisecond, time.Second)); werr != nil {
			return fmt.Errorf("%w (last: %w)", werr, err)
		}
	}
}
