package mirror_test

import (
	"testing"

	"github.com/onceover-mirror/onceover/testenv"
)

// A share group whose coordinator moves to another broker, while the old one
// stays up and answers NOT_COORDINATOR, keeps its members: what they are to
// read changes as before.
func TestCase8CoordinatorMoves(t *testing.T) {
	o := quick(nil)
	o.Nodes = 3
	w := newWorld(t, o)
	first := w.fill("a8-first", 1, 50, 8)
	f := w.flow("coordinator", "a8-.*")
	p := w.start(f)
	w.arrived("a8-first", len(first))
	group := w.shareGroup(f)
	for was, n := w.source.Fake().CoordinatorFor(group), 0; w.source.Fake().CoordinatorFor(group) == was; n++ {
		if n == 100 {
			t.Fatal("the coordinator does not move")
		}
		w.source.Fake().RehashCoordinators()
	}
	w.fill("a8-second", 1, 50, 9)
	w.arrived("a8-second", 50)
	w.drained(p, "coordinator", 2)
	p.Stop()
	w.same("a8-first", testenv.Compare{Unordered: true})
	w.same("a8-second", testenv.Compare{Unordered: true})
}
