package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fenced reports whether another process has joined under this one's name.
func fenced(fetches kgo.Fetches) bool {
	for _, e := range fetches.Errors() {
		if errors.Is(e.Err, kerr.FencedInstanceID) {
			return true
		}
	}
	return false
}

// close leaves the group. A static member does not leave by itself, since it may
// come back; this one is asked to, so that others take over at once.
func (r *partitionReader) close(ctx context.Context) error {
	r.commit(ctx, nil)
	err := r.cl.LeaveGroupContext(ctx)
	if r.cfg.instance != "" && err == nil {
		var resp kadm.LeaveGroupResponses
		if resp, err = kadm.NewClient(r.cl).LeaveGroup(ctx, kadm.LeaveGroup(r.group).InstanceIDs(r.cfg.instance)); err == nil {
			err = resp.Error()
		}
		if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.GroupIDNotFound) {
			err = nil
		}
	}
	r.cl.CloseAllowingRebalance()
	r.changes.Wait()
	r.cfg.board.trouble(r.cfg.lane+" membership", nil)
	r.cfg.board.trouble(r.cfg.lane+" positions", nil)
	if err != nil {
		return fmt.Errorf("leave consumer group %s: %w", r.group, err)
	}
	return nil
}

func (r *partitionReader) explain(err error) error {
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return &hinted{err, "grant READ on GROUP " + r.group + " at the source"}
	case errors.Is(err, kerr.InconsistentGroupProtocol), errors.Is(err, kerr.GroupIDNotFound):
		return &hinted{err, "a group of another type or protocol has the name " + r.group}
	}
	return err
}
