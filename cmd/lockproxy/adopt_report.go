package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/proxy/admin"
)

const reportUsage = `usage: lockproxy adopt report [--json] ADDRESS

Ask the admin server of a proxy which keys are used as locks, how, and what adoption would make of them. ADDRESS is
what the proxy's --admin says: host:port, the path of a Unix socket, or http:// or https:// in front of the former. The
password of its --admin-password is taken from LOCKPROXY_ADMIN_PASSWORD. The exit code is 0 if there is a report,
2 if the proxy cannot be asked or looks at nothing, and 64 for a fault in the command line.`

const reportTimeout = 10 * time.Second

func (p program) reportCommand() *cli.Command {
	return &cli.Command{
		Name: "report", Usage: "print which keys are used as locks, as a proxy has seen",
		UsageText: reportUsage, OnUsageError: onMisuse,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print what the admin server answers"}},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.With(exit.Misuse, errors.New("adopt report takes the address of an admin server"))
			}
			ctx, cancel := context.WithTimeout(c.Context, reportTimeout)
			defer cancel()
			r, text, err := admin.FetchReport(ctx, c.Args().First(), os.Getenv("LOCKPROXY_ADMIN_PASSWORD"))
			if err != nil {
				return exit.With(exitErrors, err)
			}
			if !r.On {
				return exit.With(exitErrors, errors.New("this proxy looks at nothing; start it with --adopt-report, or name keys with --adopt 'PATTERN mode=observe'"))
			}
			if c.Bool("json") {
				_, err = p.stdout.Write(text)
				return err
			}
			return r.WriteText(p.stdout)
		},
	}
}
