package backends

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// TLS is the certificate of one side of TLS connections, and the authorities that it
// trusts. A change of the files counts for connections that are opened later.
type TLS struct {
	KeyPair *KeyPair     // shown to the other side; nil: none
	CA      *Authorities // of the other side's certificates; nil: see ServerConfig and Server.WithTLS
	Log     *slog.Logger // of files that are read again; nil means slog.Default()
}

// ServerConfig is for accepting connections, TLS 1.2 or later; t.KeyPair is required.
// With t.CA a client must show a certificate that one of these authorities signed;
// crypto/tls checks that again when a session is resumed.
func (t *TLS) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return t.accepting(), nil
		},
	}
}

func (t *TLS) accepting() *tls.Config {
	conf := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*t.KeyPair.get(t.Log)},
	}
	if t.CA != nil {
		conf.ClientAuth = tls.RequireAndVerifyClientCert
		conf.ClientCAs = t.CA.get(t.Log).only
	}
	return conf
}

// ClientConfig is for one connection to a server, TLS 1.2 or later. A later one may need another.
func (t *TLS) ClientConfig() *tls.Config { return t.dialing(&tls.Config{MinVersion: tls.VersionTLS12}) }

// dialing is base, a Server's configuration, with t's certificate and authorities.
func (t *TLS) dialing(base *tls.Config) *tls.Config {
	conf := base.Clone()
	if t.CA != nil {
		conf.RootCAs = t.CA.get(t.Log).withSystem
	}
	if t.KeyPair != nil {
		// crypto/tls withholds Certificates from a server that names other authorities,
		// which would then report that there is none.
		own := t.KeyPair.get(t.Log)
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	return conf
}

// A KeyPair is a certificate with its chain, and its private key.
type KeyPair struct{ reloaded[*tls.Certificate] }

// ReadKeyPair reads two PEM files, which may be the same.
func ReadKeyPair(cert, key string) (*KeyPair, error) {
	k := &KeyPair{reloaded[*tls.Certificate]{files: []string{cert, key}, parse: parseKeyPair}}
	return k, k.read()
}

// Leaf is the present certificate without its chain.
func (k *KeyPair) Leaf(log *slog.Logger) *x509.Certificate { return k.get(log).Leaf }

// ExpiresSoon reports whether a certificate has ended, or ends within two weeks and has
// less than a quarter of its time left: it should have been renewed.
func ExpiresSoon(c *x509.Certificate, now time.Time) bool {
	left := c.NotAfter.Sub(now)
	return left <= 0 || left < 14*24*time.Hour && left < c.NotAfter.Sub(c.NotBefore)/4
}

func parseKeyPair(files []string, texts [][]byte) (*tls.Certificate, error) {
	if _, err := certificates(files[0], texts[0]); err != nil {
		return nil, err
	}
	if !hasBlock(texts[1], func(kind string) bool { return kind == "PRIVATE KEY" || strings.HasSuffix(kind, " PRIVATE KEY") }) {
		return nil, fmt.Errorf("%s holds no private key in PEM", files[1])
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %s", files[0], files[1], strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &pair, nil
}

// Authorities are the certificates of authorities.
type Authorities struct{ reloaded[certPools] }

type certPools struct {
	only       *x509.CertPool // the file's
	withSystem *x509.CertPool // and the system's
}

// ReadAuthorities reads a PEM file with one certificate or more.
func ReadAuthorities(file string) (*Authorities, error) {
	a := &Authorities{reloaded[certPools]{files: []string{file}, parse: parseAuthorities}}
	return a, a.read()
}

func parseAuthorities(files []string, texts [][]byte) (certPools, error) {
	certs, err := certificates(files[0], texts[0])
	if err != nil {
		return certPools{}, err
	}
	r := certPools{only: x509.NewCertPool()}
	if r.withSystem, err = x509.SystemCertPool(); err != nil {
		r.withSystem = x509.NewCertPool() // a system without any
	}
	for _, c := range certs {
		r.only.AddCert(c)
		r.withSystem.AddCert(c)
	}
	return r, nil
}

// certificates are those in the text of a PEM file; none is an error.
func certificates(file string, text []byte) (certs []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", file, len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return certs, nil
}

func hasBlock(text []byte, of func(kind string) bool) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if of(block.Type) {
			return true
		}
	}
	return false
}

// A reloaded value is parsed from files, again when one of them has changed. While they
// cannot be parsed, as in the middle of a renewal, the last good value stays.
type reloaded[T any] struct {
	files []string
	parse func(files []string, texts [][]byte) (T, error)

	mu     sync.Mutex
	stamps []fileStamp // of the files when they were read last
	value  T
}

// A fileStamp tells versions of a file apart. It is zero if there is no file.
type fileStamp struct {
	modified, size int64
	mode           fs.FileMode
}

// get is the present value. It is safe for concurrent use.
func (r *reloaded[T]) get(log *slog.Logger) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.stamps, r.currentStamps()) {
		return r.value
	}
	if log == nil {
		log = slog.Default()
	}
	if err := r.read(); err != nil {
		log.Warn("TLS files have changed but are of no use; what was read before stays in use", "error", err)
	} else {
		log.Info("TLS files have changed and were read again", "files", strings.Join(r.files, " "))
	}
	return r.value
}

// read takes the stamps first, so that a file that changes meanwhile is read again. The
// caller holds r.mu, or r is not shared yet.
func (r *reloaded[T]) read() error {
	r.stamps = r.currentStamps()
	texts := make([][]byte, len(r.files))
	for i, name := range r.files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		texts[i] = text
	}
	value, err := r.parse(r.files, texts)
	if err != nil {
		return err
	}
	r.value = value
	return nil
}

func (r *reloaded[T]) currentStamps() []fileStamp {
	out := make([]fileStamp, len(r.files))
	for i, name := range r.files {
		if info, err := os.Stat(name); err == nil {
			out[i] = fileStamp{info.ModTime().UnixNano(), info.Size(), info.Mode()}
		}
	}
	return out
}
