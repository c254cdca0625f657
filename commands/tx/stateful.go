package tx

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/backends/upstream"
)

// A Stateful is a client's own connection while the client loses state when that ends. Its zero value is none. One
// goroutine at a time sets it; Conn is safe for concurrent use.
type Stateful struct {
	// At most one is not nil, but between the two stores of Set.
	certain atomic.Pointer[upstream.Conn]
	unsure  atomic.Pointer[upstream.Conn] // has state unless the State is Over
}

// Set takes over c, which may be nil: it has state for certain, or, if unsure, as long as the State is not Over. A Conn
// that is called meanwhile may miss that; so whoever sets it looks afterwards whether c has ended.
func (s *Stateful) Set(c *upstream.Conn, certain, unsure bool) {
	switch {
	case certain:
		s.certain.Store(c)
		s.unsure.Store(nil)
	case unsure:
		s.unsure.Store(c)
		s.certain.Store(nil)
	default:
		s.unsure.Store(nil)
		s.certain.Store(nil)
	}
}

// Conn is the connection that has state of the client's, where t is the State on it; nil: none has.
func (s *Stateful) Conn(t *State) *upstream.Conn {
	if c := s.certain.Load(); c != nil {
		return c
	}
	if c := s.unsure.Load(); c != nil && !t.Over() {
		return c
	}
	return nil
}
