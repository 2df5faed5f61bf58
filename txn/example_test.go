package txn_test

import (
	"fmt"

	"github.com/onceover-mirror/onceover/txn"
)

func ExampleRangeSet() {
	var s txn.RangeSet
	s.Add(0, 9)
	s.Add(15, 19)
	s.Add(10, 12)
	fmt.Println(s.Ranges(), s.Missing(0, 19))
	// Output: [{0 12} {15 19}] [{13 14}]
}
