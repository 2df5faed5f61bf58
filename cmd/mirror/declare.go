package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/onceover-mirror/onceover/mirror"
	"github.com/onceover-mirror/onceover/topology"
)

const quickCategory = "One flow without a file"

// fileFlag names the declaration.
func fileFlag() cli.Flag {
	return &cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "read the flows from `FILE` (YAML)", TakesFile: true}
}

// quickFlags tell one flow without a file.
func quickFlags() []cli.Flag {
	text := func(name, usage string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, Category: quickCategory}
	}
	texts := func(name, usage string) cli.Flag {
		return &cli.StringSliceFlag{Name: name, Usage: usage, Category: quickCategory}
	}
	return []cli.Flag{
		texts("from", "source cluster, `HOST:PORT,...`"),
		texts("to", "target cluster, `HOST:PORT,...`"),
		text("client-properties-from", "security settings of the source, a Kafka client.properties `FILE`"),
		text("client-properties-to", "security settings of the target, a Kafka client.properties `FILE`"),
		texts("topics", "copy these topics: names or regular expressions, `PATTERN,...`"),
		texts("exclude", "but not these, `PATTERN,...`"),
		text("rename", "`TEMPLATE` of target topic names with {topic} and {cluster} (default: the same name)"),
		text("guarantee", "at-least-once, exactly-once or auto (default: auto)"),
		text("read", "share, partition or auto (default: auto)"),
		&cli.BoolFlag{Name: "ordered", Usage: "keep the order per partition; --ordered=false: never needed (default: where a topic is compacted)", Category: quickCategory, DisableDefaultText: true},
		text("start", "earliest or latest, in a topic that was never read before (default: earliest)"),
		text("on-error", "stop or skip, for a record that the target refuses for good (default: stop)"),
		&cli.IntFlag{Name: "lanes", Usage: "parallel workers of an at-least-once flow", Category: quickCategory, DefaultText: "2"},
		text("name", "`NAME` of the flow; group names on the source derive from it (default: quick)"),
	}
}

// topologyFlags are those from which [declared] makes a topology.
func topologyFlags() []cli.Flag { return append([]cli.Flag{fileFlag()}, quickFlags()...) }

// declaration is a topology with the place that its file names refer to.
type declaration struct {
	*topology.Topology
	folder folder
	// place is the file, or "the command line".
	place string
}

// options returns those of mirror.Options that follow from the declaration.
func (d declaration) options() mirror.Options {
	return mirror.Options{Topology: d.Topology, ReadFile: d.folder.read, OpenFile: d.folder.open}
}

// declared makes the topology from the file or from the quick flags.
func declared(c *cli.Context) (declaration, error) {
	var quick []string
	for _, f := range quickFlags() {
		if name := f.Names()[0]; c.IsSet(name) {
			quick = append(quick, "--"+name)
		}
	}
	switch {
	case c.IsSet("file") && len(quick) > 0:
		return declaration{}, &usageError{
			problem: "--file together with " + strings.Join(quick, ", "),
			hint:    "either name a file or tell the flow by flags; mirror run ... --print-topology turns flags into a file",
		}
	case c.IsSet("file"):
		return parseFile(c.String("file"))
	case len(quick) == 0:
		return declaration{}, &usageError{
			problem: "no flow given",
			hint:    "use -f flow.yaml, or --from HOST:PORT --to HOST:PORT --topics 'orders.*'",
		}
	}
	return quickFlow(c)
}

func parseFile(name string) (declaration, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return declaration{}, &usageError{problem: "read the declaration: " + err.Error()}
	}
	t, err := topology.Parse(name, data, os.LookupEnv)
	if err != nil {
		return declaration{}, err
	}
	return declaration{t, folder(filepath.Dir(name)), name}, nil
}

func quickFlow(c *cli.Context) (declaration, error) {
	q := topology.QuickFlow{
		Name: c.String("name"),
		From: c.StringSlice("from"), To: c.StringSlice("to"),
		Topics: patterns(c.StringSlice("topics")), Exclude: patterns(c.StringSlice("exclude")),
		Rename:    c.String("rename"),
		Guarantee: c.String("guarantee"),
		Read:      c.String("read"),
		Start:     c.String("start"),
		OnError:   c.String("on-error"),
		Lanes:     c.Int("lanes"),
	}
	if c.IsSet("ordered") {
		q.Ordered = strconv.FormatBool(c.Bool("ordered"))
	}
	if c.IsSet("lanes") && q.Lanes < 1 {
		return declaration{}, &usageError{problem: fmt.Sprintf("--lanes %d: at least one is needed", q.Lanes)}
	}
	for _, side := range []struct {
		flag       string
		properties *map[string]string
	}{{"client-properties-from", &q.FromProperties}, {"client-properties-to", &q.ToProperties}} {
		name := c.String(side.flag)
		if name == "" {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return declaration{}, &usageError{problem: "--" + side.flag + ": " + err.Error()}
		}
		if *side.properties, err = parseProperties(data); err != nil {
			return declaration{}, &usageError{problem: fmt.Sprintf("--%s: %s: %v", side.flag, name, err)}
		}
	}
	t, err := topology.Quick(q)
	if err != nil {
		return declaration{}, err
	}
	return declaration{t, "", "the command line"}, nil
}

// patterns splits each value at the commas that stand outside of all
// brackets. No topic name holds a comma, so that nothing else can be meant.
func patterns(values []string) []string {
	var list []string
	add := func(p string) {
		if p = strings.TrimSpace(p); p != "" {
			list = append(list, p)
		}
	}
	for _, v := range values {
		depth, start := 0, 0
		for i := 0; i < len(v); i++ {
			switch {
			case v[i] == ',' && depth == 0:
				add(v[start:i])
				start = i + 1
			case v[i] == '\\':
				i++
			case strings.IndexByte("([{", v[i]) >= 0:
				depth++
			case strings.IndexByte(")]}", v[i]) >= 0:
				depth--
			}
		}
		add(v[start:])
	}
	return list
}
