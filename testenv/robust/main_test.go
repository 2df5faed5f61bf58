package robust

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

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
	flag.Parse()
	long = *longForm
	dir, err := os.MkdirTemp("", "mirror-robust-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "mirror")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/mirror")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", err)
		return 1
	}
	return m.Run()
}

// quickSessions lets a broker of version 4 notice a dead member of a consumer
// group after 6 s instead of 45 s.
var quickSessions = map[string]string{
	"group.consumer.min.session.timeout.ms":    "6000",
	"group.consumer.session.timeout.ms":        "6000",
	"group.consumer.min.heartbeat.interval.ms": "1000",
	"group.consumer.heartbeat.interval.ms":     "1000",
}

func realSource(t *testing.T) *testenv.Cluster {
	t.Helper()
	return testenv.Real(t, "4.4.0", testenv.RealOptions{Config: quickSessions})
}

func realTarget(t *testing.T) *testenv.Cluster {
	t.Helper()
	return testenv.Real(t, "4.4.0")
}
