package main

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/transform"
)

// BenchmarkChain is the chain of a flow with default settings.
func BenchmarkChain(b *testing.B) {
	chain := transform.Chain{
		transform.Provenance("source-cluster-id-0000", "target-cluster-id-0000"),
		transform.Rename(func(topic string) string { return "west." + topic }),
	}
	rec := &kgo.Record{
		Topic: "bench", Key: make([]byte, keySize), Value: value(nil, 1, 1), Timestamp: time.UnixMilli(1),
		Headers: []kgo.RecordHeader{{Key: "trace", Value: make([]byte, 16)}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, verdict, _ := chain.Apply(rec); verdict != transform.Keep {
			b.Fatal(verdict)
		}
	}
}
