package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/proxy"
)

// tlsSettings are the settings of TLS, first those for clients.
func (o *options) tlsSettings() []setting {
	return []setting{
		{name: "tls-cert", usage: "the PEM `file` of the certificate, with its chain, that clients are shown; they must then speak TLS, 1.2 or later", read: fileName(&o.clientFiles.cert)},
		{name: "tls-key", usage: "the PEM `file` of the private key of tls-cert", read: fileName(&o.clientFiles.key)},
		{name: "tls-client-ca", usage: "clients must show a certificate signed by an authority in this PEM `file`", read: fileName(&o.clientFiles.ca)},
		{name: "tls-ca", usage: "a PEM `file` of authorities that rediss:// servers may be signed by, besides the system's", read: fileName(&o.serverFiles.ca)},
		{name: "tls-server-cert", usage: "the PEM `file` of the certificate, with its chain, that rediss:// servers are shown", read: fileName(&o.serverFiles.cert)},
		{name: "tls-server-key", usage: "the PEM `file` of the private key of tls-server-cert", read: fileName(&o.serverFiles.key)},
	}
}

// tlsFiles are the files of TLS for one side; empty: not given.
type tlsFiles struct{ cert, key, ca string }

func fileName(field *string) func(string) error {
	return func(text string) error {
		*field = text
		if text == "" {
			return errors.New("is empty; name a file")
		}
		return nil
	}
}

// readTLS reads the files of TLS into o.clientTLS and o.serverTLS. It returns their faults
// and those between the settings.
func (o *options) readTLS() (bad faults) {
	var more faults
	o.clientTLS, bad = o.clientFiles.read("tls-cert", "tls-key", "tls-client-ca")
	o.serverTLS, more = o.serverFiles.read("tls-server-cert", "tls-server-key", "tls-ca")
	bad = append(bad, more...)
	f := o.clientFiles
	if f.ca != "" && f.cert == "" && f.key == "" {
		bad = append(bad, errors.New("tls-client-ca: needs tls-cert and tls-key; clients show certificates over TLS only"))
	}
	if f != (tlsFiles{}) && proxy.IsSocketPath(o.listen) {
		bad = append(bad, fmt.Errorf("tls-cert, tls-key, tls-client-ca: listen is the Unix socket %s, which carries no TLS", o.listen))
	}
	return bad
}

// read returns nil for no files. cert, key and ca are the names of the settings.
func (f tlsFiles) read(cert, key, ca string) (t *backends.TLS, bad faults) {
	if f == (tlsFiles{}) {
		return nil, nil
	}
	t = new(backends.TLS)
	var err error
	switch {
	case f.cert == "" && f.key == "":
	case f.cert == "":
		bad = append(bad, fmt.Errorf("%s: needs %s, the certificate of that key", key, cert))
	case f.key == "":
		bad = append(bad, fmt.Errorf("%s: needs %s, the private key of that certificate", cert, key))
	default:
		if t.KeyPair, err = backends.ReadKeyPair(f.cert, f.key); err != nil {
			bad = append(bad, fmt.Errorf("%s, %s: %w", cert, key, err))
		}
	}
	if f.ca != "" {
		if t.CA, err = backends.ReadAuthorities(f.ca); err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", ca, err))
		}
	}
	return t, bad
}

// unusedTLS is the fault of settings of TLS that would protect nothing. The options must
// have no other fault.
func (o *options) unusedTLS() (bad faults) {
	if o.serverTLS == nil || o.upstream.Secure() || o.store.Secure() {
		return nil
	}
	for _, n := range o.nodes {
		if n.Secure() {
			return nil
		}
	}
	return faults{errors.New("tls-ca, tls-server-cert, tls-server-key: neither the upstream nor a lock node is a rediss:// URL, so none would speak TLS")}
}

// withTLS is o with its servers reached by its settings of TLS.
func (o options) withTLS(log *slog.Logger) options {
	if o.serverTLS == nil {
		return o
	}
	t := *o.serverTLS
	t.Log = log
	o.upstream = o.upstream.WithTLS(&t)
	nodes := make([]*backends.Server, len(o.nodes))
	for i, n := range o.nodes {
		nodes[i] = n.WithTLS(&t)
	}
	o.nodes = nodes
	return o
}

// listenTLS is the TLS of clients; nil: plain text.
func (o options) listenTLS(log *slog.Logger) *tls.Config {
	if o.clientTLS == nil {
		return nil
	}
	t := *o.clientTLS
	t.Log = log
	return t.ServerConfig()
}
