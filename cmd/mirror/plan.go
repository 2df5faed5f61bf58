package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/onceover-mirror/onceover/mirror"
)

func planCommand() *cli.Command {
	flags := append(topologyFlags(), &cli.BoolFlag{Name: "json", Usage: "print JSON"}, timeoutFlag())
	return &cli.Command{
		Name:  "plan",
		Usage: "show how each flow would run, and what that would make and alter",
		Description: "Asks both clusters and changes nothing: guarantee, reader and order with the reason for them, target topics\n" +
			"to be created, the ledger, groups, missing rights, and limits of the target that a copy would meet.\n" +
			"Exit codes: 0 nothing to do, 2 changes are pending, 1 something can't be done as declared.",
		Flags: append(flags, logFlags("")...),
		Action: func(c *cli.Context) error {
			d, err := declared(c)
			if err != nil {
				return err
			}
			m, err := connected(c, d)
			if err != nil {
				return err
			}
			p, err := timely(c, "plan", m.Plan)
			if perr := printPlan(c, p); perr != nil {
				return errors.Join(perr, err)
			}
			switch n := p.Blocked(); {
			case err != nil:
				return err
			case n > 0:
				return fmt.Errorf("plan: %s in the way, see above", plural(int64(n), "thing"))
			case p.Pending():
				return errChanges
			}
			return nil
		},
	}
}

func printPlan(c *cli.Context, p mirror.Plan) error {
	if c.Bool("json") {
		encoder := json.NewEncoder(c.App.Writer)
		encoder.SetIndent("", "  ")
		return encoder.Encode(p)
	}
	changes := 0
	for i, f := range p.Flows {
		if i > 0 {
			fmt.Fprintln(c.App.Writer)
		}
		if err := planText(c.App.Writer, f); err != nil {
			return err
		}
		changes += len(f.Changes)
	}
	_, err := fmt.Fprintf(c.App.Writer, "\n%s, %s pending\n", plural(int64(len(p.Flows)), "flow"), plural(int64(changes), "change"))
	return err
}

// planText prints the plan of one flow: how it would run, its topics, and what
// else there is to say.
func planText(w io.Writer, f mirror.FlowPlan) error {
	if f.Guarantee == "" {
		fmt.Fprintf(w, "%s (%s -> %s)\n", f.Name, f.From, f.To)
	} else {
		fmt.Fprintln(w, flowLine(mirror.FlowState{Name: f.Name, From: f.From, To: f.To, Guarantee: f.Guarantee, Reader: f.Reader, Order: f.Order, Why: f.Why}))
	}
	if f.Reason != "" {
		fmt.Fprintf(w, "can't run: %s\n", because(f.Reason, f.Hint))
	}
	if len(f.Topics) > 0 {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "TOPIC\tTARGET\tPARTITIONS\tCOMPACTED\tCOPIED")
		for _, t := range f.Topics {
			copied, compacted, partitions := "yes", "", "-"
			if !t.Copied {
				copied = "no: " + because(t.Reason, t.Hint)
			}
			if t.Compacted {
				compacted = "yes"
			}
			if t.Partitions > 0 {
				partitions = count(int64(t.Partitions))
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", t.Topic, t.Target, partitions, compacted, copied)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	section(w, "changes", f.Changes, changeText)
	section(w, "groups", f.Groups, func(g mirror.GroupPlan) string {
		state := "new"
		if g.Exists {
			state = "exists"
		}
		return fmt.Sprintf("%s on %s (%s): %s", g.Name, g.Cluster, state, g.Purpose)
	})
	section(w, "missing", f.Missing, adviceText)
	section(w, "warnings", f.Warnings, adviceText)
	section(w, "notes", f.Notes, func(n string) string { return n })
	return nil
}

// section prints a list with a head, or nothing.
func section[T any](w io.Writer, head string, list []T, text func(T) string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "%s:\n", head)
	for _, one := range list {
		fmt.Fprintf(w, "  %s\n", text(one))
	}
}

func changeText(c mirror.Change) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s on %s", c.Action, c.Name, c.Cluster)
	if c.Partitions > 0 {
		fmt.Fprintf(&b, ": %s", plural(int64(c.Partitions), "partition"))
	}
	if c.ReplicationFactor > 0 {
		fmt.Fprintf(&b, ", replication factor %d", c.ReplicationFactor)
	}
	for i, key := range slices.Sorted(maps.Keys(c.Configs)) {
		sep := ", "
		if i == 0 && c.Partitions == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s=%s", sep, key, c.Configs[key])
	}
	return b.String()
}

func adviceText(a mirror.Advice) string {
	if a.Topic == "" {
		return because(a.Problem, a.Hint)
	}
	return a.Topic + ": " + because(a.Problem, a.Hint)
}
