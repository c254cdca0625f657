package main

import (
	"context"
	"crypto/x509"
	"log/slog"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/check"
	"github.com/lockproxy/lockproxy/proxy/admin"
)

// An ownCertificate is one that the proxy shows.
type ownCertificate struct {
	setting string   // that names its file
	uses    []string // whom it is shown to: clients, operators, servers
	leaf    func() *x509.Certificate
}

// ownCertificates are those that the proxy shows now, whenever it is asked.
func (o *options) ownCertificates(log *slog.Logger) (all []ownCertificate) {
	add := func(setting string, pair *backends.KeyPair, uses ...string) {
		all = append(all, ownCertificate{setting, uses, func() *x509.Certificate { return pair.Leaf(log) }})
	}
	if o.clientTLS != nil && o.adminTLS {
		add("tls-cert", o.clientTLS.KeyPair, "clients", "operators")
	} else if o.clientTLS != nil {
		add("tls-cert", o.clientTLS.KeyPair, "clients")
	}
	if o.serverTLS != nil && o.serverTLS.KeyPair != nil {
		add("tls-server-cert", o.serverTLS.KeyPair, "servers")
	}
	return all
}

// checkedCertificates are they for lockproxy check.
func checkedCertificates(all []ownCertificate) (out []check.Certificate) {
	for _, c := range all {
		out = append(out, check.Certificate{Setting: c.setting, Leaf: c.leaf()})
	}
	return out
}

// measuredCertificates are they for /metrics, once for each use.
func measuredCertificates(all []ownCertificate) (out []admin.Certificate) {
	for _, c := range all {
		for _, use := range c.uses {
			out = append(out, admin.Certificate{Use: use, Leaf: c.leaf})
		}
	}
	return out
}

const (
	certificatesEvery = time.Hour      // how often certificates are looked at
	warnEvery         = 24 * time.Hour // and how often one that ends is warned of
)

// watchCertificates warns of certificates that end soon or have ended: at once, when
// that begins, and daily. stop ends it and waits for its end.
func watchCertificates(ctx context.Context, all []ownCertificate, log *slog.Logger) (stop func()) {
	if len(all) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	w := certificateWatch{all: all, log: log, warned: map[string]warned{}}
	w.look(time.Now())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(certificatesEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				w.look(time.Now())
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// A certificateWatch knows what it has warned of.
type certificateWatch struct {
	all    []ownCertificate
	log    *slog.Logger
	warned map[string]warned // by setting
}

type warned struct {
	at    time.Time
	to    time.Time // the end of the certificate
	ended bool
}

func (w *certificateWatch) look(now time.Time) {
	for _, c := range w.all {
		leaf := c.leaf()
		is, was := warned{now, leaf.NotAfter, !now.Before(leaf.NotAfter)}, w.warned[c.setting]
		if !backends.ExpiresSoon(leaf, now) {
			continue
		}
		if is.to.Equal(was.to) && is.ended == was.ended && now.Sub(was.at) < warnEvery-certificatesEvery/2 {
			continue
		}
		w.warned[c.setting] = is
		message := "certificate ends soon: then no new connection is made"
		if is.ended {
			message = "certificate has ended: no new connection is made"
		}
		w.log.Warn(message, "setting", c.setting, "for", strings.Join(c.uses, " "), "ends", leaf.NotAfter.UTC().Format(time.RFC3339))
	}
}
