package robust

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceover-mirror/onceover/testenv"
)

// verdict is what a comparison of source and target says.
type verdict struct {
	source, target int // records
	// vanished are records that the source had confirmed and does not have:
	// then the campaign says nothing about the mirror.
	vanished []string
	// copies is how source and target differ. Copies too many are permitted
	// unless exactly is set.
	copies  *testenv.Difference
	exactly bool
}

// judge compares the whole target topic with the whole source topic. ordered:
// first copies have to be in order.
func judge(acked, source, target []*kgo.Record, ordered bool) verdict {
	compare := testenv.Compare{IgnoreHeaders: []string{testenv.Provenance}, Unordered: !ordered}
	return verdict{
		source: len(source), target: len(target),
		vanished: compare.Diff(acked, source).Missing,
		copies:   compare.Diff(source, target),
	}
}

func (v verdict) duplicates() int { return len(v.copies.Duplicated) }

// problems says what is wrong, "" when the guarantee holds.
func (v verdict) problems() string {
	var b strings.Builder
	if n := len(v.vanished); n > 0 {
		fmt.Fprintf(&b, "%d confirmed records are not on the source itself, first %s\n", n, v.vanished[0])
	}
	bad, guarantee := *v.copies, "exactly once"
	if !v.exactly {
		bad.Duplicated, guarantee = nil, "at least once"
	}
	if s := bad.String(); s != "" {
		fmt.Fprintf(&b, "not "+guarantee+": %d records on the source, %d on the target, %d of them copies too many\n%s",
			v.source, v.target, v.duplicates(), s)
	}
	return b.String()
}
