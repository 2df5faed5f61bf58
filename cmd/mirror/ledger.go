package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/onceover-mirror/onceover/mirror"
)

func ledgerCommand() *cli.Command {
	list := []*cli.Command{ledgerShowCommand(), ledgerCheckCommand()}
	list = append(list, ledgerChangeCommands()...)
	for _, c := range list {
		c.OnUsageError = flagError
		c.HideHelpCommand = true
		c.Action = withoutArguments(c.Action)
	}
	return &cli.Command{
		Name:  "ledger",
		Usage: "show, check and administer what exactly-once rests on",
		Description: "The ledger of a flow, a topic on its target, has the position of each source partition. show and check\n" +
			"only read; init, accept and resume tell what they would do, and do it with --yes.",
		Subcommands: list,
		Action:      cli.ShowSubcommandHelp,
	}
}

// ledgerFlags are those of the commands that read a ledger whole.
func ledgerFlags(flow string, more ...cli.Flag) []cli.Flag {
	patience := timeoutFlag().(*cli.DurationFlag)
	patience.Value = 2 * time.Minute
	flags := append(append(topologyFlags(), flowFlag(flow)), more...)
	return append(append(flags, patience), logFlags("")...)
}

func ledgerShowCommand() *cli.Command {
	return &cli.Command{
		Name:        "show",
		Usage:       "show positions, owners, gaps and map coverage",
		Description: "Needs no running mirror. It reads the ledger and the whole offset map.",
		Flags:       ledgerFlags("`NAME` of the flow (default: all)", &cli.BoolFlag{Name: "json", Usage: "print JSON"}),
		Action: func(c *cli.Context) error {
			list, err := ledgers(c)
			if c.Bool("json") {
				return errors.Join(ledgerJSON(c.App.Writer, list), err)
			}
			for i := range list {
				if i > 0 {
					fmt.Fprintln(c.App.Writer)
				}
				if perr := ledgerText(c.App.Writer, &list[i], time.Now()); perr != nil {
					return errors.Join(perr, err)
				}
			}
			return err
		},
	}
}

func ledgerCheckCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "judge the ledger: exit code 3 when something is found",
		Description: "Compares the ledger with both clusters, the offset map and the declaration, and names what voids the\n" +
			"guarantee with what to do about it. It changes nothing.",
		Flags: ledgerFlags("`NAME` of the flow (default: all)", &cli.BoolFlag{Name: "json", Usage: "print JSON"}),
		Action: func(c *cli.Context) error {
			list, err := ledgers(c)
			n := 0
			for i := range list {
				n += len(list[i].Findings)
				if !c.Bool("json") {
					ledgerFindings(c.App.Writer, &list[i])
				}
			}
			if c.Bool("json") {
				err = errors.Join(ledgerJSON(c.App.Writer, list), err)
			}
			switch {
			case err != nil:
				return err
			case n > 0:
				return errFindings
			}
			return nil
		},
	}
}

// ledgers reads the ledgers that --flow asks for. Those that could be read come
// with the error of those that could not.
func ledgers(c *cli.Context) ([]mirror.LedgerReport, error) {
	d, err := declared(c)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range d.Flows {
		names = append(names, f.Name)
	}
	if c.String("flow") != "" {
		one, err := oneFlow(c, d)
		if err != nil {
			return nil, err
		}
		names = []string{one}
	}
	m, err := connected(c, d)
	if err != nil {
		return nil, err
	}
	list := []mirror.LedgerReport{}
	var errs error
	for _, name := range names {
		r, err := timely(c, "read the ledger of flow "+name, func(ctx context.Context) (mirror.LedgerReport, error) { return m.Ledger(ctx, name) })
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		list = append(list, r)
	}
	return list, errs
}

func ledgerJSON(w io.Writer, list []mirror.LedgerReport) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(map[string]any{"flows": list})
}

func ledgerFindings(w io.Writer, r *mirror.LedgerReport) {
	switch {
	case !r.Exists:
		fmt.Fprintf(w, "%s: no ledger\n", r.Flow)
	case len(r.Findings) == 0:
		fmt.Fprintf(w, "%s: sound\n", r.Flow)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s: %s: %s\n", r.Flow, f.Place, f.Problem)
		if f.Hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", f.Hint)
		}
	}
}

// ledgerText prints a ledger for people.
func ledgerText(w io.Writer, r *mirror.LedgerReport, now time.Time) error {
	fmt.Fprintf(w, "%s (%s -> %s)\n", r.Flow, r.From, r.To)
	switch {
	case !r.Exists:
		_, err := fmt.Fprintln(w, "no ledger")
		return err
	case r.K == 0:
		fmt.Fprintf(w, "ledger %s, %s, nothing written yet\n", r.Topic, plural(int64(r.Partitions), "partition"))
	default:
		declared := "that of this declaration"
		if !r.Declared {
			declared = "NOT that of this declaration"
		}
		fmt.Fprintf(w, "ledger %s (id %s), %s, reader %s, generation %d\n", r.Topic, r.TopicID, plural(int64(r.K), "shard"), r.Reader, r.Generation)
		fmt.Fprintf(w, "cluster %s -> cluster %s, fingerprint %.12s, %s\n", r.SourceCluster, r.TargetCluster, r.Fingerprint, declared)
	}
	if s := r.Suspended; s != nil {
		fmt.Fprintf(w, "SUSPENDED since %s: %s; positions are of that time\n", s.Time.Format(time.RFC3339), s.Reason)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SHARD\tOWNER\tEND\tUNDECIDED\tLAST ENTRY\tPROBLEM")
	for _, s := range r.Shards {
		owner := "-"
		if s.Owner != nil {
			owner = s.Owner.Member
			if s.Owner.Instance != "" {
				owner = s.Owner.Instance
			}
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%s\t%s\n", s.Shard, owner, offsetText(s.Next), s.Undecided, ago(now, s.LastEntry), s.Problem)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := positionTable(w, r, now); err != nil {
		return err
	}
	for _, p := range r.Positions {
		for _, g := range p.Gaps {
			fmt.Fprintf(w, "gap: %s[%d] %d..%d, %s: %s\n", p.Topic, p.Partition, g.First, g.Last, g.Time.Format(time.RFC3339), g.Reason)
		}
	}
	if n := len(r.Findings); n > 0 {
		fmt.Fprintf(w, "%s: see mirror ledger check\n", plural(int64(n), "finding"))
	}
	return nil
}

func positionTable(w io.Writer, r *mirror.LedgerReport, now time.Time) error {
	if len(r.Positions) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TOPIC\tPARTITION\tSHARD\tSTART\tPOSITION\tAGE\tLAG\tMAP\tUNMAPPED\tSTARTED BECAUSE")
	for _, p := range r.Positions {
		topic := p.Topic
		if p.Gone {
			topic += " (gone, id " + p.TopicID + ")"
		}
		start, why, age := "-", "", "-"
		if s := p.Start; s != nil {
			start, why = offsetText(s.Position), s.Reason
			if s.Prior {
				start += "*"
			}
		}
		if f := p.Frontier; f != nil {
			age = ago(now, f.Time)
		}
		runs := "none"
		if p.Map.Runs > 0 {
			runs = fmt.Sprintf("%d..%d in %s", p.Map.First, p.Map.Last, plural(p.Map.Runs, "run"))
		}
		if !p.Map.Complete {
			runs += " (not read to its end)"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", topic, p.Partition, p.Shard, start, offsetText(p.Position), age,
			lagText(p.Lag), runs, offsetText(p.Map.Unmapped), why)
	}
	return table.Flush()
}

// offsetText is an offset or a number of them.
func offsetText(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

// ago is how long ago a time was.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return span(max(0, now.Sub(t))) + " ago"
}
