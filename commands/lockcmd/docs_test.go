package lockcmd

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// entriesOf is a reply to COMMAND of the proxy's own entries alone.
func entriesOf(d commandFormat) []byte {
	b := resp.AppendArray(nil, len(allVerbDocs))
	for i := range allVerbDocs {
		b = allVerbDocs[i].appendTo(b, d)
	}
	return b
}

// TestVerbDocs_AreACommandTable: what COMMAND says of the verbs is what a client can make a table of,
// as the proxy does, in each form that there was; and the keys are where they are.
func TestVerbDocs_AreACommandTable(t *testing.T) {
	for _, d := range []commandFormat{{proto: 2, columns: 6}, {proto: 2, columns: 7}, {proto: 2, columns: 10},
		{proto: 3, columns: 7}, {proto: 3, columns: 10, display: true}, {proto: 3, columns: 10, emptySubs: true}} {
		reply := entriesOf(d)
		learnt, err := spec.Parse(reply)
		if err != nil {
			t.Fatalf("%+v: %v in %q", d, err, reply)
		}
		for line, want := range map[string]string{
			"LOCK a 30s WAIT 5s": "[1]", "RENEW a 30s": "[1]", "UNLOCK a": "[1]", "UNLOCK": "[]", "LOCKCTL HELP": "[]",
			"LOCKALL 2 a b 30s WAIT 5s": "[2 3]", "RENEWALL 1 a 30s": "[2]", "UNLOCKALL 2 a b me": "[2 3]", "UNLOCKALL 2": "[]",
			"LOCKCTL INFO a": "[2]", "LOCKCTL FORCE a": "[2]", "LOCKCTL FENCE a b": "[2]", "LOCKCTL LIST MATCH a": "[]",
		} {
			args := words(line)
			c := learnt.Lookup(args)
			if d.columns < 10 && strings.HasPrefix(line, "LOCKCTL") {
				if c == nil || c.Arity != -2 {
					t.Errorf("%+v: %s is not known", d, line)
				}
				continue
			}
			if c == nil {
				t.Errorf("%+v: %s is not known", d, line)
				continue
			}
			inSpecs := d.columns < 10 && bytes.HasSuffix(args[0], []byte("ALL")) && c.Takes(len(args)) // where there are none
			if at, ok := c.Keys(args, []int{}); ok == inSpecs || ok && fmt.Sprint(at) != want {
				t.Errorf("%+v: the keys of %s are %v, %v", d, line, at, ok)
			}
		}
	}
}

// TestVerbDocs_RESP2: RESP2 says the same as RESP3, with arrays for sets and maps.
func TestVerbDocs_RESP2(t *testing.T) {
	docs := func(d commandFormat) (b []byte) {
		for i := range allVerbDocs {
			b = allVerbDocs[i].appendDocs(b, d)
		}
		return b
	}
	heads := regexp.MustCompile(`(?m)^[~%]\d+\r$`)
	for name, of := range map[string]func(commandFormat) []byte{"COMMAND": entriesOf, "COMMAND DOCS": docs} {
		flat := heads.ReplaceAllStringFunc(string(of(commandFormat{proto: 3, columns: 10, display: true})), func(head string) string {
			n, _ := strconv.Atoi(strings.TrimSpace(head[1:]))
			if head[0] == '%' {
				n *= 2
			}
			return fmt.Sprintf("*%d\r", n)
		})
		if got := string(of(commandFormat{proto: 2, columns: 10, display: true})); got != flat {
			t.Errorf("%s in RESP2:\n%q\nRESP3 without its types:\n%q", name, got, flat)
		}
	}
}

func TestParseUsage(t *testing.T) {
	got := parseUsage("UNLOCK name [owner] [FENCE n] [ALL]")
	want := []argument{{name: "name"}, {name: "owner", optional: true}, {name: "n", token: "FENCE", optional: true}, {name: "all", token: "ALL", alone: true, optional: true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	got = parseUsage("LOCK name [FRESH | NOREENTER] [SESSION [ONLOSS CLOSE|PUSH]] [WAIT time]")
	want = []argument{{name: "name"}, {name: "fresh-or-noreenter", optional: true, kind: "oneof", parts: []argument{
		{name: "fresh", token: "FRESH", alone: true}, {name: "noreenter", token: "NOREENTER", alone: true},
	}}, {name: "session", optional: true, kind: "block", parts: []argument{
		{name: "session", token: "SESSION", alone: true},
		{name: "onloss", token: "ONLOSS", optional: true, kind: "oneof", parts: []argument{
			{name: "close", token: "CLOSE", alone: true}, {name: "push", token: "PUSH", alone: true},
		}},
	}}, {name: "time", token: "WAIT", optional: true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	got = parseUsage("LOCKALL n name [name ...] ttl")
	want = []argument{{name: "n"}, {name: "name", multiple: true}, {name: "ttl"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := parseUsage("HELP"); got != nil {
		t.Errorf("no arguments: %+v", got)
	}
}

// TestVerbDocs_Shared: the docs of each verb of a reader know SHARED, a word without a value that may be left out; of LOCK it is one of two.
func TestVerbDocs_Shared(t *testing.T) {
	want := argument{name: "shared", token: "SHARED", alone: true, optional: true}
	choice := argument{name: "shared-or-permits", kind: "oneof", optional: true, parts: []argument{
		{name: "shared", token: "SHARED", alone: true}, {name: "k", token: "PERMITS"},
	}}
	for verb, want := range map[string]argument{"LOCK": choice, "RENEW": want, "UNLOCK": want, "LOCKALL": want, "RENEWALL": want, "UNLOCKALL": want} {
		found := 0
		for _, a := range parseUsage(docsOf([]byte(verb)).usage) {
			if reflect.DeepEqual(a, want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: %d of %+v in %q", verb, found, want, docsOf([]byte(verb)).usage)
		}
	}
}

// TestAugment: what goes upstream in place of a command, and what becomes of the reply.
func TestAugment(t *testing.T) {
	entry := func(name string, columns int) string {
		return string(docsOf([]byte(name)).appendTo(nil, commandFormat{proto: 2, columns: columns}))
	}
	const ping = "*6\r\n$4\r\nping\r\n:-1\r\n*0\r\n:0\r\n:0\r\n:0\r\n"
	docs := func(name string) string { return string(docsOf([]byte(name)).appendDocs(nil, commandFormat{proto: 2})) }
	const get = "$3\r\nget\r\n*0\r\n"
	tests := []struct{ line, sent, reply, want string }{
		{"COMMAND", "COMMAND", "*1\r\n" + ping, "*8\r\n" + ping + strings.TrimPrefix(string(entriesOf(commandFormat{proto: 2, columns: 6})), "*7\r\n")},
		{"COMMAND INFO", "COMMAND INFO", "*0\r\n", "*0\r\n"},
		{"COMMAND COUNT", "COMMAND COUNT", ":240\r\n", ":247\r\n"},
		{"COMMAND COUNT", "COMMAND COUNT", "-NOPERM no\r\n", "-NOPERM no\r\n"},
		{"command info x LOCK", "command info x ping", "*2\r\n*-1\r\n" + ping, "*2\r\n*-1\r\n" + entry("lock", 6)},
		{"COMMAND INFO LOCKCTL|INFO", "COMMAND INFO ping", "*1\r\n" + ping, "*1\r\n*-1\r\n"},
		{"COMMAND INFO unlock", "COMMAND INFO ping", "-NOPERM no\r\n", "-NOPERM no\r\n"},
		{"COMMAND LIST FILTERBY PATTERN LOCK", "COMMAND LIST FILTERBY PATTERN LOCK", "*1\r\n+x\r\n", "*2\r\n+x\r\n$4\r\nlock\r\n"},
		{"COMMAND LIST FILTERBY MODULE lock", "COMMAND LIST FILTERBY MODULE lock", "*0\r\n", "*0\r\n"},
		{"COMMAND LIST FILTERBY ACLCAT Dangerous", "COMMAND LIST FILTERBY ACLCAT Dangerous", "*0\r\n", "*2\r\n$13\r\nlockctl|force\r\n$13\r\nlockctl|adopt\r\n"},
		{"COMMAND DOCS get lock x UNLOCK", "COMMAND DOCS get get x get", "*6\r\n" + get + get + get, "*6\r\n" + get + docs("lock") + docs("unlock")},
		{"COMMAND DOCS lock", "COMMAND DOCS get", "-ERR unknown subcommand\r\n", "-ERR unknown subcommand\r\n"},
		{"COMMAND GETKEYS lock a 1s", "COMMAND GETKEYS lock a 1s", "-ERR Invalid command specified\r\n", "*1\r\n$1\r\na\r\n"},
		{"COMMAND GETKEYS lock a 1s", "COMMAND GETKEYS lock a 1s", "-NOPERM no\r\n", "-NOPERM no\r\n"},
		{"COMMAND GETKEYS lockctl nodes", "COMMAND GETKEYS lockctl nodes", "-ERR Invalid command specified\r\n", "-ERR The command has no key arguments\r\n"},
		{"COMMAND GETKEYS lockctl no a", "COMMAND GETKEYS lockctl no a", "-ERR Invalid command specified\r\n", "-ERR Invalid command specified\r\n"},
		{"COMMAND GETKEYS LockAll 2 a b 1s", "COMMAND GETKEYS LockAll 2 a b 1s", "-ERR Invalid command specified\r\n", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"},
		{"COMMAND GETKEYSANDFLAGS unlockall 2 a b", "COMMAND GETKEYSANDFLAGS unlockall 2 a b", "-ERR Invalid command specified\r\n",
			"*2\r\n*2\r\n$1\r\na\r\n*3\r\n+RW\r\n+access\r\n+delete\r\n*2\r\n$1\r\nb\r\n*3\r\n+RW\r\n+access\r\n+delete\r\n"},
		{"COMMAND GETKEYS unlockall 3 a b", "COMMAND GETKEYS unlockall 3 a b", "-ERR Invalid command specified\r\n", "-ERR Invalid arguments specified for command\r\n"},
		{"COMMAND GETKEYS unlockall -1 a", "COMMAND GETKEYS unlockall -1 a", "-ERR Invalid command specified\r\n", "-ERR Invalid arguments specified for command\r\n"},
		{"COMMAND GETKEYS renew a", "COMMAND GETKEYS renew a", "-ERR Invalid command specified\r\n", "-ERR Invalid number of arguments specified for command\r\n"},
	}
	for _, tt := range tests {
		args := words(tt.line)
		sent, add := Augment(2, resp.AppendCommand(nil, args...), args)
		if want := string(resp.AppendCommand(nil, words(tt.sent)...)); string(sent) != want {
			t.Errorf("%s: sent %q", tt.line, sent)
		}
		if got := add([]byte(tt.reply)); string(got) != tt.want {
			t.Errorf("%s, to which the upstream says %q:\ngot  %q\nwant %q", tt.line, tt.reply, got, tt.want)
		}
	}
}
