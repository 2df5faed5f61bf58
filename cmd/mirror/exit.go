package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/go-multierror"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/topology"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	// exitChanges: plan found something to make or alter.
	exitChanges = 2
	// exitFindings: a check found something.
	exitFindings = 3
	// exitUsage: the command line or the declaration is wrong; nothing was
	// done.
	exitUsage = 64
)

// errChanges is how plan tells of changes that are pending; it printed them.
var errChanges = errors.New("changes are pending")

// errFindings is how a check tells that it found something; it printed that.
var errFindings = errors.New("something was found")

// usageError is a mistake in the command line or in what it names.
type usageError struct {
	problem string
	hint    string // may be empty
}

// Error returns the problem without the hint.
func (e *usageError) Error() string { return e.problem }

// report tells the operator about err, if any, and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errChanges) {
		return exitChanges
	}
	if errors.Is(err, errFindings) {
		return exitFindings
	}
	code, findings := exitFailed, 0
	for _, one := range flatten(err) {
		var (
			usage   *usageError
			finding *topology.Finding
			refusal *mirror.Refusal
		)
		switch {
		case errors.As(one, &finding):
			code = exitUsage
			findings++
			fmt.Fprintln(w, finding.Error())
		case errors.As(one, &usage):
			code = exitUsage
			complain(w, one.Error(), usage.hint)
		case errors.As(one, &refusal):
			complain(w, "flow "+refusal.Flow+": "+refusal.Problem, refusal.Hint)
		default:
			complain(w, one.Error(), "")
		}
	}
	switch findings {
	case 0:
	case 1:
		fmt.Fprintln(w, "mirror: 1 finding")
	default:
		fmt.Fprintf(w, "mirror: %d findings\n", findings)
	}
	return code
}

func complain(w io.Writer, problem, hint string) {
	fmt.Fprintln(w, "mirror: "+problem)
	if hint != "" {
		fmt.Fprintln(w, "  hint: "+hint)
	}
}

// flatten takes apart an error that stands for several.
func flatten(err error) []error {
	var list []error
	var all *multierror.Error
	if errors.As(err, &all) {
		list = all.Errors
	} else if joined, ok := err.(interface{ Unwrap() []error }); ok {
		// Only the outermost is taken apart: what is below is part of its
		// message.
		list = joined.Unwrap()
	} else {
		return []error{err}
	}
	var flat []error
	for _, one := range list {
		flat = append(flat, flatten(one)...)
	}
	return flat
}
