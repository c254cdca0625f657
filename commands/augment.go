package commands

import (
	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/commands/cluster"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// augment returns what goes upstream in place of a command whose reply is to tell of the
// proxy too, and what becomes of the reply.
func (s *Session) augment(q request) (sent []byte, e relay.Rewrite) {
	var add func(reply []byte) []byte
	if resp.Is(q.args[0], "INFO") {
		sent, add = s.d.info.Augment(q.raw, q.args)
	} else {
		sent, add = lockcmd.Augment(s.id.Proto, q.raw, q.args)
	}
	return sent, func(reply []byte) ([]byte, bool) { return add(reply), false }
}

// tryAugmented sends a command whose reply is to tell of the proxy too on the current
// connection.
func (s *Session) tryAugmented(q request) bool {
	c := s.conn()
	if c == nil || !c.Alive() {
		return false
	}
	raw, e := s.augment(q)
	s.flushBatches()
	s.replies.ExpectRewritten(c, e)
	s.replies.Send(c, raw, 1)
	return true
}

// augmentFanOut is augment for a command that all masters of a Cluster do.
func (s *Session) augmentFanOut(merge cluster.Merger, q request) ([]byte, cluster.Merger) {
	raw, e := s.augment(q)
	return raw, func(parts [][]byte) []byte {
		reply, _ := e(merge(parts))
		return reply
	}
}
