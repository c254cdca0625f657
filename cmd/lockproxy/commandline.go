package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// execute parses the arguments of a command and runs it, or the subcommand that they name. path is how the command is
// called.
//
// cli.App would do so too. But its help is made by text/template, which calls methods by name, so that the linker must
// keep every exported method of every type: 12 MB of the program (docs/decisions/0030).
func (p program) execute(ctx context.Context, path string, cmd *cli.Command, args []string) error {
	set := flag.NewFlagSet(path, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range cmd.Flags {
		if err := f.Apply(set); err != nil {
			return err
		}
	}
	c := cli.NewContext(nil, set, nil)
	c.Context, c.Command = ctx, cmd
	if len(cmd.Subcommands) == 0 && !cmd.SkipFlagParsing { // SkipFlagParsing is about what stands behind the first argument
		args = flagsFirst(set, args)
	}
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return p.help(path, cmd)
	case err != nil:
		*p.logsJSON = cmd.Name == "serve" && p.wantsJSON(args)
		return cmd.OnUsageError(c, suggesting(err, cmd.Flags), false)
	}
	for _, sub := range cmd.Subcommands {
		if sub.Name == set.Arg(0) {
			return p.execute(ctx, path+" "+sub.Name, sub, set.Args()[1:])
		}
	}
	if len(cmd.Subcommands) > 0 && set.NArg() > 0 {
		return cmd.OnUsageError(c, unknownCommand(set.Arg(0), cmd.Subcommands), false)
	}
	return cmd.Action(c)
}

// wantsJSON reports whether arguments that could not be parsed, or the environment, ask for a log in JSON.
func (p program) wantsJSON(args []string) bool {
	format, _ := p.env("LOCKPROXY_LOG_FORMAT")
	words := strings.NewReplacer("--", "-", "=", " ").Replace(strings.Join(args, " ") + " ")
	return format == "json" || strings.Contains(words, "-log-format json ")
}

// flagsFirst returns the arguments of a command with all flags before the names. Behind "--" there are only names.
func flagsFirst(set *flag.FlagSet, args []string) []string {
	var flags, names []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			names, args = append(names, args[i+1:]...), nil
		case len(arg) < 2 || arg[0] != '-':
			names = append(names, arg)
		default:
			flags = append(flags, arg)
			f := set.Lookup(strings.TrimLeft(arg, "-"))
			if f == nil { // its value stands behind "=", or nobody knows it
				continue
			}
			if toggle, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && toggle.IsBoolFlag() {
				continue
			}
			if i++; i == len(args) {
				return flags
			}
			flags = append(flags, args[i])
		}
	}
	return append(append(flags, "--"), names...)
}

// suggesting adds to an error about an unknown flag the one that may have been meant.
func suggesting(err error, flags []cli.Flag) error {
	_, name, unknown := strings.Cut(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err
	}
	var names []string
	for _, f := range flags {
		names = append(names, f.Names()[0])
	}
	return fmt.Errorf("%w%s", err, didYouMean("--", name, names))
}

// unknownCommand returns the error for a name that is none of the known commands.
func unknownCommand(name string, known []*cli.Command) error {
	var names []string
	for _, c := range known {
		names = append(names, c.Name)
	}
	return fmt.Errorf("no command %q%s", name, cmp.Or(didYouMean("", name, names), "; there are "+strings.Join(names, ", ")))
}

// didYouMean returns a question for the name that is most like an unknown one; empty: none is like it.
func didYouMean(prefix, unknown string, names []string) string {
	var flags []cli.Flag // cli.SuggestFlag compares flags only
	for _, name := range names {
		flags = append(flags, &cli.BoolFlag{Name: name})
	}
	name := strings.TrimPrefix(cli.SuggestFlag(flags, unknown, true), "--")
	if name == "" || unknown == "" || name[0] != unknown[0] || max(len(name), len(unknown))-min(len(name), len(unknown)) > 3 {
		return ""
	}
	return "; did you mean " + prefix + name + "?"
}

// helpWidth is how many columns help takes at most.
const helpWidth = 110

// help prints what a command is for, how it is called, and its flags under their headings, those without one first.
func (p program) help(path string, cmd *cli.Command) error {
	var b strings.Builder
	if cmd.Usage != "" {
		fmt.Fprintf(&b, "%s: %s\n\n", path, cmd.Usage)
	}
	if usage := cmp.Or(cmd.UsageText, usageLine(path, cmd)); usage != "" {
		fmt.Fprintf(&b, "%s\n", usage)
	}
	if cmd.Description != "" {
		fmt.Fprintf(&b, "\n%s\n", cmd.Description)
	}
	if len(cmd.Subcommands) > 0 {
		fmt.Fprintf(&b, "\nCommands:\n")
		for _, sub := range cmd.Subcommands {
			fmt.Fprintf(&b, "  %-12s %s\n", sub.Name, sub.Usage)
		}
		fmt.Fprintf(&b, "\n%s COMMAND --help tells more.\n", path)
	}
	var headings []string
	byHeading := map[string][]cli.Flag{}
	for _, f := range cmd.Flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		heading := ""
		if c, ok := f.(cli.CategorizableFlag); ok {
			heading = c.GetCategory()
		}
		if byHeading[heading] == nil {
			headings = append(headings, heading)
		}
		byHeading[heading] = append(byHeading[heading], f)
	}
	slices.SortStableFunc(headings, func(a, b string) int { return cmp.Compare(min(len(a), 1), min(len(b), 1)) })
	for _, heading := range headings {
		fmt.Fprintf(&b, "\n%s:\n", cmp.Or(heading, "Flags"))
		for _, f := range byHeading[heading] {
			describeFlag(&b, f)
		}
	}
	_, err := io.WriteString(p.stdout, b.String())
	return err
}

// usageLine is how a command without a text of its own is called.
func usageLine(path string, cmd *cli.Command) string {
	line := "usage: " + path
	if len(cmd.Subcommands) > 0 && len(cmd.Flags) > 0 {
		line += " [COMMAND]"
	} else if len(cmd.Subcommands) > 0 {
		line += " COMMAND"
	}
	if len(cmd.Flags) > 0 {
		line += " [flags]"
	}
	return strings.TrimSpace(line + " " + cmd.ArgsUsage)
}

// dashed is a flag as it is typed.
func dashed(f cli.Flag) string {
	name := f.Names()[0]
	return "--"[:min(len(name), 2)] + name
}

// describeFlag writes a flag, and below it what it means.
func describeFlag(b *strings.Builder, f cli.Flag) {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return
	}
	value, usage := flag.UnquoteUsage(&flag.Flag{Usage: d.GetUsage(), Value: new(values)})
	fmt.Fprintf(b, "  %s", dashed(f))
	if d.TakesValue() {
		fmt.Fprintf(b, " %s", strings.ToUpper(value))
	}
	if text := d.GetDefaultText(); d.TakesValue() && text != "" && text != `""` {
		fmt.Fprintf(b, " (%s)", strings.Trim(text, `"`))
	}
	b.WriteByte('\n')
	line := "     "
	for _, word := range strings.Fields(usage) {
		if len(line)+1+len(word) > helpWidth {
			fmt.Fprintln(b, line)
			line = "     "
		}
		line += " " + word
	}
	fmt.Fprintln(b, line)
}
