// Command lockproxy is a Redis proxy with locks that a majority of masters decides.
//
// This package answers which program is running: it turns flags, environment and
// configuration file into valid options, reports all faults in them before anything
// starts, and wires the packages that do the work. It knows neither the protocol nor locks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	p := program{env: os.LookupEnv, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(ctx, os.Args))
}

// A program is lockproxy with its environment and output.
type program struct {
	env            func(string) (string, bool)
	stdin          io.Reader // nil: os.Stdin
	stdout, stderr io.Writer
	logsJSON       *bool // serve was to log JSON; set by run
}

func (p program) input() io.Reader {
	if p.stdin == nil {
		return os.Stdin
	}
	return p.stdin
}

// run executes one command line, args[0] being the program's name, until it is
// done or ctx ends, and returns the exit code.
func (p program) run(ctx context.Context, args []string) int {
	p.logsJSON = new(bool)
	err := p.execute(ctx, "lockproxy", p.root(), args[1:])
	if err == nil {
		return exit.OK
	}
	var own *exit.Error
	if errors.As(err, &own) && own.Err == nil {
		return own.Code
	}
	if *p.logsJSON {
		p.logError(err)
	} else {
		fmt.Fprintln(p.stderr, "lockproxy:", err)
	}
	if own != nil {
		return own.Code
	}
	if errors.As(err, new(usageError)) || errors.As(err, new(faults)) {
		return exit.Usage
	}
	return exit.Failed
}

// logError writes why serve did not start, or ended, as JSON: each fault in the settings is a line.
func (p program) logError(err error) {
	log, all := newLogger(p.stderr, options{logJSON: true}), faults{err}
	errors.As(err, &all)
	for _, one := range all {
		log.Error("lockproxy ends", "error", one)
	}
}

// A usageError is a command line that cannot be understood.
type usageError struct{ error }

// root is the command line without a command.
func (p program) root() *cli.Command {
	root := &cli.Command{
		Usage: "a Redis proxy with distributed locks that a majority of masters decides",
		Description: `Try it: lockproxy dev
Run it: lockproxy serve --upstream redis://10.0.0.1:6379 --lock-node redis://10.0.1.1:6379 --lock-node … --lock-node …
Each setting is a flag, a variable (LOCKPROXY_MAX_TTL) and a key of a YAML file (max-ttl).`,
		Flags:        []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "say which build this is"}},
		OnUsageError: onUsageError,
		Subcommands: []*cli.Command{
			p.serveCommand(),
			p.devCommand(),
			p.runCommand(),
			p.initCommand(),
			p.topCommand(),
			p.locksCommand(),
			p.whyCommand(),
			p.forceCommand(),
			p.nodesCommand(),
			p.checkCommand(),
			p.configCommand(),
			p.adoptCommand(),
			p.healthcheckCommand(),
			p.versionCommand(),
			p.completionCommand(p.root),
			p.manCommand(p.root),
		},
	}
	root.Action = func(c *cli.Context) error {
		if c.Bool("version") {
			return p.printVersion()
		}
		return p.help("lockproxy", root)
	}
	return root
}

func onUsageError(_ *cli.Context, err error, _ bool) error {
	return usageError{fmt.Errorf("%w (--help tells more)", err)}
}

// command is a command that takes all settings of serve, and args arguments. Its action gets
// valid options.
func (p program) command(name, usage string, args int, action func(*cli.Context, options) error) *cli.Command {
	var o options
	return &cli.Command{
		Name:         name,
		Usage:        usage,
		Description:  "Takes all settings of serve; lockproxy serve --help lists them.",
		Flags:        append(hidden(flags(o.settings()), groupServers), configFlag()),
		OnUsageError: onUsageError,
		Action: func(c *cli.Context) error {
			switch {
			case args == 0 && c.Args().Present():
				return usageError{fmt.Errorf("%s takes no arguments, only flags", name)}
			case c.Args().Len() != args:
				return usageError{fmt.Errorf("%s takes %s", name, plural(args, "URL"))}
			}
			raw, bad := load(c, p.env, o.settings())
			bad = raw.validate(&o, bad)
			*p.logsJSON = name == "serve" && o.logJSON
			if len(bad) > 0 {
				return bad
			}
			return action(c, o)
		},
	}
}
