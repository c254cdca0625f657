package integration

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestServiceManager_IsNotified: when clients can connect, and when the proxy is about to end.
func TestServiceManager_IsNotified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	manager.SetReadDeadline(time.Now().Add(30 * time.Second))
	hear := func(want string) {
		buf := make([]byte, 100)
		if n, err := manager.Read(buf); err != nil || string(buf[:n]) != want {
			t.Fatalf("heard %q, %v, not %q", buf[:n], err, want)
		}
	}
	r := startRig(t, 1, 1)
	hear("READY=1")
	r.proxies[0].Terminate(20 * time.Second)
	hear("STOPPING=1")
}

// TestDrainUnblocks: a command that blocks holds the end of the proxy up for no longer
// than others do. Its client is not answered, so that it asks again elsewhere, and what
// comes later is left for that.
func TestDrainUnblocks(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--drain-timeout", "5m")
	c := redistest.Open(t, r.addr())
	c.Send(t, redistest.Command("BLPOP", "list", "0"))
	eventually(t, 10*time.Second, "the client is blocked", func() bool { return blocked(t, r.data) == 1 })
	if ended, status := r.proxies[0].Terminate(time.Minute); !ended || status != nil {
		t.Fatalf("SIGTERM: ended %v, status %v", ended, status)
	}
	if got, closed := c.ReadUntilQuiet(10 * time.Second); got != "" || !closed {
		t.Errorf("got %q, closed %v", got, closed)
	}
	r.data.Do(t, "RPUSH", "list", "a")
	if v := r.data.Do(t, "LRANGE", "list", "0", "-1"); len(v.Elems) != 1 {
		t.Errorf("the list is %v", v)
	}
}
