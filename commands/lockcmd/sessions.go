package lockcmd

import (
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// sessions are a connection's locks with SESSION: the lease session that they are bound
// to, begun with the first of them. The zero value has none. It is safe for concurrent
// use: whoever notices the end of the connection ends it.
type sessions struct {
	mu      sync.Mutex
	session *locks.Session       // nil: none yet
	end     func(*locks.Session) // not nil: the connection is over

	forced   *locks.Key // what the client itself has taken away last, by FORCE; nil: nothing
	forcing  bool       // and has no reply yet
	forcedIt bool       // and had in its session, as was told before the reply
}

// get returns the session, which begin makes if there is none. On a connection that is
// over it has ended already.
func (k *sessions) get(begin func() *locks.Session) *locks.Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session == nil {
		if k.session = begin(); k.end != nil {
			k.end(k.session)
		}
	}
	return k.session
}

// begun returns the session; nil: none has begun.
func (k *sessions) begun() *locks.Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session
}

// finish ends the session, now or as soon as it is begun, by end. Only the first call
// has an effect.
func (k *sessions) finish(end func(*locks.Session)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.end != nil {
		return
	}
	if k.end = end; k.session != nil {
		end(k.session)
	}
}

// beginForce notes that the client takes a lock away, which its own session may have.
func (k *sessions) beginForce(lock locks.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forced, k.forcing, k.forcedIt = &lock, true, false
}

// endForce notes that the client has the reply to its FORCE. It reports whether its session has lost the lock by then.
func (k *sessions) endForce() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forcing = false
	return k.forcedIt
}

// lostByForce reports whether the client itself has taken away a lock that its session has lost, and whether it has been
// answered. If not, endForce tells of the loss.
func (k *sessions) lostByForce(lock locks.Key) (own, answered bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	own = k.forced != nil && lock.Whole() == *k.forced
	k.forcedIt = k.forcedIt || own && k.forcing
	return own, !k.forcing
}

// any reports whether any lock is held.
func (k *sessions) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session != nil && k.session.Holds() > 0
}

// EndLocks gives up the locks with SESSION: the connection has closed. It is safe for
// concurrent use.
func (c *Client) EndLocks() { c.sessions.finish((*locks.Session).End) }

// AbandonLocks stops renewing the locks with SESSION and leaves them to their leases: the
// proxy ends, and the client may still be working. It is safe for concurrent use.
func (c *Client) AbandonLocks() { c.sessions.finish((*locks.Session).Abandon) }

// HasLocks reports whether the client holds locks with SESSION. It is safe for concurrent use.
func (c *Client) HasLocks() bool { return c.sessions.any() }

// Waits reports whether a LOCK with ASYNC of the client waits. It is safe for concurrent use.
func (c *Client) Waits() bool { return c.waits.Load() > 0 }

func (c *Client) lockSession() *locks.Session {
	return c.sessions.get(func() *locks.Session { return c.verbs.opt.Sessions.NewSession(c.lockLost) })
}

// watchHost has the client's host probed for as long as the client has locks with SESSION, or waits for one with ASYNC.
func (c *Client) watchHost() {
	if on := c.sessions.any() || c.sessionWaits.Load() > 0; on != c.hostWatched {
		c.hostWatched = on
		c.conn.WatchHost(on)
	}
}

// lockLost notifies the client of a lost lock with SESSION: by a push, or by the end of the
// connection unless that is to be kept. It is safe for concurrent use.
func (c *Client) lockLost(l locks.Loss) {
	c.logLost(l)
	keep := l.OnLoss == locks.OnLossDefault && c.verbs.opt.KeepOnLoss
	pushed := (keep || l.OnLoss == locks.OnLossPush) && c.conn.Push(appendLoss(nil, l))
	if pushed || keep {
		return
	}
	switch own, answered := c.sessions.lostByForce(l.Key); {
	case !own:
		c.conn.Disconnect()
	case answered:
		c.conn.Close()
	}
}

// appendLoss appends the push that tells a client of RESP3 that a lock is lost.
func appendLoss(b []byte, l locks.Loss) []byte {
	b = append(b, ">4\r\n"...)
	b = resp.AppendBulkString(b, "lock-lost")
	b = resp.AppendBulkString(b, l.Name)
	b = resp.AppendInt(b, l.Fence)
	return resp.AppendBulkString(b, l.Reason)
}
