package main

import (
	"encoding/json"
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

const explainUsage = `lockproxy adopt explain [--lock KEY] [--format text|json] FILE.lua|- [KEY … , ARG …]

Run a script over every state that its lock may be in, and print what it would do and answer there, to a client of
RESP2. The file - is standard input. Keys and arguments stand as for redis-cli --eval, with a comma of its own
between them; without any there is one key, lock, and one argument, mine. An argument may be the value of the
lock that is "mine". The exit code is 0 if the script would be adopted, 1 if not with as=strict, 2 if it would
be refused or uses no lock, and 64 for a fault in the command line or the file.`

// maxScriptFile bounds what is read of a script. No client's may be as long.
const maxScriptFile = 1 << 20

func (p program) explainCommand() *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "what a Lua script does to a lock, in every state, and whether it would be adopted",
		UsageText: explainUsage, OnUsageError: onMisuse, HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "lock", Usage: "the `KEY` that is the lock's, also if it is an argument (default: the first key)"},
			&cli.StringFlag{Name: "format", Usage: "text or json", Value: "text"},
		},
		Action: func(c *cli.Context) error {
			show, ok := map[string]func(*explanation, io.Writer) error{"text": (*explanation).showText, "json": (*explanation).showJSON}[c.String("format")]
			if !ok {
				return &exitError{exitMisuse, fmt.Errorf("format: %q is not one of text, json", c.String("format"))}
			}
			e, err := explain(c.App.Reader, c.Args().Slice(), c.String("lock"))
			if err != nil {
				return &exitError{exitMisuse, err}
			}
			if err := show(e, p.stdout); err != nil {
				return &exitError{exitErrors, err}
			}
			if code := e.exitCode(); code != exitOK {
				return &exitError{code: code}
			}
			return nil
		},
	}
}

// An explanation is what adopt explain says of a script.
type explanation struct {
	SHA1    string       `json:"sha1"`
	Lock    string       `json:"lock"` // its key
	Class   idiom.Class  `json:"class,omitempty"`
	Adopted string       `json:"adopted"` // yes, not strict, or no
	Why     string       `json:"why,omitempty"`
	Rows    []explainRow `json:"rows,omitempty"`
}

// An explainRow is what the script does in one state of the lock.
type explainRow struct {
	State   string   `json:"state"`
	Does    string   `json:"does,omitempty"`
	TTL     int64    `json:"ttl_ms,omitempty"` // that it asks for; -1: without an end
	Signals []string `json:"signals,omitempty"`
	Reply   string   `json:"reply,omitempty"`
	Refused string   `json:"refused,omitempty"`
}

// The values of explanation.Adopted.
const (
	adoptedYes     = "yes"
	adoptedUsually = "not strict"
	adoptedNo      = "no"
)

func (e *explanation) exitCode() int {
	return map[string]int{adoptedYes: exitOK, adoptedUsually: exitWarnings, adoptedNo: exitErrors}[e.Adopted]
}

// explain explains the script in a file, or in stdin. words are the file, its keys, a comma and its arguments.
func explain(stdin io.Reader, words []string, lock string) (*explanation, error) {
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
	for _, flag := range []string{"--lock", "--format"} {
		if slices.ContainsFunc(keys, func(k string) bool { return k == flag || strings.HasPrefix(k, flag+"=") }) {
			return nil, fmt.Errorf("%s stands behind the file, where keys do: put it before", flag)
		}
	}
	switch {
	case lock == "" && len(keys) == 0:
		return nil, errors.New("no key is named; give one, or the argument that is the lock's with --lock")
	case lock == "":
		lock = keys[0]
	case !slices.Contains(keys, lock) && !slices.Contains(args, lock):
		return nil, fmt.Errorf("lock: %q is neither a key nor an argument", lock)
	}
	return explainScript(text, keys, args, lock), nil
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

func explainScript(text string, keys, args []string, lock string) *explanation {
	s := idiom.ParseScript(text)
	e := &explanation{SHA1: s.SHA, Lock: lock, Adopted: adoptedNo}
	call, err := s.Call(keys, args, 2, false, func(key string) bool { return key == lock })
	switch {
	case err != nil:
		e.Why = err.Error()
		return e
	case call == nil:
		e.Why = "it does not use the lock's key, and would go to the upstream"
		return e
	}
	var rows idiom.Rows
	rows, e.Class = call.Accept(time.Now())
	for _, r := range rows {
		e.Rows = append(e.Rows, explainedRow(r))
	}
	switch {
	case idiom.Strict.Allows(e.Class):
		e.Adopted = adoptedYes
	case idiom.Usual.Allows(e.Class):
		e.Adopted, e.Why = adoptedUsually, "it does not compare the value"
	case idiom.Full.Allows(e.Class):
		e.Why = "it replaces another's lock"
	default:
		e.Why = "what it does to a lock is not clear"
	}
	return e
}

func explainedRow(r idiom.Row) explainRow {
	if r.Refused != nil {
		return explainRow{State: r.Name, Refused: r.Refused.Why}
	}
	row := explainRow{State: r.Name, Does: r.Outcome.Op.Do.String(), Reply: strings.ReplaceAll(strings.TrimSpace(string(r.Outcome.Reply)), "\r\n", " ")}
	if row.TTL = r.Outcome.Op.TTL.Milliseconds(); r.Outcome.Op.TTL == idiom.Forever {
		row.TTL = -1
	}
	for _, signal := range r.Outcome.Signals {
		row.Signals = append(row.Signals, strings.ToUpper(signal[0])+" "+strings.Join(signal[1:], " "))
	}
	return row
}

// showText prints a table of what the script does in each state, and whether it is adopted.
func (e *explanation) showText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "SHA-1 %s\n", e.SHA1)
	if len(e.Rows) > 0 {
		fmt.Fprintf(t, "\nTHE LOCK IS\tIT WOULD\tAND ANSWER\n")
	}
	for _, r := range e.Rows {
		does := r.Does
		switch {
		case r.Refused != "":
			does = "be refused: " + r.Refused
		case r.TTL < 0:
			does += " without an end"
		case r.TTL > 0:
			does += " for " + (time.Duration(r.TTL) * time.Millisecond).String()
		}
		for _, signal := range r.Signals {
			does += ", " + signal
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.State, does, r.Reply)
	}
	says := map[string]string{adoptedYes: "adopted", adoptedUsually: "adopted, but not with as=strict: ", adoptedNo: "not adopted: "}[e.Adopted] + e.Why
	if e.Class != "" {
		says = "class " + string(e.Class) + ", " + says
	}
	fmt.Fprintf(t, "\n%s\n", says)
	return t.Flush()
}

// showJSON prints the explanation as one JSON object.
func (e *explanation) showJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(e)
}
