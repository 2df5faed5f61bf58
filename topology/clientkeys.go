package topology

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A check says what is wrong with a property's value, or nothing.
type check func(value string) string

// consumerKeys and producerKeys are the client settings that may be
// overridden, by Kafka's names without prefix. Ranges are Kafka's, narrowed
// to what the client accepts.
var (
	consumerKeys = map[string]check{
		"client.id":                 length(1, 256),
		"client.rack":               length(1, 512),
		"connections.max.idle.ms":   between(100, 15*60*1000),
		"fetch.max.bytes":           between(1, maxRequest),
		"fetch.max.wait.ms":         between(10, 5*60*1000),
		"fetch.min.bytes":           between(0, maxRequest),
		"heartbeat.interval.ms":     between(100, math.MaxInt32),
		"max.partition.fetch.bytes": between(1, maxRequest),
		keyPollRecords:              between(1, maxRecords),
		"metadata.max.age.ms":       between(100, 60*60*1000),
		"request.timeout.ms":        between(100, 15*60*1000),
		"session.timeout.ms":        between(100, math.MaxInt32),
	}
	producerKeys = map[string]check{
		"batch.size":              between(512, maxRequest),
		"client.id":               length(1, 256),
		"compression.type":        oneOf("none", "gzip", "snappy", "lz4", "zstd"),
		"connections.max.idle.ms": between(100, 15*60*1000),
		"linger.ms":               between(0, 60*1000),
		"max.request.size":        between(1024, maxRequest),
		"metadata.max.age.ms":     between(100, 60*60*1000),
		"request.timeout.ms":      between(100, 15*60*1000),
	}
)

// maxRequest is the most that the client reads or writes in one request.
const maxRequest = 100 << 20

// classicOnly are the consumer settings that Kafka's newer group protocols
// take from the broker: its clients refuse them there, and so does Onceover.
var classicOnly = []string{"heartbeat.interval.ms", "session.timeout.ms"}

// ownedConsumer and ownedProducer are the settings that carry the guarantee;
// they can't be overridden, for the reason given.
var (
	ownedConsumer = map[string]string{
		"allow.auto.create.topics":   "a mirror never creates source topics",
		"auto.offset.reset":          "use the flow's \"start:\"",
		"enable.auto.commit":         "a position is committed only after the records are on the target",
		"group.id":                   "derived from the flow's name; share groups: use share.group.id",
		"isolation.level":            "always read_committed: aborted records are never copied",
		"key.deserializer":           "keys are copied as bytes",
		"value.deserializer":         "values are copied as bytes",
		"share.acknowledgement.mode": "write it without prefix; only explicit is possible",
		"share.group.id":             "write it without prefix",
	}
	ownedProducer = map[string]string{
		"acks":                                  "always all: a record counts as copied once all in-sync replicas have it",
		"allow.auto.create.topics":              "topics are created explicitly, see \"create:\"",
		"enable.idempotence":                    "always on: retries would duplicate and reorder otherwise",
		"key.serializer":                        "keys are copied as bytes",
		"max.in.flight.requests.per.connection": "the idempotent producer keeps it at what preserves order",
		"retries":                               "retries are unlimited; give up by \"on_error:\"",
		"transaction.timeout.ms":                "use the flow's \"transaction: {timeout: 30s}\"",
		"transactional.id":                      "derived from the flow's name",
		"value.serializer":                      "values are copied as bytes",
	}
)

const (
	keyProtocol    = "group.protocol"
	keyGroupID     = "share.group.id"
	keyAckMode     = "share.acknowledgement.mode"
	keyPollRecords = "max.poll.records"
)

// The group protocols by Kafka's names.
const (
	protocolShare    = "share"
	protocolConsumer = "consumer"
	protocolClassic  = "classic"
)

// level is one of the two places where properties are written.
type level struct {
	consumer, producer string // prefixes
	bare               []string
}

var (
	workerLevel = level{consumer: "consumer.", producer: "producer."}
	flowLevel   = level{consumer: "consumer.override.", producer: "producer.override.", bare: []string{keyGroupID, keyAckMode}}
)

// known lists the keys of the level, sorted.
func (l level) known() []string {
	keys := slices.Clone(l.bare)
	keys = append(keys, l.consumer+keyProtocol)
	for k := range consumerKeys {
		keys = append(keys, l.consumer+k)
	}
	for k := range producerKeys {
		keys = append(keys, l.producer+k)
	}
	slices.Sort(keys)
	return keys
}

// check reports whatever is wrong with single properties.
func (l level) check(properties map[string]Value, path string, f *findings) {
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if problem, hint := l.problem(key, properties[key].Text); problem != "" {
			f.add(join(path, "properties."+key), problem, hint)
		}
	}
}

func (l level) problem(key, value string) (problem, hint string) {
	if slices.Contains(l.bare, key) {
		return bareProblem(key, value)
	}
	if k, ok := strings.CutPrefix(key, l.consumer); ok {
		if k == keyProtocol {
			protocols := []string{protocolShare, protocolConsumer, protocolClassic}
			if !slices.Contains(protocols, value) {
				return fmt.Sprintf("unknown group protocol %q", value), didYouMean(value, protocols)
			}
			return "", ""
		}
		if reason, owned := ownedConsumer[k]; owned {
			return "can't be overridden", reason
		}
		if check, ok := consumerKeys[k]; ok {
			return check(value), ""
		}
	}
	if k, ok := strings.CutPrefix(key, l.producer); ok {
		if reason, owned := ownedProducer[k]; owned {
			return "can't be overridden", reason
		}
		if check, ok := producerKeys[k]; ok {
			return check(value), ""
		}
	}
	if key == keyGroupID || key == keyAckMode {
		return "belongs to a flow", "move it to the properties of the flow: a share group serves one flow"
	}
	return "unknown setting", l.hint(key)
}

// hint looks for the key under the prefixes of this level, then for a
// misspelling.
func (l level) hint(key string) string {
	name := key
	for _, prefix := range []string{"consumer.", "producer.", "override."} {
		name = strings.TrimPrefix(name, prefix)
	}
	known := l.known()
	var meant []string
	for _, k := range known {
		if k == l.consumer+name || k == l.producer+name {
			meant = append(meant, k)
		}
	}
	if len(meant) > 0 && name != "" {
		return "did you mean " + strings.Join(meant, " or ") + "?"
	}
	return didYouMean(key, known)
}

func bareProblem(key, value string) (problem, hint string) {
	if key == keyGroupID {
		if strings.TrimSpace(value) == "" || len(value) > 249 {
			return "a share group needs a name of 1 to 249 characters", ""
		}
		return "", ""
	}
	switch value {
	case "explicit":
		return "", ""
	case "implicit":
		return "implicit acknowledgement is not possible",
			"it accepts records at the next poll, whether they were written or not; use explicit"
	}
	return fmt.Sprintf("unknown acknowledgement mode %q", value), "use explicit"
}

func between(low, high int64) check {
	return func(value string) string {
		if v, err := strconv.ParseInt(value, 10, 64); err != nil || v < low || v > high {
			return fmt.Sprintf("expected a whole number from %d to %d, got %q", low, high, value)
		}
		return ""
	}
}

func length(low, high int) check {
	return func(value string) string {
		if len(value) < low || len(value) > high {
			return fmt.Sprintf("expected %d to %d characters, got %d", low, high, len(value))
		}
		return ""
	}
}

func oneOf(values ...string) check {
	return func(value string) string {
		if !slices.Contains(values, value) {
			return fmt.Sprintf("expected one of %s, got %q", strings.Join(values, ", "), value)
		}
		return ""
	}
}
