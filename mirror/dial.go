package mirror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/onceover-mirror/onceover/topology"
)

// softwareName is what brokers are told about who connects (KIP-511).
const softwareName = "onceover"

var softwareWord = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)

// softwareVersion is the module's version in the form that brokers accept,
// "dev" for a build that has none.
func softwareVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		v, _, _ := strings.Cut(info.Main.Version, "+")
		if softwareWord.MatchString(v) {
			return v
		}
	}
	return "dev"
}

// dialTimeout bounds the connection and the TLS handshake together.
const dialTimeout = 10 * time.Second

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dialer connects by dial (nil: TCP), with TLS on top unless secure is nil.
func dialer(dial dialFunc, secure *tls.Config) dialFunc {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil || secure == nil {
			return conn, err
		}
		cfg := secure.Clone()
		if cfg.ServerName == "" {
			if cfg.ServerName, _, err = net.SplitHostPort(address); err != nil {
				cfg.ServerName = address
			}
		}
		over := tls.Client(conn, cfg)
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("TLS handshake with %s: %w", address, err), conn.Close())
		}
		return over, nil
	}
}

// tlsConfig is nil for a plain text cluster.
func tlsConfig(c *topology.Cluster, readFile func(string) ([]byte, error)) (*tls.Config, error) {
	t := c.TLS
	if t == nil {
		return nil, nil //nolint:nilnil // no TLS is not an error
	}
	read := func(what, path, text string) ([]byte, error) {
		if path == "" {
			return []byte(text), nil
		}
		if readFile == nil {
			return nil, fmt.Errorf("read %s %s: no Options.ReadFile given", what, path)
		}
		data, err := readFile(path)
		if err != nil {
			return nil, &hinted{fmt.Errorf("read %s %s: %w", what, path, err), "paths are relative to the declaration's folder"}
		}
		return data, nil
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: t.ServerName,
		// #nosec G402 -- asked for by the operator, off by default.
		InsecureSkipVerify: t.SkipVerify,
	}
	ca, err := read("CA certificates", t.CAFile, t.CAPEM)
	if err != nil {
		return nil, err
	}
	if t.CAFile != "" || t.CAPEM != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(ca) {
			return nil, &hinted{fmt.Errorf("read CA certificates %s: no PEM certificate in it", pemPlace(t.CAFile)), pemHint}
		}
	}
	cert, err := read("client certificate", t.CertFile, t.CertPEM)
	if err != nil {
		return nil, err
	}
	key, err := read("client key", t.KeyFile, string(t.KeyPEM))
	if err != nil {
		return nil, err
	}
	if t.CertFile+t.CertPEM+t.KeyFile+string(t.KeyPEM) == "" {
		return cfg, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, &hinted{fmt.Errorf("read client certificate %s with key %s: %w", pemPlace(t.CertFile), pemPlace(t.KeyFile), err), pemHint}
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

const pemHint = "PEM is needed: -----BEGIN CERTIFICATE-----, and for the key an unencrypted -----BEGIN PRIVATE KEY-----"

// pemPlace names where PEM text came from.
func pemPlace(path string) string {
	if path == "" {
		return "(inline)"
	}
	return path
}
