package lockcmd

import (
	"context"
	"log/slog"
	"testing"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A fakeConn is the Connection of a client that may lock everything.
type fakeConn struct {
	proto  int
	admin  bool
	mayNot error // the answer to MayLock

	pushes, ends, closes, replies int
}

func (c *fakeConn) Database() int                         { return 0 }
func (c *fakeConn) Protocol() int                         { return c.proto }
func (c *fakeConn) Address() string                       { return "h:1" }
func (c *fakeConn) Present() context.Context              { return context.Background() }
func (c *fakeConn) HungUp() bool                          { return false }
func (c *fakeConn) MayLock(context.Context, string) error { return c.mayNot }
func (c *fakeConn) IsAdmin(context.Context) (bool, error) { return c.admin, nil }
func (c *fakeConn) Reply([]byte, error) bool              { c.replies++; return true }
func (c *fakeConn) WatchHost(bool)                        {}
func (c *fakeConn) Disconnect()                           { c.ends++ }
func (c *fakeConn) Close()                                { c.closes++ }
func (c *fakeConn) About() []slog.Attr                    { return nil }

func (c *fakeConn) Push([]byte) bool {
	if c.proto < 3 {
		return false
	}
	c.pushes++
	return true
}

func TestClient_LockLost(t *testing.T) {
	tests := []struct {
		onLoss       locks.OnLoss
		keep         bool
		proto        int
		pushes, ends int
	}{
		{locks.OnLossDefault, false, 3, 0, 1},
		{locks.OnLossDefault, true, 3, 1, 0},
		{locks.OnLossDefault, true, 2, 0, 0}, // it cannot be told
		{locks.OnLossClose, true, 3, 0, 1},
		{locks.OnLossPush, false, 3, 1, 0},
		{locks.OnLossPush, true, 2, 0, 1}, // it has gone back to RESP2 since
	}
	for _, tt := range tests {
		conn := &fakeConn{proto: tt.proto}
		c := New(Options{KeepOnLoss: tt.keep}, slog.New(slog.DiscardHandler)).NewClient(conn)
		c.lockLost(locks.Loss{OnLoss: tt.onLoss})
		if conn.pushes != tt.pushes || conn.ends != tt.ends {
			t.Errorf("%+v: %d pushes, %d ends", tt, conn.pushes, conn.ends)
		}
	}
}

// forced is an Inspector of a lock that its FORCE takes from a client's session; early reports that the session is told
// before FORCE returns.
type forced struct {
	book
	early func()
}

func (f *forced) Force(_ context.Context, k locks.Key) (locks.Holding, bool, error) {
	f.early()
	return locks.Holding{Key: k, Owner: "me"}, true, nil
}

// TestClient_OwnForce: a client that takes its session's lock away is disconnected behind the reply, whenever the session
// is told of the loss. That of another lock ends the connection at once.
func TestClient_OwnForce(t *testing.T) {
	for name, tt := range map[string]struct {
		lost         locks.Key
		late         bool
		ends, closes int
	}{
		"before the reply":     {locks.Key{Name: "job"}, false, 0, 1},
		"of a reader":          {locks.Key{Name: "job", Reader: "me"}, false, 0, 1},
		"behind the reply":     {locks.Key{Name: "job"}, true, 0, 1},
		"another lock, before": {locks.Key{Name: "other"}, false, 1, 0},
		"another lock, behind": {locks.Key{Name: "other"}, true, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			conn, inspector := &fakeConn{proto: 3, admin: true}, &forced{early: func() {}}
			c := New(Options{Inspector: inspector}, slog.New(slog.DiscardHandler)).NewClient(conn)
			c.sessions.get(func() *locks.Session { return &locks.Session{} })
			tell := func() {
				if c.lockLost(locks.Loss{Key: tt.lost}); conn.closes != 0 && conn.replies == 0 {
					t.Error("closed in front of the reply")
				}
			}
			if !tt.late {
				inspector.early = tell
			}
			if _, err := c.Ctl(t.Context(), [][]byte{[]byte("LOCKCTL"), []byte("FORCE"), []byte("job")}); err != nil {
				t.Fatal(err)
			}
			if tt.late {
				tell()
			}
			if conn.replies != 1 || conn.ends != tt.ends || conn.closes != tt.closes {
				t.Errorf("%d replies, %d times disconnected, %d closed", conn.replies, conn.ends, conn.closes)
			}
		})
	}
}
