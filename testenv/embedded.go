package testenv

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
)

// EmbeddedOptions shape an embedded cluster. The zero value is one node of
// the newest protocol versions on a TCP port of the loopback interface.
//
// A [Front] stands before it, unless it has TLS: there kfake is at the other
// end of the encryption. The front also keeps kfake from compacting ledger
// topics (onceover.*.ledger.internal), which it does without regard to open
// transactions: clients that set cleanup.policy=compact see it set, while
// kfake has "delete". Topics made by [kfake.Cluster] itself are not covered.
type EmbeddedOptions struct {
	// Nodes, default 1.
	Nodes int
	// MaxVersions plays an older broker. Default: the newest kfake knows.
	MaxVersions *kversion.Versions
	// ClusterID, default random.
	ClusterID string
	// TLS gives the nodes certificates of a new authority. There is no front.
	TLS bool
	// SASL demands a login. The admin is always there; Users come on top.
	SASL  bool
	Users []User
	// ACLs denies what no ACL allows, except to super users. Needs SASL.
	ACLs bool
	// Network replaces TCP, for testing/synctest; several clusters may share
	// one. It cannot be combined with TLS.
	Network *kfake.VirtualNetwork
	// Configs are broker configs, see [kfake.BrokerConfigs]. Default:
	// group.share.delivery.count.limit=10, which holds for every group.
	Configs map[string]string
	// Share has the front own the share groups, with KIP-1289 or as Kafka 4.4
	// has them. Default: kfake's own. It needs the front, and no ACLs.
	Share *ShareOptions
	// Log receives kfake's log at level info. Default: none.
	Log io.Writer
	// Fake are further options, applied last. A [kfake.ListenFn] among them
	// replaces the front.
	Fake []kfake.Opt
}

// StartEmbedded starts a cluster in this process. Topics are not made by
// themselves; topics made without a partition count get 1.
func StartEmbedded(o EmbeddedOptions) (*Cluster, error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.ACLs && !o.SASL {
		return nil, errors.New("start embedded cluster: ACLs need SASL, or every client is the same anonymous user")
	}
	if o.TLS && o.Network != nil {
		return nil, errors.New("start embedded cluster: TLS needs TCP, not a virtual network")
	}
	if o.Share != nil && (o.ACLs || o.TLS) {
		return nil, errors.New("start embedded cluster: the front's share groups know no ACLs, and TLS has no front")
	}
	c := &Cluster{name: "embedded", sasl: o.SASL}
	if o.MaxVersions != nil {
		c.name += " " + strings.TrimPrefix(strings.TrimPrefix(o.MaxVersions.VersionGuess(), "at least "), "v")
	}
	opts, err := o.fakeOpts(c)
	if err != nil {
		return nil, fmt.Errorf("start embedded cluster: %w", err)
	}
	if c.fake, err = kfake.NewCluster(opts...); err != nil {
		return nil, fmt.Errorf("start embedded cluster: %w", err)
	}
	c.bootstrap = c.fake.ListenAddrs()
	front := c.front
	if !front.started(c.fake) {
		c.front = nil
		if o.Share != nil {
			c.fake.Close()
			return nil, errors.New("start embedded cluster: Share needs the front, which a listener among the options replaces")
		}
	} else if front.share != nil {
		if err := front.share.start(c.Opts()); err != nil {
			c.fake.Close()
			return nil, fmt.Errorf("start embedded cluster: %w", err)
		}
	}
	c.stop = sync.OnceValue(func() error {
		// The front first: what it handles may ask kfake, which answers nothing
		// any more when it is closed.
		front.close()
		c.fake.Close()
		return nil
	})
	return c, nil
}

func (o *EmbeddedOptions) fakeOpts(c *Cluster) ([]kfake.Opt, error) {
	id := o.ClusterID
	if id == "" {
		id = newUUID()
	}
	opts := []kfake.Opt{kfake.ClusterID(id), kfake.DefaultNumPartitions(1)}
	listen := net.Listen
	if o.Network != nil {
		// The virtual network has no port 0. Two clusters may share it, hence
		// ports at random, each node its own.
		ports := make([]int, o.Nodes)
		first := 10000 + rand.IntN(40000)
		for i := range ports {
			ports[i] = first + i
		}
		c.dial, listen = o.Network.DialContext, o.Network.Listen
		opts = append(opts, kfake.Ports(ports...))
	} else {
		opts = append(opts, kfake.NumBrokers(o.Nodes))
	}
	if o.MaxVersions != nil {
		opts = append(opts, kfake.MaxVersions(o.MaxVersions))
	}
	if o.TLS {
		var err error
		if c.certs, err = newCerts(); err != nil {
			return nil, err
		}
		opts = append(opts, kfake.TLS(c.certs.server()))
	} else {
		c.front = newFront(listen, o.Share)
		opts = append(opts, kfake.ListenFn(c.front.accept))
	}
	if o.SASL {
		opts = append(opts, kfake.EnableSASL())
		for _, u := range append([]User{admin}, o.Users...) {
			if u.Super {
				opts = append(opts, kfake.Superuser(u.Mechanism, u.Name, u.Password))
			} else {
				opts = append(opts, kfake.User(u.Mechanism, u.Name, u.Password))
			}
		}
	}
	if o.ACLs {
		opts = append(opts, kfake.EnableACLs())
	}
	if o.Log != nil {
		opts = append(opts, kfake.WithLogger(kfake.BasicLogger(o.Log, kfake.LogLevelInfo)))
	}
	// kfake takes a group's own delivery limit and does not look at it: the
	// broker's is the highest that a flow asks for, or a test would burn
	// deliveries that its flow believes to have.
	configs := map[string]string{"group.share.delivery.count.limit": "10"}
	maps.Copy(configs, o.Configs)
	opts = append(opts, kfake.BrokerConfigs(configs))
	return append(opts, o.Fake...), nil
}

// Embedded is [StartEmbedded] for a test: an error ends the test, and the
// cluster is closed with it. A [Fault] that was armed and never happened fails
// the test. Without options it is the default cluster.
func Embedded(t T, o ...EmbeddedOptions) *Cluster {
	t.Helper()
	var opts EmbeddedOptions
	if len(o) > 0 {
		opts = o[0]
	}
	c, err := StartEmbedded(opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("%v", err)
		}
		if c.front != nil {
			c.front.mustHaveFired(t)
		}
	})
	return c
}

// Old returns options for an embedded cluster that plays the given Kafka
// version, for example kversion.V2_8_0().
func Old(v *kversion.Versions) EmbeddedOptions { return EmbeddedOptions{MaxVersions: v} }
