package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/backends"
)

// A Redis asks for a password when a connection begins, and a connection that is
// shared began long before the client it is lent to. So the pool asks again, by
// beginning another connection: when it is lent and the upstream's word is older
// than certainFor, and every checkEvery for logins that are in use. Nothing is asked
// about what nobody uses.
const (
	certainFor = time.Second
	checkEvery = 2 * time.Second
)

// A login is a user and a secret that the upstream has taken, as long as there are
// connections made with them; identities that differ only in database or protocol
// share it. The login of clients that have given no credentials has none. Its fields
// belong to the pool's mu.
type login struct {
	key    loginKey
	id     Identity // of which only User and Secret count
	noAuth bool     // the upstream wants authentication, and this one has none

	conns   map[*Conn]struct{}
	sure    time.Time     // when the upstream was asked that said yes last
	doubted time.Time     // what was asked before counts no more
	asking  chan struct{} // closed once the question under way is settled; nil: there is none
	err     error         // why no more clients may share it; nil: they may
}

type loginKey struct {
	user   string
	secret [sha256.Size]byte
}

var (
	// errStale says that a connection must not be lent, and another may be.
	errStale = errors.New("the connection was lost before it was used")
	// errRevoked ends the connections of a login.
	errRevoked = errors.New("the upstream no longer takes this user and password")
)

func (p *Pool) loginKey(id Identity) loginKey {
	return loginKey{id.User, sha256.Sum256(append(p.salt[:], id.Secret...))}
}

// loginLocked is the login of an identity that the upstream, asked at the time at,
// took.
func (p *Pool) loginLocked(id Identity, noAuth bool, at time.Time) *login {
	key := p.loginKey(id)
	l := p.logins[key]
	if l != nil && l.noAuth != noAuth { // the password of the default user came or went
		p.endLocked(l, errStale)
		l = nil
	}
	if l == nil {
		l = &login{key: key, id: id, noAuth: noAuth, conns: map[*Conn]struct{}{}}
		p.logins[key] = l
	}
	if at.After(l.sure) && at.After(l.doubted) {
		l.sure = at
	}
	if !id.anonymous() && !p.watching && !p.closed {
		p.watching = true
		p.wg.Go(p.watch)
	}
	return l
}

// joinLocked makes c a connection of l; nil: of none.
func (p *Pool) joinLocked(c *Conn, l *login) {
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

// SetLogin says that the client whose own connection c is has authenticated on it: as
// id, which the upstream took.
func (c *Conn) SetLogin(id Identity) {
	p := c.home
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.conns[c]; open {
		p.joinLocked(c, p.loginLocked(id, false, time.Now()))
	}
}

// ClearLogin says that the client whose own connection c is has tried to
// authenticate on it, with what success is not known. It keeps the connection
// until the upstream closes it.
func (c *Conn) ClearLogin() {
	c.home.mu.Lock()
	defer c.home.mu.Unlock()
	c.home.joinLocked(c, nil)
}

// Unauthenticated reports whether the server wants authentication on c, and nobody has tried, as far
// as SetLogin and ClearLogin said.
func (c *Conn) Unauthenticated() bool {
	c.home.mu.Lock()
	defer c.home.mu.Unlock()
	return c.login != nil && c.login.noAuth && c.login.err == nil
}

// Revoked says that the connection ended because the upstream no longer takes the
// credentials it was made with.
func (c *Conn) Revoked() bool { return c.reason() == errRevoked }

// MarkUsed makes the connection count as used, without sending anything.
func (c *Conn) MarkUsed() {
	c.mu.Lock()
	c.used = true
	c.mu.Unlock()
}

// Revalidate makes the pool ask about every login before it lends a connection again:
// somebody has changed who is let in. It does not block.
func (p *Pool) Revalidate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.logins {
		l.sure, l.doubted = time.Time{}, time.Now()
	}
}

// certain returns once c, which is alive, is known to have a login that the upstream
// still took certainFor before came, or later. errStale says that c is of no use and
// another connection may be; other errors are *RefusedError, *DownError and ctx's.
func (p *Pool) certain(ctx context.Context, came time.Time, c *Conn) error {
	for {
		settled, err := p.ask(came, c)
		if settled == nil {
			return err
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !c.Alive() && !c.Revoked() {
			return errStale
		}
	}
}

// isCertain says that certain would not have to ask.
func (p *Pool) isCertain(came time.Time, c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.login != nil && came.Sub(c.login.sure) < p.certainFor
}

// ask makes sure that a question about c's login is under way and returns what is
// closed when it is settled; nil: there is nothing to wait for.
func (p *Pool) ask(came time.Time, c *Conn) (settled <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := c.login
	switch {
	case p.closed:
		return nil, &DownError{errClosed}
	case l == nil: // it has ended
		return nil, errStale
	case l.err != nil:
		return nil, l.err
	case came.Sub(l.sure) < p.certainFor:
		return nil, nil
	case l.asking == nil:
		p.askLocked(l)
	}
	return l.asking, nil
}

// askLocked asks the upstream about l.
func (p *Pool) askLocked(l *login) {
	l.asking = make(chan struct{})
	began := time.Now()
	p.wg.Go(func() { p.settle(l, began, p.try(l.id)) })
}

// try is what the upstream says to a connection that begins as id does. It is asked on one
// of its own: Redis from 7.2 on and Valkey do not answer an AUTH that they refuse while
// another answer to the same connection is on its way, and then each of the commands that
// share it would get the answer to the next. What cannot be asked now is taken for granted.
func (p *Pool) try(id Identity) (reply []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), backends.DefaultDialTimeout)
	defer cancel()
	nc, err := p.opt.Server.Dial(ctx)
	if err != nil {
		return nil
	}
	defer nc.Close()
	w, err := introduce(nc, greeting(Identity{User: id.User, Secret: id.Secret, Proto: 2}, true, false), 0)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Reply
	case err != nil:
		return nil
	case w.noAuth:
		return []byte("-NOAUTH Authentication required.\r\n")
	}
	return []byte("+OK\r\n")
}

// verdict is why the login is of no more use, by the upstream's answer; nil: it is.
// LOADING, an error of a Redis that knows no users and the like say nothing.
func (l *login) verdict(reply []byte) error {
	refused := &RefusedError{Reply: reply}
	switch {
	case l.noAuth && !bytes.HasPrefix(reply, []byte("-NOAUTH")):
		return errStale
	case l.id.anonymous() && !l.noAuth && bytes.HasPrefix(reply, []byte("-NOAUTH")):
		return errStale
	case refused.Credentials():
		return refused
	}
	return nil
}

// settle takes over the answer to a question; nil: there was none.
func (p *Pool) settle(l *login, asked time.Time, reply []byte) {
	p.mu.Lock()
	close(l.asking)
	l.asking = nil
	var end []*Conn
	if l.err == nil {
		err := error(nil)
		if reply != nil {
			err = l.verdict(reply)
		}
		if err != nil {
			end = p.endLocked(l, err)
		} else if asked.After(l.doubted) {
			l.sure = asked
		}
	}
	p.mu.Unlock()
	p.revoke(l, end)
}

// endLocked makes the pool forget a login, for the reason err, and returns the
// connections that must be closed. Those of clients that never authenticated live
// on, as they do at a Redis whose default user gets a password, for whoever has
// borrowed them.
func (p *Pool) endLocked(l *login, err error) (end []*Conn) {
	l.err = err
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
	for c := range l.conns {
		end = append(end, c)
	}
	return end
}

func (p *Pool) revoke(l *login, end []*Conn) {
	if len(end) > 0 {
		p.opt.Log.Info("the upstream no longer takes a user's credentials", "upstream", p.opt.Server.String(), "user", l.id.User, "connections", len(end))
	}
	for _, c := range end {
		c.end(errRevoked)
	}
}

// refused takes over that the upstream, asked not before at, did not let a new
// connection of an identity in: neither will it do so with those there are.
func (p *Pool) refused(id Identity, err *RefusedError, at time.Time) {
	p.mu.Lock()
	var end []*Conn
	l := p.logins[p.loginKey(id)]
	switch {
	case l == nil || l.sure.After(at):
	case err.Credentials():
		end = p.endLocked(l, err)
	case id.anonymous() && !l.noAuth && bytes.HasPrefix(err.Reply, []byte("-NOAUTH")):
		p.endLocked(l, errStale)
	}
	p.mu.Unlock()
	p.revoke(l, end)
}

// watch asks about the logins in use from time to time, until the pool is closed or
// has none that gave credentials.
func (p *Pool) watch() {
	tick := time.NewTicker(p.checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.ending:
			return
		case <-tick.C:
			if !p.check() {
				return
			}
		}
	}
}

// check asks about the logins that were used since the last time. False says that
// there are none to be asked about.
func (p *Pool) check() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watching = false
	for _, l := range p.logins {
		if l.id.anonymous() {
			continue
		}
		p.watching = true
		if l.use() && !p.closed && l.asking == nil && time.Since(l.sure) >= p.certainFor {
			p.askLocked(l)
		}
	}
	return p.watching
}

// use says whether a connection of the login was used since the last time.
func (l *login) use() (used bool) {
	for c := range l.conns {
		c.mu.Lock()
		used = used || c.used
		c.used = false
		c.mu.Unlock()
	}
	return used
}
