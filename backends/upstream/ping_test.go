package upstream

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestPing_ServingOrNot(t *testing.T) {
	tests := []struct{ reply, want string }{
		{"+PONG\r\n", ""},
		{"-NOPERM this user has no permissions to run the 'ping' command\r\n", ""},
		{"-BUSY Redis is busy running a script.\r\n", ""},
		{"-LOADING Redis is loading the dataset in memory\r\n", "LOADING"},
		{"-MASTERDOWN Link with MASTER is down\r\n", "MASTERDOWN"},
	}
	for _, tt := range tests {
		var pings atomic.Int32 // the handshake's is the first
		f := newFakeServer(t, func(word string) string {
			if word == "PING" && pings.Add(1) > 1 {
				return tt.reply
			}
			return echo(word)
		})
		p := newPool(t, f.addr, PoolOptions{})
		sharedConn(t, p)
		pings.Store(1)
		err := p.Ping(t.Context(), Identity{Proto: 2})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.reply, err, tt.want)
		}
	}
}

func TestPing_HangingNode(t *testing.T) {
	var hangs atomic.Bool
	f := newFakeServer(t, func(word string) string {
		if hangs.Load() {
			return ""
		}
		return echo(word)
	})
	p := newPool(t, f.addr, PoolOptions{})
	c := sharedConn(t, p)
	hangs.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Ping(ctx, Identity{Proto: 2}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it hangs: %v", err)
	}
	lost := make(chan error, 1)
	go func() { lost <- p.Ping(t.Context(), Identity{Proto: 2}) }()
	f.drop()
	<-c.Done()
	var down *DownError
	if err := <-lost; !errors.As(err, &down) {
		t.Errorf("when the connection is lost: %v", err)
	}
}

func TestPing_RefusedIdentity(t *testing.T) {
	p := newPool(t, newFakeServer(t, new(authServer).answer).addr, PoolOptions{})
	if err := p.Ping(t.Context(), testUser); err != nil {
		t.Error(err)
	}
}
