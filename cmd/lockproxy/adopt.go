package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

func (p program) adoptCommand() *cli.Command {
	return &cli.Command{
		Name: "adopt", Usage: "lock code that is there already", OnUsageError: onUsageError,
		Subcommands: []*cli.Command{{
			Name: "explain", Usage: "what a Lua script does to a lock, in every state, and whether it would be adopted",
			UsageText:    "lockproxy adopt explain FILE.lua [KEY … , ARG …]\n\nThe first key is that of the lock. Without keys there is one, \"lock\", and one argument, \"mine\".",
			OnUsageError: onUsageError,
			Action: func(c *cli.Context) error {
				if !c.Args().Present() {
					return usageError{errors.New("adopt explain takes the file of a script, and its keys and arguments with a comma of its own between them")}
				}
				text, err := os.ReadFile(c.Args().First())
				if err != nil {
					return err
				}
				keys, args := []string{"lock"}, []string{"mine"}
				if rest := c.Args().Tail(); len(rest) > 0 {
					keys, args = rest, nil
					if at := slices.Index(rest, ","); at >= 0 {
						keys, args = rest[:at], rest[at+1:]
					}
				}
				return explain(p.stdout, string(text), keys, args)
			},
		}},
	}
}

// explain prints the rows of a script. The error is an *exitError where it would not be adopted.
func explain(w io.Writer, text string, keys, args []string) error {
	s := idiom.ParseScript(text)
	lock := ""
	if len(keys) > 0 {
		lock = keys[0]
	}
	call, err := s.Call(keys, args, 2, false, func(key string) bool { return key == lock })
	switch {
	case err != nil:
		return &exitError{exitErrors, fmt.Errorf("it would be refused: %w", err)}
	case call == nil:
		return &exitError{exitErrors, errors.New("it does not use the key, and would go to the upstream")}
	}
	rows, class := call.Accept(time.Now())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "SHA-1 %s\n\nTHE LOCK IS\tIT WOULD\tAND ANSWER\n", s.SHA)
	for _, r := range rows {
		if r.Refused != nil {
			fmt.Fprintf(t, "%s\trefused: %s\t\n", r.Name, r.Refused.Why)
			continue
		}
		does := r.Outcome.Op.Do.String()
		switch ttl := r.Outcome.Op.TTL; {
		case ttl == idiom.Forever:
			does += " without an end"
		case ttl != 0:
			does += " for " + ttl.String()
		}
		for _, signal := range r.Outcome.Signals {
			does += ", " + strings.ToUpper(signal[0])
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.Name, does, bytes.ReplaceAll(bytes.TrimSpace(r.Outcome.Reply), []byte("\r\n"), []byte(" ")))
	}
	fmt.Fprintf(t, "\nclass %s\t%s\t\n", class, allowed(class))
	if err := t.Flush(); err != nil {
		return err
	}
	if class == idiom.Unclear {
		return &exitError{code: exitErrors}
	}
	return nil
}

func allowed(c idiom.Class) string {
	switch {
	case idiom.Strict.Allows(c):
		return "adopted"
	case idiom.Usual.Allows(c):
		return "adopted, but not with as=strict: it does not compare the value"
	case idiom.Full.Allows(c):
		return "refused: it replaces another's lock"
	}
	return "refused"
}
