//go:build !failpoint

package main

// failpoints is for tests, which build the program with the tag failpoint.
func failpoints(hooks clientHooks) clientHooks { return hooks }
