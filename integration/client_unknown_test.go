package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestClientUnknownSubcommand: what the upstream does not know leaves no state there. So the client keeps its connection,
// and its lock with SESSION, when the upstream goes down. redis-py 8 begins every connection with such a command.
func TestClientUnknownSubcommand(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	p := redistest.StartProxy(t, data, redistest.StartNodes(t, 3))
	clients := map[string]*redistest.Conn{"PING": redistest.Open(t, p.Addr()), "HELLO 3": redistest.Open(t, p.Addr())}
	for first, c := range clients {
		c.Do(t, quoted(first)...)
		if v := c.Do(t, "CLIENT", "MAINT_NOTIFICATIONS", "ON"); !strings.HasPrefix(v.Text, "ERR unknown subcommand 'MAINT_NOTIFICATIONS'") {
			t.Fatal(v)
		}
		if v := c.Do(t, "LOCK", first, "30s", "OWNER", "me", "SESSION"); len(v.Elems) != 4 {
			t.Fatal(v)
		}
	}
	data.Kill()
	other := redistest.Open(t, p.Addr())
	redistest.Eventually(t, 30*time.Second, "the upstream is down", func() bool {
		return strings.HasPrefix(other.Do(t, "GET", "x").Text, "UPSTREAMDOWN")
	})
	for first, c := range clients {
		if v := c.Do(t, "RENEW", first, "30s", "me"); v.Kind != ':' {
			t.Errorf("after %s: %v", first, v)
		}
	}
}
