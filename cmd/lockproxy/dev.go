package main

import (
	"context"
	"fmt"
	"net"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/backends/topology"
)

const (
	// devLockNodes is how many in-process masters vote on the locks of dev.
	devLockNodes = 5
	// devNodeTimeout is generous: an embedded server compiles a script anew for each
	// call, and six of them share the process with the proxy.
	devNodeTimeout = "250ms"
	// devAdmin is the admin server's address; if something listens there, it gets a free port instead.
	devAdmin = "127.0.0.1:6381"
	// devLogLevel leaves the first lines to the banner.
	devLogLevel = "warn"
)

func (p program) devCommand() *cli.Command {
	o := new(options)
	all := without(o.settings(), "upstream", "lock-node", "upstream-mode", "read-from", "sentinel-user", "sentinel-password", "admin-tls")
	for _, s := range o.tlsSettings() { // it stays within one machine
		all = without(all, s.name)
	}
	const usage = "try it: a proxy, its upstream and five lock nodes in this one process; nothing is kept"
	return &cli.Command{
		Name:         "dev",
		Usage:        usage,
		Flags:        append(flags(all), configFlag()),
		OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError{fmt.Errorf("dev takes no arguments, only flags")}
			}
			raw, bad := load(c, p.env, all)
			return p.dev(c.Context, raw, bad)
		},
	}
}

// dev serves raw's settings over embedded servers, until ctx ends.
func (p program) dev(ctx context.Context, raw config, bad faults) error {
	servers, err := startEmbedded(1 + devLockNodes)
	if err != nil {
		return err
	}
	defer closeEmbedded(servers)
	for name, value := range map[string]string{"node-timeout": devNodeTimeout, "admin": freeOr(devAdmin), "log-level": devLogLevel} {
		if _, isGiven := raw[name]; !isGiven {
			raw[name] = given{values: []string{value}}
		}
	}
	raw["upstream"] = given{values: embeddedURLs(servers[:1])}
	raw["upstream-mode"] = given{values: []string{topology.ModeStandalone}}
	raw["lock-node"] = given{values: embeddedURLs(servers[1:])}
	var o options
	if bad = raw.validate(&o, bad); len(bad) > 0 {
		return bad
	}
	return serve(ctx, o, newLogger(p.stderr, o), p.printBanner)
}

// freeOr is a loopback address if nothing listens there, else that of a port of the system's choice.
func freeOr(addr string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "127.0.0.1:0"
	}
	l.Close()
	return addr
}

// startEmbedded starts n in-process servers on free loopback ports. Their keys expire by the
// clock of this process: each command first subtracts the time since the last from all
// TTLs, so that a command's cost grows with the number of keys.
func startEmbedded(n int) ([]*miniredis.Miniredis, error) {
	var servers []*miniredis.Miniredis
	for range n {
		m := miniredis.NewMiniRedis()
		if err := m.Start(); err != nil {
			closeEmbedded(servers)
			return nil, fmt.Errorf("embedded server: %w", err)
		}
		m.ClockTTL(true)
		m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
			return refuseSubcommands(c, cmd, args...) || abortTransaction(m, c, cmd)
		})
		servers = append(servers, m)
	}
	return servers, nil
}

// refuseSubcommands refuses those of COMMAND, as an old Redis does: the embedded server takes
// each for COMMAND, and redis-cli aborts on that reply to COMMAND DOCS.
func refuseSubcommands(c *server.Peer, cmd string, args ...string) (answered bool) {
	if cmd != "COMMAND" || len(args) == 0 {
		return false
	}
	c.WriteError("ERR Unknown subcommand or wrong number of arguments for '" + args[0] + "'. Try COMMAND HELP.")
	return true
}

// abortTransaction refuses the proxy's own commands, which the proxy forwards only in a
// transaction, to abort it. In the embedded server an unknown command aborts none, but one
// without its arguments does.
func abortTransaction(m *miniredis.Miniredis, c *server.Peer, cmd string) (answered bool) {
	switch cmd {
	case "LOCK", "RENEW", "UNLOCK", "LOCKCTL":
		m.Server().Dispatch(c, []string{"GET"})
		return true
	}
	return false
}

func closeEmbedded(servers []*miniredis.Miniredis) {
	for _, m := range servers {
		m.Close()
	}
}

func embeddedURLs(servers []*miniredis.Miniredis) []string {
	urls := make([]string, len(servers))
	for i, m := range servers {
		urls[i] = "redis://" + m.Addr()
	}
	return urls
}
