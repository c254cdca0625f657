package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/proxy"
	"github.com/lockproxy/lockproxy/proxy/admin"
)

// minPassword is the least length of a password, in bytes. At ten guesses a minute it is safe.
const minPassword = 8

// readAdmin reads an address, or nothing: dev is run without an admin server by --admin "".
func (o *options) readAdmin(text string) error {
	o.admin = text
	if text == "" {
		return nil
	}
	return checkListen(text)
}

func (o *options) readAdminPassword(text string) error {
	o.adminPassword = text
	if len(text) < minPassword {
		return fmt.Errorf("is shorter than %d characters", minPassword)
	}
	return nil
}

// adminFaults are the faults between settings of the admin server.
func (o *options) adminFaults() (bad faults) {
	if o.admin == "" && (o.adminPassword != "" || o.adminTLS || o.adminPprof || o.adminForce) {
		bad = append(bad, errors.New("admin-password, admin-tls, admin-pprof, admin-force: admin is not set, so there is no admin server"))
	}
	if o.adminTLS && o.clientFiles.cert == "" {
		bad = append(bad, errors.New("admin-tls: needs tls-cert and tls-key, which operators are shown"))
	}
	if o.adminTLS && proxy.IsSocketPath(o.admin) {
		bad = append(bad, fmt.Errorf("admin-tls: admin is the Unix socket %s, which carries no TLS", o.admin))
	}
	if o.admin != "" && o.adminPassword == "" && (o.adminPprof || o.adminForce) && isPublic(o.admin) {
		bad = append(bad, fmt.Errorf("admin-pprof, admin-force: need admin-password, since other machines reach %s", o.admin))
	}
	return bad
}

// isPublic reports whether other machines reach an address to listen at, as far as is known
// without resolving names.
func isPublic(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || proxy.IsSocketPath(listen) {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && !ip.IsLoopback()
}

// operatorTLS is the TLS of operators; nil: plain text.
func (o options) operatorTLS(log *slog.Logger) *tls.Config {
	if !o.adminTLS {
		return nil
	}
	t := backends.TLS{KeyPair: o.clientTLS.KeyPair, Log: log}
	return t.ServerConfig()
}

// startAdmin starts the admin server and returns its address, or nil if o has none. opt has what the server shows; its settings
// come from o. stop ends it and waits for its end; it outlives ctx, so that draining can be observed.
func startAdmin(ctx context.Context, o options, opt admin.Options) (addr net.Addr, stop func(), err error) {
	if o.admin == "" {
		return nil, func() {}, nil
	}
	log := opt.Log
	opt.Listen, opt.TLS, opt.Password, opt.Pprof, opt.Force = o.admin, o.operatorTLS(log), o.adminPassword, o.adminPprof, o.adminForce
	opt.Certificates, opt.Version = certificatesToMeasure(o.ownCertificates(log)), moduleVersion()
	a, err := admin.New(opt)
	if err != nil {
		return nil, nil, fmt.Errorf("admin: %w", err)
	}
	log.Info("admin server listening", "address", a.Addr().String(), "tls", o.adminTLS, "password", o.adminPassword != "")
	return a.Addr(), background(context.WithoutCancel(ctx), func(ctx context.Context) {
		if err := a.Serve(ctx); err != nil {
			log.Error("the admin server has ended", "error", err)
		}
	}), nil
}
