package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/backends"
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/client"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

const adoptCheckText = `usage: lockproxy adopt check [--watch TIME] [--to MODE] URL

Ask a proxy what is in the way of the next mode of adopted keys: proxies of another mode, and locks that are at the
upstream or at the lock nodes alone. URL is the proxy's, redis://user:password@host:port/db, of a user who may run
admin commands; the locks are those of its database. --watch looks for so long at what changes, and so finds
programs that go past the proxies by locks that they hold only briefly.

The exit code is 0 if nothing is in the way of any next mode, or of the one that --to names; 1 if something is; 2
if it could not be found out; and 64 for a fault in the command line.`

// adoptCheckTimeout is how long a check may take besides watching.
const adoptCheckTimeout = time.Minute

func (p program) adoptCheckCommand() *cli.Command {
	return &cli.Command{
		Name: "check", Usage: "say what is in the way of the next mode of adopted keys",
		UsageText: adoptCheckText, OnUsageError: onMisuse,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "watch", Usage: "look for so long at what changes"},
			&cli.StringFlag{Name: "to", Usage: "the `mode` that is to come next: off, both or on"},
		},
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 || c.Duration("watch") < 0 {
				return exit.With(exit.Misuse, errors.New("the URL of a proxy is needed, and a time of 0 or more: adopt check [--watch 1m] [--to on] redis://user:password@host:port"))
			}
			if to := c.String("to"); c.IsSet("to") && !slices.Contains([]string{"off", "observe", "both", "on"}, to) {
				return exit.With(exit.Misuse, fmt.Errorf("--to %s: is none of off, both, on", to))
			}
			s, err := backends.Parse(c.Args().First())
			if err != nil {
				return exit.With(exit.Misuse, err)
			}
			ctx, cancel := context.WithTimeout(c.Context, c.Duration("watch")+adoptCheckTimeout)
			defer cancel()
			reply, err := askAdoptCheck(ctx, s, c.Duration("watch"))
			if err != nil {
				return exit.With(exitErrors, err)
			}
			if !showAdoptCheck(p.stdout, reply, c.String("to")) {
				return exit.With(exitWarnings, errors.New("something is in the way"))
			}
			return nil
		},
	}
}

func askAdoptCheck(ctx context.Context, s *backends.Server, watch time.Duration) (resp.Tree, error) {
	w, err := client.Dial(ctx, s)
	if err != nil {
		return resp.Tree{}, err
	}
	defer w.Close()
	args := []string{"LOCKCTL", "ADOPT", "CHECK"}
	if watch > 0 {
		args = append(args, "WATCH", client.Millis(watch))
	}
	return w.Ask(ctx, args...)
}

// showAdoptCheck prints the reply to LOCKCTL ADOPT CHECK. It reports whether the step to mode to is safe: some pattern
// can take it next, and it is safe for each that can. If to is empty, it reports whether every next step is safe.
func showAdoptCheck(out io.Writer, rows resp.Tree, to string) (safe bool) {
	safe, found := true, to == ""
	for _, row := range rows.Elems {
		fmt.Fprintf(out, "%s mode=%s\n", row.Field("pattern").Text, row.Field("mode").Text)
		for _, p := range row.Field("proxies").Elems {
			fmt.Fprintf(out, "  proxy %s: %s, for %ss at least\n", p.Field("proxy").Text, p.Field("mode").Text, p.Field("seconds").Text)
		}
		for _, s := range row.Field("steps").Elems {
			fmt.Fprintf(out, "  %s\n", s.Field("says").Text)
			if to == "" || s.Field("to").Text == to {
				safe, found = safe && s.Field("safe").Text == "yes", true
			}
		}
	}
	if !found {
		fmt.Fprintf(out, "no pattern can go %s next\n", to)
	}
	return safe && found
}
