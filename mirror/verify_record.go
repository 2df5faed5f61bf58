package mirror

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/transform"
)

// difference says in what a copy differs from its original, without naming
// content; "" when it does not. A header with which the copy is marked as coming
// from the source does not count, nor does where the original's time came from.
func difference(want, have *kgo.Record, source string) string {
	var out []string
	sized := func(what string, w, h []byte) {
		if !same(w, h) {
			out = append(out, fmt.Sprintf("%s: %s, and %s on the target", what, sizeOf(w), sizeOf(h)))
		}
	}
	sized("key", want.Key, have.Key)
	sized("value", want.Value, have.Value)
	headers := func(a, b []kgo.RecordHeader) bool {
		return slices.EqualFunc(a, b, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && same(a.Value, b.Value) })
	}
	unmarked := have.Headers
	if n := len(unmarked) - 1; n >= 0 && unmarked[n].Key == transform.ProvenanceHeader && string(unmarked[n].Value) == source {
		unmarked = unmarked[:n]
	}
	if !headers(want.Headers, unmarked) && !headers(want.Headers, have.Headers) {
		out = append(out, fmt.Sprintf("headers: %d, and %d on the target, or others", len(want.Headers), len(unmarked)))
	}
	const none, byBroker = -1, 1
	w, h := want.Timestamp.UnixMilli(), have.Timestamp.UnixMilli()
	switch {
	case want.Attrs.TimestampType() == none || w == h:
	case have.Attrs.TimestampType() == byBroker:
		out = append(out, fmt.Sprintf("time: %d, and %d on the target, whose topic has message.timestamp.type=LogAppendTime", w, h))
	default:
		out = append(out, fmt.Sprintf("time: %d, and %d on the target", w, h))
	}
	return strings.Join(out, "; ")
}

// same is equality in which null is no empty value.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func sizeOf(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%d bytes", len(b))
}

// compacted is a record whose copy is gone from a compacted topic.
type compacted struct{ source, target int64 }

var keySeed = maphash.MakeSeed()

// wait takes a record that compaction may have taken from the target: a newer
// one of the same key has to be there. A tombstone goes by itself.
func (p *verifyPair) wait(want *kgo.Record, t int64) {
	key := maphash.Bytes(keySeed, want.Key)
	was, waits := p.waiting[key]
	switch {
	case waits && was.target > t: // the newer one waits
		p.rep.Compacted++
	case want.Value == nil:
		if waits {
			p.rep.Compacted++
			p.release(key)
		}
		p.rep.Compacted++
	case waits:
		p.rep.Compacted++
		p.waiting[key] = compacted{want.Offset, t}
	case p.v.keys.Add(1) > heldKeys: // not to be followed up for ever
		p.v.keys.Add(-1)
		p.rep.Compacted++
	default:
		p.waiting[key] = compacted{want.Offset, t}
	}
}

// newer takes a record of the target, for which older ones of its key may go.
func (p *verifyPair) newer(have *kgo.Record) {
	if len(p.waiting) == 0 || have.Key == nil {
		return
	}
	key := maphash.Bytes(keySeed, have.Key)
	if was, ok := p.waiting[key]; ok && was.target < have.Offset {
		p.rep.Compacted++
		p.release(key)
	}
}

func (p *verifyPair) release(key uint64) {
	delete(p.waiting, key)
	p.v.keys.Add(-1)
}

// settleCompacted reads the target on to its present end for the keys that still
// wait: what is newer than the frozen range accounts for them, too.
func (p *verifyPair) settleCompacted(ctx context.Context) error {
	if len(p.waiting) == 0 {
		return nil
	}
	all, err := boundsOf(ctx, p.v.dst, p.v.flow.def.To, []string{p.dst.at.topic})
	if err != nil {
		return err
	}
	p.dst.seek(slices.MinFunc(slices.Collect(maps.Values(p.waiting)), func(a, b compacted) int { return int(a.target - b.target) }).target)
	for len(p.waiting) > 0 {
		rec, err := p.dst.next(ctx, all[p.dst.at].stable)
		if err != nil {
			return err
		}
		if rec == nil {
			break
		}
		p.newer(rec)
	}
	for key, was := range p.waiting {
		p.find(VerifyMissing, was.source, was.target, "the last record of its key, gone from a compacted topic")
		p.release(key)
	}
	return nil
}
