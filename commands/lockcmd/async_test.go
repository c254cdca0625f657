package lockcmd

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/memstore"
)

// A watchedConn notes its replies, pushes and whether the client's host is watched.
type watchedConn struct {
	fakeConn
	present context.Context
	replies []string
	told    []string
	watched bool
}

func (c *watchedConn) Present() context.Context { return c.present }
func (c *watchedConn) WatchHost(on bool)        { c.watched = on }

func (c *watchedConn) Reply(reply []byte, err error) bool {
	if err != nil {
		reply = []byte(err.Error())
	}
	c.replies = append(c.replies, strings.Join(strings.Fields(string(reply)), " "))
	return true
}

func (c *watchedConn) Push(p []byte) bool {
	c.told = append(c.told, strings.Join(strings.Fields(string(p)), " "))
	return true
}

// asyncClients are clients of one proxy whose locks are in memory.
func asyncClients(t *testing.T, n int, publish func(channel, message string)) (all []*Client, conns []*watchedConn, leave []context.CancelFunc) {
	t.Helper()
	began := time.Now()
	svc, err := locks.New(memstore.New(time.Minute, func() time.Duration { return time.Since(began) + time.Hour }), locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	v := New(Options{Locker: svc, Sessions: svc, Publish: publish}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		v.Drain()
		v.Wait()
		stop()
		<-ended
	})
	for range n {
		present, cancel := context.WithCancel(t.Context())
		conn := &watchedConn{fakeConn: fakeConn{proto: 3, admin: true}, present: present}
		c := v.NewClient(conn)
		all, conns, leave = append(all, &c), append(conns, conn), append(leave, cancel)
	}
	return all, conns, leave
}

// TestAsync_HostIsWatched for as long as the client waits for a lock with SESSION, and has it: whatever it sends meanwhile.
func TestAsync_HostIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, conns, _ := asyncClients(t, 2, nil)
		ctx := t.Context()
		lock := func(c *Client, line string) {
			t.Helper()
			if err := c.Lock(ctx, words(line), false); err != nil {
				t.Fatal(err)
			}
		}
		renew := func() {
			_, _ = c[1].Do(ctx, (*Client).Renew, words("RENEW other 30s nobody"))
		}
		lock(c[0], "LOCK job 30s OWNER first")
		lock(c[1], "LOCK job 30s OWNER me REQ r WAIT 1m SESSION ASYNC")
		if renew(); !conns[1].watched {
			t.Error("it is not watched while it waits")
		}
		_, _ = c[0].Do(ctx, (*Client).Unlock, words("UNLOCK job first"))
		synctest.Wait()
		if renew(); !conns[1].watched || len(conns[1].told) != 1 {
			t.Errorf("granted: watched %v, told %q", conns[1].watched, conns[1].told)
		}
		_, _ = c[1].Do(ctx, (*Client).Unlock, words("UNLOCK job me"))
		if renew(); conns[1].watched {
			t.Error("it is watched afterwards")
		}
	})
}

// TestAsync_ClientHasLeft: a grant that its client cannot be told of is undone.
func TestAsync_ClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published []string
		c, conns, leave := asyncClients(t, 3, func(channel, message string) { published = append(published, channel+" "+message) })
		ctx := t.Context()
		for i, line := range []string{"LOCK job 30s OWNER first", "LOCK job 30s OWNER gone REQ r WAIT 1m ASYNC", "LOCK job 30s OWNER next REQ r WAIT 1m ASYNC"} {
			if err := c[i].Lock(ctx, words(line), false); err != nil {
				t.Fatal(err)
			}
		}
		leave[1]()
		_, _ = c[0].Do(ctx, (*Client).Unlock, words("UNLOCK job first"))
		synctest.Wait()
		if len(conns[1].told) != 0 || len(conns[2].told) != 1 || len(published) != 1 || !strings.HasPrefix(published[0], "lockproxy:granted:next ") {
			t.Errorf("told %q and %q, published %q", conns[1].told, conns[2].told, published)
		}
		if !strings.HasSuffix(conns[2].replies[0], ":1") { // one was ahead
			t.Errorf("%q", conns[2].replies)
		}
	})
}

// TestAsync_GivenUpAsItIsGranted: an UNLOCK that comes while the client is being told of its grant is answered behind that, so that
// nobody is told of a grant that it has given back.
func TestAsync_GivenUpAsItIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		var unlock func()
		c, _, _ := asyncClients(t, 3, func(string, string) {
			unlock()
			time.Sleep(time.Second) // for all that the UNLOCK can do meanwhile
			order = append(order, "told")
		})
		ctx := t.Context()
		do := func(c *Client, line string) {
			if reply, err := c.Do(ctx, (*Client).Unlock, words(line)); err != nil || string(reply.Bytes) != ":1\r\n" {
				t.Errorf("%s: %q, %v", line, reply.Bytes, err)
			}
		}
		unlock = func() {
			go func() {
				do(c[2], "UNLOCK job me REQ r")
				order = append(order, "given back")
			}()
		}
		for i, line := range []string{"LOCK job 30s OWNER first", "LOCK job 30s OWNER me REQ r WAIT 1m ASYNC"} {
			if err := c[i].Lock(ctx, words(line), false); err != nil {
				t.Fatal(err)
			}
		}
		do(c[0], "UNLOCK job first")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Join(order, ", "); got != "told, given back" {
			t.Error(got)
		}
	})
}

// TestAsync_BesideTheSameRequest: a LOCK with ASYNC is answered at once, though the same request waits over another connection in the
// ordinary way; both are told of the grant.
func TestAsync_BesideTheSameRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, conns, _ := asyncClients(t, 3, nil)
		ctx := t.Context()
		for i, line := range []string{"LOCK job 30s OWNER first", "LOCK job 30s OWNER me REQ r WAIT 20s", "LOCK job 30s OWNER me REQ r WAIT 20s ASYNC"} {
			began := time.Now()
			if err := c[i].Lock(ctx, words(line), false); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("%s took %v", line, took)
			}
			synctest.Wait()
		}
		if got := conns[2].replies[0]; !strings.HasPrefix(got, "*4 :0 ") {
			t.Errorf("%q", got)
		}
		_, _ = c[0].Do(ctx, (*Client).Unlock, words("UNLOCK job first"))
		<-c[1].Pending().Done
		time.Sleep(time.Second)
		synctest.Wait()
		if a := c[1].Pending().Answer; !a.Granted || len(conns[2].told) != 1 {
			t.Errorf("answered %+v, told %q", a, conns[2].told)
		}
	})
}
