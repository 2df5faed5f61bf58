// Package testenv holds worlds to test in: Kafka clusters embedded in the
// process (kfake) and real ones (Apache Kafka in KRaft mode, one JVM a node),
// behind one type, with helpers to fill, read and compare topics.
//
// It needs no *testing.T: [StartEmbedded] and [StartReal] return errors, and
// the helpers that can fail a test take the small interface [T].
package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/onceover-mirror/onceover/topology"
)

// T is what the helpers need of a test; *testing.T and *testing.B have it, and
// each method does what theirs does.
type T interface {
	// Helper marks the caller as no place to report.
	Helper()
	// Name of the test, with those above it.
	Name() string
	// Logf is shown when the test fails, or with -v.
	Logf(format string, args ...any)
	// Errorf marks the test as failed; it goes on.
	Errorf(format string, args ...any)
	// Fatalf marks the test as failed and ends its goroutine.
	Fatalf(format string, args ...any)
	// Skipf marks the test as skipped and ends its goroutine.
	Skipf(format string, args ...any)
	// Failed tells whether the test is marked as failed.
	Failed() bool
	// Cleanup has fn called when the test has ended, last one first.
	Cleanup(fn func())
	// Context ends just before the cleanups run.
	Context() context.Context
	// TempDir makes a folder that goes with the test.
	TempDir() string
}

// ErrEmbedded is returned by what only real clusters can do: stopping,
// killing, starting, pausing and resuming a node.
var ErrEmbedded = errors.New("an embedded cluster's nodes cannot be stopped, killed or paused; use a real cluster")

// User is a SASL login.
type User struct {
	// Mechanism is one of topology's Mechanism constants.
	Mechanism string
	Name      string
	Password  string
	// Super users bypass ACLs.
	Super bool
}

// admin is the super user of every cluster with SASL; its password is no
// secret, the clusters listen on the loopback interface alone.
var admin = User{Mechanism: topology.MechanismScramSHA512, Name: "admin", Password: "admin-password", Super: true}

// Cluster is one Kafka cluster, embedded or real. Its methods may be called
// concurrently.
type Cluster struct {
	name      string
	bootstrap []string
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	certs     *certs // nil: no TLS
	mutual    bool   // TLS clients show a certificate
	sasl      bool
	fake      *kfake.Cluster // nil on a real cluster
	front     *Front         // nil where there is none
	real      *realCluster   // nil on an embedded cluster
	stop      func() error
}

// Name says what kind of cluster this is, for test names: "embedded",
// "embedded 2.8", "real 4.4.0", "real 4.4.0 x3".
func (c *Cluster) Name() string { return c.name }

// Bootstrap returns the addresses of all nodes, host:port. They stay the same
// when a node is restarted.
func (c *Cluster) Bootstrap() []string { return slices.Clone(c.bootstrap) }

// Dial returns the dialer of the cluster's virtual network, nil for TCP.
func (c *Cluster) Dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	return c.dial
}

// Fake returns the kfake cluster, for faults and inspection; nil on a real
// cluster.
func (c *Cluster) Fake() *kfake.Cluster { return c.fake }

// Front returns what stands before the nodes of an embedded cluster, to make
// requests fail or to watch them; nil on a real cluster, with TLS, and where
// [EmbeddedOptions.Fake] replaces the listener.
func (c *Cluster) Front() *Front { return c.front }

// Opts returns the options with which any client reaches the cluster: seed
// brokers, dialer, TLS and, with SASL, the login of the admin (a super user).
func (c *Cluster) Opts() []kgo.Opt {
	if c.sasl {
		return c.OptsAs(admin)
	}
	return c.transport()
}

// OptsAs is [Cluster.Opts] with another login. The cluster must have SASL.
func (c *Cluster) OptsAs(u User) []kgo.Opt {
	return append(c.transport(), kgo.SASL(u.login()))
}

func (c *Cluster) transport() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(c.bootstrap...)}
	if c.certs != nil {
		opts = append(opts, kgo.DialTLSConfig(c.certs.client(c.mutual)))
	} else if c.dial != nil {
		opts = append(opts, kgo.Dialer(c.dial))
	}
	return opts
}

func (u User) login() sasl.Mechanism {
	switch u.Mechanism {
	case topology.MechanismPlain:
		return plain.Auth{User: u.Name, Pass: u.Password}.AsMechanism()
	case topology.MechanismScramSHA256:
		return scram.Auth{User: u.Name, Pass: u.Password}.AsSha256Mechanism()
	default:
		return scram.Auth{User: u.Name, Pass: u.Password}.AsSha512Mechanism()
	}
}

// Topology returns the declaration of the cluster under the given name, with
// certificates as PEM text and, with SASL, the admin's login. The caller may
// change it.
func (c *Cluster) Topology(name string) *topology.Cluster {
	t := &topology.Cluster{Name: name, Bootstrap: c.Bootstrap(), ClientID: "onceover"}
	if c.certs != nil {
		t.TLS = &topology.TLS{CAPEM: string(c.certs.caPEM)}
		if c.mutual {
			t.TLS.CertPEM = string(c.certs.clientPEM)
			t.TLS.KeyPEM = topology.Secret(c.certs.clientKeyPEM)
		}
	}
	if c.sasl {
		t.SASL = &topology.SASL{Mechanism: admin.Mechanism, Username: admin.Name, Password: topology.Secret(admin.Password)}
	}
	return t
}

// Close stops the cluster and removes what it made. It may be called more
// than once.
func (c *Cluster) Close() error {
	if err := c.stop(); err != nil {
		return fmt.Errorf("close cluster %s: %w", c.name, err)
	}
	return nil
}
