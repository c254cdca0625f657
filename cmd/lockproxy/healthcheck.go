package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

func (p program) healthcheckCommand() *cli.Command {
	const timeout = 2 * time.Second
	return &cli.Command{
		Name:         "healthcheck",
		Usage:        "PING the proxy at --listen; exit 0 if it and its upstream answer",
		Flags:        append(flags(only(settings(), "listen")), configFlag()),
		OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			o, err := p.listenOnly(c)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context, timeout)
			defer cancel()
			return ping(ctx, o.listen)
		},
	}
}

// listenOnly reads just where the proxy listens, whatever else is configured.
func (p program) listenOnly(c *cli.Context) (o options, err error) {
	all := only(settings(), "listen")
	raw, bad := load(c, p.env, all)
	bad = append(bad, raw.read(all[0], &o)...)
	if len(bad) > 0 {
		return o, bad
	}
	return o, nil
}

// ping says nil when a PING at listen is answered with PONG, or with a demand to
// authenticate, which an upstream had to be asked for too.
func ping(ctx context.Context, listen string) error {
	network, address := dialAddress(listen)
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return fmt.Errorf("not healthy: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline) // fails only on a closed connection, which the write below reports
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

// dialAddress turns where a server listens into where a client on the same machine
// reaches it: an unspecified address becomes the loopback one.
func dialAddress(listen string) (network, address string) {
	if isSocketPath(listen) {
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
