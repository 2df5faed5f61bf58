package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceover-mirror/onceover/topology"
)

// stopRecord says why a topic of a share flow was stopped. It is kept as the
// metadata of a committed offset in the group onceover.<flow>.stops at the
// source, which has no members: every process of the flow reads it at each
// refresh, and it outlives them all.
type stopRecord struct {
	Partition int32  `json:"-"`
	Offset    int64  `json:"-"`
	Reason    string `json:"reason"`
	// At is when the record was last written; brokers drop the offsets of a
	// group without members after a while, so it is written again now and then.
	At time.Time `json:"at"`
}

// stopsAge is how old a stop record may become before it is written again.
const stopsAge = time.Hour

// maxStop keeps the metadata below offset.metadata.max.bytes (4096).
const maxStop = 4000

func writeStop(ctx context.Context, adm *kadm.Client, group, topic string, s stopRecord) error {
	s.At = time.Now().UTC()
	meta, err := json.Marshal(s)
	for ; err == nil && len(meta) > maxStop; meta, err = json.Marshal(s) {
		s.Reason = strings.ToValidUTF8(s.Reason[:len(s.Reason)/2], "")
	}
	if err != nil {
		return fmt.Errorf("encode stop of topic %s: %w", topic, err)
	}
	return keepNote(ctx, adm, group, "the stop", topic, s.Partition, max(s.Offset, 0), meta)
}

func readStops(ctx context.Context, adm *kadm.Client, group string) (map[string]stopRecord, error) {
	resp, err := adm.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return map[string]stopRecord{}, nil
	}
	if err != nil {
		return nil, groupDenied(fmt.Errorf("read the stops in group %s: %w", group, err), group)
	}
	out := map[string]stopRecord{}
	resp.Each(func(o kadm.OffsetResponse) {
		var s stopRecord
		if o.Err == nil && o.At >= 0 && json.Unmarshal([]byte(o.Metadata), &s) == nil && s.Reason != "" {
			s.Partition, s.Offset = o.Partition, o.At
			out[o.Topic] = s
		}
	})
	return out, nil
}

func clearStops(ctx context.Context, adm *kadm.Client, group string, topics map[string]stopRecord) error {
	set := kadm.TopicsSet{}
	for t, s := range topics {
		set.Add(t, s.Partition)
	}
	return dropNotes(ctx, adm, group, "stops", set)
}

// writeOwed writes the stops of this process that are not kept yet.
func (f *flow) writeOwed(ctx context.Context) error {
	f.mu.Lock()
	owed := maps.Clone(f.owed)
	f.mu.Unlock()
	for _, topic := range slices.Sorted(maps.Keys(owed)) {
		if err := writeStop(ctx, f.admin(), f.settings.StopsGroupID, topic, owed[topic]); err != nil {
			return err
		}
		f.mu.Lock()
		delete(f.owed, topic)
		f.mu.Unlock()
	}
	return nil
}

// syncStops writes the stops that this process owes, and takes up those that
// others wrote or a person cleared. When that fails, which is shown as trouble,
// the stops that are known stay, and everything else goes on. Nothing to do for
// a partition reader, whose stops end with the process.
func (f *flow) syncStops(ctx context.Context) {
	if f.decision.reader != topology.ReaderShare {
		return
	}
	err := f.writeOwed(ctx)
	var kept map[string]stopRecord
	if err == nil {
		kept, err = readStops(ctx, f.admin(), f.settings.StopsGroupID)
	}
	if err == nil && !f.cat.readOnly {
		err = f.keepStops(ctx, kept)
	}
	if ctx.Err() == nil {
		f.board.trouble("stops", err)
	}
	if err == nil {
		f.adoptStops(kept)
	}
}

// keepStops writes old stops again, before the broker forgets them.
func (f *flow) keepStops(ctx context.Context, kept map[string]stopRecord) error {
	for topic, s := range kept {
		if time.Since(s.At) <= stopsAge {
			continue
		}
		if err := writeStop(ctx, f.admin(), f.settings.StopsGroupID, topic, s); err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) adoptStops(kept map[string]stopRecord) {
	f.mu.Lock()
	var resumed []string
	for topic := range f.stopped {
		if _, ok := kept[topic]; ok {
			continue
		}
		if _, ok := f.owed[topic]; !ok {
			delete(f.stopped, topic)
			resumed = append(resumed, topic)
		}
	}
	for topic, s := range kept {
		f.stopped[topic] = s.Reason
	}
	f.mu.Unlock()
	for _, topic := range resumed {
		f.board.resumed(topic)
	}
}
