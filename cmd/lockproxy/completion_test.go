package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/lockproxy/lockproxy/cmd/lockproxy/exit"
)

// The script is run by a real bash.
func TestCompletion_Bash(t *testing.T) {
	code, script, stderr := execute(t, nil, "completion", "bash")
	if code != exit.OK || stderr != "" {
		t.Fatal(code, stderr)
	}
	for _, tt := range []struct {
		typed         string // the last word is completed
		offers, never []string
	}{
		{"lockproxy ", []string{"serve", "dev", "top", "why", "--version"}, []string{"--max-ttl", "add"}},
		{"lockproxy no", []string{"nodes"}, []string{"serve"}},
		{"lockproxy serve --max-", []string{"--max-ttl", "--max-clients"}, []string{"--min-ttl"}},
		{"lockproxy serve --max-ttl 5s --adm", []string{"--admin", "--admin-tls"}, nil},
		{"lockproxy check --ad", []string{"--adopt"}, nil}, // --help does not list it
		{"lockproxy nodes ", []string{"add", "replace", "--json"}, []string{"--finish"}},
		{"lockproxy nodes add --f", []string{"--finish"}, []string{"--json"}},
		{"lockproxy adopt ex", []string{"explain"}, nil},
		{"lockproxy nonsense ", nil, []string{"serve", "--help"}},
	} {
		words := strings.Split(tt.typed, " ")
		cmd := exec.Command("bash", "-c", script+`COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockproxy; printf '%s\n' "${COMPREPLY[@]}"`, "bash")
		cmd.Args = append(cmd.Args, words...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := strings.Fields(string(out))
		for _, word := range tt.offers {
			if !slices.Contains(got, word) {
				t.Errorf("%q: no %s in %v", tt.typed, word, got)
			}
		}
		for _, word := range tt.never {
			if slices.Contains(got, word) {
				t.Errorf("%q: %s in %v", tt.typed, word, got)
			}
		}
	}
}

// What is printed for people and for other shells names every command and every flag.
func TestCompletion_NamesAll(t *testing.T) {
	_, fish, _ := execute(t, nil, "completion", "fish")
	_, zsh, _ := execute(t, nil, "completion", "zsh")
	zsh = strings.ReplaceAll(zsh, "'", " ")
	_, man, _ := execute(t, nil, "man")
	n := 0
	eachCommand(program{}.root(), "", func(path string, cmd *cli.Command) {
		if !strings.Contains(fish, " -a "+cmd.Name+" -d '") || !strings.Contains(zsh, " "+cmd.Name+" ") || !strings.Contains(man, "\n.SS "+strings.ReplaceAll(path, "-", `\-`)+"\n") {
			t.Errorf("%s is missing", path)
		}
		for _, f := range cmd.Flags {
			n++
			name, typed, inFish := f.Names()[0], "--"+f.Names()[0], " -l "
			if name == "v" {
				typed, inFish = "-v", " -s "
			}
			if !strings.Contains(fish, inFish+name+" ") || !strings.Contains(zsh, " "+typed+" ") {
				t.Errorf("%s %s is missing", path, typed)
			}
			if f.(cli.VisibleFlag).IsVisible() && !strings.Contains(man, ".B "+strings.ReplaceAll(typed, "-", `\-`)+"\n") {
				t.Errorf("%s %s is missing in the manual", path, typed)
			}
		}
	})
	if n < 100 {
		t.Errorf("only %d flags", n)
	}
	for line := range strings.Lines(man) {
		if known := []string{".TH ", ".SH ", ".SS ", ".TP\n", ".B ", ".PP\n", ".nf\n", ".fi\n"}; line[0] == '.' && !slices.ContainsFunc(known, func(m string) bool { return strings.HasPrefix(line, m) }) {
			t.Errorf("text would be taken for a macro: %q", line)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "zsh"}} {
		if code, stdout, stderr := execute(t, nil, args...); code != exit.Usage || stdout != "" || !strings.Contains(stderr, "bash, zsh or fish") {
			t.Errorf("%v: %d %s%s", args, code, stdout, stderr)
		}
	}
}
