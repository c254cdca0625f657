package admin

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// seats are the connections that there are, maxConns at most. One more takes the place of
// that which has stayed as it is for longest: silent, idle, or slow with its request or its
// answer. Else whoever reaches the port could keep probes out by holding connections, and
// have the process taken for dead. Where an operator's request is under way a connection
// stays. It is safe for concurrent use.
type seats struct {
	mu    sync.Mutex
	taken map[net.Conn]*seat
	all   sync.WaitGroup // connections whose goroutines have not ended
}

// A seat is what is known of a connection.
type seat struct {
	since time.Time // of its last change
	kept  bool      // an operator's request is under way
}

func newSeats() *seats { return &seats{taken: map[net.Conn]*seat{}} }

// follow is the server's ConnState.
func (s *seats) follow(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.all.Add(1)
		if len(s.taken) >= maxConns && !s.freeLocked() {
			cut(c)
			return
		}
		s.taken[c] = &seat{since: time.Now()}
	case http.StateClosed, http.StateHijacked:
		delete(s.taken, c)
		s.all.Done()
	default:
		if at := s.taken[c]; at != nil {
			*at = seat{since: time.Now()}
		}
	}
}

// freeLocked ends the connection that can be done without best. It is false if there is none.
func (s *seats) freeLocked() bool {
	var longest net.Conn
	for c, at := range s.taken {
		if !at.kept && (longest == nil || at.since.Before(s.taken[longest].since)) {
			longest = c
		}
	}
	if longest == nil {
		return false
	}
	delete(s.taken, longest)
	cut(longest)
	return true
}

// cut closes a connection without a word: one over TLS would wait for its client to read it.
func cut(c net.Conn) {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	_ = c.Close()
}

type seatKey struct{}

// with is the server's ConnContext.
func (s *seats) with(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, seatKey{}, c)
}

// keep keeps the connection of a request until it is answered.
func (s *seats) keep(r *http.Request) {
	c, _ := r.Context().Value(seatKey{}).(net.Conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.taken[c]; at != nil {
		at.kept = true
	}
}
