package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// txnMetrics are how large the transactions of exactly-once flows are, and how
// long their commits take.
type txnMetrics struct{ records, seconds *prometheus.HistogramVec }

func newTxnMetrics(registry prometheus.Registerer) txnMetrics {
	m := txnMetrics{
		records: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "onceover_transaction_records",
			Help:    "Records copied in a transaction that committed.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 9), // to 65,536
		}, []string{"flow"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "onceover_commit_seconds",
			Help:    "Time from the wish to commit to the answer: the last answers to copies, the positions, the end of the transaction.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // to 8 s
		}, []string{"flow"}),
	}
	registry.MustRegister(m.records, m.seconds)
	return m
}

// committed is a mirror.Observer's Committed.
func (m txnMetrics) committed(flow string, _, n int, took time.Duration) {
	m.records.WithLabelValues(valid(flow)).Observe(float64(n))
	m.seconds.WithLabelValues(valid(flow)).Observe(took.Seconds())
}
