package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

func validateCommand() *cli.Command {
	return &cli.Command{
		Name:  "validate",
		Usage: "check a declaration without connecting to anything",
		Description: "Prints every finding with its line, path and hint, and exits with 64 if there is any.\n" +
			"With --show it prints the declaration with all defaults, and where each setting of a flow comes from.",
		Flags: []cli.Flag{
			fileFlag(),
			&cli.BoolFlag{Name: "show", Usage: "print the whole declaration and each resolved setting with its origin"},
		},
		Action: func(c *cli.Context) error {
			if !c.IsSet("file") {
				return &usageError{problem: "no declaration given", hint: "use -f flow.yaml"}
			}
			d, err := parseFile(c.String("file"))
			if err != nil {
				return err
			}
			if c.Bool("show") {
				return show(c.App.Writer, d)
			}
			_, err = fmt.Fprintf(c.App.Writer, "%s: ok, %s, %s\n", d.place,
				plural(int64(len(d.Clusters)), "cluster"), plural(int64(len(d.Flows)), "flow"))
			return err
		},
	}
}

// show prints YAML that can be read back; the settings are comments in it.
func show(w io.Writer, d declaration) error {
	if _, err := w.Write(d.Canonical()); err != nil {
		return err
	}
	for _, f := range d.Flows {
		r, err := d.Resolve(f)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\n# flow %s: settings and where they come from\n", f.Name)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, s := range r.Settings {
			fmt.Fprintf(table, "#   %s\t%s\t%s\n", s.Key, cmp.Or(s.Value, `""`), s.Origin)
		}
		for _, group := range []struct{ what, name string }{
			{"group of the partition reader", r.GroupID}, {"group that keeps stops", r.StopsGroupID},
		} {
			fmt.Fprintf(table, "#   (%s)\t%s\tflow name\n", group.what, group.name)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}
