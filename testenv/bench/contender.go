package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onceover-mirror/onceover/testenv"
	"github.com/onceover-mirror/onceover/topology"
)

// contender is one way to copy.
type contender struct {
	name string
	// external: not this project's.
	external bool
	// exact: it promises that nothing is there twice.
	exact bool
	start func(ctx context.Context, j job) (process, error)
}

// contenders in the order in which they run.
var contenders = []contender{
	{name: "share", start: onceover(topology.GuaranteeAtLeastOnce, topology.ReaderShare)},
	{name: "partition", start: onceover(topology.GuaranteeAtLeastOnce, topology.ReaderPartition)},
	{name: "exactly-once", start: onceover(topology.GuaranteeExactlyOnce, topology.ReaderPartition), exact: true},
	{name: "mm2", start: mirrorMaker2(""), external: true},
	{name: "mm2-exactly-once", start: mirrorMaker2(mm2ExactlyOnce), external: true, exact: true},
}

func names(list []contender) []string {
	var all []string
	for _, c := range list {
		all = append(all, c.name)
	}
	return all
}

// pick returns the contenders of those names, in their own order.
func pick(only []string) ([]contender, error) {
	for _, name := range only {
		if !slices.Contains(names(contenders), name) {
			return nil, fmt.Errorf("-only %s: there are %s", name, strings.Join(names(contenders), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(contenders), func(c contender) bool { return !slices.Contains(only, c.name) }), nil
}

// build makes the binary as it is shipped.
func build(ctx context.Context, out string) (string, error) {
	file, err := filepath.Abs(filepath.Join(out, "mirror"))
	if err != nil {
		return "", fmt.Errorf("build mirror: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", file, "github.com/onceover-mirror/onceover/cmd/mirror")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mirror: %w:\n%s", err, said)
	}
	return file, nil
}

// onceover runs the built binary, or with -profile the library in here.
func onceover(guarantee topology.Guarantee, read topology.Reader) func(context.Context, job) (process, error) {
	return func(ctx context.Context, j job) (process, error) {
		text := j.declaration(guarantee, read)
		if j.Profile {
			return runInside(ctx, j, text)
		}
		file, err := j.write("yaml", text)
		if err != nil {
			return nil, err
		}
		return j.launch(ctx, j.Binary, "run", "-f", file, "--listen", "127.0.0.1:0")
	}
}

// declaration leaves everything at its default that the comparison permits.
func (j job) declaration(guarantee topology.Guarantee, read topology.Reader) string {
	quoted := func(c *testenv.Cluster) string { return `"` + strings.Join(c.Bootstrap(), `", "`) + `"` }
	return fmt.Sprintf(`clusters:
  %[1]s: {bootstrap: [%[2]s]}
  west: {bootstrap: [%[3]s]}
flows:
  - name: %[1]s
    from: %[1]s
    to: west
    topics: [%[4]s]
    rename: "{cluster}.{topic}"
    guarantee: %[5]s
    read: %[6]s
    lanes: %[7]d
    properties: {producer.override.compression.type: %[8]s}
`, j.alias, quoted(j.source), quoted(j.target), j.from, guarantee, read, j.Lanes, j.Codec)
}

// mm2ExactlyOnce is what MirrorMaker 2 needs on top: support in the worker,
// which is the target's, a source consumer that reads committed records, and
// the REST server over which workers agree on who may write.
const mm2ExactlyOnce = `west.exactly.once.source.support = enabled
%[1]s.consumer.isolation.level = read_committed
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:0
`

// mirrorMaker2 runs it with more settings, in which %[1]s is the source.
func mirrorMaker2(more string) func(context.Context, job) (process, error) {
	return func(ctx context.Context, j job) (process, error) {
		classpath, err := testenv.MirrorMaker2Classpath(ctx)
		if err != nil {
			return nil, err
		}
		file, err := j.write("properties", j.properties(more))
		if err != nil {
			return nil, err
		}
		return j.launch(ctx, "java", "-Xms256m", "-Xmx1g",
			"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
			"-cp", classpath, "org.apache.kafka.connect.mirror.MirrorMaker", file)
	}
}

// properties has MirrorMaker 2 copy records and do nothing else, compressed as
// ours. Its flushes, batches and transactions are at their defaults.
func (j job) properties(more string) string {
	return fmt.Sprintf(`clusters = %[1]s, west
%[1]s.bootstrap.servers = %[2]s
west.bootstrap.servers = %[3]s
%[1]s->west.enabled = true
%[1]s->west.topics = %[4]s
tasks.max = %[5]d
west.producer.compression.type = %[6]s
replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
heartbeats.topic.replication.factor = 1
emit.offset-syncs.enabled = false
emit.checkpoints.enabled = false
emit.heartbeats.enabled = false
sync.topic.acls.enabled = false
sync.topic.configs.enabled = false
refresh.groups.enabled = false
`+more, j.alias, strings.Join(j.source.Bootstrap(), ","), strings.Join(j.target.Bootstrap(), ","), j.from, j.Lanes, j.Codec)
}
