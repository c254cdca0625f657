package commands

import (
	"bytes"
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/relay"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/clients"
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
			(&clients.Registry{}).Listing(r, nil)
			_, _, _ = relay.ParseRedirection(r)
			cluster.StandaloneHello(r)
			if elems, ok := resp.Elements(r); ok {
				if total := len(bytes.Join(elems, nil)); total > len(r) {
					t.Fatalf("%q has elements of %d bytes", r, total)
				}
			}
			checkReply(t, cluster.Info([][]byte{r}))
		}
		for _, c := range allRows() {
			if c.Cluster.FanOut == nil {
				continue
			}
			out := c.Cluster.FanOut.Merge(parts)
			var fr resp.Scanner
			if n, done, err := fr.Scan(out); n != len(out) || !done || err != nil {
				t.Fatalf("%s of %q: not one reply: %q", c.Name, parts, out)
			}
		}
		places := make([][]int, len(parts))
		for i := range places {
			places[i] = []int{i}
		}
		if refused := slices.ContainsFunc(parts, isError); !refused {
			checkReply(t, cluster.Elements(places, parts))
		}
	})
}

func isError(reply []byte) bool { _, refused := resp.Error(reply); return refused }

// checkReply wants exactly one.
func checkReply(t *testing.T, reply []byte) {
	t.Helper()
	var fr resp.Scanner
	if n, done, err := fr.Scan(reply); n != len(reply) || !done || err != nil {
		t.Errorf("not one reply: %q", reply)
	}
}
