package main

import (
	"cmp"
	"slices"

	"github.com/onceover-mirror/onceover/mirror"
)

// stateSource is a running mirror as its observers need it. Both methods may
// be called at any time, concurrently.
type stateSource interface {
	State() mirror.State
	Health() mirror.Health
}

var _ stateSource = (*mirror.Mirror)(nil)

// flowPhases are all phases of a flow that runs here, in the order of its life.
var flowPhases = []mirror.FlowPhase{
	mirror.FlowStarting, mirror.FlowRunning, mirror.FlowWaiting, mirror.FlowStopping, mirror.FlowStopped,
}

// totals are sums over flows.
type totals struct {
	records, bytes, skipped, echoed, refused int64
	// lag is the sum where it is known.
	lag        int64
	lagSeconds float64 // the greatest
	lagUnknown int     // partitions
	partitions int
	stopped    int
	stalled    int
	waiting    int   // for a transaction that is open at the source
	unstable   int64 // behind such ones
	lagging    int   // read from outside
	// acknowledges: a flow is at least once, and acknowledges at the source.
	acknowledges bool

	// Of exactly-once flows.
	shards, owned               int
	committed, aborted, pending int64 // transactions; pending: their outcome is not known
}

func total(s mirror.State) totals {
	var t totals
	for _, f := range s.Flows {
		t.add(f)
	}
	return t
}

func (t *totals) add(f mirror.FlowState) {
	t.records += f.Records
	t.bytes += f.Bytes
	t.skipped += f.Skipped
	t.echoed += f.Echoed
	t.refused += f.RefusedAcks
	if s := f.Shards; s != nil {
		t.shards += s.Total
		t.owned += len(s.Owned)
		t.committed += s.Committed
		t.aborted += s.Aborted
		t.pending += s.InDoubt - s.Resolved
	} else {
		t.acknowledges = true
	}
	for _, p := range f.Partitions {
		t.partitions++
		t.unstable += max(0, p.Unstable)
		if p.Lag < 0 {
			t.lagUnknown++
		} else {
			t.lag += p.Lag
			t.lagSeconds = max(t.lagSeconds, p.LagSeconds)
		}
		switch p.Phase {
		case mirror.PartitionStopped:
			t.stopped++
		case mirror.PartitionStalled:
			t.stalled++
		case mirror.PartitionWaiting:
			t.waiting++
		case mirror.PartitionLagging:
			t.lagging++
		case mirror.PartitionIdle, mirror.PartitionCopying:
		}
	}
}

// lagText is the lag in records; a plus sign says that more may be unknown.
func (t totals) lagText() string {
	switch t.lagUnknown {
	case 0:
		return short(float64(t.lag))
	case t.partitions:
		return "unknown"
	}
	return short(float64(t.lag)) + "+"
}

// worstFirst sorts partitions: stopped, stalled, waiting, lagging or copying, idle, then by topic
// and partition. It returns a sorted copy.
func worstFirst(ps []mirror.PartitionState) []mirror.PartitionState {
	rank := func(p mirror.PartitionState) int {
		return slices.Index([]mirror.PartitionPhase{
			mirror.PartitionStopped, mirror.PartitionStalled, mirror.PartitionWaiting, mirror.PartitionLagging, mirror.PartitionCopying, mirror.PartitionIdle,
		}, p.Phase)
	}
	return slices.SortedFunc(slices.Values(ps), func(a, b mirror.PartitionState) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}
