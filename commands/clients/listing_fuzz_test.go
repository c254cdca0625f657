package clients

import (
	"strings"
	"testing"
)

// FuzzParseEntry: an entry of CLIENT LIST reads back as it was.
func FuzzParseEntry(f *testing.F) {
	for _, s := range []string{
		"id=7 addr=127.0.0.1:1 laddr=x:2 fd=8 name= age=1 idle=0 flags=N db=0 cmd=client|list user=default redir=-1", "id=7 addr=/a path with = signs:0 flags=U", "", "=", "a", "a b", "  ", "id=9223372036854775808", "flags=MSP",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r := parseEntry(line)
		r.clientType()
		r.number("id")
		out := string(r.appendTo(nil))
		if first, _, _ := strings.Cut(line, " "); strings.Contains(first, "=") && out != line+"\n" {
			t.Fatalf("%q became %q", line, out)
		}
		again := parseEntry(strings.TrimSuffix(out, "\n"))
		if len(r) > 0 && r[0].key != "" && !strings.ContainsAny(r[0].key, " ") && again.get(r[0].key) != r.get(r[0].key) {
			t.Fatalf("%q: %q is %q, then %q", line, r[0].key, r.get(r[0].key), again.get(r[0].key))
		}
	})
}
