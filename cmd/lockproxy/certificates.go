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

// An ownCertificate is a certificate of the proxy.
type ownCertificate struct {
	setting string   // names its file
	uses    []string // its peers: clients, operators, servers
	leaf    func() *x509.Certificate
}

// ownCertificates are the certificates of the proxy; leaf returns the current one.
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

// certificatesToCheck converts all for lockproxy check.
func certificatesToCheck(all []ownCertificate) (out []check.Certificate) {
	for _, c := range all {
		out = append(out, check.Certificate{Setting: c.setting, Leaf: c.leaf()})
	}
	return out
}

// certificatesToMeasure converts all for /metrics, one for each use.
func certificatesToMeasure(all []ownCertificate) (out []admin.Certificate) {
	for _, c := range all {
		for _, use := range c.uses {
			out = append(out, admin.Certificate{Use: use, Leaf: c.leaf})
		}
	}
	return out
}

const (
	certificateCheckPause = time.Hour      // between two checks
	warnAgainAfter        = 24 * time.Hour // how soon the same warning is repeated
)

// watchCertificates logs a warning of each certificate that ends soon or has ended: at once,
// when that begins, and daily. stop ends it and waits for its end.
func watchCertificates(ctx context.Context, all []ownCertificate, log *slog.Logger) (stop func()) {
	if len(all) == 0 {
		return func() {}
	}
	w := certificateWatch{all: all, log: log, warned: map[string]warned{}}
	w.check(time.Now())
	return background(ctx, func(ctx context.Context) {
		t := time.NewTicker(certificateCheckPause)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				w.check(time.Now())
			case <-ctx.Done():
				return
			}
		}
	})
}

// A certificateWatch remembers its warnings.
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

func (w *certificateWatch) check(now time.Time) {
	for _, c := range w.all {
		leaf := c.leaf()
		is, was := warned{now, leaf.NotAfter, !now.Before(leaf.NotAfter)}, w.warned[c.setting]
		if !backends.ExpiresSoon(leaf, now) {
			continue
		}
		if is.to.Equal(was.to) && is.ended == was.ended && now.Sub(was.at) < warnAgainAfter-certificateCheckPause/2 {
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
