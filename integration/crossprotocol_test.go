package integration

import (
	"io"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A page can make a browser send HTTP to a port on its own machine, with commands in the
// body. Redis disconnects who says POST or Host:, whatever the case; so does the proxy,
// and the connection that others share is left alone.
func TestHTTPRequest_IsNoCommand(t *testing.T) {
	t.Parallel()
	requests := map[string]string{
		"a form":              "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n\r\n",
		"an image":            "GET / HTTP/1.1\r\nhOsT: localhost\r\n\r\n",
		"in the form of RESP": redistest.Command("post", "/"),
		"behind a command":    "PING\r\nHost: localhost\r\n",
		"in a transaction":    "MULTI\r\nHost: localhost\r\n",
		"on its own":          "CLIENT NO-EVICT off\r\nHost: localhost\r\n",
		"behind SUBSCRIBE":    "SUBSCRIBE c\r\nHost: localhost\r\n",
	}
	data := redistest.Start(t)
	guarded := redistest.Start(t, "--requirepass", "x")
	for _, up := range []*redistest.Server{data, guarded} {
		p := redistest.StartProxy(t, up, nil)
		other := redistest.Open(t, p.Addr())
		other.Do(t, "PING")
		for name, request := range requests {
			for _, addr := range []string{up.Addr(), p.Addr()} {
				c := redistest.Open(t, addr)
				c.Send(t, request)
				if _, closed := c.ReadUntilQuiet(redistest.ReplyTimeout); !closed {
					t.Errorf("%s: %s goes on listening", name, addr)
				}
				_, _ = io.WriteString(c.Conn, "SET pwned 1\r\n") // fails, or goes nowhere
			}
			if v := other.Do(t, "PING"); strings.HasPrefix(v.Raw, "-UPSTREAMDOWN") {
				t.Errorf("%s: it cost another client its connection: %v", name, v)
			}
		}
		if strings.Contains(p.Log(), "to the upstream again") {
			t.Errorf("a connection to the upstream was lost:\n%s", p.Log())
		}
		if strings.Count(p.Log(), "a client sends HTTP") != 1 {
			t.Errorf("the log does not say it once:\n%s", p.Log())
		}
	}
	if v := data.Do(t, "EXISTS", "pwned"); v.Raw != ":0\r\n" {
		t.Errorf("a command from a body was executed: %v", v)
	}
}
