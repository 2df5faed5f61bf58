package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// screen keeps what is printed, what is logged and the progress line out of
// each other's way. Safe for concurrent use.
type screen struct {
	// width of the terminal that shows the progress line; nil without one.
	width func() int

	mu       sync.Mutex
	out, err io.Writer
	line     string
}

func newScreen(out, err io.Writer) *screen {
	s := &screen{out: out, err: err}
	if file := terminal(err); file != nil {
		s.width = func() int {
			width, _, err := term.GetSize(int(file.Fd()))
			if err != nil {
				return 80
			}
			return width
		}
	}
	return s
}

// terminal returns w as a terminal that can move its cursor, or nil.
func terminal(w io.Writer) *os.File {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return file
}

// Write writes to the error stream; it is where the log goes.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	defer s.paint()
	return s.err.Write(p)
}

// say prints a line on the output stream.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintf(s.out, format+"\n", args...)
	s.paint()
}

// progress rewrites the progress line; "" takes it away. Without a terminal
// it does nothing.
func (s *screen) progress(line string) {
	if s.width == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.line = line
	s.paint()
}

func (s *screen) erase() {
	if s.line != "" {
		fmt.Fprint(s.err, "\r\x1b[K")
	}
}

func (s *screen) paint() {
	if s.line == "" {
		return
	}
	// One column stays free: many terminals wrap when the last is taken.
	text := []rune(s.line)
	fmt.Fprint(s.err, string(text[:min(len(text), max(0, s.width()-1))]))
}
