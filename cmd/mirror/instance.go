package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// claimInstance names this process <hostname>-<n>, n being the lowest that no
// other process on this host has. A process that is started in place of a killed
// one gets its name, and with it its place in the source's groups, at once;
// under a new name it would wait until the group gives the old one up.
//
// The claim is an advisory lock on a file in dir, which ends with the process
// however that ends. release ends it before.
func claimInstance(dir string) (name string, release func(), err error) {
	host, err := os.Hostname()
	if err != nil {
		return "", nil, fmt.Errorf("name this process: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("name this process: %w", err)
	}
	const most = 1000
	for n := range most {
		name = host + "-" + strconv.Itoa(n)
		f, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return "", nil, fmt.Errorf("name this process: %w", err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return name, func() { _ = f.Close() }, nil // closing ends the lock
		}
		_ = f.Close() // nothing was written
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return "", nil, fmt.Errorf("name this process: lock %s: %w", f.Name(), err)
		}
	}
	return "", nil, fmt.Errorf("name this process: %d processes have a name in %s", most, dir)
}

// runtimeDir is where names are claimed: the user's runtime folder, else a
// folder of the user's own among the temporary files.
func runtimeDir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "onceover")
	}
	return filepath.Join(os.TempDir(), "onceover-"+strconv.Itoa(os.Getuid()))
}
