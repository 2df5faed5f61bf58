package testenv

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Records makes n records for [Cluster.Produce], dealt out over the partitions
// in turn: an 8-byte key, a 100-byte value that begins with an id unique to
// seed and position, one header and an explicit time, a millisecond apart and
// ending now. All but the times follows from the arguments alone.
func Records(topic string, partitions, n int, seed int64) []*kgo.Record {
	const valueSize = 100
	rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	first := time.Now().Truncate(time.Millisecond).Add(-time.Duration(n) * time.Millisecond)
	recs := make([]*kgo.Record, n)
	for i := range recs {
		value := fmt.Appendf(make([]byte, 0, valueSize), "%d-%d ", seed, i)
		for len(value) < valueSize {
			value = append(value, byte('a'+rng.IntN(26)))
		}
		recs[i] = &kgo.Record{
			Topic:     topic,
			Partition: int32(i % partitions),
			Key:       fmt.Appendf(nil, "%08x", rng.Uint32()),
			Value:     value,
			Headers:   []kgo.RecordHeader{{Key: "position", Value: fmt.Append(nil, i)}},
			Timestamp: first.Add(time.Duration(i) * time.Millisecond),
		}
	}
	return recs
}
