package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// noHome: the group's coordinator is not known.
const noHome int32 = -1

// beat sends one heartbeat to the group's coordinator and returns its answer,
// or the error that it is.
//
// The client would route a heartbeat by itself, but it keeps to the
// coordinator that it once found: after a move each heartbeat would be
// answered with NOT_COORDINATOR for as long as the old one's connection lives.
// Not safe for concurrent use.
func (r *shareReader) beat(ctx context.Context, req *kmsg.ShareGroupHeartbeatRequest) (*kmsg.ShareGroupHeartbeatResponse, error) {
	if r.home == noHome {
		home, err := r.findHome(ctx)
		if err != nil {
			return nil, fmt.Errorf("find coordinator: %w", err)
		}
		r.home = home
	}
	kresp, err := r.cl.Broker(int(r.home)).Request(ctx, req)
	if err != nil {
		r.home = noHome
		return nil, err
	}
	resp := kresp.(*kmsg.ShareGroupHeartbeatResponse)
	err = withMessage(kerr.ErrorForCode(resp.ErrorCode), resp.ErrorMessage)
	if errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable) {
		r.home = noHome
	}
	return resp, err
}

func (r *shareReader) findHome(ctx context.Context) (int32, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = 0 // of a group, which a share group is
	req.CoordinatorKeys = []string{r.cfg.group}
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return noHome, err
	}
	if len(resp.Coordinators) != 1 {
		return noHome, errNoAnswer
	}
	c := &resp.Coordinators[0]
	return c.NodeID, withMessage(kerr.ErrorForCode(c.ErrorCode), c.ErrorMessage)
}
