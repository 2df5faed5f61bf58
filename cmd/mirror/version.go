package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// build is what the binary knows about itself; unknown parts say so.
type build struct{ version, revision, goVersion string }

func readBuild() build {
	b := build{version: "unknown", revision: "unknown", goVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.version = info.Main.Version
	}
	dirty := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				dirty = " (modified)"
			}
		}
	}
	b.revision += dirty
	return b
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this program",
		Action: func(c *cli.Context) error {
			b := readBuild()
			_, err := fmt.Fprintf(c.App.Writer, "mirror %s\nrevision %s\n%s %s/%s\n", b.version, b.revision, b.goVersion, runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
