package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"time"
)

// A login is accepted when a connection begins, and checked again, by beginning
// another connection: when a connection is lent and the last check is older than
// confirmedFor, and every recheckInterval while it is used. Unused logins are not
// checked.
const (
	confirmedFor    = time.Second
	recheckInterval = 2 * time.Second
)

// A login is a user and a secret that the upstream has accepted, while there are
// connections made with them; identities that differ only in database or protocol
// share it. That of clients without credentials has an empty user and secret. Fields are
// guarded by the pool's mu.
type login struct {
	key       loginKey
	id        Identity // of which only User and Secret count
	needsAuth bool     // the upstream demands authentication, and this login has none

	conns         map[*Conn]struct{}
	confirmedAt   time.Time     // when the last check began that the upstream answered with yes
	revalidatedAt time.Time     // checks that began earlier do not count
	checking      chan struct{} // closed when the check that runs has ended; nil: none runs
	revoked       error         // why no more clients may share it; nil: they may
}

type loginKey struct {
	user   string
	secret [sha256.Size]byte
}

var (
	// errStale means that a connection must not be lent, and another may be.
	errStale = errors.New("the connection was lost before it was used")
	// errRevoked ends the connections of a login.
	errRevoked = errors.New("the upstream no longer takes this user and password")
)

func (p *Pool) loginKey(id Identity) loginKey {
	return loginKey{id.User, sha256.Sum256(append(p.salt[:], id.Secret...))}
}

// loginLocked is the login of an identity that the upstream accepted in a handshake
// that began at the time at.
func (p *Pool) loginLocked(id Identity, needsAuth bool, at time.Time) *login {
	key := p.loginKey(id)
	l := p.logins[key]
	if l != nil && l.needsAuth != needsAuth { // the default user's password was set or removed
		p.revokeLocked(l, errStale)
		l = nil
	}
	if l == nil {
		l = &login{key: key, id: id, needsAuth: needsAuth, conns: map[*Conn]struct{}{}}
		p.logins[key] = l
	}
	if at.After(l.confirmedAt) && at.After(l.revalidatedAt) {
		l.confirmedAt = at
	}
	if !id.anonymous() && !p.rechecking && !p.closed {
		p.rechecking = true
		p.startLocked(p.recheckLogins)
	}
	return l
}

// setLoginLocked makes c a connection of l; nil: of none.
func (p *Pool) setLoginLocked(c *Conn, l *login) {
	if old := c.login; old != nil && old != l {
		delete(old.conns, c)
		if len(old.conns) == 0 && p.logins[old.key] == old {
			delete(p.logins, old.key)
		}
	}
	if c.login = l; l != nil {
		l.conns[c] = struct{}{}
	}
}

// SetLogin notes that the client of a private connection has authenticated on it as
// id, which the upstream accepted.
func (c *Conn) SetLogin(id Identity) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.conns[c]; open {
		p.setLoginLocked(c, p.loginLocked(id, false, time.Now()))
	}
}

// ClearLogin notes that the client of a private connection has tried to authenticate
// on it, with an outcome that is not known. The connection stays until the upstream
// closes it.
func (c *Conn) ClearLogin() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.pool.setLoginLocked(c, nil)
}

// Unauthenticated reports whether the server demands authentication on c, and no
// client has tried to, as far as SetLogin and ClearLogin were called.
func (c *Conn) Unauthenticated() bool {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	return c.login != nil && c.login.needsAuth && c.login.revoked == nil
}

// Revoked reports whether the connection ended because the upstream no longer accepts
// its credentials.
func (c *Conn) Revoked() bool { return c.reason() == errRevoked }

// Revalidate makes the pool check every login before it lends a connection again, as
// after ACL SETUSER. It does not block.
func (p *Pool) Revalidate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.logins {
		l.confirmedAt, l.revalidatedAt = time.Time{}, time.Now()
	}
}

// awaitConfirmed returns when the login of c, which is alive, was confirmed within
// confirmedFor before came, or later. errStale means that c cannot be used and another
// connection may be; other errors are *RefusedError, *DownError and ctx's.
func (p *Pool) awaitConfirmed(ctx context.Context, came time.Time, c *Conn) error {
	for {
		checked, err := p.startCheck(came, c)
		if checked == nil {
			return err
		}
		select {
		case <-checked:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !c.Alive() && !c.Revoked() {
			return errStale
		}
	}
}

// isConfirmed reports whether awaitConfirmed would return nil at once.
func (p *Pool) isConfirmed(came time.Time, c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.login != nil && came.Sub(c.login.confirmedAt) < p.confirmedFor
}

// startCheck makes sure that a check of c's login runs and returns the channel that is
// closed at its end; nil: none is needed, and err is the outcome.
func (p *Pool) startCheck(came time.Time, c *Conn) (checked <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := c.login
	switch {
	case p.closed:
		return nil, &DownError{errClosed}
	case l == nil: // c has ended
		return nil, errStale
	case l.revoked != nil:
		return nil, l.revoked
	case came.Sub(l.confirmedAt) < p.confirmedFor:
		return nil, nil
	case l.checking == nil:
		p.startCheckLocked(l)
	}
	return l.checking, nil
}

func (p *Pool) startCheckLocked(l *login) {
	l.checking = make(chan struct{})
	began := time.Now()
	p.startLocked(func() { p.finishCheck(l, began, p.tryLogin(l.id)) })
}

// finishCheck takes over the reply to a check that began at the time began; nil: none
// came, and the login stays as it is.
func (p *Pool) finishCheck(l *login, began time.Time, reply []byte) {
	p.mu.Lock()
	close(l.checking)
	l.checking = nil
	var end []*Conn
	if l.revoked == nil {
		err := error(nil)
		if reply != nil {
			err = l.revokedBy(reply)
		}
		if err != nil {
			end = p.revokeLocked(l, err)
		} else if began.After(l.revalidatedAt) {
			l.confirmedAt = began
		}
	}
	p.mu.Unlock()
	p.endRevoked(l, end)
}

// revokedBy is the reason for revoking the login after the upstream's reply; nil: there
// is none. LOADING, an error of a Redis without users and the like mean nothing.
func (l *login) revokedBy(reply []byte) error {
	refused := &RefusedError{Reply: reply}
	switch {
	case l.needsAuth && !bytes.HasPrefix(reply, []byte("-NOAUTH")):
		return errStale
	case l.id.anonymous() && !l.needsAuth && bytes.HasPrefix(reply, []byte("-NOAUTH")):
		return errStale
	case refused.Credentials():
		return refused
	}
	return nil
}

// loginRefused takes over that the upstream refused a new connection of an identity in
// a handshake that began at the time began: it will refuse the existing ones as well.
func (p *Pool) loginRefused(id Identity, err *RefusedError, began time.Time) {
	p.mu.Lock()
	var end []*Conn
	l := p.logins[p.loginKey(id)]
	switch {
	case l == nil || l.confirmedAt.After(began):
	case err.Credentials():
		end = p.revokeLocked(l, err)
	case id.anonymous() && !l.needsAuth && bytes.HasPrefix(err.Reply, []byte("-NOAUTH")):
		p.revokeLocked(l, errStale)
	}
	p.mu.Unlock()
	p.endRevoked(l, end)
}

// revokeLocked removes a login and its groups, and returns the connections to end.
// Borrowers without credentials keep theirs, as at a Redis whose default user gets a
// password.
func (p *Pool) revokeLocked(l *login, err error) (end []*Conn) {
	l.revoked = err
	if p.logins[l.key] == l {
		delete(p.logins, l.key)
		for _, k := range p.groups.Keys() {
			if k.loginKey == l.key {
				p.groups.Remove(k)
			}
		}
	}
	if l.id.anonymous() {
		return nil
	}
	return slices.Collect(maps.Keys(l.conns))
}

// endRevoked ends connections that revokeLocked returned. The caller holds no mu.
func (p *Pool) endRevoked(l *login, end []*Conn) {
	if len(end) > 0 {
		p.opt.Log.Info("the upstream no longer takes a user's credentials", "upstream", p.opt.Server.String(), "user", l.id.User, "connections", len(end))
	}
	for _, c := range end {
		c.end(errRevoked)
	}
}

// recheckLogins checks the logins in use every recheckInterval, until the pool is
// closed or has none with credentials.
func (p *Pool) recheckLogins() {
	tick := time.NewTicker(p.recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-tick.C:
			if !p.recheck() {
				return
			}
		}
	}
}

// recheck starts checks of the logins that were used since the last recheck. It
// reports false, and clears rechecking, if no login has credentials.
func (p *Pool) recheck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rechecking = false
	for _, l := range p.logins {
		if l.id.anonymous() {
			continue
		}
		p.rechecking = true
		if l.takeUsed() && !p.closed && l.checking == nil && time.Since(l.confirmedAt) >= p.confirmedFor {
			p.startCheckLocked(l)
		}
	}
	return p.rechecking
}

// takeUsed reports whether a connection of the login was used since the last call.
func (l *login) takeUsed() (used bool) {
	for c := range l.conns {
		c.mu.Lock()
		used = used || c.used
		c.used = false
		c.mu.Unlock()
	}
	return used
}
