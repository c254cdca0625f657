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

	pushes, ends int
}

func (c *fakeConn) Database() int                         { return 0 }
func (c *fakeConn) Protocol() int                         { return c.proto }
func (c *fakeConn) Address() string                       { return "h:1" }
func (c *fakeConn) Present() context.Context              { return context.Background() }
func (c *fakeConn) HungUp() bool                          { return false }
func (c *fakeConn) MayLock(context.Context, string) error { return c.mayNot }
func (c *fakeConn) IsAdmin(context.Context) (bool, error) { return c.admin, nil }
func (c *fakeConn) Reply([]byte, error) bool              { return true }
func (c *fakeConn) WatchHost(bool)                        {}
func (c *fakeConn) Disconnect()                           { c.ends++ }
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
