package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates for one test. It is not safe for concurrent use.
type Authority struct {
	File string // its own certificate, in PEM

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64 // serial number
}

// NewAuthority makes an authority for the length of the test.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir(), key: newKey(tb)}
	t := a.template("redistest authority")
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, a.key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.File = filepath.Join(a.dir, "ca.pem")
	writePEM(tb, a.File, "CERTIFICATE", der)
	return a
}

// Issue writes a certificate for 127.0.0.1 and localhost, of a server or a client,
// and its key into new files, or into those issued by that name before.
func (a *Authority) Issue(tb testing.TB, name string) (cert, key string) {
	tb.Helper()
	now := time.Now()
	return a.IssueFor(tb, name, now.Add(-time.Hour), now.Add(time.Hour))
}

// IssueFor is Issue for a time.
func (a *Authority) IssueFor(tb testing.TB, name string, from, to time.Time) (cert, key string) {
	tb.Helper()
	k, t := newKey(tb), a.template(name)
	t.NotBefore, t.NotAfter = from, to
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.IPAddresses, t.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, k.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		tb.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	writePEM(tb, cert, "CERTIFICATE", der)
	writePEM(tb, key, "PRIVATE KEY", private)
	return cert, key
}

// Client is the configuration of a client that trusts a alone. It has the certificate
// in these files; an empty name: none.
func (a *Authority) Client(tb testing.TB, cert, key string) *tls.Config {
	tb.Helper()
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	conf.RootCAs.AddCert(a.cert)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			tb.Fatal(err)
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return conf
}

func (a *Authority) template(name string) *x509.Certificate {
	a.last++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.last),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func writePEM(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
}

// StartTLS starts a Redis with a certificate of ca's, which demands one of ca's from
// its clients unless args say "--tls-auth-clients", "no". url is the rediss:// URL of
// its TLS port.
func StartTLS(tb testing.TB, ca *Authority, args ...string) (s *Server, url string) {
	tb.Helper()
	addr, err := FreeAddr()
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	cert, key := ca.Issue(tb, "redis-"+port)
	s = Start(tb, append([]string{"--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.File}, args...)...)
	return s, "rediss://" + addr
}
