package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/onceover-mirror/onceover/mirror"
)

// folder is where the paths of a declaration start: its file's own folder, or
// the working directory ("") for the quick form.
type folder string

func (f folder) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(string(f), name)
}

// read returns the content of a file that the declaration names.
func (f folder) read(name string) ([]byte, error) { return os.ReadFile(f.path(name)) }

// open opens a file that the declaration names for appending, made readable
// for its owner only: records may be private. The file is in its folder for
// good when open returns, and belongs to this process until it is closed: lines
// of two writers would cut each other. A file that another one has is refused.
func (f folder) open(name string) (mirror.SyncWriter, error) {
	path := f.path(name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &mirror.Refusal{Problem: "another process, or another flow, writes to " + path, Hint: "give each a file of its own, or stop the other one"}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("sync the folder of %s: %w", path, err)
	}
	return file, nil
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if closeErr := dir.Close(); err == nil {
		err = closeErr
	}
	return err
}
