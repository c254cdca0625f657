package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// completionCommand prints what a shell needs to complete commands and flags. It is made of the commands themselves, so that it
// names what this build has.
func (p program) completionCommand(root func() *cli.Command) *cli.Command {
	scripts := map[string]func(io.Writer, *cli.Command){"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	return &cli.Command{
		Name: "completion", Usage: "print what bash, zsh or fish need to complete commands and flags", ArgsUsage: "bash|zsh|fish", OnUsageError: onUsageError,
		Description: `In ~/.bashrc or ~/.zshrc:  source <(lockproxy completion bash)  (or zsh)
For fish:                  lockproxy completion fish > ~/.config/fish/completions/lockproxy.fish`,
		Action: func(c *cli.Context) error {
			script, ok := scripts[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return usageError{errors.New("completion takes bash, zsh or fish")}
			}
			var b strings.Builder
			script(&b, root())
			_, err := io.WriteString(p.stdout, b.String())
			return err
		},
	}
}

// eachCommand calls visit with every command below cmd and the words that call it.
func eachCommand(cmd *cli.Command, path string, visit func(path string, cmd *cli.Command)) {
	for _, sub := range cmd.Subcommands {
		visit(strings.TrimSpace(path+" "+sub.Name), sub)
		eachCommand(sub, path+" "+sub.Name, visit)
	}
}

// words are what may stand behind a command: its own, and its flags, also those that --help does not list.
func words(cmd *cli.Command) string {
	var all []string
	for _, sub := range cmd.Subcommands {
		all = append(all, sub.Name)
	}
	for _, f := range cmd.Flags {
		all = append(all, dashed(f))
	}
	return strings.Join(append(all, "--help"), " ")
}

func bashCompletion(w io.Writer, root *cli.Command) {
	fmt.Fprintf(w, "_lockproxy() {\n\tlocal words='%s'\n\t[ \"$COMP_CWORD\" -gt 1 ] && case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n", words(root))
	var plain strings.Builder
	eachCommand(root, "", func(path string, cmd *cli.Command) {
		if strings.Contains(path, " ") {
			fmt.Fprintf(w, "\t'%s') words='%s' ;;\n", path, words(cmd))
		} else {
			fmt.Fprintf(&plain, "\t'%s '*) words='%s' ;;\n", path, words(cmd))
		}
	})
	fmt.Fprintf(w, "%s\t*) words= ;;\n\tesac\n\tCOMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -o default -F _lockproxy lockproxy\n", plain.String())
}

func zshCompletion(w io.Writer, root *cli.Command) {
	fmt.Fprintln(w, "autoload -U +X compinit bashcompinit && compinit && bashcompinit")
	bashCompletion(w, root)
}

func fishCompletion(w io.Writer, root *cli.Command) {
	quote := func(text string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "`", "").Replace(text) + "'"
	}
	for _, sub := range root.Subcommands {
		fmt.Fprintf(w, "complete -c lockproxy -f -n __fish_use_subcommand -a %s -d %s\n", sub.Name, quote(sub.Usage))
	}
	eachCommand(root, "", func(path string, cmd *cli.Command) {
		seen := "'__fish_seen_subcommand_from " + strings.ReplaceAll(path, " ", "; and __fish_seen_subcommand_from ") + "'"
		for _, sub := range cmd.Subcommands {
			fmt.Fprintf(w, "complete -c lockproxy -n %s -a %s -d %s\n", seen, sub.Name, quote(sub.Usage))
		}
		for _, f := range cmd.Flags {
			if d, ok := f.(cli.DocGenerationFlag); ok {
				argument, kind := "", "-l"
				if len(f.Names()[0]) == 1 {
					kind = "-s"
				}
				if d.TakesValue() {
					argument = " -r"
				}
				fmt.Fprintf(w, "complete -c lockproxy -n %s %s %s%s -d %s\n", seen, kind, f.Names()[0], argument, quote(d.GetUsage()))
			}
		}
	})
}

// manCommand prints a manual page, made of the commands themselves.
func (p program) manCommand(root func() *cli.Command) *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page: lockproxy man | man -l -", OnUsageError: onUsageError,
		Action: func(*cli.Context) error {
			var b strings.Builder
			manual(&b, root())
			_, err := io.WriteString(p.stdout, b.String())
			return err
		},
	}
}

func manual(w io.Writer, root *cli.Command) {
	roff := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "`", "")
	text := func(s string) string {
		if s = roff.Replace(s); strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
			s = `\&` + s
		}
		return s
	}
	fmt.Fprintf(w, ".TH LOCKPROXY 1\n.SH NAME\nlockproxy \\- %s\n.SH SYNOPSIS\n.B lockproxy\nCOMMAND [flags]\n.SH DESCRIPTION\n.nf\n%s\n.fi\n.SH COMMANDS\n",
		text(root.Usage), text(root.Description))
	eachCommand(root, "", func(path string, cmd *cli.Command) {
		usage := cmd.UsageText
		if usage == "" {
			usage = usageLine("lockproxy "+path, cmd) + "\n" + cmd.Description
		}
		fmt.Fprintf(w, ".SS %s\n%s\n.PP\n.nf\n%s\n.fi\n", text(path), text(cmd.Usage), text(strings.TrimSpace(strings.TrimPrefix(usage, "usage: "))))
		for _, f := range cmd.Flags {
			if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
				continue
			}
			if d, ok := f.(cli.DocGenerationFlag); ok {
				fmt.Fprintf(w, ".TP\n.B %s\n%s\n", text(dashed(f)), text(d.GetUsage()))
			}
		}
	})
	fmt.Fprint(w, ".SH SEE ALSO\nredis\\-cli(1), redis\\-server(1); the directory docs of the source\n")
}
