package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// RealOptions shape a real cluster. Only Version is required.
type RealOptions struct {
	// Version of Apache Kafka: "4.4.0" or "3.9.2". [Real] fills it in.
	Version string
	// Nodes, each broker and controller in one: 1 (default) or 3.
	Nodes int
	// Config overrides server.properties, for example
	// group.share.record.lock.duration.ms.
	Config map[string]string
	// Features finalises features at other levels than the version's own, for
	// example share.version=0 or transaction.version=1.
	Features map[string]int
	// TLS gives the client listener a certificate of a new authority;
	// MutualTLS has it demand one of the client, too.
	TLS       bool
	MutualTLS bool
	// SASL demands a login (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512). The admin is
	// always there; Users come on top.
	SASL  bool
	Users []User
	// ACLs denies what no ACL allows, except to super users. Needs SASL.
	ACLs bool
	// Dir holds data, configuration and logs, and is kept on Close. Default: a
	// temporary one, which is not.
	Dir string
	// Heap bounds the heap of each JVM, in MiB. Default: 512, with three nodes
	// 384.
	Heap int
	// FullJIT runs the JVM as in production, for measuring. Default: the
	// settings that start fastest, and make slower code.
	FullJIT bool
}

// realCluster is what a real [Cluster] has on top.
type realCluster struct {
	dir   string
	nodes []*node
}

func (r *realCluster) running() []int32 {
	var ids []int32
	for _, n := range r.nodes {
		if n.is(nodeUp) {
			ids = append(ids, n.id)
		}
	}
	return ids
}

func (r *realCluster) crashed() error {
	for _, n := range r.nodes {
		if err := n.crashed(); err != nil {
			return err
		}
	}
	return nil
}

func (r *realCluster) kill() error {
	var errs []error
	for _, n := range r.nodes {
		if !n.is(nodeDown) {
			errs = append(errs, n.kill(context.Background()))
		}
	}
	return errors.Join(errs...)
}

// StartReal starts Apache Kafka in KRaft mode on free ports of the loopback
// interface and waits until it is ready. ctx bounds the start alone. The
// first start of a version on a machine downloads it through Maven.
func StartReal(ctx context.Context, o RealOptions) (*Cluster, error) {
	if err := o.fill(); err != nil {
		return nil, fmt.Errorf("start real cluster: %w", err)
	}
	cp, err := classpath(ctx, o.Version)
	if err != nil {
		return nil, fmt.Errorf("start real cluster: %w", err)
	}
	// A port may be taken between being found free and being bound.
	for try := 1; ; try++ {
		c, err := startReal(ctx, &o, cp)
		if err == nil {
			return c, nil
		}
		if try == 3 || !errors.Is(err, errPortTaken) {
			return nil, fmt.Errorf("start real cluster: %w", err)
		}
	}
}

func (o *RealOptions) fill() error {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.Nodes != 1 && o.Nodes != 3 {
		return fmt.Errorf("%d nodes: 1 and 3 are possible", o.Nodes)
	}
	if o.ACLs && !o.SASL {
		return errors.New("ACLs need SASL, or every client is the same anonymous user")
	}
	if o.MutualTLS {
		o.TLS = true
	}
	if o.Heap == 0 {
		o.Heap = 512
		if o.Nodes > 1 {
			o.Heap = 384
		}
	}
	return nil
}

func startReal(ctx context.Context, o *RealOptions, cp string) (_ *Cluster, err error) {
	r := &realCluster{dir: o.Dir}
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "onceover-kafka-"); err != nil {
			return nil, err
		}
	}
	c := &Cluster{name: "real " + o.Version, sasl: o.SASL, mutual: o.MutualTLS, real: r}
	if o.Nodes > 1 {
		c.name = fmt.Sprintf("%s x%d", c.name, o.Nodes)
	}
	c.stop = sync.OnceValue(func() error {
		err := r.kill()
		if o.Dir == "" {
			err = errors.Join(err, os.RemoveAll(r.dir))
		}
		return err
	})
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if o.TLS {
		if c.certs, err = newCerts(); err != nil {
			return nil, err
		}
	}
	layout, err := newLayout(o, r.dir, c.certs)
	if err != nil {
		return nil, err
	}
	if err := layout.format(ctx, cp); err != nil {
		return nil, err
	}
	for i, p := range layout.ports {
		c.bootstrap = append(c.bootstrap, hostPort(p.client))
		r.nodes = append(r.nodes, &node{
			id:      int32(i),
			args:    append(o.jvm(cp), "kafka.Kafka", layout.properties(i)),
			logPath: filepath.Join(r.dir, fmt.Sprintf("node-%d.log", i)),
		})
	}
	if err := c.StartNode(ctx, c.Nodes()...); err != nil {
		return nil, err
	}
	return c, nil
}

// jvm returns the arguments of java before the main class.
func (o *RealOptions) jvm(cp string) []string {
	args := []string{
		"-Xms64m", fmt.Sprintf("-Xmx%dm", o.Heap), "-Xshare:auto", "-XX:+ExitOnOutOfMemoryError",
		"-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.showShortLogName=true",
		// Each start would print some thousand lines of settings.
		"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
		"-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=warn",
	}
	if !o.FullJIT {
		args = append(args, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
	}
	return append(args, "-cp", cp)
}

// Real is [StartReal] for a test: an error ends the test, the cluster is
// closed with it, and when the test has failed its logs are copied to the
// folder that $ONCEOVER_TEST_LOGS names, or their ends are logged. Without
// java and mvn the test is skipped, unless CI=true, where it fails.
func Real(t T, version string, o ...RealOptions) *Cluster {
	t.Helper()
	if ok, why := RealAvailable(); !ok {
		if os.Getenv("CI") == "true" {
			t.Fatalf("real Kafka %s: %s, and CI does without no test", version, why)
		}
		t.Skipf("real Kafka %s: %s", version, why)
	}
	var opts RealOptions
	if len(o) > 0 {
		opts = o[0]
	}
	opts.Version = version
	c, err := StartReal(t.Context(), opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.keepLogs(t)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return c
}

func (c *Cluster) keepLogs(t T) {
	to := os.Getenv("ONCEOVER_TEST_LOGS")
	for _, n := range c.real.nodes {
		log, err := os.ReadFile(n.logPath)
		if to == "" {
			t.Logf("log of node %d of cluster %s ends with (ONCEOVER_TEST_LOGS=folder keeps all of it; error: %v):\n%s", n.id, c.name, err, tail(log, 40))
			continue
		}
		// The name of the data folder tells two clusters of one test apart.
		name := fmt.Sprintf("%s-%s-%s-node-%d.log", t.Name(), c.name, filepath.Base(c.real.dir), n.id)
		path := filepath.Join(to, strings.NewReplacer("/", "_", " ", "_").Replace(name))
		if err == nil {
			err = os.MkdirAll(to, 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, log, 0o644)
		}
		t.Logf("log of node %d of cluster %s: %s (error: %v)", n.id, c.name, path, err)
	}
}
