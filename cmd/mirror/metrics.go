package main

import (
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/onceover-mirror/onceover/mirror"
)

// The metrics of a mirror. All counters start at zero with the process and
// tell what this process did; the lags are those of the whole flow, whatever
// process copies it.
var (
	flowInfo = metric("flow_info",
		"Always 1; the labels say how the flow runs: guarantee, reader and order (empty before it is decided).",
		"flow", "from", "to", "guarantee", "reader", "order")
	flowPhase = metric("flow_phase",
		"1 for the phase that the flow is in, 0 for each other: starting, running, waiting, stopping, stopped.",
		"flow", "phase")
	flowLanes = metric("lanes", "Lanes that are reading at the moment.", "flow")

	recordsTotal = metric("records_total",
		"Records written to the target whose acknowledgement at the source is confirmed.", "flow", "topic", "partition")
	bytesTotal = metric("bytes_total",
		"Bytes of keys and values of those records.", "flow", "topic", "partition")
	lagRecords = metric("lag_records",
		"Records of the source partition not yet acknowledged by the flow; absent while unknown.", "flow", "topic", "partition")
	lagSeconds = metric("lag_seconds",
		"Age of the oldest record not yet acknowledged by the flow, by its timestamp; 0 without lag, absent while unknown.",
		"flow", "topic", "partition")
	unstableRecords = metric("unstable_records",
		"Offsets of the source partition behind a transaction that is open there, which can't be read yet; not part of the lag, absent while unknown.",
		"flow", "topic", "partition")
	partitionState = metric("partition_state",
		"Always 1; the label state is idle, copying, waiting (for a transaction that is open at the source), stalled (lag without progress) or stopped (a person decides).",
		"flow", "topic", "partition", "state")
	topicReady = metric("topic_ready",
		"1 for a matching topic that can be copied, 0 for one that can't; the status page says why.", "flow", "topic")

	retriesTotal = metric("retries_total",
		"Puts to the target that were tried again after a retriable error.", "flow")
	refusedAcksTotal = metric("refused_acks_total",
		"Records whose acknowledgement the source refused; they come again.", "flow")
	skippedTotal = metric("skipped_total",
		"Records that the target refused for good and that were dropped (on_error: skip).", "flow")
	echoTotal = metric("echo_total",
		"Records left out because they came from the target in the first place (two-way mirroring).", "flow")
	recoveredTotal = metric("recovered_total",
		"Records that the source's share group gave up on and that were copied by offset.", "flow")
	lostTotal = metric("source_gaps_total",
		"Source offsets that went (retention, DeleteRecords) before they were copied.", "flow")

	// Of exactly-once flows alone.
	shardsOwned = metric("shards_owned", "Shards of the flow that this process copies.", "flow")
	shardsTotal = metric("shards", "Shards that the flow's ledger has; absent while unknown.", "flow")
	commitAge   = metric("commit_age_seconds",
		"Time since the flow last committed, in whatever process, while it has lag; 0 without lag, absent before the first commit.", "flow")
	transactionsTotal = metric("transactions_total",
		"Transactions by outcome: committed, aborted, or unknown (no clear answer to the commit) until the ledger is read; then they count as one of the others, too.",
		"flow", "outcome")
	resolvedTotal = metric("transactions_resolved_total",
		"Transactions of unknown outcome that the ledger has decided.", "flow")
	fencedTotal = metric("fenced_total",
		"Times that another process took a shard from this one, or that a transaction took longer than its timeout.", "flow")
)

func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("onceover_"+name, help, labels, nil)
}

// stateCollector turns the mirror's state, as it is at the scrape, into
// metrics.
type stateCollector struct{ source stateSource }

var _ prometheus.Collector = stateCollector{}

// Describe sends every description.
func (stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		flowInfo, flowPhase, flowLanes, recordsTotal, bytesTotal, lagRecords, lagSeconds, unstableRecords, partitionState,
		topicReady, retriesTotal, refusedAcksTotal, skippedTotal, echoTotal, recoveredTotal, lostTotal,
		shardsOwned, shardsTotal, commitAge, transactionsTotal, resolvedTotal, fencedTotal,
	} {
		ch <- d
	}
}

// Collect sends the metrics of one snapshot.
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	for _, f := range c.source.State().Flows {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{f.Name}, labels...)...)
		}
		counter := func(d *prometheus.Desc, v int64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{f.Name}, labels...)...)
		}
		gauge(flowInfo, 1, valid(f.From), valid(f.To), f.Guarantee, f.Reader, f.Order)
		for _, phase := range flowPhases {
			gauge(flowPhase, truth(f.Phase == phase), string(phase))
		}
		gauge(flowLanes, float64(f.Lanes))
		counter(retriesTotal, f.Retries)
		counter(refusedAcksTotal, f.RefusedAcks)
		counter(skippedTotal, f.Skipped)
		counter(echoTotal, f.Echoed)
		counter(recoveredTotal, f.Recovered)
		counter(lostTotal, f.Lost)
		if s := f.Shards; s != nil {
			gauge(shardsOwned, float64(len(s.Owned)))
			if s.Total > 0 {
				gauge(shardsTotal, float64(s.Total))
			}
			if !s.LastCommit.IsZero() {
				gauge(commitAge, idleTime(f, time.Now()).Seconds())
			}
			for outcome, n := range map[string]int64{"committed": s.Committed, "aborted": s.Aborted, "unknown": s.InDoubt} {
				counter(transactionsTotal, n, outcome)
			}
			counter(resolvedTotal, s.Resolved)
			counter(fencedTotal, s.Fenced)
		}
		for _, t := range f.Topics {
			gauge(topicReady, truth(t.Ready), valid(t.Topic))
		}
		for _, p := range f.Partitions {
			topic, partition := valid(p.Topic), strconv.Itoa(int(p.Partition))
			counter(recordsTotal, p.Records, topic, partition)
			counter(bytesTotal, p.Bytes, topic, partition)
			gauge(partitionState, 1, topic, partition, string(p.Phase))
			if p.Lag >= 0 {
				gauge(lagRecords, float64(p.Lag), topic, partition)
			}
			if p.Unstable >= 0 {
				gauge(unstableRecords, float64(p.Unstable), topic, partition)
			}
			if p.LagSeconds >= 0 {
				gauge(lagSeconds, p.LagSeconds, topic, partition)
			}
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// valid makes a label value of what comes from outside: one that is not UTF-8
// would panic.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// idleTime is how long an exactly-once flow that has lag has not committed.
func idleTime(f mirror.FlowState, now time.Time) time.Duration {
	var sum totals
	sum.add(f)
	if sum.lag == 0 {
		return 0
	}
	return max(0, now.Sub(f.Shards.LastCommit))
}

// buildCollector is onceover_build_info, always 1, with the version of the
// program, the revision of its source and the version of Go as labels.
func buildCollector(b build) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "onceover_build_info",
		Help:        "Always 1; the labels say what is running.",
		ConstLabels: prometheus.Labels{"version": b.version, "revision": b.revision, "goversion": b.goVersion},
	})
	info.Set(1)
	return info
}

// loggedCounter is onceover_errors_total: warnings and errors logged, by flow
// ("" for those of the process) and level (warn, error).
type loggedCounter struct{ *prometheus.CounterVec }

func newLoggedCounter(registry prometheus.Registerer) loggedCounter {
	c := loggedCounter{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "onceover_errors_total",
		Help: "Warnings and errors logged, whatever the log level, by flow and level (warn, error).",
	}, []string{"flow", "level"})}
	registry.MustRegister(c)
	return c
}

func (c loggedCounter) count(flow string, level slog.Level) {
	name := "warn"
	if level >= slog.LevelError {
		name = "error"
	}
	c.WithLabelValues(valid(flow), name).Inc()
}
