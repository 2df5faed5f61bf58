package mirror

import "testing"

func TestPace(t *testing.T) {
	p := newPace(50)
	for i, want := range []int{16, 32, 50, 50} {
		if p.now != want || p.full() != (want == 50) {
			t.Errorf("after %d acknowledgements: %d records, full %v; want %d", i, p.now, p.full(), want)
		}
		p.confirmed()
	}
	if p.slow(); p.now != 16 {
		t.Errorf("after a lost session: %d records, want 16", p.now)
	}
	if p := newPace(5); p.now != 5 || !p.full() {
		t.Errorf("%d records, more than the 5 that are permitted", p.now)
	}
}
