package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// commands are all commands, in the order of the help text.
func commands() []*cli.Command {
	return []*cli.Command{
		runCommand(),
		validateCommand(),
		planCommand(),
		statusCommand(),
		resumeCommand(),
		ledgerCommand(),
		verifyCommand(),
		demoCommand(),
		versionCommand(),
	}
}

// newApp returns the program, which writes to the two streams and returns
// errors instead of printing them.
func newApp(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:      "mirror",
		HelpName:  "mirror",
		Usage:     "copy topics from one Kafka cluster to another",
		Version:   readBuild().version,
		Writer:    stdout,
		ErrWriter: stderr,
		Commands:  commands(),
		// A comma may be part of a regular expression.
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		OnUsageError:              flagError,
		Action:                    noCommand,
		Description: "Exit codes: 0 ok, 1 failed, 2 changes pending (plan), 3 findings (verify, ledger check), 64 usage or configuration.\n" +
			"A first SIGTERM or SIGINT finishes what is in flight, a second one stops at once.",
	}
	for _, c := range app.Commands {
		c.OnUsageError = flagError
		c.HideHelpCommand = true
		c.Action = withoutArguments(c.Action)
	}
	return app
}

// noCommand is what happens without a known command.
func noCommand(c *cli.Context) error {
	if !c.Args().Present() {
		return cli.ShowAppHelp(c)
	}
	name := c.Args().First()
	hint := "see mirror --help"
	if near := cli.SuggestCommand(c.App.Commands, name); near != "" {
		hint = near + " (" + hint + ")"
	}
	return &usageError{problem: fmt.Sprintf("unknown command %q", name), hint: hint}
}

// withoutArguments refuses what is left after the flags: a flag behind it
// would be ignored otherwise.
func withoutArguments(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Args().Present() {
			return &usageError{
				problem: fmt.Sprintf("unexpected argument %q", c.Args().First()),
				hint:    "put patterns in quotes, and see " + c.Command.HelpName + " --help",
			}
		}
		return action(c)
	}
}

// flagError turns the flag package's words into ours.
func flagError(c *cli.Context, err error, _ bool) error {
	problem := err.Error()
	if name, ok := strings.CutPrefix(problem, "flag provided but not defined: -"); ok {
		problem = "unknown flag --" + strings.TrimPrefix(name, "-")
	}
	return &usageError{problem: problem, hint: "see " + c.Command.HelpName + " --help"}
}
