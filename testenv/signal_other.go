//go:build !unix

package testenv

import (
	"os"
	"syscall"
)

// Pausing is not known here: sending this signal returns an error.
const (
	sigPause  = syscall.Signal(19)
	sigResume = syscall.Signal(18)
)

func processAttr() *syscall.SysProcAttr { return nil }

// lockFile does nothing where there is no flock: the rename at the end of a
// download is atomic, the lock only saves doing it twice.
func lockFile(*os.File) error { return nil }
