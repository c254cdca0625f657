package main

import (
	"cmp"
	"context"
	"fmt"
	"net"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/backends/topology"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/embedded"
)

// devLockNodes is how many in-process masters vote on the locks of dev.
const devLockNodes = 5

// devDefaults are the defaults of dev that are not those of serve.
var devDefaults = map[string]string{
	"node-timeout": "2s",             // generous: an embedded server compiles a script anew for each call, and six of them share the process with the proxy
	"admin":        "127.0.0.1:6381", // if something listens there, it gets a free port instead
	"log-level":    "warn",           // leaves the first lines to the banner
}

func (p program) devCommand() *cli.Command {
	o := new(options)
	all := without(o.settings(), "upstream", "lock-node", "lock-store", "upstream-mode", "read-from", "sentinel-user", "sentinel-password", "admin-tls")
	for _, s := range o.tlsSettings() { // it stays within one machine
		all = without(all, s.name)
	}
	for i, s := range all {
		all[i].value = cmp.Or(devDefaults[s.name], s.value)
	}
	const usage = "try lockproxy: a proxy, its upstream and five lock nodes in one process; nothing is kept"
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
	servers, err := embedded.Start(1 + devLockNodes)
	if err != nil {
		return err
	}
	defer embedded.Close(servers)
	for name, value := range devDefaults {
		if _, isGiven := raw[name]; isGiven {
			continue
		}
		if name == "admin" {
			value = freeOr(value)
		}
		raw[name] = given{values: []string{value}}
	}
	raw["upstream"] = given{values: urls(servers[:1])}
	raw["upstream-mode"] = given{values: []string{topology.ModeStandalone}}
	raw["lock-node"] = given{values: urls(servers[1:])}
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

func urls(servers []*embedded.Server) []string {
	all := make([]string, len(servers))
	for i, s := range servers {
		all[i] = s.URL()
	}
	return all
}
