//go:build unix && !linux

package testenv

import "syscall"

// processAttr gives a broker its own process group, so that a ctrl-C at the
// terminal does not reach it. Only Linux can tie its life to this process.
func processAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
