package testenv

import "syscall"

// processAttr gives a broker its own process group, so that a ctrl-C at the
// terminal does not reach it, and has it killed when this process dies.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
