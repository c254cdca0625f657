package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/locks/membership"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/store"
)

const (
	exitNotYet   = 3                // nothing is wrong, but the change has to wait
	retryPause   = time.Second      // between two looks of nodes --wait
	waitingPause = 10 * time.Second // between two lines that say for what it waits
	stepTimeout  = 20 * time.Second // of one look and what it leads to
)

func (p program) nodesCommand() *cli.Command {
	one := func(name, usage string, args int, argsUsage string, steps func(list []*backends.Server, args []*backends.Server) []membership.Change) *cli.Command {
		cmd := p.command(name, usage, args, func(c *cli.Context, o options) error {
			var servers []*backends.Server
			for _, text := range c.Args().Slice() {
				s, err := parseServer(text)
				if err != nil {
					return usageError{err}
				}
				servers = append(servers, s)
			}
			return p.changeNodes(c.Context, o, steps(o.nodes, servers), c.Bool("finish"), c.Duration("wait"))
		})
		cmd.ArgsUsage = argsUsage
		cmd.Flags = append(cmd.Flags,
			&cli.BoolFlag{Name: "finish", Usage: "say that all proxies have the new list: those with the old one are refused from now on"},
			&cli.DurationFlag{Name: "wait", Usage: "how long to keep trying if the change has to wait for something"})
		return cmd
	}
	show := p.inspectCommand(inspection{
		name: "nodes", usage: "show the state of the lock nodes; add, remove or replace one under running proxies",
		flags: []cli.Flag{jsonFlag()}, ask: asking(p.showNodes),
	})
	show.Description = "Without a command it shows them. The exit code is 69 if no majority votes."
	show.Subcommands = []*cli.Command{
		one("add", "add a lock node", 1, "URL", func(list, a []*backends.Server) []membership.Change {
			return []membership.Change{{From: membership.Without(list, a[0]), To: membership.With(list, a[0])}}
		}),
		one("remove", "remove a lock node", 1, "URL", func(list, a []*backends.Server) []membership.Change {
			return []membership.Change{{From: membership.With(list, a[0]), To: membership.Without(list, a[0]), Dead: a[0]}}
		}),
		one("replace", "add NEW, then remove OLD", 2, "OLD NEW", func(list, a []*backends.Server) []membership.Change {
			before, after := membership.With(membership.Without(list, a[1]), a[0]), membership.With(membership.Without(list, a[0]), a[1])
			both := membership.With(before, a[1])
			return []membership.Change{{From: before, To: both, Dead: a[0]}, {From: both, To: after, Dead: a[0]}}
		}),
	}
	return show
}

// changeNodes takes the next half step of the first change that is not done. If that has to wait it tries again, for as
// long as wait.
func (p program) changeNodes(ctx context.Context, o options, steps []membership.Change, finish bool, wait time.Duration) error {
	if o.store.IsEtcd() {
		return store.ErrNoNodes
	}
	log := newLogger(p.stderr, o)
	o = o.withTLS(log)
	said := map[string]bool{}
	say := func(text string) {
		if !said[text] {
			said[text] = true
			fmt.Fprintln(p.stdout, text)
		}
	}
	var told time.Time
	for end := time.Now().Add(wait); ; {
		err := p.changeStep(ctx, o, steps, finish, say)
		var notYet *membership.NotYetError
		if !errors.As(err, &notYet) {
			return err
		}
		if time.Now().After(end) {
			return exit.With(exitNotYet, fmt.Errorf("not yet: %w", err))
		}
		if time.Since(told) >= waitingPause {
			told = time.Now()
			say("waiting: " + notYet.Why)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryPause):
		}
	}
}

func (p program) changeStep(ctx context.Context, o options, steps []membership.Change, finish bool, say func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for i, c := range steps {
		c.Options, c.Progress = voterOptions(o, newLogger(p.stderr, o)), say
		if i+1 < len(steps) { // it is done when the next one has begun, or can begin
			if next := steps[i+1]; next.From != nil {
				next.Options, next.Progress = c.Options, say
				if begun, err := next.Begun(ctx); err == nil && begun {
					continue
				}
			}
		}
		if finish {
			return c.Finish(ctx)
		}
		return c.Open(ctx)
	}
	return nil
}
