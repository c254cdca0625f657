package main

import (
	"errors"

	"github.com/urfave/cli/v2"
)

func (p program) adoptCommand() *cli.Command {
	return &cli.Command{
		Name: "adopt", Usage: "adopt existing lock code: explain a script, report what a proxy has seen, check the next step", OnUsageError: onMisuse,
		Subcommands: []*cli.Command{p.explainCommand(), p.reportCommand(), p.adoptCheckCommand()},
		Action: func(c *cli.Context) error {
			return usageError{errors.New("adopt explain FILE.lua [KEY … , ARG …], adopt report ADDRESS, or adopt check URL")}
		},
	}
}
