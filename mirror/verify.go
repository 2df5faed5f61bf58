package mirror

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// VerifyOptions is what [Mirror.Verify] takes. The zero value compares all that
// the flow's ledger knows.
type VerifyOptions struct {
	// Topics are the source topics to compare, by name. Default: all. One that
	// the flow neither copies nor has copied is an error.
	Topics []string
	// Findings is how many findings of each kind are listed for each partition;
	// all are counted. Default: 10. Negative: none is listed.
	Findings int
	// Progress is told now and then how far it is, from one goroutine at a time.
	// It must return quickly. Default: none.
	Progress func(VerifyProgress)

	// hold is how many runs of the map a worker holds, for tests.
	hold int
}

// VerifyProgress is how far [Mirror.Verify] is.
type VerifyProgress struct {
	// Done and Total are source offsets of all partitions.
	Done, Total int64
}

// VerifyKind says what a [VerifyFinding] is.
type VerifyKind string

// The kinds of findings. All but VerifyForeign mean that source and target
// differ.
const (
	// VerifyMissing: the source has the record and the target has not.
	VerifyMissing VerifyKind = "missing"
	// VerifyDuplicated: the target has the record once more.
	VerifyDuplicated VerifyKind = "duplicated"
	// VerifyChanged: key, value, headers or time differ.
	VerifyChanged VerifyKind = "changed"
	// VerifyOutOfOrder: the copy stands before that of an earlier record, in a
	// flow that keeps order.
	VerifyOutOfOrder VerifyKind = "out of order"
	// VerifyUnexpected: the map knows a copy of a record that the source has not,
	// such as one of an aborted transaction.
	VerifyUnexpected VerifyKind = "unexpected"
	// VerifyForeign: another writer's record stands between the copies.
	VerifyForeign VerifyKind = "foreign"
)

// VerifyFinding is one record that is not as it should be.
type VerifyFinding struct {
	// Kind of the finding.
	Kind VerifyKind `json:"kind"`
	// Source and Target are offsets, -1 where there is none.
	Source int64 `json:"source"`
	Target int64 `json:"target"`
	// Detail says more, without the record's content; may be empty.
	Detail string `json:"detail,omitempty"`
}

// VerifyCounts are numbers of records.
type VerifyCounts struct {
	// Compared are records of the range that are on both sides.
	Compared int64 `json:"compared"`

	// Missing, Duplicated, Changed, OutOfOrder and Unexpected are findings, see
	// [VerifyKind]. What is below them is no finding.
	Missing    int64 `json:"missing"`
	Duplicated int64 `json:"duplicated"`
	Changed    int64 `json:"changed"`
	OutOfOrder int64 `json:"out_of_order"`
	Unexpected int64 `json:"unexpected"`

	// Foreign are records of another writer, on the target.
	Foreign int64 `json:"foreign"`
	// Echoes came from the target, and were not copied back to it.
	Echoes int64 `json:"echoes"`
	// Skipped were passed on purpose: the ledger has the gap and its reason.
	Skipped int64 `json:"skipped"`
	// Compacted are gone from either side because a newer record of the same key
	// replaced them, or a tombstone's time was over.
	Compacted int64 `json:"compacted"`
	// ExpiredAtSource and ExpiredAtTarget were copied, and retention took one side.
	ExpiredAtSource int64 `json:"expired_at_source"`
	ExpiredAtTarget int64 `json:"expired_at_target"`
	// Outside were copied, if so, outside of the ledger: below a start that says
	// that there was an earlier run.
	Outside int64 `json:"outside"`
	// Unmapped are older than what the map still has.
	Unmapped int64 `json:"unmapped"`
}

// Found is the number of findings; 0 proves that source and target agree.
func (c *VerifyCounts) Found() int64 {
	return c.Missing + c.Duplicated + c.Changed + c.OutOfOrder + c.Unexpected
}

func (c *VerifyCounts) of(k VerifyKind) *int64 {
	switch k {
	case VerifyMissing:
		return &c.Missing
	case VerifyDuplicated:
		return &c.Duplicated
	case VerifyChanged:
		return &c.Changed
	case VerifyOutOfOrder:
		return &c.OutOfOrder
	case VerifyUnexpected:
		return &c.Unexpected
	case VerifyForeign:
		return &c.Foreign
	}
	panic("mirror: no count of " + string(k))
}

func (c *VerifyCounts) add(o *VerifyCounts) {
	for _, n := range []struct{ to, by *int64 }{
		{&c.Compared, &o.Compared},
		{&c.Missing, &o.Missing},
		{&c.Duplicated, &o.Duplicated},
		{&c.Changed, &o.Changed},
		{&c.OutOfOrder, &o.OutOfOrder},
		{&c.Unexpected, &o.Unexpected},
		{&c.Foreign, &o.Foreign},
		{&c.Echoes, &o.Echoes},
		{&c.Skipped, &o.Skipped},
		{&c.Compacted, &o.Compacted},
		{&c.ExpiredAtSource, &o.ExpiredAtSource},
		{&c.ExpiredAtTarget, &o.ExpiredAtTarget},
		{&c.Outside, &o.Outside},
		{&c.Unmapped, &o.Unmapped},
	} {
		*n.to += *n.by
	}
}

// VerifyPartition is what was found in one source partition.
type VerifyPartition struct {
	// Topic and Partition at the source; Target is the target's topic.
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Target    string `json:"target"`
	// First and End bound the range of source offsets that was compared; End is
	// not part of it.
	First int64 `json:"first"`
	End   int64 `json:"end"`
	// Behind is the number of source offsets from End on: not copied yet.
	Behind int64 `json:"behind"`
	// NotCompared is why nothing was compared, empty otherwise.
	NotCompared string `json:"not_compared,omitempty"`

	VerifyCounts
	// Findings are the first of each kind, in the order of the source.
	Findings []VerifyFinding `json:"findings,omitempty"`
}

// VerifyReport is the outcome of [Mirror.Verify].
type VerifyReport struct {
	// Flow, From and To are as declared.
	Flow string `json:"flow"`
	From string `json:"from"`
	To   string `json:"to"`
	// Frozen is when the range was fixed; Ended is when all was compared. UTC.
	Frozen time.Time `json:"frozen"`
	Ended  time.Time `json:"ended"`
	// Suspended is why the ledger is not in use at present, empty otherwise. What
	// was copied since is not compared.
	Suspended string `json:"suspended,omitempty"`
	// VerifyCounts are sums over Partitions.
	VerifyCounts
	// Partitions by topic and number.
	Partitions []VerifyPartition `json:"partitions"`
}

const (
	// defaultFindings is VerifyOptions.Findings where nothing is asked for.
	defaultFindings = 10
	// verifyWorkers compare shards at the same time. Each holds a fetch of either
	// side and of the map.
	verifyWorkers = 4
	// heldRuns is how many runs of the map one worker holds, 24 bytes each.
	heldRuns = 1 << 18
	// heldKeys is how many keys all workers hold whose record compaction took from
	// the target, until a newer one of the same key is seen.
	heldKeys = 1 << 20
)

// Verify compares source and target of a flow with a ledger, record by record,
// over a frozen range: what the ledger says is copied at the time of the call.
// It needs no running mirror, may be called beside one, and changes nothing. Its
// memory is bounded whatever the size of the topics.
//
// Differences are in the report, not in the error. A flow without a ledger is
// refused with a *[Refusal]; other errors say what could not be read.
func (m *Mirror) Verify(ctx context.Context, name string, o VerifyOptions) (VerifyReport, error) {
	i := slices.IndexFunc(m.flows, func(f *flow) bool { return f.def.Name == name })
	if i < 0 {
		return VerifyReport{}, fmt.Errorf("no flow has the name %q", name)
	}
	f := m.flows[i]
	v := &verification{flow: f, topics: o.Topics, listed: cmp.Or(o.Findings, defaultFindings), progress: o.Progress, held: cmp.Or(o.hold, heldRuns)}
	rep := VerifyReport{Flow: name, From: f.def.From, To: f.def.To, Frozen: time.Now().UTC()}
	if err := v.open(); err != nil {
		return rep, err
	}
	defer v.close()
	if err := v.freeze(ctx); err != nil {
		return rep, f.named(err)
	}
	if err := v.compare(ctx); err != nil {
		return rep, fmt.Errorf("verify flow %s: %w", name, err)
	}
	rep.Ended = time.Now().UTC()
	rep.Suspended = v.suspended
	rep.Partitions = make([]VerifyPartition, 0, len(v.reports))
	for _, p := range v.reports {
		rep.add(&p.VerifyCounts)
		rep.Partitions = append(rep.Partitions, *p)
	}
	slices.SortFunc(rep.Partitions, func(a, b VerifyPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.NotCompared, b.NotCompared))
	})
	return rep, nil
}

// compare has the workers compare the shards, one after the other.
func (v *verification) compare(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next atomic.Int32
	var wg sync.WaitGroup
	for range min(verifyWorkers, len(v.shards)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				k := next.Add(1) - 1
				if int(k) >= len(v.shards) {
					return
				}
				if err := v.shard(ctx, k); err != nil {
					fail(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// advance tells that n more source offsets were passed.
func (v *verification) advance(n int64) {
	if v.progress == nil || n <= 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done += n
	v.progress(VerifyProgress{Done: min(v.done, v.total), Total: v.total})
}
