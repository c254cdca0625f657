package admin

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// A connLimit bounds the open connections to maxConns. One more evicts the one whose state
// changed longest ago: silent, idle, or slow with its request or its response. Otherwise
// whoever reaches the port could keep health probes out by holding connections. Connections
// with an operator's request under way are not evicted. It is safe for concurrent use.
type connLimit struct {
	mu      sync.Mutex
	open    map[net.Conn]*openConn
	running sync.WaitGroup // goroutines of connections
}

// An openConn is the state of one connection.
type openConn struct {
	changed   time.Time // its last change of state
	protected bool      // an operator's request is under way
}

func newConnLimit() *connLimit { return &connLimit{open: map[net.Conn]*openConn{}} }

// stateChanged is http.Server.ConnState.
func (s *connLimit) stateChanged(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.running.Add(1)
		if len(s.open) >= maxConns && !s.evictLocked() {
			closeNow(c)
			return
		}
		s.open[c] = &openConn{changed: time.Now()}
	case http.StateClosed, http.StateHijacked:
		delete(s.open, c)
		s.running.Done()
	default:
		if at := s.open[c]; at != nil {
			*at = openConn{changed: time.Now()}
		}
	}
}

// evictLocked closes a connection for another one. It reports whether there was one to close.
func (s *connLimit) evictLocked() bool {
	var longest net.Conn
	for c, at := range s.open {
		if !at.protected && (longest == nil || at.changed.Before(s.open[longest].changed)) {
			longest = c
		}
	}
	if longest == nil {
		return false
	}
	delete(s.open, longest)
	closeNow(longest)
	return true
}

// closeNow closes a connection without TLS' goodbye, for which it might have to wait.
func closeNow(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	_ = c.Close()
}

type connKey struct{}

// withConn is http.Server.ConnContext.
func (s *connLimit) withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// protect prevents the eviction of a request's connection until it is answered.
func (s *connLimit) protect(r *http.Request) {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.open[c]; at != nil {
		at.protected = true
	}
}
