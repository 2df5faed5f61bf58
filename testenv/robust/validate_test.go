package robust

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
)

// The judge sees each kind of fault, or the campaigns prove nothing.
func TestJudge(t *testing.T) {
	recs := testenv.Records("t", 2, 10, 1)
	without := func(i int) []*kgo.Record { return slices.Delete(slices.Clone(recs), i, i+1) }
	changed := slices.Clone(recs)
	other := *recs[3]
	other.Value = []byte("other")
	changed[3] = &other
	swapped := slices.Clone(recs)
	swapped[2], swapped[4] = swapped[4], swapped[2]
	for _, c := range []struct {
		name                  string
		acked, source, target []*kgo.Record
		ordered               bool
		want                  string // part of the problems, "" for none
		duplicates            int
	}{
		{name: "equal", acked: recs, source: recs, target: recs, ordered: true},
		{name: "copies too many", acked: recs, source: recs, target: slices.Concat(recs, recs[3:5]), ordered: true, duplicates: 2},
		{name: "unknown outcome", acked: without(4), source: recs, target: recs},
		{name: "missing", acked: recs, source: recs, target: without(4), want: "1 missing"},
		{name: "changed", acked: recs, source: recs, target: changed, want: "1 changed"},
		{name: "unexpected", acked: recs, source: recs, target: append(slices.Clone(recs), &other), want: "1 unexpected"},
		{name: "out of order", acked: recs, source: recs, target: swapped, ordered: true, want: "1 out of order"},
		{name: "order not wanted", acked: recs, source: recs, target: swapped},
		{name: "vanished", acked: recs, source: without(4), target: without(4), want: "1 confirmed records are not on the source"},
	} {
		v := judge(c.acked, c.source, c.target, c.ordered)
		got := v.problems()
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: problems %q, want %q", c.name, got, c.want)
		}
		if v.duplicates() != c.duplicates {
			t.Errorf("%s: %d duplicates, want %d", c.name, v.duplicates(), c.duplicates)
		}
	}
}
