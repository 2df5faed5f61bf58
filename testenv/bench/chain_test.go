package main

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/transform"
)

// BenchmarkChain is the chain of a flow that renames, provenance on.
func BenchmarkChain(b *testing.B) {
	flow := topology.NewFlow("bench")
	flow.From, flow.Rename = "east", "{cluster}.{topic}"
	chain := transform.Chain{
		transform.Provenance("source-cluster-id-0000", "target-cluster-id-0000"),
		transform.Rename(flow.TargetTopic),
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
