package spec

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

var update = flag.Bool("update", false, "write redis70.txt as the redis-server on the PATH has it")

const header = `# The commands of Redis %s, as its COMMAND tells. Made by go generate.
#
# name arity flags request_policy response_policy keys...
#
# Keys are BEGIN:FIND!FLAG. BEGIN is the position of the first, or KEYWORD@START for
# behind a keyword that is looked for from START, or ? where it cannot be said. FIND is
# LAST,STEP,LIMIT, or #NUMBER,FIRST,STEP where NUMBER is where the number of keys is.
`

// format writes t as parse reads it.
func format(t *Table, version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, header, version)
	for c := range t.All() {
		fmt.Fprintf(&b, "%s %d %s %s %s", c.Name, c.Arity, formatFlags(c.Flags), requestWords[c.Request], responseWords[c.Response])
		for _, s := range c.specs {
			fmt.Fprintf(&b, " %s:%s%s", s.formatBegin(), s.formatFind(), s.formatFlags())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func formatFlags(f Flags) string {
	var words []string
	for i, word := range flagWords {
		if f&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	if words == nil {
		return "-"
	}
	return strings.Join(words, ",")
}

func (s *keySpec) formatBegin() string {
	switch s.begin {
	case beginIndex:
		return fmt.Sprint(s.at)
	case beginKeyword:
		return fmt.Sprintf("%s@%d", s.keyword, s.at)
	}
	return "?"
}

func (s *keySpec) formatFind() string {
	switch s.find {
	case findRange:
		return fmt.Sprintf("%d,%d,%d", s.last, s.step, s.limit)
	case findNum:
		return fmt.Sprintf("#%d,%d,%d", s.num, s.first, s.step)
	}
	return "?"
}

func (s *keySpec) formatFlags() (text string) {
	if s.notKey {
		text += "!not_key"
	}
	if s.incomplete {
		text += "!incomplete"
	}
	if s.variable {
		text += "!variable_flags"
	}
	return text
}

// version is the server's redis_version.
func version(t *testing.T, server *redistest.Server) string {
	_, after, _ := strings.Cut(server.Do(t, "INFO", "server").Text, "redis_version:")
	v, _, _ := strings.Cut(after, "\r")
	return v
}

// What the redis-server here says of its commands is what the program believes
// without having asked one. With -update it is from now on.
func TestBuiltin(t *testing.T) {
	server := redistest.Start(t)
	v := version(t, server)
	learnt, err := Parse([]byte(server.Do(t, "COMMAND").Raw))
	if err != nil {
		t.Fatal(err)
	}
	text := format(learnt, v)
	if *update {
		if err := os.WriteFile("redis70.txt", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !strings.HasPrefix(v, "7.0.") {
		t.Skipf("the redis-server here is %s", v)
	}
	want, have := body(text), body(redis70)
	for _, line := range want {
		if !slices.Contains(have, line) {
			t.Errorf("redis70.txt lacks %q", line)
		}
	}
	if len(have) != len(want) {
		t.Errorf("redis70.txt has %d commands, the server %d", len(have), len(want))
	}
	if got := format(Builtin(), v); got != text {
		t.Errorf("reading redis70.txt loses something: %d bytes of %d", len(got), len(text))
	}
}

// body is text without its comments, in lines.
func body(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
}

// In RESP3 the same is said with maps and sets.
func TestParse_RESP3SaysTheSame(t *testing.T) {
	server := redistest.Start(t)
	two := server.Do(t, "COMMAND").Raw
	three := redistest.Open3(t, server.Addr()).Do(t, "COMMAND").Raw
	a, err := Parse([]byte(two))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse([]byte(three))
	if err != nil {
		t.Fatal(err)
	}
	if two == three || format(a, "") != format(b, "") {
		t.Errorf("RESP2 and RESP3 tell different tables, or do not differ at all")
	}
}
