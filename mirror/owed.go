package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/topology"
	"github.com/onceover-mirror/onceover/txn"
)

// A record that is handed out for the last time is lost to the group, and with
// it to every process, when it is not acknowledged: released, with its session
// closed, or after a crash, the broker archives it. So from its last delivery
// but one on it is noted at the source as owed before it is written, and struck
// off when the target has it. A process that starts copies what is owed by
// offset.
//
// owedNote is the note of one partition, see notes.go.
type owedNote struct {
	Owed []txn.Range `json:"owed"`
}

func (f *flow) owedGroup() string { return "onceover." + f.def.Name + ".owed" }

// oweLast notes a record on its last delivery. That the note can't be kept is
// logged, and does not hold up the copy.
func (f *flow) oweLast(ctx context.Context, topic string, src tip, offset int64) {
	l := lostRange{topic: topic, src: src, Range: txn.Range{First: offset, Last: offset}}
	if err := f.noteOwed(ctx, l, true); err != nil {
		f.log.Warn("a record on its last delivery is not noted as owed", "topic", topic, "partition", src.partition, "offset", offset,
			"reason", err, "hint", cmp.Or(hintOf(err), "should this process end before it has written the record, copy it by hand"))
	}
}

// loseLast has a record that went back on its last delivery copied by offset.
func (f *flow) loseLast(topic string, src tip, offset int64) {
	f.loseTrack([]lostRange{{topic: topic, src: src, Range: txn.Range{First: offset, Last: offset}, owed: true}})
}

// payLast strikes off those records of b on their last delivery that became
// final, and leaves the rest to be copied by offset, by this process or the
// next.
func (f *flow) payLast(ctx context.Context, b *batch) {
	for i := range b.items {
		it := &b.items[i]
		switch {
		case !it.owed:
			continue
		case it.fate == fateOpen && it.last:
			f.loseLast(it.rec.Topic, it.src, it.rec.Offset)
			continue
		case it.fate == fateOpen:
			continue // it comes once more
		}
		f.paid(ctx, lostRange{topic: it.rec.Topic, src: it.src, Range: txn.Range{First: it.rec.Offset, Last: it.rec.Offset}, owed: true})
	}
}

// noteOwed adds a run to its partition's note, or takes it out.
func (f *flow) noteOwed(ctx context.Context, l lostRange, owed bool) error {
	f.oweMu.Lock()
	defer f.oweMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	notes, err := f.owedNotes(ctx)
	if err != nil {
		return err
	}
	var set txn.RangeSet
	for _, r := range notes[place{l.topic, l.src.partition}] {
		set.Add(r.First, r.Last)
	}
	if owed {
		set.Add(l.First, l.Last)
	} else {
		set.Remove(l.First, l.Last)
	}
	if set.Count() == 0 {
		tp := kadm.TopicsSet{}
		tp.Add(l.topic, l.src.partition)
		return dropNotes(ctx, f.admin(), f.owedGroup(), "owed records", tp)
	}
	meta, err := json.Marshal(owedNote{set.Ranges()})
	if err != nil {
		return fmt.Errorf("encode owed records: %w", err)
	}
	return keepNote(ctx, f.admin(), f.owedGroup(), "owed records", l.topic, l.src.partition, set.Ranges()[0].First, meta)
}

func (f *flow) owedNotes(ctx context.Context) (map[place][]txn.Range, error) {
	resp, err := f.admin().FetchOffsets(ctx, f.owedGroup())
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, groupDenied(fmt.Errorf("read owed records in group %s: %w", f.owedGroup(), err), f.owedGroup())
	}
	notes := map[place][]txn.Range{}
	resp.Each(func(o kadm.OffsetResponse) {
		var n owedNote
		if o.Err == nil && o.At >= 0 && json.Unmarshal([]byte(o.Metadata), &n) == nil {
			notes[place{o.Topic, o.Partition}] = n.Owed
		}
	})
	return notes, nil
}

// takeOwed has what earlier processes owe copied by offset. It is not worth
// waiting for: without the right to look, the flow goes on.
func (f *flow) takeOwed(ctx context.Context) {
	if f.decision.reader != topology.ReaderShare {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	notes, err := f.owedNotes(ctx)
	if err != nil {
		f.log.Warn("what earlier processes owe is not known", "reason", err, "hint", hintOf(err))
		return
	}
	topics, err := f.admin().ListTopics(ctx)
	if err != nil {
		f.log.Warn("what earlier processes owe is not known", "reason", err)
		return
	}
	var lost []lostRange
	for pl, rs := range notes {
		for _, r := range rs {
			lost = append(lost, lostRange{topic: pl.topic, src: tip{topics[pl.topic].ID, pl.partition}, Range: r, owed: true})
		}
	}
	slices.SortFunc(lost, func(a, b lostRange) int { return int(a.First - b.First) })
	if len(lost) > 0 {
		f.log.Warn("records that an earlier process could not write on their last delivery are copied by offset", "runs", len(lost))
	}
	f.loseTrack(lost)
}

// paid strikes a recovered run off.
func (f *flow) paid(ctx context.Context, l lostRange) {
	if !l.owed {
		return
	}
	if err := f.noteOwed(ctx, l, false); err != nil {
		f.log.Info("records stay noted as owed, and may be copied again", "topic", l.topic, "partition", l.src.partition,
			"first", l.First, "last", l.Last, "reason", err, "hint", hintOf(err))
	}
}
