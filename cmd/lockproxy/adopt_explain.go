package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
	"github.com/lockproxy/lockproxy/commands/adopt/explain"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
	"github.com/lockproxy/lockproxy/commands/adopt/pattern"
)

const explainUsage = `usage: lockproxy adopt explain [--adopt 'PATTERN WORD=…'] [--lock KEY] [--upstream VERSION] [--format text|json]
                               FILE.lua|- [KEY … , ARG …]

Run a script over every state that its lock may be in, and print what it would do and answer there, to a client of
RESP2. The file - is standard input. Keys and arguments stand as for redis-cli --eval, with a comma of its own
between them; without any there is one key, lock, and one argument, mine. An argument may be the value of the
lock that is "mine". With --adopt the lock is the first key, or else argument, that the pattern matches, and the
script is judged by the pattern's as, no-expiry, fence-key and mode=both. Flags stand before the file.

The exit code is 0 if the script would be adopted, 1 if not with as=strict, 2 if only with as=full, if it would be
refused (with --adopt: by that pattern) or if it uses no lock, and 64 for a fault in the command line or the file.`

// maxScriptFile bounds what is read of a script. No client's may be as long.
const maxScriptFile = 1 << 20

func (p program) explainCommand() *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "say what a Lua script does to a lock, in every state, and whether it would be adopted",
		UsageText: explainUsage, OnUsageError: onMisuse,
		SkipFlagParsing: true, // behind the file, where an argument of the script may begin with "-"
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "adopt", Usage: "the `PATTERN` of the lock's keys and its words, as for serve"},
			&cli.StringFlag{Name: "lock", Usage: "the `KEY` that is the lock's, also if it is an argument (default: the first key)"},
			&cli.StringFlag{Name: "upstream", Usage: "the `VERSION` of the upstream, such as 'redis 8.4' or 'valkey 9.0'", Value: "redis 7.0"},
			&cli.StringFlag{Name: "format", Usage: "text or json", Value: "text"},
		},
		Action: func(c *cli.Context) error {
			show, ok := map[string]func(*explain.Explanation, io.Writer) error{"text": (*explain.Explanation).WriteText, "json": (*explain.Explanation).WriteJSON}[c.String("format")]
			if !ok {
				return exit.With(exit.Misuse, fmt.Errorf("format: %q is not one of text, json", c.String("format")))
			}
			upstream, ok := idiom.ParseDialect(c.String("upstream"))
			if !ok {
				return exit.With(exit.Misuse, fmt.Errorf("upstream: %q is not such as 'redis 8.4' or 'valkey 9.0'", c.String("upstream")))
			}
			var adopted *pattern.Pattern
			if c.IsSet("adopt") {
				var err error
				if adopted, err = pattern.Parse(c.String("adopt")); err != nil {
					return exit.With(exit.Misuse, fmt.Errorf("adopt: %q: %s", c.String("adopt"), strings.ReplaceAll(err.Error(), "\n", "; ")))
				}
			}
			e, err := explainFile(p.input(), c.Args().Slice(), c.String("lock"), adopted, explain.Setting{Upstream: upstream})
			if err != nil {
				return exit.With(exit.Misuse, err)
			}
			if err := show(e, p.stdout); err != nil {
				return exit.With(exitErrors, err)
			}
			if code := explainCode(e); code != exit.OK {
				return exit.Silently(code)
			}
			return nil
		},
	}
}

// explainCode is the exit code of adopt explain.
func explainCode(e *explain.Explanation) int {
	return map[string]int{explain.Yes: exit.OK, explain.Usually: exitWarnings, explain.Fully: exitErrors, explain.No: exitErrors}[e.Adopted]
}

// explainFile explains the script in a file, or in stdin. words are the file, its keys, a comma and its arguments; adopted may be nil.
func explainFile(stdin io.Reader, words []string, lock string, adopted *pattern.Pattern, set explain.Setting) (*explain.Explanation, error) {
	if len(words) == 0 {
		return nil, errors.New("adopt explain takes the file of a script, and its keys and arguments with a comma of its own between them (--help)")
	}
	text, err := readScript(stdin, words[0])
	if err != nil {
		return nil, err
	}
	keys, args := []string{"lock"}, []string{"mine"}
	if rest := words[1:]; len(rest) > 0 {
		keys, args = rest, nil
		if at := slices.Index(rest, ","); at >= 0 {
			keys, args = rest[:at], rest[at+1:]
		}
	}
	for _, flag := range []string{"--adopt", "--lock", "--upstream", "--format"} {
		if slices.ContainsFunc(keys, func(k string) bool { return k == flag || strings.HasPrefix(k, flag+"=") }) {
			return nil, fmt.Errorf("%s stands behind the file, where keys do: put it before", flag)
		}
	}
	if adopted != nil {
		matches := func(key string) bool { return adopted.Matches(pattern.AnyDatabase, key) }
		all := slices.Concat(keys, args)
		switch first := slices.IndexFunc(all, matches); {
		case first < 0:
			return nil, fmt.Errorf("adopt: %q matches no key and no argument", adopted.Glob)
		case lock != "" && !matches(lock):
			return nil, fmt.Errorf("lock: %q does not match %q", lock, adopted.Glob)
		case lock == "":
			lock = all[first]
		}
		set.Rule = &idiom.Rule{As: adopted.As, NoExpiry: adopted.NoExpiry, MaxTTL: idiom.Forever}
		set.Both = adopted.Mode == pattern.Both
		set.FenceOf = func(key string) string { return adopted.FenceOf(pattern.AnyDatabase, key) }
	}
	switch {
	case lock == "" && len(keys) == 0:
		return nil, errors.New("no key is named; give one, or the argument that is the lock's with --lock")
	case lock == "":
		lock = keys[0]
	case !slices.Contains(keys, lock) && !slices.Contains(args, lock):
		return nil, fmt.Errorf("lock: %q is neither a key nor an argument", lock)
	}
	return explain.Script(text, keys, args, lock, set), nil
}

func readScript(stdin io.Reader, path string) (string, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxScriptFile+1))
	if err == nil && len(text) > maxScriptFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxScriptFile)
	}
	return string(text), err
}
