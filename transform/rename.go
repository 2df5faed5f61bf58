package transform

import "github.com/twmb/franz-go/pkg/kgo"

// Rename puts records into the topic that target names for theirs. A record
// for which it names none ("") is rejected.
func Rename(target func(topic string) string) Transform { return rename(target) }

type rename func(string) string

func (f rename) Apply(rec *kgo.Record) (*kgo.Record, Verdict, string) {
	topic := f(rec.Topic)
	if topic == "" {
		return nil, Reject, "no target topic for " + rec.Topic
	}
	out := copied(rec)
	out.Topic = topic
	return out, Keep, ""
}
