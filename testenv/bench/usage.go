package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times below /proc: 1/100 s on every architecture
// that Go runs on.
const tick = 10 * time.Millisecond

// cpuOf returns the CPU time that a process has used, all of its threads, in
// steps of 10 ms. It needs Linux, as everything in this file.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	_, cpu, err := parseStat(b)
	return cpu, err
}

// parseStat reads a /proc/PID/stat: parent, and user and system time.
func parseStat(b []byte) (parent int, cpu time.Duration, err error) {
	// The name, in brackets, may hold anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0, 0, fmt.Errorf("read CPU time: %d fields", len(f))
	}
	parent, err = strconv.Atoi(f[1])
	for _, s := range f[11:13] {
		n, nerr := strconv.Atoi(s)
		cpu += time.Duration(n) * tick
		err = errors.Join(err, nerr)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read CPU time: %w", err)
	}
	return parent, cpu, nil
}

// peakOf returns the most memory that a process ever had resident, in bytes.
// (The kernel's ru_maxrss of a child begins with that of its parent.)
func peakOf(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read peak memory: %w", err)
	}
	return kibibytes(b, "VmHWM:")
}

// kibibytes finds a line "name  n kB" and returns it in bytes.
func kibibytes(b []byte, name string) (int64, error) {
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read memory: no %s", name)
}

// load is the CPU time used so far by all of the machine, and by this process
// with its children: the brokers and the mirror.
type load struct{ all, family time.Duration }

func lookAtLoad() (load, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return load{}, fmt.Errorf("read CPU load: %w", err)
	}
	var l load
	if l.all, err = parseBusy(b); err != nil {
		return load{}, err
	}
	self := os.Getpid()
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return load{}, fmt.Errorf("read CPU load: %w", err)
	}
	for _, name := range list {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		parent, cpu, err := parseStat(b)
		if err != nil {
			return load{}, err
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if pid == self || parent == self {
			l.family += cpu
		}
	}
	return l, nil
}

// parseBusy sums the first line of /proc/stat without idle and I/O wait.
func parseBusy(b []byte) (time.Duration, error) {
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, errors.New("read CPU load: no line of all CPUs")
	}
	var busy time.Duration
	for i, s := range f[1:9] {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, fmt.Errorf("read CPU load: %w", err)
		}
		if i != 3 && i != 4 {
			busy += time.Duration(n) * tick
		}
	}
	return busy, nil
}

// checkProc tells early that figures can't be had here.
func checkProc() error {
	if _, err := os.Stat("/proc/self/stat"); errors.Is(err, fs.ErrNotExist) {
		return errors.New("CPU time and memory of a process are read from /proc: Linux is needed")
	}
	return nil
}
