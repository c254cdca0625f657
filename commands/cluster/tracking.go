package cluster

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// Tracks reports whether the client's reads are tracked: CLIENT TRACKING is on.
func (rt *Router) Tracks() bool { return rt.tracking != nil }

// Why a CLIENT TRACKING is refused that one server would do.
var (
	errRedirect = errors.New("ERR CLIENT TRACKING with REDIRECT is not supported with a Cluster upstream; use RESP3")
	errWatched  = errors.New("ERR CLIENT TRACKING cannot begin while keys are watched, with a Cluster upstream")
)

// SetTracking does command, a CLIENT TRACKING with these arguments: from then on the client has
// connections of its own to every node that it uses, with BCAST to all masters, on which its reads are
// tracked and from which it gets invalidations; or shared ones again. Nothing may be under way. The error says why it is
// refused; the first master decides that, too. closeOwn closes the connection on which the client
// may be watching keys, which is tracked as before.
func (rt *Router) SetTracking(ctx context.Context, as relay.Sender, command []byte, args [][]byte, watching bool, closeOwn func()) error {
	if hasOption(args, "REDIRECT") {
		return errRedirect
	}
	off := len(args) > 2 && resp.Is(args[2], "OFF") // whatever options follow
	switch {
	case off && rt.Tracks():
		if err := rt.askFirst(ctx, as, command); err != nil {
			return err
		}
		if rt.untrack(); !watching {
			closeOwn()
		}
		return nil
	case watching && !off:
		return errWatched
	}
	bcast := hasOption(args, "BCAST")
	tracking, err := rt.addTracking(ctx, as, command, bcast)
	if err != nil {
		return err
	}
	first, err := rt.openTracked(ctx, as, tracking)
	if err != nil {
		return err
	}
	if off { // refused by none, and nothing to end
		rt.Leave(first)
		return nil
	}
	rt.Invalidate(as.ID.Proto)
	rt.untrack()
	closeOwn()
	rt.tracking, rt.broadcasts = tracking, bcast
	rt.keep(rt.view.FirstMaster(), as.Class, first)
	if !bcast {
		return nil
	}
	if err = rt.ConnectNodes(ctx, as); err != nil {
		rt.untrack()
		return err
	}
	var following context.Context
	following, rt.unfollow = context.WithCancel(rt.redirector.Context)
	masters := rt.view.Masters()
	rt.redirector.Go(func() { rt.endAtNewMaster(following, masters) })
	return nil
}

// endAtNewMaster disconnects a client that is to be told of keys it has not read when there is another master than those
// that tell it: what it keeps may have changed there before that one could be asked to. It returns when ctx ends.
func (rt *Router) endAtNewMaster(ctx context.Context, masters []*upstream.Pool) {
	for {
		view, changed := rt.up.Changed()
		if slices.ContainsFunc(view.Masters(), func(p *upstream.Pool) bool { return !slices.Contains(masters, p) }) {
			rt.replies.Disconnect()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// hasOption reports whether a CLIENT TRACKING has an option.
func hasOption(args [][]byte, option string) bool {
	for i := 3; i < len(args); i++ {
		switch {
		case resp.Is(args[i], option):
			return true
		case resp.Is(args[i], "PREFIX"):
			i++
		}
	}
	return false
}

// addTracking returns what is tracked when command is done as well. A client whose reads are tracked already may not
// change the mode, which the first master knows.
func (rt *Router) addTracking(ctx context.Context, as relay.Sender, command []byte, bcast bool) ([][]byte, error) {
	if !rt.Tracks() {
		return [][]byte{command}, nil
	}
	if err := rt.askFirst(ctx, as, command); err != nil || !bcast {
		return [][]byte{command}, err
	}
	before := slices.DeleteFunc(slices.Clone(rt.tracking), func(c []byte) bool { return bytes.Equal(c, command) })
	return append(before, command), nil
}

// openTracked opens a connection to the first master that is tracked as commands say.
func (rt *Router) openTracked(ctx context.Context, as relay.Sender, commands [][]byte) (*upstream.Conn, error) {
	before := rt.tracking
	defer func() { rt.tracking = before }()
	rt.tracking = commands
	return rt.open(ctx, as, rt.view.FirstMaster())
}

// untrack goes back to shared connections.
func (rt *Router) untrack() {
	rt.drop(func(*upstream.Conn) bool { return true })
	rt.ForgetTracking()
}

// Invalidate tells a client that speaks proto that nothing it knows is tracked any more, if its reads were.
func (rt *Router) Invalidate(proto int) {
	if rt.Tracks() && proto == 3 {
		rt.replies.Push([]byte(">2\r\n$10\r\ninvalidate\r\n_\r\n"))
	}
}

// ForgetTracking notes that nothing is tracked any more, on connections that have been given up.
func (rt *Router) ForgetTracking() {
	rt.tracking, rt.caching, rt.broadcasts = nil, nil, false
	if rt.unfollow != nil {
		rt.unfollow()
		rt.unfollow = nil
	}
}

// CacheNext does command, a CLIENT CACHING: it is about the next command, wherever that goes. The
// reply is the first master's. Nothing may be under way.
func (rt *Router) CacheNext(ctx context.Context, as relay.Sender, command []byte) ([]byte, error) {
	reply, err := rt.AskFirst(ctx, as, command)
	if err != nil {
		return nil, err
	}
	if _, refused := resp.Error(reply); refused {
		return reply, nil
	}
	// On the first master the next command is this one.
	if _, err := rt.replies.Ask(ctx, rt.Conn(rt.view.FirstMaster(), as.Class), resp.AppendCommand(nil, "PING")); err == nil {
		rt.caching = command
	}
	return reply, nil
}

// AskFirst asks the first master, on the connection that is tracked there. Nothing may be under way.
func (rt *Router) AskFirst(ctx context.Context, as relay.Sender, command []byte) ([]byte, error) {
	first := rt.view.FirstMaster()
	if err := rt.ConnectNodes(ctx, as, first); err != nil {
		return nil, err
	}
	return rt.replies.Ask(ctx, rt.Conn(first, as.Class), command)
}

// askFirst is AskFirst of a command whose reply is of interest only if it refuses.
func (rt *Router) askFirst(ctx context.Context, as relay.Sender, command []byte) error {
	reply, err := rt.AskFirst(ctx, as, command)
	if err == nil {
		err = upstream.Refusal(reply)
	}
	return err
}

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
	for _, command := range rt.tracking {
		reply, err := rt.replies.Ask(ctx, c, command)
		if err == nil {
			err = upstream.Refusal(reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
