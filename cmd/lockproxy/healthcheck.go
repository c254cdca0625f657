package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/proxy"
	"github.com/lockproxy/lockproxy/proxy/admin"
)

func (p program) healthcheckCommand() *cli.Command {
	const timeout = 2 * time.Second
	var o options
	all := only(o.settings(), "listen", "tls-cert", "tls-client-ca", "admin", "admin-tls")
	return &cli.Command{
		Name:  "healthcheck",
		Usage: "PING the proxy at --listen; exit 0 if it and its upstream answer",
		Flags: append(flags(all), configFlag(), &cli.BoolFlag{
			Name: "ready", Usage: "ask the admin server at --admin instead; exit 0 if it says that the proxy is ready for clients",
		}),
		OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			raw, bad := load(c, p.env, all)
			if bad = append(bad, raw.read(all)...); len(bad) > 0 { // whatever else is configured
				return bad
			}
			ctx, cancel := context.WithTimeout(c.Context, timeout)
			defer cancel()
			if c.Bool("ready") {
				return askReady(ctx, o)
			}
			return ping(ctx, o)
		},
	}
}

// ping returns nil if a PING at o.listen is answered with PONG, or with NOAUTH, which is the
// upstream's answer too. If clients must show a certificate, which it does not have, it is
// enough to be rejected for that.
func ping(ctx context.Context, o options) error {
	network, address := dialAddress(o.listen)
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline) // fails only on a closed connection, which the write below reports
	}
	if o.clientFiles.cert != "" {
		// It connects to its own proxy, at an address that the certificate need not name.
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		if o.clientFiles.ca != "" {
			return rejectsWithoutCertificate(conn)
		}
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("not healthy: no answer from %s: %w", address, err)
	}
	if reply = strings.TrimSpace(reply); reply == "+PONG" || strings.HasPrefix(reply, "-NOAUTH ") {
		return nil
	}
	return fmt.Errorf("not healthy: %s answered %q", address, reply)
}

// askReady returns nil if the admin server at o.admin answers that the proxy is ready, else
// an error with its answer.
func askReady(ctx context.Context, o options) error {
	if o.admin == "" {
		return errors.New("not ready: admin is not set, so there is nobody to ask")
	}
	network, address := dialAddress(o.admin)
	url := "http://localhost/readyz"
	if o.adminTLS {
		url = "https://localhost/readyz"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, text, err := admin.Ask(r, network, address, &tls.Config{InsecureSkipVerify: true}, 64<<10) // as for ping
	if err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s answered %s\n%s", address, answer.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// rejectsWithoutCertificate returns nil if the other side of a TLS connection ends it with
// an alert.
func rejectsWithoutCertificate(conn net.Conn) error {
	_, err := conn.Read(make([]byte, 1)) // after the handshake, which may fail already
	if err == nil {
		return errors.New("not healthy: let in without a certificate")
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" { // crypto/tls's words for an alert
		return nil
	}
	return fmt.Errorf("not healthy: %w", err)
}

// dialAddress is the address at which a client on the same machine reaches a server: an
// unspecified address becomes the loopback one.
func dialAddress(listen string) (network, address string) {
	if proxy.IsSocketPath(listen) {
		return "unix", listen
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "tcp", listen
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return "tcp", net.JoinHostPort(host, port)
}
