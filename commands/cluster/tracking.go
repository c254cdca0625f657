package cluster

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// Tracks reports whether the client's reads are tracked: CLIENT TRACKING is on.
func (rt *Router) Tracks() bool { return rt.tracking != nil }

// OpenTracked opens a connection to the first master that is tracked as command says, a
// CLIENT TRACKING, and reports why the master refuses that.
func (rt *Router) OpenTracked(ctx context.Context, as relay.Sender, command []byte) (*upstream.Conn, error) {
	before := rt.tracking
	defer func() { rt.tracking = before }()
	rt.tracking = command
	return rt.open(ctx, as, rt.view.FirstMaster())
}

// Track has the client's reads tracked from now on as command says: it gets a connection of its
// own to every node that it uses, from which it gets invalidations. first is that to the first
// master, by OpenTracked. There must be no others.
func (rt *Router) Track(command []byte, class upstream.ConnClass, first *upstream.Conn) {
	rt.tracking = command
	rt.keep(rt.view.FirstMaster(), class, first)
}

// Untrack goes back to shared connections.
func (rt *Router) Untrack() {
	rt.drop(func(*upstream.Conn) bool { return true })
	rt.ForgetTracking()
}

// ForgetTracking notes that nothing is tracked any more, on connections that have been given up.
func (rt *Router) ForgetTracking() { rt.tracking, rt.caching = nil, nil }

// CacheNext sends command, a CLIENT CACHING, in front of the next one, wherever that goes.
func (rt *Router) CacheNext(command []byte) { rt.caching = command }

// open opens or, untracked, borrows a connection to a node.
func (rt *Router) open(ctx context.Context, as relay.Sender, pool *upstream.Pool) (*upstream.Conn, error) {
	if rt.tracking == nil {
		return pool.Shared(ctx, as.ID, as.Class, as.Hint)
	}
	o := relay.NewTrackedConn(rt.replies)
	c, err := pool.Private(ctx, as.ID, o)
	if err != nil {
		return nil, err
	}
	if err = rt.BeginTracking(ctx, c); err != nil {
		o.Abandon()
		c.Close()
		return nil, err
	}
	rt.trackedConns[c] = o
	return c, nil
}

// BeginTracking has a connection tracked, if the client's are. One that refuses is of no
// use.
func (rt *Router) BeginTracking(ctx context.Context, c *upstream.Conn) error {
	if rt.tracking == nil {
		return nil
	}
	reply, err := rt.replies.Ask(ctx, c, rt.tracking)
	if err == nil {
		if _, refused := resp.Error(reply); refused {
			err = &upstream.RefusedError{Reply: reply}
		}
	}
	return err
}
