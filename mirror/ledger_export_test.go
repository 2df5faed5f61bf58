package mirror

import "context"

// The steps of a change to a ledger one by one, for tests that leave off in
// between.

func stepOf(ctx context.Context, m *Mirror, name string, step func(*flow) error) error {
	f, err := m.flow(name)
	if err != nil {
		return err
	}
	defer f.closeClients()
	if err := f.open(); err != nil {
		return err
	}
	if err := f.probe(ctx); err != nil {
		return err
	}
	if _, err := f.findLedger(ctx); err != nil {
		return err
	}
	return step(f)
}

// SuspendShard suspends one shard.
func SuspendShard(ctx context.Context, m *Mirror, name string, shard int) error {
	return stepOf(ctx, m, name, func(f *flow) error { return f.suspendShard(ctx, shard, true) })
}

// CarryShard tells the source of a shard's positions, and no more.
func CarryShard(ctx context.Context, m *Mirror, name string, shard int) error {
	return stepOf(ctx, m, name, func(f *flow) error {
		ls, err := f.readLedger(ctx)
		if err != nil {
			return err
		}
		return f.carryFromLedger(ctx, ls[shard])
	})
}

// ResumeShard ends the suspension of one shard.
func ResumeShard(ctx context.Context, m *Mirror, name string, shard int) error {
	return stepOf(ctx, m, name, func(f *flow) error {
		ls, err := f.readLedger(ctx)
		if err != nil {
			return err
		}
		at, err := f.resumePlaces(ctx, ls)
		if err != nil {
			return err
		}
		return f.resumeShard(ctx, shard, at)
	})
}

// AcceptShard gives one shard the declaration's fingerprint.
func AcceptShard(ctx context.Context, m *Mirror, name string, shard int) error {
	return stepOf(ctx, m, name, func(f *flow) error { return f.acceptShard(ctx, shard, 2) })
}
