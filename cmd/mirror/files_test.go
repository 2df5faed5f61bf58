package main

import (
	"errors"
	"testing"

	"github.com/onceover-mirror/onceover/mirror"
)

// A file has one writer, and is free again when that closes it.
func TestFileHasOneWriter(t *testing.T) {
	dir := folder(t.TempDir())
	first, err := dir.open("out.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	_, err = dir.open("out.jsonl")
	var refusal *mirror.Refusal
	if !errors.As(err, &refusal) || refusal.Hint == "" {
		t.Fatalf("a second writer: %v, want a refusal with a hint", err)
	}
	wantText(t, "refusal", refusal.Problem, dir.path("out.jsonl"))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := dir.open("out.jsonl")
	if err != nil {
		t.Fatalf("after it was closed: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
