package mirror

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/onceover-mirror/onceover/topology"
)

// clientOpts translates how a cluster is reached into options of a client,
// the same for every role. An error names the cluster and the file and
// carries a hint; it opens no connection.
//
// Topics are never created by a client's metadata request: that is off unless
// asked for, and nothing here asks.
func clientOpts(c *topology.Cluster, o *Options) ([]kgo.Opt, error) {
	secure, err := tlsConfig(c, o.ReadFile)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap...),
		kgo.Dialer(dialer(o.Dial, secure)),
		kgo.SoftwareNameAndVersion(softwareName, softwareVersion()),
		// A leader move or a restarted broker is to be noticed soon: the
		// defaults (5 s each) would be most of the gap that users see.
		kgo.MetadataMinAge(metadataMinAge),
		kgo.RetryBackoffFn(retryPause),
		// Metrics are this program's own; brokers are not asked for
		// subscriptions (KIP-714), which needs requests before each close.
		kgo.DisableClientMetrics(),
	}
	if id := c.ClientID; id != "" {
		opts = append(opts, kgo.ClientID(id))
	} else {
		opts = append(opts, kgo.ClientID(softwareName))
	}
	if c.SASL != nil {
		opt, err := saslOpt(c.SASL)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
		}
		opts = append(opts, opt)
	}
	return opts, nil
}

const metadataMinAge = 250 * time.Millisecond

// retryPause is the pause before a client repeats a request: 100 ms, doubled
// up to 1 s, a fifth of it random so that lanes don't come back together.
func retryPause(fails int) time.Duration {
	d := min(100*time.Millisecond<<min(max(fails-1, 0), 4), time.Second)
	return d - rand.N(d/5)
}

func saslOpt(s *topology.SASL) (kgo.Opt, error) {
	switch s.Mechanism {
	case topology.MechanismPlain:
		return kgo.SASL(plain.Auth{User: s.Username, Pass: string(s.Password)}.AsMechanism()), nil
	case topology.MechanismScramSHA256:
		return kgo.SASL(scram.Auth{User: s.Username, Pass: string(s.Password)}.AsSha256Mechanism()), nil
	case topology.MechanismScramSHA512:
		return kgo.SASL(scram.Auth{User: s.Username, Pass: string(s.Password)}.AsSha512Mechanism()), nil
	}
	return nil, &hinted{
		fmt.Errorf("SASL mechanism %q is not supported", s.Mechanism),
		fmt.Sprintf("use %s, %s or %s", topology.MechanismPlain, topology.MechanismScramSHA256, topology.MechanismScramSHA512),
	}
}

// setting turns the value of one Kafka client setting into options.
type setting func(value string) ([]kgo.Opt, error)

// sharedSettings mean the same for consumers and producers.
var sharedSettings = map[string]setting{
	"client.id": func(v string) ([]kgo.Opt, error) { return []kgo.Opt{kgo.ClientID(v)}, nil },
	"metadata.max.age.ms": func(v string) ([]kgo.Opt, error) {
		n, err := int32Of(v)
		age := time.Duration(n) * time.Millisecond
		return []kgo.Opt{kgo.MetadataMaxAge(age), kgo.MetadataMinAge(min(age, metadataMinAge))}, err
	},
	"connections.max.idle.ms": millis(kgo.ConnIdleTimeout),
}

// consumerSettings is what consumer.override.* can set.
var consumerSettings = map[string]setting{
	"fetch.min.bytes": number(func(n int32) kgo.Opt { return kgo.FetchMinBytes(n) }),
	"fetch.max.bytes": func(v string) ([]kgo.Opt, error) {
		n, err := int32Of(v)
		// The client refuses to read a response that is larger than this.
		return []kgo.Opt{kgo.FetchMaxBytes(n), kgo.BrokerMaxReadBytes(max(n, defaultMaxRequest))}, err
	},
	"max.partition.fetch.bytes": number(func(n int32) kgo.Opt { return kgo.FetchMaxPartitionBytes(n) }),
	"fetch.max.wait.ms":         millis(kgo.FetchMaxWait),
	"client.rack":               func(v string) ([]kgo.Opt, error) { return []kgo.Opt{kgo.Rack(v)}, nil },
	"session.timeout.ms":        millis(kgo.SessionTimeout),
	"heartbeat.interval.ms":     millis(kgo.HeartbeatInterval),
	"request.timeout.ms":        millis(kgo.RequestTimeoutOverhead),
}

// producerSettings is what producer.override.* can set, batch.size and
// max.request.size apart, see [producerOpts].
var producerSettings = map[string]setting{
	"linger.ms":          millis(kgo.ProducerLinger),
	"compression.type":   compression,
	"request.timeout.ms": millis(kgo.ProduceRequestTimeout),
}

// Sizes where nothing else is asked for.
const (
	// defaultBatch bounds a batch before compression, so that it is within a
	// topic's default max.message.bytes (1,048,588) whatever the codec does.
	defaultBatch int32 = 1_000_012
	// defaultMaxRequest is the brokers' default of socket.request.max.bytes.
	defaultMaxRequest int32 = 100 << 20
)

// consumerOpts translates consumer overrides, by Kafka's names without prefix,
// into options. A setting that it does not know is an error.
func consumerOpts(props map[string]string) ([]kgo.Opt, error) {
	return translate("consumer", props, consumerSettings)
}

// producerOpts translates producer overrides, by Kafka's names without prefix,
// into options. A setting that it does not know is an error.
//
// batch.size bounds a batch before compression (default 1,000,012 bytes); a
// record that is larger travels alone. max.request.size (default 100 MiB)
// bounds a request and with it a record: a larger one is refused.
func producerOpts(props map[string]string) ([]kgo.Opt, error) {
	rest := maps.Clone(props)
	batch, request := defaultBatch, defaultMaxRequest
	for _, size := range []struct {
		key string
		to  *int32
	}{{"batch.size", &batch}, {"max.request.size", &request}} {
		v, ok := rest[size.key]
		if !ok {
			continue
		}
		n, err := int32Of(v)
		if err != nil {
			return nil, fmt.Errorf("producer setting %s: %w", size.key, err)
		}
		*size.to = n
		delete(rest, size.key)
	}
	opts, err := translate("producer", rest, producerSettings)
	if err != nil {
		return nil, err
	}
	return append(opts, kgo.ProducerBatchMaxBytes(min(batch, request)), kgo.BrokerMaxWriteBytes(request)), nil
}

func translate(kind string, props map[string]string, table map[string]setting) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	for _, key := range slices.Sorted(maps.Keys(props)) {
		set := table[key]
		if set == nil {
			set = sharedSettings[key]
		}
		if set == nil {
			return nil, &hinted{
				fmt.Errorf("%s setting %s is not supported", kind, key),
				fmt.Sprintf("remove %s.override.%s", kind, key),
			}
		}
		more, err := set(props[key])
		if err != nil {
			return nil, fmt.Errorf("%s setting %s: %w", kind, key, err)
		}
		opts = append(opts, more...)
	}
	return opts, nil
}

func int32Of(v string) (int32, error) {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("read number: %w", err)
	}
	return int32(n), nil
}

func number(opt func(int32) kgo.Opt) setting {
	return func(v string) ([]kgo.Opt, error) {
		n, err := int32Of(v)
		return []kgo.Opt{opt(n)}, err
	}
}

// millis is for options that take a duration, whatever their return type.
func millis[O kgo.Opt](opt func(time.Duration) O) setting {
	return func(v string) ([]kgo.Opt, error) {
		n, err := int32Of(v)
		return []kgo.Opt{opt(time.Duration(n) * time.Millisecond)}, err
	}
}

func compression(v string) ([]kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[v]
	if !ok {
		return nil, fmt.Errorf("unknown codec %q", v)
	}
	// Without the second preference a broker older than the codec would be
	// sent what it can't read.
	return []kgo.Opt{kgo.ProducerBatchCompression(codec, kgo.NoCompression())}, nil
}
