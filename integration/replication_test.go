package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// WAIT must wait for what the client wrote, though the proxy sends writes and WAIT
// on different connections.
func TestWaitSeesWritesMadeBefore(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	eventually(t, 20*time.Second, "the replica follows", func() bool {
		return strings.Contains(replica.Do(t, "INFO", "replication").Text, "master_link_status:up")
	})
	proxy := redistest.StartProxy(t, master, []*redistest.Server{redistest.Start(t)})
	c := redistest.Open(t, proxy.Addr())

	c.Send(t, lines("SET a 1", "WAIT 1 5000"))
	c.Read(t)
	if v := c.Read(t); v.String() != ":1" {
		t.Fatalf("with a replica that follows: %v", v)
	}
	replica.Pause()
	defer replica.Resume()
	const timeout = 300 * time.Millisecond
	for _, pipelined := range []bool{true, false} {
		began := time.Now()
		if pipelined {
			c.Send(t, lines("SET a 2", "WAIT 1 300"))
			c.Read(t)
		} else {
			c.Do(t, "SET", "a", "3")
			c.Send(t, lines("WAIT 1 300"))
		}
		if v := c.Read(t); v.String() != ":0" {
			t.Errorf("pipelined %v: a stopped replica acknowledged: %v", pipelined, v)
		}
		if took := time.Since(began); took < timeout {
			t.Errorf("pipelined %v: WAIT did not wait: %v", pipelined, took)
		}
	}
}

// Behind one client's endless script, the others must hear that the upstream is
// busy, and one of them must be able to kill it.
func TestBusyScript(t *testing.T) {
	t.Parallel()
	for _, db := range []string{"0", "9"} { // a connection opened meanwhile could not select another
		t.Run("database "+db, func(t *testing.T) { testBusyScript(t, db) })
	}
}

func testBusyScript(t *testing.T, db string) {
	t.Parallel()
	w := startTwin(t)
	w.behind.Do(t, "CONFIG", "SET", "busy-reply-threshold", "20")
	looping, other := redistest.Open(t, w.via), redistest.Open(t, w.via)
	other.Do(t, "SELECT", db)
	other.Do(t, "SET", "a", "1")
	looping.Send(t, redistest.Command("EVAL", "while true do end", "0"))
	eventually(t, 9*time.Second, "another client hears BUSY", func() bool {
		return strings.HasPrefix(other.Do(t, "GET", "a").Text, "BUSY ")
	})
	if v := other.Do(t, "SCRIPT", "KILL"); v.String() != "+OK" {
		t.Fatalf("SCRIPT KILL: %v", v)
	}
	if v := looping.Read(t); !v.IsError() || !strings.Contains(v.Text, "killed") {
		t.Errorf("the killed script answered %v", v)
	}
	if v := other.Do(t, "GET", "a"); v.Text != "1" {
		t.Errorf("afterwards: %v", v)
	}
}

// A command that CLIENT PAUSE holds up must hold up nobody else.
func TestClientPause_DelaysOnlyAffectedCommands(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	admin, writer, reader := redistest.Open(t, w.via), redistest.Open(t, w.via), redistest.Open(t, w.via)
	reader.Do(t, "SET", "a", "1")
	if v := admin.Do(t, "CLIENT", "PAUSE", "60000", "WRITE"); v.String() != "+OK" {
		t.Fatal(v)
	}
	writer.Send(t, redistest.Command("SET", "a", "2"))
	for range 10 {
		if v := reader.Do(t, "GET", "a"); v.Text != "1" {
			t.Fatalf("a read while writes are paused: %v", v)
		}
	}
	if v := admin.Do(t, "CLIENT", "UNPAUSE"); v.String() != "+OK" {
		t.Fatal(v)
	}
	if v := writer.Read(t); v.String() != "+OK" {
		t.Errorf("the write after the pause: %v", v)
	}
}
