package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// certs are an authority and what it signed: a server certificate for
// localhost and 127.0.0.1, and a client certificate.
type certs struct {
	pool         *x509.CertPool
	caPEM        []byte
	serverPEM    []byte
	serverKeyPEM []byte // PKCS #8, which is all that Kafka reads
	clientPEM    []byte
	clientKeyPEM []byte
	serverCert   tls.Certificate
	clientCert   tls.Certificate
}

func newCerts() (*certs, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	// Bubbles of testing/synctest start in the year 2000, real brokers live
	// now: valid in both.
	notBefore, notAfter := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Onceover test authority"},
		NotBefore: notBefore, NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	c := &certs{pool: x509.NewCertPool(), caPEM: pemBlock("CERTIFICATE", caDER)}
	c.pool.AppendCertsFromPEM(c.caPEM)

	issue := func(serial int64, name string, usage x509.ExtKeyUsage) (cert, key []byte, pair tls.Certificate, err error) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, pair, err
		}
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: notBefore, NotAfter: notAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}, ca, k.Public(), caKey)
		if err != nil {
			return nil, nil, pair, err
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			return nil, nil, pair, err
		}
		cert, key = pemBlock("CERTIFICATE", der), pemBlock("PRIVATE KEY", pkcs8)
		pair, err = tls.X509KeyPair(cert, key)
		return cert, key, pair, err
	}
	if c.serverPEM, c.serverKeyPEM, c.serverCert, err = issue(2, "localhost", x509.ExtKeyUsageServerAuth); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	if c.clientPEM, c.clientKeyPEM, c.clientCert, err = issue(3, "onceover", x509.ExtKeyUsageClientAuth); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	return c, nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (c *certs) server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c.serverCert}, MinVersion: tls.VersionTLS12}
}

func (c *certs) client(mutual bool) *tls.Config {
	cfg := &tls.Config{RootCAs: c.pool, MinVersion: tls.VersionTLS12}
	if mutual {
		cfg.Certificates = []tls.Certificate{c.clientCert}
	}
	return cfg
}

// newUUID returns a random id in Kafka's way: 16 bytes, base64 without
// padding, and no leading dash, which tools would take for a flag.
func newUUID() string {
	for {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		if s := base64.RawURLEncoding.EncodeToString(id[:]); s[0] != '-' {
			return s
		}
	}
}
