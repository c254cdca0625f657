package lockcmd

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// A Connection is a client's connection, as its lock verbs use it. Its methods are called by
// the goroutine that runs the client's commands, but for those that are safe for concurrent
// use.
type Connection interface {
	// Database and Protocol are what the client has chosen last.
	Database() int
	Protocol() int
	// Address is the client's, shown to others that ask who waits.
	Address() string
	// Present ends when the client has left.
	Present() context.Context
	// HungUp reports whether the client has closed its sending half, though that may not
	// have been read yet.
	HungUp() bool
	// MayLock returns nil if the client may lock that name.
	MayLock(ctx context.Context, name string) error
	// IsAdmin reports whether the client may run admin commands, or why that is not known.
	IsAdmin(context.Context) (bool, error)
	// Reply gives the client a reply, or that of an error, with all replies before it, and
	// reports whether it could be sent.
	Reply(reply []byte, err error) (sent bool)
	// WatchHost begins or ends keepalive probes that notice in good time that the client's
	// host has vanished.
	WatchHost(on bool)
	// Push sends a push, and reports false to a client of RESP2, which has none. It is safe
	// for concurrent use.
	Push(p []byte) bool
	// Disconnect ends the connection at once. It is safe for concurrent use.
	Disconnect()
	// Close ends the connection as soon as it has been sent all it was given, and runs nothing more. It is safe for concurrent
	// use.
	Close()
	// About returns the attributes that identify the client in a line of the log. It is safe for concurrent use.
	About() []slog.Attr
}

// A Client runs the lock verbs of one client, and is what they know of it. It belongs to
// the goroutine that runs the client's commands, but for the methods that are safe for
// concurrent use.
type Client struct {
	verbs *Verbs
	conn  Connection

	pending     *Pending // a LOCK that waits; nil: none
	implicit    owners   // of locks taken without OWNER
	sessions    sessions // its locks with SESSION; other goroutines use it, too
	hostWatched bool     // the client's host is watched

	waits        atomic.Int32 // LOCKs with ASYNC that wait
	sessionWaits atomic.Int32 // those of them with SESSION

	admin          bool      // may see other clients' owners,
	adminCheckedAt time.Time // when the upstream was asked
}

// NewClient returns a client that has sent nothing yet.
func (v *Verbs) NewClient(c Connection) Client { return Client{verbs: v, conn: c} }

// Reset forgets the implicit owners, and what the client may do.
func (c *Client) Reset() {
	c.implicit = owners{}
	c.ForgetAdmin()
}

// ForgetAdmin forgets whether the client is an admin: it may be somebody else now.
func (c *Client) ForgetAdmin() { c.adminCheckedAt = time.Time{} }

// A Verb does what a lock verb other than LOCK and LOCKALL says: it is (*Client).Renew, Unlock, RenewAll, UnlockAll or Ctl.
type Verb func(c *Client, ctx context.Context, args [][]byte) (Reply, error)

// Do runs a verb other than LOCK and LOCKALL.
func (c *Client) Do(ctx context.Context, verb Verb, args [][]byte) (Reply, error) {
	if c.hostWatched {
		defer c.watchHost() // it may have been the last lock
	}
	return verb(c, ctx, args)
}

// Renew runs a RENEW.
func (c *Client) Renew(ctx context.Context, args [][]byte) (reply Reply, err error) {
	o, err := c.verbs.opt.Limits.ParseRenew(args)
	if err != nil {
		return reply, err
	}
	req := locks.RenewRequest{Key: locks.Key{DB: c.conn.Database(), Name: o.Name}, Owner: o.Owner, TTL: o.TTL, Fence: o.Fence, Shared: o.Shared}
	if req.Owner == "" {
		own, err := c.implicitLock(o, "RENEW")
		if err != nil {
			return reply, err
		}
		req.Owner, req.Fence, req.Shared = own.owner, own.fence, own.shared
	}
	began := time.Now()
	reply.Validity, err = c.verbs.opt.Locker.Renew(ctx, req)
	c.log(event{"RENEW", req.DB, req.Name, req.Owner, req.Fence, began, err}, "lock renewed", slog.Duration("validity", reply.Validity))
	return reply, err
}

// Unlock runs an UNLOCK.
func (c *Client) Unlock(ctx context.Context, args [][]byte) (reply Reply, err error) {
	o, err := ParseUnlock(args)
	if err != nil {
		return reply, err
	}
	req := locks.UnlockRequest{Key: locks.Key{DB: c.conn.Database(), Name: o.Name}, Owner: o.Owner, Fence: o.Fence, All: o.All, Req: o.Req, Shared: o.Shared}
	if req.Owner == "" {
		own, err := c.implicitLock(o, "UNLOCK")
		if err != nil {
			return reply, err
		}
		req.Owner, req.Fence, req.Shared = own.owner, own.fence, own.shared
	}
	began := time.Now()
	c.verbs.waits.giveUp(req.Key, req.Owner, req.Req)
	left, err := c.verbs.opt.Locker.Unlock(ctx, req)
	c.log(event{"UNLOCK", req.DB, req.Name, req.Owner, req.Fence, began, err}, "lock given back", slog.Int("holds", left))
	c.noteUnlock(req.Key, req.Owner, req.Shared, o.Owner != "", left, err)
	if err != nil {
		return reply, err
	}
	released := int64(0)
	if left == 0 {
		released = 1
	}
	return Reply{Bytes: resp.AppendInt(nil, released)}, nil
}

// noteUnlock notes what an UNLOCK was answered; named: its client said the owner.
func (c *Client) noteUnlock(k locks.Key, owner string, shared, named bool, left int, err error) {
	if err == nil && left == 0 || !named && locks.NotHeld(err) {
		c.implicit.Released(k, owner, shared)
	}
}

// implicitLock finds the lock for a command that names no owner.
func (c *Client) implicitLock(o Release, verb string) (own implicitLock, err error) {
	if c.verbs.opt.RequireOwner {
		return own, fmt.Errorf("ERR this proxy wants %s to name the owner", verb)
	}
	lock, or := "that lock", " or the FENCE"
	if o.several {
		lock, or = "'"+shorten([]byte(o.Name))+"'", ""
	}
	own, n := c.implicit.Find(locks.Key{DB: c.conn.Database(), Name: o.Name}, o.Fence, o.Shared)
	switch n {
	case 0:
		return own, fmt.Errorf("ERR this connection has not taken %s without OWNER; %s must name the owner, which LOCK answered", lock, verb)
	case 1:
		return own, nil
	}
	return own, fmt.Errorf("ERR this connection has taken %s %d times; %s must name the owner%s", lock, n, verb, or)
}
