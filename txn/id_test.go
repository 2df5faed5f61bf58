package txn

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		LedgerTopic("east-to-west"):            "onceover.east-to-west.ledger.internal",
		MapTopic("east-to-west"):               "onceover.east-to-west.map.internal",
		ShardGroup("east-to-west"):             "onceover.east-to-west.shards",
		ShardTxnID("east-to-west", 7):          "onceover.east-to-west.7",
		KeeperTxnID("east-to-west", 0):         "onceover.east-to-west.keeper.0",
		WorkerTxnID("east-to-west", "h1-0", 1): "onceover.east-to-west.w.h1-0.1",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestParseTxnID(t *testing.T) {
	for id, want := range map[string]TxnID{
		"onceover.a.0":            {Flow: "a", Role: RoleShard},
		"onceover.a.12":           {Flow: "a", Role: RoleShard, Shard: 12},
		"onceover.keeper.3":       {Flow: "keeper", Role: RoleShard, Shard: 3},
		"onceover.w.3":            {Flow: "w", Role: RoleShard, Shard: 3},
		"onceover.a.keeper.3":     {Flow: "a", Role: RoleKeeper, Shard: 3},
		"onceover.a.w.h-0.2":      {Flow: "a", Role: RoleWorker, Instance: "h-0", Lane: 2},
		"onceover.a.w.h.b.c-10.2": {Flow: "a", Role: RoleWorker, Instance: "h.b.c-10", Lane: 2},
		"onceover.a.w.keeper.1.2": {Flow: "a", Role: RoleWorker, Instance: "keeper.1", Lane: 2},
		"onceover.a.w.1.1":        {Flow: "a", Role: RoleWorker, Instance: "1", Lane: 1},
	} {
		if got, ok := ParseTxnID(id); !ok || got != want {
			t.Errorf("ParseTxnID(%q) = %+v, %v, want %+v", id, got, ok, want)
		}
	}
	for _, id := range []string{
		"", "onceover", "onceover.a", "onceover.a.", "onceover..1", "onceover.a.b", "onceover.a.-1", "onceover.a.+1",
		"onceover.a.01", "onceover.a.1 ", " onceover.a.1", "onceover.a.1\n", "xonceover.a.1", "onceover.a.1.2",
		"onceover.A.1", "onceover.-a.1", "onceover.a_b.1", "onceover.a.9999999999",
		"onceover." + strings.Repeat("a", 62) + ".1",
		"onceover.a.keeper", "onceover.a.keeper.", "onceover.a.keeper.x", "onceover.a.keeper.1.2", "onceover.a.keeper.00",
		"onceover.a.w", "onceover.a.w.1", "onceover.a.w..1", "onceover.a.w.h.", "onceover.a.w.h.x", "onceover.a.w.h.01",
		"onceover.a.ledger.internal",
	} {
		if got, ok := ParseTxnID(id); ok {
			t.Errorf("ParseTxnID(%q) = %+v, want it refused", id, got)
		}
	}
}

// What is made is taken apart again, and no id means two things: a parsed id,
// made again, is the same.
func TestTxnIDRoundTrip(t *testing.T) {
	build := func(p TxnID) string {
		switch p.Role {
		case RoleShard:
			return ShardTxnID(p.Flow, p.Shard)
		case RoleKeeper:
			return KeeperTxnID(p.Flow, p.Shard)
		case RoleWorker:
			return WorkerTxnID(p.Flow, p.Instance, p.Lane)
		}
		panic("role")
	}
	rapid.Check(t, func(t *rapid.T) {
		want := TxnID{
			Flow: rapid.OneOf(rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,60}`), rapid.SampledFrom([]string{"w", "keeper", "0"})).Draw(t, "flow"),
			Role: rapid.SampledFrom([]TxnRole{RoleShard, RoleKeeper, RoleWorker}).Draw(t, "role"),
		}
		n := rapid.IntRange(0, 999_999_999).Draw(t, "n")
		if want.Role == RoleWorker {
			want.Instance = rapid.StringMatching(`[a-z0-9.-]{1,12}`).Draw(t, "instance")
			want.Lane = n
		} else {
			want.Shard = n
		}
		id := build(want)
		if got, ok := ParseTxnID(id); !ok || got != want {
			t.Fatalf("ParseTxnID(%q) = %+v, %v, want %+v", id, got, ok, want)
		}
		other := rapid.StringMatching(`onceover\.(a|w|keeper)(\.(a|w|keeper|0|1|01)){1,4}`).Draw(t, "another")
		if got, ok := ParseTxnID(other); ok && build(got) != other {
			t.Fatalf("%q was read as %+v", other, got)
		}
	})
}
