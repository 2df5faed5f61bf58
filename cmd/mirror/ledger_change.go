package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/onceover-mirror/onceover/mirror"
)

func ledgerChangeCommands() []*cli.Command {
	yes := &cli.BoolFlag{Name: "yes", Usage: "do it; without, what would be done is told and asked for"}
	which := "`NAME` of the flow; may be left out where there is only one"
	return []*cli.Command{
		{
			Name:  "init",
			Usage: "found a ledger that was lost",
			Description: "A flow refuses to begin with an empty ledger when something tells that it copied before: to begin anew\n" +
				"would copy records again, or skip some. This says where each partition begins, and founds the ledger there.\n" +
				"A first run founds its ledger by itself.",
			Flags: ledgerFlags(which,
				&cli.BoolFlag{Name: "accept", Usage: "required: begin although the flow has copied before"},
				&cli.StringFlag{
					Name: "at", Value: string(mirror.LedgerFromCommitted),
					Usage: "`PLACE` to begin: committed (the group at the source, or the offset map where it goes further), earliest or latest",
				}, yes),
			Action: func(c *cli.Context) error {
				if !c.Bool("accept") {
					return &usageError{problem: "a ledger is only founded by hand where one was lost", hint: "see mirror ledger init --help, and add --accept"}
				}
				from := mirror.LedgerFrom(c.String("at"))
				switch from {
				case mirror.LedgerFromCommitted, mirror.LedgerFromEarliest, mirror.LedgerFromLatest:
				default:
					return &usageError{problem: fmt.Sprintf("--at %q", from), hint: "use committed, earliest or latest"}
				}
				return changeLedger(c, mirror.LedgerChange{Action: mirror.LedgerInit, From: from})
			},
		},
		{
			Name:  "accept",
			Usage: "take a changed declaration as the flow's",
			Description: "The ledger is bound to what decides the bytes and the place of copies (rename, provenance). After a change\n" +
				"the flow refuses to run until it is accepted; then processes with the old declaration refuse.",
			Flags:  ledgerFlags(which, yes),
			Action: func(c *cli.Context) error { return changeLedger(c, mirror.LedgerChange{Action: mirror.LedgerAccept}) },
		},
		{
			Name:  "resume",
			Usage: "go back to exactly-once after at-least-once",
			Description: "A run with guarantee: at-least-once suspends the ledger. When all of its processes have ended, this takes\n" +
				"over how far they got: nothing is copied again, nothing is left out.",
			Flags:  ledgerFlags(which, yes),
			Action: func(c *cli.Context) error { return changeLedger(c, mirror.LedgerChange{Action: mirror.LedgerResume}) },
		},
	}
}

// changeLedger tells what a change does, asks, and makes it.
func changeLedger(c *cli.Context, change mirror.LedgerChange) error {
	d, err := declared(c)
	if err != nil {
		return err
	}
	if change.Flow, err = oneFlow(c, d); err != nil {
		return err
	}
	m, err := connected(c, d)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("ledger %s of flow %s", change.Action, change.Flow)
	plan, err := timely(c, what, func(ctx context.Context) (mirror.LedgerPlan, error) { return m.PlanLedger(ctx, change) })
	if err != nil {
		return err
	}
	if len(plan.Steps) == 0 {
		_, err := fmt.Fprintf(c.App.Writer, "%s: nothing to do\n", change.Flow)
		return err
	}
	if err := ledgerPlanText(c.App.Writer, change.Flow, plan); err != nil {
		return err
	}
	if !c.Bool("yes") {
		if err := confirmed(c); err != nil {
			return err
		}
	}
	done, err := timely(c, what, func(ctx context.Context) (mirror.LedgerPlan, error) { return m.ChangeLedger(ctx, change) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s: done, %s\n", change.Flow, plural(int64(len(done.Places)), "position"))
	return err
}

func ledgerPlanText(w io.Writer, flow string, plan mirror.LedgerPlan) error {
	for _, s := range plan.Steps {
		fmt.Fprintf(w, "%s: %s\n", flow, s)
	}
	if len(plan.Places) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TOPIC\tPARTITION\tBEGINS AT\tLOG\tMEANING\tBECAUSE")
	for _, p := range plan.Places {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d..%d\t%s\t%s\n", p.Topic, p.Partition, p.From, p.Start, p.End, p.Meaning(), p.Why)
	}
	return table.Flush()
}

// confirmed asks a person; where there is none it refuses.
func confirmed(c *cli.Context) error {
	in, ok := c.App.Reader.(*os.File)
	if !ok || terminal(in) == nil {
		return &usageError{problem: "nothing was changed", hint: "add --yes to do it"}
	}
	fmt.Fprint(c.App.Writer, "Type yes to do it: ")
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "yes" {
		return &usageError{problem: "nothing was changed"}
	}
	return nil
}
