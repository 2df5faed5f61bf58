package mirror

import (
	"context"
	"errors"
	"fmt"

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

// close leaves the group.
func (r *partitionReader) close(ctx context.Context) error {
	r.commit(ctx, nil)
	var err error
	if !r.taken { // the name is another process's, who must not be made to leave
		err = leaveGroup(ctx, r.cl, r.group, r.cfg.instance)
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
