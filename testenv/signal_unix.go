//go:build unix

package testenv

import (
	"os"
	"syscall"
)

const (
	sigPause  = syscall.SIGSTOP
	sigResume = syscall.SIGCONT
)

// lockFile waits for the lock on f, which ends with the file being closed.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
