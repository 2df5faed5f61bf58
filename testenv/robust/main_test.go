package robust

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/onceover-mirror/onceover/testenv"
)

var (
	seed     = flag.Int64("seed", fromEnv(), "seed of the campaigns; also $ONCEOVER_SEED (default: the clock)")
	longForm = flag.Bool("long", os.Getenv("ONCEOVER_LONG") == "1", "run the long form of each campaign; also ONCEOVER_LONG=1")
)

func fromEnv() int64 {
	if n, err := strconv.ParseInt(os.Getenv("ONCEOVER_SEED"), 10, 64); err == nil {
		return n
	}
	return time.Now().UnixMilli()
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	// Campaigns wait more than they work: for sessions to end, for brokers.
	if err := flag.Set("test.parallel", "3"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
	long = *longForm
	dir, err := os.MkdirTemp("", "mirror-robust-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "mirror")
	pointed = filepath.Join(dir, "mirror-failpoint")
	for _, args := range [][]string{{"-o", binary}, {"-tags", "failpoint", "-o", pointed}} {
		if err := build(os.Stderr, args...); err != nil {
			fmt.Fprintln(os.Stderr, "build the binary:", err)
			return 1
		}
	}
	return m.Run()
}

// build builds the program.
func build(say io.Writer, args ...string) error {
	cmd := exec.Command("go", append(append([]string{"build"}, args...), "../../cmd/mirror")...)
	cmd.Stdout, cmd.Stderr = say, say
	return cmd.Run()
}

// quickSessions lets a broker notice a dead member of a group after 6 s instead
// of 45 s. Until then partitions that are assigned to it wait.
var quickSessions = map[string]string{
	"group.share.min.session.timeout.ms":       "6000",
	"group.share.session.timeout.ms":           "6000",
	"group.share.min.heartbeat.interval.ms":    "1000",
	"group.share.heartbeat.interval.ms":        "1000",
	"group.consumer.min.session.timeout.ms":    "6000",
	"group.consumer.session.timeout.ms":        "6000",
	"group.consumer.min.heartbeat.interval.ms": "1000",
	"group.consumer.heartbeat.interval.ms":     "1000",
}

func realSource(t *testing.T, nodes int) *testenv.Cluster {
	t.Helper()
	return testenv.Real(t, "4.4.0", testenv.RealOptions{Nodes: nodes, Config: quickSessions})
}

func realTarget(t *testing.T) *testenv.Cluster {
	t.Helper()
	return testenv.Real(t, "4.4.0")
}

// embeddedSource has the limits as broker settings that the mirror sets for its
// group: kfake knows them for the broker alone. The lock is short because kfake
// keeps records locked when a leader moves; a broker hands them out anew.
func embeddedSource(t *testing.T, nodes int) *testenv.Cluster {
	t.Helper()
	return testenv.Embedded(t, testenv.EmbeddedOptions{Nodes: nodes, Configs: map[string]string{
		"group.share.session.timeout.ms":       "6000",
		"group.share.heartbeat.interval.ms":    "1000",
		"group.share.record.lock.duration.ms":  "5000",
		"group.share.delivery.count.limit":     "10",
		"group.consumer.session.timeout.ms":    "6000",
		"group.consumer.heartbeat.interval.ms": "1000",
	}})
}

// farTarget is 50 ms away: a process that is killed takes the writes with it
// that are on their way.
func farTarget(t *testing.T) *testenv.Cluster {
	t.Helper()
	return testenv.Embedded(t, testenv.EmbeddedOptions{Fake: []kfake.Opt{kfake.ListenFn(slowWire(50 * time.Millisecond))}})
}
