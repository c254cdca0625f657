package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/cluster"
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
		s.askMasters(ctx, q.raw, (*cluster.Router).AskMasters)
	case resp.Is(sub, "REPLY"):
		refusal := resp.AppendError(nil, "ERR CLIENT REPLY is not supported with a Cluster upstream")
		if s.tx.In {
			s.refuseQueued(string(refusal))
		} else {
			s.replies.Local(refusal)
		}
	case resp.Is(sub, "TRACKING"):
		s.track(ctx, bytes.Clone(q.raw), q.args)
	case !s.openRouter().Tracks():
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
func (s *Session) track(ctx context.Context, raw []byte, args [][]byte) {
	s.openRouter()
	if s.idle(ctx) != nil || !s.sameView() {
		return
	}
	for _, a := range args[min(3, len(args)):] {
		if resp.Is(a, "REDIRECT") {
			s.replyErr(fmt.Errorf("ERR CLIENT TRACKING with REDIRECT is not supported with a Cluster upstream; use RESP3"))
			return
		}
	}
	off := len(args) == 3 && resp.Is(args[2], "OFF")
	if off && s.router.Tracks() {
		if s.router.Untrack(); !s.watching {
			s.closePinned() // which is tracked, too
		}
		s.replies.Local([]byte("+OK\r\n"))
		return
	}
	if s.watching && !off {
		s.replyErr(errors.New("ERR CLIENT TRACKING cannot begin while keys are watched, with a Cluster upstream"))
		return
	}
	c, err := s.router.OpenTracked(ctx, s.sender(), raw)
	switch {
	case err != nil:
		s.replyErr(err)
		return
	case off:
		s.router.Leave(c)
	default:
		s.invalidateAll()
		s.router.Untrack()
		s.closePinned()
		s.router.Track(raw, s.connClass, c)
	}
	s.replies.Local([]byte("+OK\r\n"))
}

// clientCaching runs CLIENT CACHING, which is about the next command, wherever that goes.
func (s *Session) clientCaching(ctx context.Context, raw []byte) {
	if !s.askFirst(ctx, raw) {
		return
	}
	// On the first master the next command is this one.
	if _, err := s.replies.Ask(ctx, s.router.Conn(s.router.View().FirstMaster(), s.connClass), resp.AppendCommand(nil, "PING")); err == nil {
		s.router.CacheNext(raw)
	}
}

// askFirst sends a command to the first master, on the connection that is tracked there. The
// client gets the reply; it reports whether that is no refusal.
func (s *Session) askFirst(ctx context.Context, raw []byte) bool {
	if s.idle(ctx) != nil || !s.sameView() {
		return false
	}
	first := s.router.View().FirstMaster()
	err := s.router.ConnectNodes(ctx, s.sender(), first)
	if err == nil {
		var reply []byte
		if reply, err = s.replies.Ask(ctx, s.router.Conn(first, s.connClass), raw); err == nil {
			s.replies.Local(reply)
			_, refused := resp.Error(reply)
			return !refused
		}
	}
	s.replyErr(err)
	return false
}
