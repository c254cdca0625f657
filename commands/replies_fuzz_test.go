package commands

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/commands/relay"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// cutWhole cuts p into the whole replies that it begins with.
func cutWhole(p []byte) (all [][]byte) {
	var f resp.Scanner
	for {
		n, done, err := f.Scan(p)
		if !done || err != nil {
			return all
		}
		all, p = append(all, p[:n]), p[n:]
	}
}

// FuzzUpstreamReplies: whatever nodes answer, it is read without a fault, and joined to
// one reply.
func FuzzUpstreamReplies(f *testing.F) {
	for _, s := range []string{
		":1\r\n:2\r\n", "*2\r\n$1\r\na\r\n$-1\r\n*1\r\n_\r\n", "~1\r\n+a\r\n*1\r\n+a\r\n", "$-1\r\n$1\r\na\r\n", "%1\r\n+a\r\n:1\r\n%1\r\n+a\r\n:2\r\n", "*2\r\n+a\r\n:1\r\n*2\r\n+a\r\n:2\r\n",
		"$70\r\n# Server\r\nredis_mode:cluster\r\n# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=7\r\n\r\n", "=9\r\ntxt:a b=c\r\n", "-MOVED 3 h:1\r\n-ASK 3 h:1\r\n", "-MOVED 99999999999 :\r\n", "-MOVED\r\n", "-ASK -1 [::1]:7\r\n",
		"*2\r\n$1\r\n5\r\n*1\r\n$1\r\na\r\n", "*2\r\n$20\r\n18446744073709551615\r\n*0\r\n", "|1\r\n+a\r\n+b\r\n:1\r\n", "*-1\r\n", ":\r\n", ":x\r\n", "*1\r\n*1\r\n*0\r\n", "$0\r\n\r\n", "(1\r\n", "!5\r\nERR x\r\n", "$43\r\nid=7 addr=/a b c:0 laddr=x name= flags=N cmd=\n\r\n", "#t\r\n,1\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		parts := cutWhole(p)
		if len(parts) == 0 {
			return
		}
		for _, r := range parts {
			resp.Bulk(r)
			_, _ = bulkText(r)
			_, _, _ = relay.ParseRedirection(r)
			standaloneHello(r)
			if elems, ok := resp.Elements(r); ok {
				if total := len(bytes.Join(elems, nil)); total > len(r) {
					t.Fatalf("%q has elements of %d bytes", r, total)
				}
			}
			checkReply(t, standaloneInfo(r))
			checkReply(t, mergeCursor(r, 3, 5))
		}
		if firstError(parts) != nil {
			return
		}
		for _, c := range allRows() {
			if c.cluster.fanOut == nil {
				continue
			}
			out := c.cluster.fanOut(parts)
			var fr resp.Scanner
			if n, done, err := fr.Scan(out); n != len(out) || !done || err != nil {
				t.Fatalf("%s of %q: not one reply: %q", c.name, parts, out)
			}
		}
		places := make([][]int, len(parts))
		for i := range places {
			places[i] = []int{i}
		}
		checkReply(t, mergeElements(places, parts))
	})
}

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

// checkReply wants exactly one.
func checkReply(t *testing.T, reply []byte) {
	t.Helper()
	var fr resp.Scanner
	if n, done, err := fr.Scan(reply); n != len(reply) || !done || err != nil {
		t.Errorf("not one reply: %q", reply)
	}
}
