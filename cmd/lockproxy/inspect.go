package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/client"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/inspect"
)

// askTimeout is how long a command that asks a proxy may take, besides what waits for people.
const askTimeout = 30 * time.Second

// An inspection is a command that asks a running proxy. Its errors that have no exit code get that for what the proxy refuses.
type inspection struct {
	name, usage, args string
	arity             int
	flags             []cli.Flag
	ask               func(c *cli.Context, dial dialer) error
}

// A dialer connects to the first of the proxies that can be reached.
type dialer func(context.Context) (*client.Conn, error)

func (p program) inspectCommand(i inspection) *cli.Command {
	return &cli.Command{
		Name: i.name, Usage: i.usage, ArgsUsage: i.args, OnUsageError: onMisuse,
		Flags: append(i.flags, flags(proxySettings(new(client.Options), new(options)))...),
		Action: func(c *cli.Context) error {
			if c.NArg() != i.arity {
				return exit.With(exit.Misuse, fmt.Errorf("usage: lockproxy %s", strings.TrimSpace(i.name+" [flags] "+i.args)))
			}
			if by := c.String("sort"); by != "" && !slices.Contains(inspect.Orders, by) {
				return exit.With(exit.Misuse, fmt.Errorf("sort: %q is not one of %s", by, strings.Join(inspect.Orders, ", ")))
			}
			a, o := new(client.Options), new(options)
			if bad := p.readProxies(c, a, o, proxySettings(a, o)); len(bad) > 0 {
				return exit.With(exit.Misuse, bad)
			}
			err := i.ask(c, a.DialToAsk)
			if own := (*exit.Error)(nil); err == nil || errors.As(err, &own) {
				return err
			}
			return client.WithCode(err, exit.Misuse)
		},
	}
}

// asking has ask do with a connection to a proxy, for askTimeout at most.
func asking(ask func(context.Context, *cli.Context, *client.Conn) error) func(*cli.Context, dialer) error {
	return func(c *cli.Context, dial dialer) error {
		ctx, cancel := context.WithTimeout(c.Context, askTimeout)
		defer cancel()
		conn, err := dial(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return ask(ctx, c, conn)
	}
}

// orderFlag says in which order locks are shown.
func orderFlag(by string) *cli.StringFlag {
	return &cli.StringFlag{Name: "sort", Value: by, Usage: "the `order`: " + strings.Join(inspect.Orders, ", ")}
}

func matchFlag() *cli.StringFlag {
	return &cli.StringFlag{Name: "match", Value: "*", Usage: "only locks whose names match a `glob`"}
}

func jsonFlag() *cli.BoolFlag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON, for scripts"}
}

func (p program) locksCommand() *cli.Command {
	return p.inspectCommand(inspection{
		name: "locks", usage: "list the locks that are held, and who holds them",
		flags: []cli.Flag{matchFlag(), orderFlag("name"), &cli.IntFlag{Name: "most", Value: 10000, Usage: "show at most so many `locks`"}, jsonFlag()},
		ask: asking(func(ctx context.Context, c *cli.Context, conn *client.Conn) error {
			locks, more, err := inspect.Locks(ctx, conn, c.String("match"), max(c.Int("most"), 1))
			if err != nil {
				return err
			}
			if more {
				fmt.Fprintf(p.stderr, "lockproxy: more than these %d are held; see --match and --most\n", len(locks))
			}
			inspect.Sort(locks, c.String("sort"))
			if c.Bool("json") {
				return p.writeJSON(append([]inspect.Lock{}, locks...))
			}
			if len(locks) == 0 {
				fmt.Fprintln(p.stderr, "lockproxy: nothing is held")
				return nil
			}
			return inspect.WriteLocks(p.stdout, locks)
		}),
	})
}

func (p program) writeJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (p program) whyCommand() *cli.Command {
	return p.inspectCommand(inspection{
		name: "why", args: "NAME", arity: 1, usage: "say why somebody does not get a lock: holder, votes, who waits, what comes next",
		ask: asking(func(ctx context.Context, c *cli.Context, conn *client.Conn) error {
			return inspect.Why(ctx, conn, p.stdout, c.Args().First())
		}),
	})
}

func (p program) forceCommand() *cli.Command {
	return p.inspectCommand(inspection{
		name: "force", args: "NAME", arity: 1, usage: "take a lock away from its owner; this does not stop the owner's work",
		flags: []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "do not ask for confirmation"}},
		ask: func(c *cli.Context, dial dialer) error {
			name := c.Args().First()
			if !c.Bool("yes") {
				if err := asking(func(ctx context.Context, c *cli.Context, conn *client.Conn) error {
					return p.confirmForce(ctx, conn, name)
				})(c, dial); err != nil {
					return err
				}
			}
			return asking(func(ctx context.Context, _ *cli.Context, conn *client.Conn) error {
				l, ok, err := inspect.Force(ctx, conn, name)
				if err != nil {
					return err
				}
				if !ok {
					return errNotHeld
				}
				fmt.Fprintln(p.stdout, "taken away:")
				return inspect.WriteLocks(p.stdout, []inspect.Lock{l})
			})(c, dial)
		},
	})
}

var errNotHeld = exit.With(exit.Failed, errors.New("nobody has it"))

// confirmForce shows who has a lock, and has the name typed. No time is set for that.
func (p program) confirmForce(ctx context.Context, conn *client.Conn, name string) error {
	l, ok, err := inspect.Info(ctx, conn, name)
	switch refused := (client.Refusal{}); {
	case errors.As(err, &refused) && refused.Word() == "NOQUORUM": // FORCE takes it from all who may have it, if the nodes can tell
		_, err = fmt.Fprintln(p.stdout, "Who has it is not certain:", client.Printable(refused.Text))
	case err == nil && !ok:
		err = errNotHeld
	case err == nil:
		err = inspect.WriteLocks(p.stdout, []inspect.Lock{l})
	}
	if err != nil {
		return err
	}
	fmt.Fprint(p.stdout, "\nIts owner's work is not stopped by this: two may work at once. Be sure that the owner is dead,\n"+
		"or that what it writes to checks the fence. Type the name to take the lock away: ")
	typed, err := bufio.NewReader(p.input()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimRight(typed, "\r\n") != name {
		return exit.With(exit.Failed, errors.New("that is not the name; nothing was done"))
	}
	return nil
}

func (p program) showNodes(ctx context.Context, c *cli.Context, conn *client.Conn) error {
	q, err := inspect.Nodes(ctx, conn)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = p.writeJSON(q)
	} else {
		err = q.Write(p.stdout)
	}
	if err == nil && q.Voting < q.Needed {
		return exit.Silently(exit.Unavailable)
	}
	return err
}

func (p program) topCommand() *cli.Command {
	return p.inspectCommand(inspection{
		name: "top", usage: "watch locks, waiters, nodes and rates as they change, until Ctrl-C",
		flags: []cli.Flag{matchFlag(), orderFlag("waiting"),
			&cli.DurationFlag{Name: "every", Value: time.Second, Usage: "the time between updates"},
			&cli.IntFlag{Name: "times", Usage: "end after so many `updates`; 0: never"}},
		ask: func(c *cli.Context, dial dialer) error {
			t := inspect.Top{Dial: dial, Glob: c.String("match"), Order: c.String("sort"), Every: max(c.Duration("every"), 100*time.Millisecond), Times: c.Int("times")}
			if file, ok := p.stdout.(*os.File); ok && isTerminal(file) {
				t.Size = func() (columns, lines int) { return terminalSize(file) }
			}
			return t.Run(c.Context, p.stdout)
		},
	})
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// terminalSize is how much fits; 80 by 24 where that cannot be told.
func terminalSize(f *os.File) (columns, lines int) {
	s, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || s.Col == 0 || s.Row == 0 {
		return 80, 24
	}
	return int(s.Col), int(s.Row)
}
