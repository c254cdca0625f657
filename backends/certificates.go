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

// TLS is what one side of TLS connections shows and whom it trusts. A change of
// the files behind it holds for connections that are opened later.
type TLS struct {
	KeyPair *KeyPair     // shown to the other side; nil: nothing is
	CA      *Authorities // who signs the other side's certificates; nil: see ServerConfig, WithTLS
	// Log is told when files are read again, and once for each change that leaves
	// them of no use; nil means slog.Default().
	Log *slog.Logger
}

// ServerConfig is for accepting connections, TLS 1.2 or later; t.Own is required.
// With t.CA a client must show a certificate that these, and nobody else, signed;
// crypto/tls asks that anew of the certificate of a session that is resumed.
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
		conf.ClientCAs = t.CA.get(t.Log).alone
	}
	return conf
}

// dialing is base, a server's own, with what t adds to it.
func (t *TLS) dialing(base *tls.Config) *tls.Config {
	conf := base.Clone()
	if t.CA != nil {
		conf.RootCAs = t.CA.get(t.Log).added
	}
	if t.KeyPair != nil {
		// Given as Certificates it would be withheld from a server that names other
		// authorities, whose complaint would then be that there was none.
		own := t.KeyPair.get(t.Log)
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	}
	return conf
}

// A KeyPair is a certificate with its chain, and its private key.
type KeyPair struct{ watched[*tls.Certificate] }

// ReadKeyPair reads two PEM files, which may be the same one.
func ReadKeyPair(cert, key string) (*KeyPair, error) {
	k := &KeyPair{watched[*tls.Certificate]{files: []string{cert, key}, parse: parseKeyPair}}
	return k, k.read()
}

// Leaf is the certificate that is shown now, without its chain.
func (k *KeyPair) Leaf(log *slog.Logger) *x509.Certificate { return k.get(log).Leaf }

// ExpiresSoon reports whether a certificate ends within two weeks and has less than a quarter
// of its time left, as one has that is not renewed when it should be, or has ended.
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

// Authorities sign the certificates of others.
type Authorities struct{ watched[roots] }

type roots struct {
	alone *x509.CertPool
	added *x509.CertPool // to the system's
}

// ReadAuthorities reads the certificates, at least one, in a PEM file.
func ReadAuthorities(file string) (*Authorities, error) {
	a := &Authorities{watched[roots]{files: []string{file}, parse: parseRoots}}
	return a, a.read()
}

func parseRoots(files []string, texts [][]byte) (roots, error) {
	certs, err := certificates(files[0], texts[0])
	if err != nil {
		return roots{}, err
	}
	r := roots{alone: x509.NewCertPool()}
	if r.added, err = x509.SystemCertPool(); err != nil {
		r.added = x509.NewCertPool() // a system without any
	}
	for _, c := range certs {
		r.alone.AddCert(c)
		r.added.AddCert(c)
	}
	return r, nil
}

// certificates are all those in the text of a PEM file, at least one.
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

// A watched value is parsed from files, again when one of them has changed. While
// they are of no use, as in the middle of a renewal, the last good value stays.
type watched[T any] struct {
	files []string
	parse func(files []string, texts [][]byte) (T, error)

	mu    sync.Mutex
	seen  []stamp // what the files were like when they were read last
	value T
}

// A stamp tells versions of a file apart. It is zero if there is no file.
type stamp struct {
	modified, size int64
	mode           fs.FileMode
}

// get is the value that the files have now. It is safe for concurrent use.
func (w *watched[T]) get(log *slog.Logger) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Equal(w.seen, w.stamps()) {
		return w.value
	}
	if log == nil {
		log = slog.Default()
	}
	if err := w.read(); err != nil {
		log.Warn("TLS files have changed but are of no use; what was read before stays in use", "error", err)
	} else {
		log.Info("TLS files have changed and were read again", "files", strings.Join(w.files, " "))
	}
	return w.value
}

// read takes the stamps first: what changes while it reads is read once more. The
// caller holds w.mu, or is the only one to know w.
func (w *watched[T]) read() error {
	w.seen = w.stamps()
	texts := make([][]byte, len(w.files))
	for i, name := range w.files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		texts[i] = text
	}
	value, err := w.parse(w.files, texts)
	if err != nil {
		return err
	}
	w.value = value
	return nil
}

func (w *watched[T]) stamps() []stamp {
	out := make([]stamp, len(w.files))
	for i, name := range w.files {
		if info, err := os.Stat(name); err == nil {
			out[i] = stamp{info.ModTime().UnixNano(), info.Size(), info.Mode()}
		}
	}
	return out
}
