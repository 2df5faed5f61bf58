package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/onceover-mirror/onceover/topology"
)

// layout is the configuration of a real cluster on disk.
type layout struct {
	o         *RealOptions
	dir       string
	clusterID string
	ports     []nodePorts
	tls       bool
}

// nodePorts: brokers and controllers talk among themselves in plain text on
// their own listeners, so that TLS, SASL and ACLs concern clients alone.
type nodePorts struct{ client, internal, controller int }

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func newLayout(o *RealOptions, dir string, cs *certs) (*layout, error) {
	l := &layout{o: o, dir: dir, clusterID: newUUID(), ports: make([]nodePorts, o.Nodes), tls: cs != nil}
	free, err := freePorts(3 * o.Nodes)
	if err != nil {
		return nil, err
	}
	for i := range l.ports {
		l.ports[i] = nodePorts{client: free[3*i], internal: free[3*i+1], controller: free[3*i+2]}
	}
	if l.tls {
		for name, data := range map[string][]byte{
			"server.pem": append(slices.Clone(cs.serverKeyPEM), cs.serverPEM...),
			"ca.pem":     cs.caPEM,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				return nil, err
			}
		}
	}
	for i := range l.ports {
		if err := os.WriteFile(l.properties(i), l.config(i), 0o600); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// freePorts finds ports below the range from which systems take the ports of
// outgoing connections: a client that dials a stopped node's port could
// otherwise be given that very port, and hold it.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		port := 12000 + rand.IntN(20000)
		if slices.Contains(ports, port) {
			continue
		}
		ln, err := net.Listen("tcp", hostPort(port))
		if err != nil {
			continue
		}
		_ = ln.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("find free ports: 1000 tries were not enough")
}

func (l *layout) properties(node int) string {
	return filepath.Join(l.dir, fmt.Sprintf("node-%d.properties", node))
}

func (l *layout) config(node int) []byte {
	p, nodes, minISR := l.ports[node], strconv.Itoa(len(l.ports)), "1"
	if len(l.ports) > 1 {
		minISR = "2"
	}
	var voters []string
	for i, p := range l.ports {
		voters = append(voters, fmt.Sprintf("%d@%s", i, hostPort(p.controller)))
	}
	protocol := "PLAINTEXT"
	switch {
	case l.tls && l.o.SASL:
		protocol = "SASL_SSL"
	case l.tls:
		protocol = "SSL"
	case l.o.SASL:
		protocol = "SASL_PLAINTEXT"
	}
	cfg := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(node),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"listeners":                      fmt.Sprintf("CLIENT://%s,INTERNAL://%s,CONTROLLER://%s", hostPort(p.client), hostPort(p.internal), hostPort(p.controller)),
		"advertised.listeners":           fmt.Sprintf("CLIENT://%s,INTERNAL://%s", hostPort(p.client), hostPort(p.internal)),
		"listener.security.protocol.map": "CLIENT:" + protocol + ",INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":     "INTERNAL",
		"controller.listener.names":      "CONTROLLER",
		"log.dirs":                       filepath.Join(l.dir, fmt.Sprintf("node-%d", node)),

		"auto.create.topics.enable":                        "false",
		"default.replication.factor":                       nodes,
		"min.insync.replicas":                              minISR,
		"offsets.topic.replication.factor":                 nodes,
		"transaction.state.log.replication.factor":         nodes,
		"transaction.state.log.min.isr":                    minISR,
		"share.coordinator.state.topic.replication.factor": nodes,
		"share.coordinator.state.topic.min.isr":            minISR,
		"group.initial.rebalance.delay.ms":                 "0",

		// A killed node may come back only when its session has ended: 9 s.
		"broker.session.timeout.ms":    "4000",
		"broker.heartbeat.interval.ms": "500",

		// Small: a test has a handful of topics and little memory.
		"offsets.topic.num.partitions":                 "4",
		"transaction.state.log.num.partitions":         "4",
		"share.coordinator.state.topic.num.partitions": "4",
		"num.network.threads":                          "2",
		"num.io.threads":                               "4",
		"background.threads":                           "2",
		"log.cleaner.dedupe.buffer.size":               "8388608",
	}
	l.secure(cfg)
	maps.Copy(cfg, l.o.Config)
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(cfg)) {
		fmt.Fprintf(&b, "%s=%s\n", k, strings.ReplaceAll(cfg[k], `\`, `\\`))
	}
	return b.Bytes()
}

// secure adds what TLS, SASL and ACLs need.
func (l *layout) secure(cfg map[string]string) {
	if l.tls {
		cfg["listener.name.client.ssl.keystore.type"] = "PEM"
		cfg["listener.name.client.ssl.keystore.location"] = filepath.Join(l.dir, "server.pem")
		cfg["listener.name.client.ssl.truststore.type"] = "PEM"
		cfg["listener.name.client.ssl.truststore.location"] = filepath.Join(l.dir, "ca.pem")
	}
	if l.o.MutualTLS {
		cfg["listener.name.client.ssl.client.auth"] = "required"
	}
	super := []string{"User:ANONYMOUS"} // the brokers among themselves
	if l.o.SASL {
		const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
		login := "org.apache.kafka.common.security.plain.PlainLoginModule required"
		for _, u := range l.users() {
			if u.Mechanism == topology.MechanismPlain {
				login += fmt.Sprintf(" user_%s=%q", u.Name, u.Password)
			}
			if u.Super {
				super = append(super, "User:"+u.Name)
			}
		}
		cfg["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
		cfg["listener.name.client.plain.sasl.jaas.config"] = login + ";"
		cfg["listener.name.client.scram-sha-256.sasl.jaas.config"] = scram
		cfg["listener.name.client.scram-sha-512.sasl.jaas.config"] = scram
	}
	if l.o.ACLs {
		cfg["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		cfg["super.users"] = strings.Join(super, ";")
	}
}

func (l *layout) users() []User { return append([]User{admin}, l.o.Users...) }

// format prepares the data folders of all nodes, at once because each is a
// JVM of its own.
func (l *layout) format(ctx context.Context, cp string) error {
	errs := make(chan error, len(l.ports))
	for i := range l.ports {
		go func() { errs <- l.formatNode(ctx, cp, i) }()
	}
	var all error
	for range l.ports {
		all = errors.Join(all, <-errs)
	}
	return all
}

func (l *layout) formatNode(ctx context.Context, cp string, node int) error {
	args := []string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", cp, "kafka.tools.StorageTool", "format", "-t", l.clusterID, "-c", l.properties(node),
	}
	if l.o.SASL {
		for _, u := range l.users() {
			if u.Mechanism != topology.MechanismPlain {
				args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", u.Mechanism, u.Name, u.Password))
			}
		}
	}
	for _, f := range slices.Sorted(maps.Keys(l.o.Features)) {
		args = append(args, "--feature", fmt.Sprintf("%s=%d", f, l.o.Features[f]))
	}
	if out, err := exec.CommandContext(ctx, "java", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format node %d: %w:\n%s", node, err, out)
	}
	return nil
}
