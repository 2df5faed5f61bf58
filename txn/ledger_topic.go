package txn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// LedgerSpec is what a flow's ledger and map topics are to be when they are
// made (ledger section 1).
type LedgerSpec struct {
	// Flow by its name.
	Flow string
	// Shards is the number of partitions of both topics, at least 1.
	Shards int
	// ReplicationFactor of both; -1 is the target's default.
	ReplicationFactor int16
	// TxnTimeout is the transaction timeout that the flow asks for.
	TxnTimeout time.Duration
	// MapRetention is how long the offset map is kept; negative: for ever.
	MapRetention time.Duration
}

// LedgerTopics is what the target has of them.
type LedgerTopics struct {
	// LedgerID and MapID are topic ids, zero before Kafka 2.8.
	LedgerID, MapID [16]byte
	// Shards is the number of partitions of the ledger topic.
	Shards int
}

// NewTopic is a topic that is made, or would be.
type NewTopic struct {
	// Name of the topic.
	Name string
	// Partitions that it gets.
	Partitions int
	// ReplicationFactor that it gets; -1 is the target's default.
	ReplicationFactor int16
	// Configs that are set, by Kafka's names.
	Configs map[string]string
}

// Finding is one thing that is not as it has to be.
type Finding struct {
	// Problem with its place, in one line.
	Problem string
	// Hint says what a person can change.
	Hint string
}

// String is the problem with the hint.
func (f Finding) String() string {
	if f.Hint == "" {
		return f.Problem
	}
	return f.Problem + ": " + f.Hint
}

// lagOfTimeouts is how many transaction timeouts an entry is kept from being
// compacted.
const lagOfTimeouts = 3

// Config keys that are looked at, too.
const (
	cleanupPolicy  = "cleanup.policy"
	compactionLag  = "min.compaction.lag.ms"
	deleteRetained = "delete.retention.ms"
	minInsync      = "min.insync.replicas"
	timestampType  = "message.timestamp.type"
	uncleanElect   = "unclean.leader.election.enable"
)

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// topics are the map and the ledger, in the order in which they are made: where
// there is a ledger there was a map.
func (s LedgerSpec) topics() [2]NewTopic {
	keep := "-1"
	if s.MapRetention >= 0 {
		keep = millis(s.MapRetention)
	}
	return [2]NewTopic{
		{MapTopic(s.Flow), s.Shards, s.ReplicationFactor, map[string]string{
			cleanupPolicy: "delete", "retention.ms": keep, "retention.bytes": "-1", uncleanElect: "false",
			// Retention counts from when a run was written.
			timestampType: "LogAppendTime",
		}},
		{LedgerTopic(s.Flow), s.Shards, s.ReplicationFactor, map[string]string{
			cleanupPolicy: "compact", "segment.ms": millis(10 * time.Minute), "segment.bytes": strconv.Itoa(16 << 20),
			"min.cleanable.dirty.ratio": "0.1", compactionLag: millis(max(10*time.Minute, lagOfTimeouts*s.TxnTimeout)),
			deleteRetained: millis(24 * time.Hour), timestampType: "LogAppendTime", uncleanElect: "false",
		}},
	}
}

// Ensure makes what is missing of the two topics, and waits until every
// partition has a leader. Several processes may call it at once. created tells
// that this call made the ledger topic. A topic that exists is left as it is:
// [LedgerSpec.Check] looks at it.
//
// The error names the topic, and the settings where it is those that the target
// refuses; a missing right is a kerr error, wrapped. Before ctx ends, only
// waiting for leaders is repeated.
func (s LedgerSpec) Ensure(ctx context.Context, cl *kgo.Client) (_ LedgerTopics, created bool, err error) {
	have, err := s.find(ctx, cl)
	if err != nil {
		return LedgerTopics{}, false, err
	}
	for _, t := range s.topics() {
		if have[t.Name].exists() {
			continue
		}
		made, err := s.make(ctx, cl, t)
		if err != nil {
			return LedgerTopics{}, false, err
		}
		created = created || made && t.Name == LedgerTopic(s.Flow)
	}
	for try := 1; ; try++ {
		have, err := s.find(ctx, cl)
		if err != nil {
			return LedgerTopics{}, created, err
		}
		l, m := have[LedgerTopic(s.Flow)], have[MapTopic(s.Flow)]
		if l.led() && m.led() {
			return LedgerTopics{LedgerID: l.id, MapID: m.id, Shards: len(l.partitions)}, created, nil
		}
		if err := wait(ctx, backoff(try, 20*time.Millisecond, 500*time.Millisecond)); err != nil {
			return LedgerTopics{}, created, fmt.Errorf("wait for leaders of %s and %s: %w", l.name, m.name, err)
		}
	}
}

// make makes one topic and reports whether nobody was faster.
func (s LedgerSpec) make(ctx context.Context, cl *kgo.Client, t NewTopic) (bool, error) {
	t, err := s.settle(ctx, cl, t)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch err := create(ctx, kadm.NewClient(cl).CreateTopics, t); {
	case errors.Is(err, kerr.TopicAlreadyExists):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	return true, nil
}

// settle asks the target whether it would make t, which makes nothing, and
// fills in what depends on the number of replicas.
func (s LedgerSpec) settle(ctx context.Context, cl *kgo.Client, t NewTopic) (NewTopic, error) {
	t.Configs = maps.Clone(t.Configs)
	replicas := t.ReplicationFactor
	err := create(ctx, func(ctx context.Context, p int32, rf int16, configs map[string]*string, topics ...string) (kadm.CreateTopicResponses, error) {
		all, err := kadm.NewClient(cl).ValidateCreateTopics(ctx, p, rf, configs, topics...)
		if n := all[t.Name].ReplicationFactor; n > 0 {
			replicas = n
		}
		return all, err
	}, t)
	switch {
	case errors.Is(err, kerr.InvalidConfig), errors.Is(err, kerr.InvalidRequest), errors.Is(err, kerr.PolicyViolation):
		if bad := refused(ctx, cl, t); len(bad) > 0 {
			return t, fmt.Errorf("create topic %s: the target refuses %s: %w", t.Name, strings.Join(bad, ", "), err)
		}
		return t, fmt.Errorf("create topic %s: %w", t.Name, err)
	case err != nil:
		return t, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	switch {
	case replicas >= 3:
		t.Configs[minInsync] = "2"
	case replicas == 1:
		t.Configs[minInsync] = "1" // a higher default of the brokers would end every write
	}
	return t, nil
}

// refused are the settings of t that the target takes issue with one by one.
func refused(ctx context.Context, cl *kgo.Client, t NewTopic) []string {
	var bad []string
	for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
		one := t
		one.Configs = map[string]string{key: t.Configs[key]}
		if create(ctx, kadm.NewClient(cl).ValidateCreateTopics, one) != nil {
			bad = append(bad, key+"="+t.Configs[key])
		}
	}
	if len(bad) == len(t.Configs) { // it is not the settings
		return nil
	}
	return bad
}

func create(ctx context.Context, do func(context.Context, int32, int16, map[string]*string, ...string) (kadm.CreateTopicResponses, error), t NewTopic) error {
	configs := map[string]*string{}
	for k, v := range t.Configs {
		configs[k] = &v
	}
	all, err := do(ctx, int32(t.Partitions), t.ReplicationFactor, configs, t.Name)
	if err != nil {
		return err
	}
	r, ok := all[t.Name]
	switch {
	case !ok:
		return errNoAnswer
	case r.Err != nil && r.ErrMessage != "":
		return fmt.Errorf("%w: %s", r.Err, r.ErrMessage)
	}
	return r.Err
}

// Preview returns the topics that [LedgerSpec.Ensure] would make, and what is in
// the way of that. It changes nothing.
func (s LedgerSpec) Preview(ctx context.Context, cl *kgo.Client) ([]NewTopic, []Finding, error) {
	have, err := s.find(ctx, cl)
	if err != nil {
		return nil, nil, err
	}
	var (
		list     []NewTopic
		findings []Finding
	)
	for _, t := range s.topics() {
		if have[t.Name].exists() || have[t.Name].hidden() {
			continue
		}
		t, err := s.settle(ctx, cl, t)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			continue
		}
		if err != nil {
			f, known := t.finding(err)
			if !known {
				return nil, nil, err
			}
			findings = append(findings, f)
		}
		list = append(list, t)
	}
	return list, findings, nil
}

// finding tells what the target has against making t, false for an error that
// passes by itself.
func (t NewTopic) finding(err error) (Finding, bool) {
	_, ofBroker := errors.AsType[*kerr.Error](err)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return Finding{"not permitted: CREATE of topic " + t.Name, "grant CREATE on TOPIC " + t.Name}, true
	case errors.Is(err, kerr.InvalidReplicationFactor):
		return Finding{err.Error(), "set ledger.replication_factor to what the target's brokers can hold"}, true
	case !ofBroker || kerr.IsRetriable(err):
		return Finding{}, false
	}
	return Finding{err.Error(), "create it by hand with " + strconv.Itoa(t.Partitions) + " partitions and settings that the target takes"}, true
}

// Check looks at topics that exist and returns what voids the guarantee (ledger
// section 9), or would keep entries from being found. shards is K as the
// ledger's flow entry has it; 0 compares nothing. A map topic that is missing
// is none: Ensure makes it anew. A right that is missing counts; other errors of
// brokers come back.
func (s LedgerSpec) Check(ctx context.Context, cl *kgo.Client, shards int) ([]Finding, error) {
	out, _, err := s.examine(ctx, cl, shards)
	return out, err
}

// examine is Check with remarks, about what passes by itself.
func (s LedgerSpec) examine(ctx context.Context, cl *kgo.Client, shards int) (out []Finding, remarks []string, err error) {
	have, err := s.find(ctx, cl)
	if err != nil {
		return nil, nil, err
	}
	l := have[LedgerTopic(s.Flow)]
	switch {
	case l.hidden():
		return []Finding{l.denied("DESCRIBE")}, nil, nil
	case !l.exists():
		return []Finding{{"the ledger topic " + l.name + " is missing", "what was copied can't be told without it: see mirror ledger init"}}, nil, nil
	}
	if n := len(l.partitions); shards > 0 && n != shards {
		out = append(out, Finding{
			fmt.Sprintf("the ledger topic %s has %d partitions and began with %d", l.name, n, shards),
			"the number of shards is fixed; partitions that were added can't be taken away",
		})
	}
	names := []string{l.name}
	if m := have[MapTopic(s.Flow)]; m.exists() {
		names = append(names, m.name)
	}
	all, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, nil, fmt.Errorf("describe configs of %s: %w", strings.Join(names, ", "), err)
	}
	for _, r := range all {
		switch t := have[r.Name]; {
		case errors.Is(r.Err, kerr.TopicAuthorizationFailed):
			out = append(out, t.denied("DESCRIBE_CONFIGS"))
		case r.Err != nil:
			return nil, nil, fmt.Errorf("describe configs of %s: %w", r.Name, r.Err)
		default:
			cfg := map[string]string{}
			for _, c := range r.Configs {
				cfg[c.Key] = c.MaybeValue()
			}
			voids, thin := s.judge(t, cfg, r.Name == l.name)
			out, remarks = append(out, voids...), append(remarks, thin...)
		}
	}
	return out, remarks, nil
}

// judge compares the settings of one topic. What the broker does not tell is
// not judged.
func (s LedgerSpec) judge(t topicState, cfg map[string]string, ledger bool) (out []Finding, remarks []string) {
	must := map[string]string{cleanupPolicy: "delete", uncleanElect: "false"}
	if ledger {
		must = map[string]string{cleanupPolicy: "compact", uncleanElect: "false", timestampType: "LogAppendTime"}
	}
	for _, key := range slices.Sorted(maps.Keys(must)) {
		if v, ok := cfg[key]; ok && v != must[key] {
			out = append(out, Finding{
				fmt.Sprintf("topic %s has %s=%s", t.name, key, v),
				fmt.Sprintf("it has to be %s; what it did meanwhile, mirror ledger shows", must[key]),
			})
		}
	}
	for _, key := range []string{compactionLag, deleteRetained} {
		if ms, err := strconv.ParseInt(cfg[key], 10, 64); ledger && err == nil && ms < s.TxnTimeout.Milliseconds() {
			out = append(out, Finding{
				fmt.Sprintf("topic %s has %s=%d, less than transaction.timeout (%v)", t.name, key, ms, s.TxnTimeout),
				fmt.Sprintf("set it to at least %d", lagOfTimeouts*s.TxnTimeout.Milliseconds()),
			})
		}
	}
	n, err := strconv.Atoi(cfg[minInsync])
	if err != nil {
		return out, nil
	}
	for _, p := range slices.Sorted(maps.Keys(t.partitions)) {
		switch r := t.partitions[p]; {
		case r.all < n:
			return append(out, Finding{
				fmt.Sprintf("topic %s has %s=%d, and its partition %d has %d replicas: no write can succeed", t.name, minInsync, n, p, r.all),
				"lower it, or add replicas",
			}), nil
		case r.inSync < n:
			return out, []string{fmt.Sprintf("%s[%d] has %d of %d replicas in sync, and %s=%d: nothing is copied until more are back", t.name, p, r.inSync, r.all, minInsync, n)}
		}
	}
	return out, nil
}
