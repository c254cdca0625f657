package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// clientInCluster runs a CLIENT that concerns all nodes of a Cluster. It reports false, and
// does nothing, for one that any node can run.
func (s *Session) clientInCluster(ctx context.Context, q request) bool {
	if len(q.args) < 2 {
		return false
	}
	sub := q.args[1]
	switch {
	case resp.Is(sub, "PAUSE") || resp.Is(sub, "UNPAUSE"):
		parts, err := s.askMasters(ctx, bytes.Clone(q.raw))
		s.replyMerged(parts, err, mergeFirst)
	case resp.Is(sub, "REPLY"):
		refusal := resp.AppendError(nil, "ERR CLIENT REPLY is not supported with a Cluster upstream")
		if s.tx.in {
			s.refuseQueued(string(refusal))
		} else {
			s.replies.Local(refusal)
		}
	case resp.Is(sub, "TRACKING"):
		s.track(ctx, request{raw: bytes.Clone(q.raw), args: q.args})
	case s.openRouter().tracking == nil:
		return false
	case resp.Is(sub, "CACHING"):
		s.clientCaching(ctx, bytes.Clone(q.raw))
	case resp.Is(sub, "TRACKINGINFO"):
		s.askFirst(ctx, q.raw)
	default:
		return false
	}
	return true
}

// track runs CLIENT TRACKING in a Cluster: the client gets a connection of its own to every
// node that it uses, on which its reads are tracked and from which it gets invalidations.
// The first master decides whether it is refused.
func (s *Session) track(ctx context.Context, q request) {
	s.openRouter()
	if s.idle(ctx) != nil || !s.sameView() {
		return
	}
	for _, a := range q.args[min(3, len(q.args)):] {
		if resp.Is(a, "REDIRECT") {
			s.replyErr(fmt.Errorf("ERR CLIENT TRACKING with REDIRECT is not supported with a Cluster upstream; use RESP3"))
			return
		}
	}
	off := len(q.args) == 3 && resp.Is(q.args[2], "OFF")
	if off && s.router.tracking != nil {
		if s.untrack(); !s.watching {
			s.closePinned() // which is tracked, too
		}
		s.replies.Local([]byte("+OK\r\n"))
		return
	}
	if s.watching && !off {
		s.replyErr(errors.New("ERR CLIENT TRACKING cannot begin while keys are watched, with a Cluster upstream"))
		return
	}
	c, err := s.openTracked(ctx, q.raw)
	switch {
	case err != nil:
		s.replyErr(err)
		return
	case off:
		s.router.leave(c)
	default:
		s.invalidateAll()
		s.untrack()
		s.closePinned()
		s.router.tracking = q.raw
		s.router.keep(s.router.view.FirstMaster(), s.connClass, c)
	}
	s.replies.Local([]byte("+OK\r\n"))
}

// openTracked opens a connection to the first master that is tracked by how.
func (s *Session) openTracked(ctx context.Context, how []byte) (*upstream.Conn, error) {
	before := s.router.tracking
	defer func() { s.router.tracking = before }()
	s.router.tracking = how
	return s.openNode(ctx, s.router.view.FirstMaster())
}

// untrack goes back to shared connections.
func (s *Session) untrack() {
	s.router.drop(func(*upstream.Conn) bool { return true })
	s.router.tracking, s.router.caching = nil, nil
}

// clientCaching runs CLIENT CACHING, which is about the next command, wherever that goes.
func (s *Session) clientCaching(ctx context.Context, raw []byte) {
	if !s.askFirst(ctx, raw) {
		return
	}
	// On the first master the next command is this one.
	if _, err := s.ask(ctx, s.router.conn(s.router.view.FirstMaster(), s.connClass), resp.AppendCommand(nil, "PING")); err == nil {
		s.router.caching = raw
	}
}

// askFirst sends a command to the first master, on the connection that is tracked there. The
// client gets the reply; it reports whether that is no refusal.
func (s *Session) askFirst(ctx context.Context, raw []byte) bool {
	if s.idle(ctx) != nil || !s.sameView() {
		return false
	}
	first := s.router.view.FirstMaster()
	err := s.connect(ctx, first)
	if err == nil {
		var reply []byte
		if reply, err = s.ask(ctx, s.router.conn(first, s.connClass), raw); err == nil {
			s.replies.Local(reply)
			_, refused := resp.Error(reply)
			return !refused
		}
	}
	s.replyErr(err)
	return false
}

// openNode opens or, untracked, borrows a connection to a node.
func (s *Session) openNode(ctx context.Context, pool *upstream.Pool) (*upstream.Conn, error) {
	if s.router.tracking == nil {
		return pool.Shared(ctx, s.id, s.connClass, s.hint)
	}
	o := relay.NewTrackedConn(s.replies)
	c, err := pool.Private(ctx, s.id, o)
	if err != nil {
		return nil, err
	}
	if err = s.beginTracking(ctx, c); err != nil {
		o.Abandon()
		c.Close()
		return nil, err
	}
	s.router.trackedConns[c] = o
	return c, nil
}

// beginTracking has a connection tracked, if the client's are. One that refuses is of no
// use.
func (s *Session) beginTracking(ctx context.Context, c *upstream.Conn) error {
	if s.router == nil || s.router.tracking == nil {
		return nil
	}
	reply, err := s.ask(ctx, c, s.router.tracking)
	if err == nil {
		if _, refused := resp.Error(reply); refused {
			err = &upstream.RefusedError{Reply: reply}
		}
	}
	return err
}
