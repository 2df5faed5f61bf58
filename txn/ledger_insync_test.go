package txn

import "testing"

// Replicas that are out of sync pass by themselves; replicas that there are not,
// do not.
func TestLedgerInSync(t *testing.T) {
	for _, tc := range []struct {
		all, inSync, needed int
		voids, remarks      int
	}{{3, 3, 2, 0, 0}, {3, 2, 2, 0, 0}, {3, 1, 2, 0, 1}, {1, 1, 2, 1, 0}, {1, 1, 1, 0, 0}} {
		st := topicState{name: "l", partitions: map[int32]replicas{0: {3, 3, true}, 1: {tc.all, tc.inSync, true}}}
		cfg := map[string]string{minInsync: string(rune('0' + tc.needed))}
		voids, remarks := LedgerSpec{}.judge(st, cfg, true)
		if len(voids) != tc.voids || len(remarks) != tc.remarks {
			t.Errorf("%+v: %v, %v", tc, voids, remarks)
		}
	}
}
