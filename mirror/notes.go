package mirror

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A note is the metadata of a committed offset in a group without members at
// the source: every process of a flow can read it, and it outlives them all.
// Stops and owed records are kept that way.

// keepNote writes the note of one partition; what says what it is about.
func keepNote(ctx context.Context, adm *kadm.Client, group, what, topic string, partition int32, at int64, note []byte) error {
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1, Metadata: string(note)})
	resp, err := adm.CommitOffsets(ctx, group, os)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return groupDenied(fmt.Errorf("keep %s of topic %s in group %s: %w", what, topic, group, err), group)
	}
	return nil
}

// dropNotes takes notes away.
func dropNotes(ctx context.Context, adm *kadm.Client, group, what string, of kadm.TopicsSet) error {
	resp, err := adm.DeleteOffsets(ctx, group, of)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return groupDenied(fmt.Errorf("clear %s in group %s: %w", what, group, err), group)
	}
	return nil
}
