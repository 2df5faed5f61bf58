package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

func resumeCommand() *cli.Command {
	flags := append(topologyFlags(),
		flowFlag("`NAME` of the flow; may be left out where there is only one"),
		&cli.StringFlag{Name: "topic", Usage: "resume this source `TOPIC` only (default: all that are stopped)"},
		timeoutFlag())
	return &cli.Command{
		Name:  "resume",
		Usage: "let a share flow copy its stopped topics again",
		Description: "A topic of a share flow that met an error stays stopped for all processes, also after a restart,\n" +
			"until it is resumed. Remove the cause first. Running mirrors take it up at their next refresh.",
		Flags:  append(flags, logFlags("")...),
		Action: resume,
	}
}

func resume(c *cli.Context) error {
	d, err := declared(c)
	if err != nil {
		return err
	}
	flow, err := oneFlow(c, d)
	if err != nil {
		return err
	}
	m, err := connected(c, d)
	if err != nil {
		return err
	}
	topics, err := timely(c, "resume flow "+flow, func(ctx context.Context) ([]string, error) {
		return m.Resume(ctx, flow, c.String("topic"))
	})
	for _, topic := range topics {
		fmt.Fprintf(c.App.Writer, "%s: resumed %s\n", flow, topic)
	}
	if err == nil && len(topics) == 0 {
		fmt.Fprintf(c.App.Writer, "%s: nothing was stopped\n", flow)
	}
	return err
}

func flowFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "flow", Usage: usage} }

// oneFlow is the flow that --flow names, or the only one.
func oneFlow(c *cli.Context, d declaration) (string, error) {
	var names []string
	for _, f := range d.Flows {
		names = append(names, f.Name)
	}
	flow := c.String("flow")
	if flow == "" && len(names) == 1 {
		flow = names[0]
	}
	if !slices.Contains(names, flow) {
		return "", &usageError{problem: fmt.Sprintf("no flow is named %q", flow), hint: "use --flow with one of " + strings.Join(names, ", ")}
	}
	return flow, nil
}
