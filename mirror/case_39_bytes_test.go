package mirror_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceover-mirror/onceover/testenv"
)

// Times are kept to the millisecond, with those that look like none.
func TestCase39Times(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.source.CreateTopic(w.T, "t", 1, 1, nil)
		rs := testenv.Records("t", 1, 40, 39)
		for i, ms := range []int64{0, 1, 1_700_000_000_123, -1, 1, 0} {
			rs[10+i].Timestamp = time.UnixMilli(ms)
		}
		w.source.Produce(w.T, rs...)
		l := w.live()
		w.copied(l)
		w.once(l)
		for i, r := range w.target.ReadAll(w.T, "t") {
			if got, want := r.Timestamp.UnixMilli(), rs[i].Timestamp.UnixMilli(); got != want {
				w.Errorf("offset %d has time %d, want %d", i, got, want)
			}
		}
	})
}

// The time that the source's brokers gave a record is its time on the target.
func TestCase39LogAppendTime(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		kind := "LogAppendTime"
		w.source.CreateTopic(w.T, "t", 2, 1, map[string]*string{"message.timestamp.type": &kind})
		w.source.Produce(w.T, testenv.Records("t", 2, 40, 39)...)
		<-time.After(time.Hour)
		l := w.live()
		w.copied(l)
		w.once(l)
	})
}

// Headers keep number, order, keys and bytes; null and empty stay apart.
func TestCase41Headers(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.source.CreateTopic(w.T, "t", 1, 1, nil)
		many := make([]kgo.RecordHeader, 300)
		for i := range many {
			many[i] = kgo.RecordHeader{Key: fmt.Sprint(i % 7), Value: fmt.Append(nil, i)}
		}
		rs := testenv.Records("t", 1, 8, 41)
		for i, hs := range [][]kgo.RecordHeader{
			{{Key: "a", Value: []byte{0x00, 0xff}}},
			{{Key: "a", Value: []byte("x")}, {Key: "a", Value: []byte("y")}, {Key: "b", Value: []byte("z")}},
			{{Key: "n", Value: nil}},
			{{Key: "e", Value: []byte{}}},
			{{Key: "", Value: []byte("v")}},
			many,
			nil,
			{{Key: testenv.Provenance + ".of-somebody", Value: []byte("v")}},
		} {
			rs[i].Headers = hs
		}
		w.source.Produce(w.T, rs...)
		l := w.live()
		w.copied(l)
		w.once(l)
	})
}

// Records stay in their partition, with and without keys, whatever a hash says,
// also where the target has more partitions.
func TestCase43Partitions(t *testing.T) {
	for _, partitions := range []int32{6, 9} {
		inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
			w.source.CreateTopic(w.T, "t", 6, 1, nil)
			w.target.CreateTopic(w.T, "t", partitions, 1, nil)
			rs := testenv.Records("t", 6, 240, 43)
			for i, r := range rs {
				r.Key = fmt.Appendf(nil, "key-%d", i%5)
				if i%3 == 0 {
					r.Key = nil
				}
			}
			w.source.Produce(w.T, rs...)
			l := w.live()
			w.copied(l)
			w.once(l)
		})
	}
}

// A target topic that a policy refuses at first is made when it does not any more;
// meanwhile it is said.
func TestCase52CreateRefusedOnce(t *testing.T) {
	inFakeTime(t, 2, testenv.EmbeddedOptions{}, testenv.EmbeddedOptions{}, func(w *fakeWorld) {
		w.give(4, 40, 52)
		h := w.target.Fake().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "t", Err: kerr.PolicyViolation, Count: 3})
		l := w.live()
		w.copied(l)
		w.fired(h, 3)
		if n := l.log.count("POLICY_VIOLATION"); n == 0 {
			w.Error("it is not said")
		}
		w.once(l)
	})
}
