package main

import "testing"

// Processes on one host have different names, and a name that is free again
// goes to the next one.
func TestInstanceNames(t *testing.T) {
	dir := t.TempDir()
	first, releaseFirst, err := claimInstance(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, releaseSecond, err := claimInstance(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer releaseSecond()
	if first == second {
		t.Fatalf("two claims are named %s", first)
	}
	releaseFirst()
	third, releaseThird, err := claimInstance(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer releaseThird()
	if third != first {
		t.Errorf("the freed name %s was not taken again, but %s", first, third)
	}
}
