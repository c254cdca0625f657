package embedded

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// newer are the commands here that Redis 7.0 does not have.
var newer = []string{"client|setinfo", "delex", "hexpire", "hpersist", "hpttl", "hsetex", "httl"}

// startOne starts an embedded server and returns its address.
func startOne(t *testing.T) (*Server, string) {
	t.Helper()
	servers, err := Start(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(servers) })
	return servers[0], strings.TrimPrefix(servers[0].URL(), "redis://")
}

// startReal starts a real server of the version that commands.txt is of.
func startReal(t *testing.T) *redistest.Server {
	t.Helper()
	real := redistest.Start(t)
	if v := real.Do(t, "INFO", "server").Text; !strings.Contains(v, "redis_version:7.0.") {
		t.Skip("the redis-server here is not 7.0")
	}
	return real
}

// told is a reply on one line, for comparison: without these fields of maps, with the members of sets and the subcommands
// that both servers have in alphabetical order.
func told(v redistest.Value, leftOut ...string) string {
	var parts []string
	switch {
	case v.Kind == '%':
		for i := 0; i < len(v.Elems); i += 2 {
			if name := v.Elems[i].Text; !slices.Contains(leftOut, name) && !isMissingSub(name) {
				parts = append(parts, name+":"+told(v.Elems[i+1], leftOut...))
			}
		}
		slices.Sort(parts)
	case v.Kind == '*' || v.Kind == '~':
		isSubs := false
		for _, e := range v.Elems {
			if e.Kind == '*' && len(e.Elems) == 10 { // an entry of COMMAND
				if isSubs = true; isMissingSub(e.Elems[0].Text) {
					continue
				}
			}
			parts = append(parts, told(e, leftOut...))
		}
		if isSubs || v.Kind == '~' {
			slices.Sort(parts)
		}
	default:
		return v.String()
	}
	return fmt.Sprintf("%c[%s]", v.Kind, strings.Join(parts, " "))
}

// isMissingSub reports whether a name is that of a subcommand that only one of the servers has.
func isMissingSub(name string) bool {
	return strings.Contains(name, "|") && (commands().byName[name] == nil || slices.Contains(newer, name))
}

// TestCommands_AsARealServerTells: COMMAND INFO and DOCS are those of a real server, but for summaries and other prose.
func TestCommands_AsARealServerTells(t *testing.T) {
	real := startReal(t)
	_, addr := startOne(t)
	here, there := redistest.Open3(t, addr), redistest.Open3(t, real.Addr())
	for name := range commands().byName {
		mine, its := here.Do(t, "COMMAND", "INFO", name).Elems[0], there.Do(t, "COMMAND", "INFO", name).Elems[0]
		if its.Null != slices.Contains(newer, name) {
			t.Errorf("%s: a real server says %v", name, its)
		}
		if its.Null {
			continue
		}
		if got, want := told(mine), told(its, "notes"); got != want {
			t.Errorf("COMMAND INFO %s is\n%s\nof a real server\n%s", name, got, want)
		}
		mine, its = here.Do(t, "COMMAND", "DOCS", name), there.Do(t, "COMMAND", "DOCS", name)
		got := told(mine, "summary", "display_text", "since")
		want := told(its, "summary", "complexity", "history", "doc_flags", "deprecated_since", "replaced_by", "since")
		if got != want {
			t.Errorf("COMMAND DOCS %s is\n%s\nof a real server\n%s", name, got, want)
		}
		if got, want := field3(mine.Elems[1], "since"), field3(its.Elems[1], "since"); got != want {
			t.Errorf("%s is since %s, in a real server since %s", name, got, want)
		}
		if field3(mine.Elems[1], "summary") == "" {
			t.Errorf("%s has no summary", name)
		}
	}
}

// field3 is the text of a field of a map.
func field3(v redistest.Value, name string) string {
	for i := 0; i < len(v.Elems); i += 2 {
		if v.Elems[i].Text == name {
			return v.Elems[i+1].Text
		}
	}
	return ""
}

// TestCommands_RESP2SaysTheSame: the replies in RESP2 are those in RESP3, with lists in place of maps and sets.
func TestCommands_RESP2SaysTheSame(t *testing.T) {
	_, addr := startOne(t)
	for _, asked := range [][]string{{"COMMAND"}, {"COMMAND", "DOCS"}, {"COMMAND", "INFO", "get", "nosuch", "config|get"}, {"CONFIG", "GET", "*"}} {
		two, three := redistest.Open(t, addr).Do(t, asked...), redistest.Open3(t, addr).Do(t, asked...)
		if want := inLists(three); two.String() != want || want == three.String() {
			t.Errorf("%s: in RESP2 %.300v\nin RESP3 %.300v", asked, two, three)
		}
	}
}

// inLists is a reply on one line with lists in place of maps and sets.
func inLists(v redistest.Value) string {
	switch v.Kind {
	case '_':
		return "$-1"
	case '*', '%', '~':
		parts := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			parts[i] = inLists(e)
		}
		return "*[" + strings.Join(parts, " ") + "]"
	}
	return v.String()
}

// TestCommands_AreThere: every command that COMMAND lists can be run, and it leaves out none that miniredis runs.
func TestCommands_AreThere(t *testing.T) {
	s, addr := startOne(t)
	for name, command := range commands().byName {
		words := strings.Split(name, "|")
		for len(words) < max(command.arity, -command.arity) {
			words = append(words, "x")
		}
		c := redistest.Open(t, addr)
		c.Do(t, "FLUSHALL") // SRANDMEMBER of what SUNIONSTORE has left empty would panic in miniredis
		if v := c.Do(t, words...); strings.Contains(v.Text, "unknown command") || len(command.subs) == 0 && strings.Contains(v.Text, "unknown subcommand") {
			t.Errorf("COMMAND has %s: %v", name, v)
		}
	}
	c := redistest.Open(t, startReal(t).Addr())
	for _, v := range c.Do(t, "COMMAND", "LIST").Elems {
		if commands().byName[v.Text] == nil && s.m.Server().IsRegisteredCommand(v.Text) && v.Text != "cluster" {
			t.Errorf("COMMAND lacks %s", v.Text)
		}
	}
	if n := redistest.Open(t, addr).Do(t, "COMMAND", "COUNT").Int(); n != int64(len(commands().all)) {
		t.Errorf("COMMAND COUNT is %d", n)
	}
}

func TestCommands_KeysAndNames(t *testing.T) {
	real := startReal(t)
	_, addr := startOne(t)
	here, there := redistest.Open(t, addr), redistest.Open(t, real.Addr())
	for _, asked := range []string{
		"GETKEYS GET a", "GETKEYS MSET a 1 b 2", "GETKEYS EVAL return 2 a b c", "GETKEYS XREAD STREAMS a b 0 0", "GETKEYS ZUNION 2 a b",
		"GETKEYS PING", "GETKEYS NOSUCH a", "GETKEYS GET", "GETKEYS SCRIPT LOAD x", "LIST FILTERBY PATTERN get*", "LIST FILTERBY MODULE x", "DOCS nosuch", "INFO nosuch",
	} {
		words := append([]string{"COMMAND"}, strings.Fields(asked)...)
		got, want := here.Do(t, words...), there.Do(t, words...)
		slices.SortFunc(want.Elems, func(a, b redistest.Value) int { return strings.Compare(a.Text, b.Text) })
		if strings.HasPrefix(asked, "GETKEYS") {
			want = there.Do(t, words...)
		}
		if got.String() != want.String() {
			t.Errorf("COMMAND %s: %v, from a real server %v", asked, got, want)
		}
	}
	if v := here.Do(t, "COMMAND", "LIST", "FILTERBY", "ACLCAT", "hyperloglog"); v.String() != `*[$"pfadd" $"pfcount" $"pfmerge"]` {
		t.Errorf("COMMAND LIST FILTERBY ACLCAT: %v", v)
	}
	for _, asked := range []string{"NOSUCH", "COUNT x", "LIST FILTERBY", "GETKEYS"} {
		if v := here.Do(t, append([]string{"COMMAND"}, strings.Fields(asked)...)...); !v.IsError() {
			t.Errorf("COMMAND %s: %v", asked, v)
		}
	}
}

func TestParseTable_Faults(t *testing.T) {
	for _, text := range []string{"get", "get x - - - -", "get 1 - - - 1,x", "get|sub 1 - - - -", "get 1 - - - -\n  1.0.0 string x\n  a]b", "get 1 - - - -\n  1.0.0 string x\n  [a b"} {
		if _, err := parseTable(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
