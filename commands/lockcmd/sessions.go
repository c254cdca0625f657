package lockcmd

import (
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// Sessions are a connection's locks with SESSION: the lease session that they are bound
// to, begun with the first of them. The zero value has none. It is safe for concurrent
// use: whoever notices the end of the connection ends it.
type Sessions struct {
	mu      sync.Mutex
	session *locks.Session       // nil: none yet
	end     func(*locks.Session) // not nil: the connection is over
}

// Get returns the session, which begin makes if there is none. On a connection that is
// over it has ended already.
func (k *Sessions) Get(begin func() *locks.Session) *locks.Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session == nil {
		if k.session = begin(); k.end != nil {
			k.end(k.session)
		}
	}
	return k.session
}

// Finish ends the session, now or as soon as it is begun, by end. Only the first call
// has an effect.
func (k *Sessions) Finish(end func(*locks.Session)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.end != nil {
		return
	}
	if k.end = end; k.session != nil {
		end(k.session)
	}
}

// Any reports whether any lock is held.
func (k *Sessions) Any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session != nil && k.session.Holds() > 0
}

// AppendLoss appends the push that tells a client of RESP3 that a lock is lost.
func AppendLoss(b []byte, l locks.Loss) []byte {
	b = append(b, ">4\r\n"...)
	b = resp.AppendBulkString(b, "lock-lost")
	b = resp.AppendBulkString(b, l.Name)
	b = resp.AppendInt(b, l.Fence)
	return resp.AppendBulkString(b, l.Reason)
}
