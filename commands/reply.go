package commands

import (
	"errors"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/clients"
	"github.com/lockproxy/lockproxy/commands/lockcmd"
	"github.com/lockproxy/lockproxy/commands/relay"
)

// replyErr answers with the reply of an error, see appendErr. If the upstream could not be asked about a command that changes
// what those behind it do, these must not run, and the client is disconnected. A refusal changes nothing.
func (s *Session) replyErr(err error) {
	if p := appendErr(nil, err); p != nil {
		s.replies.Local(p)
	}
	var refused *upstream.RefusedError
	if s.changing && (!errors.As(err, &refused) || refused.TurnedAway()) {
		s.closeAfterReplies()
	}
}

// answer gives the client a reply of the upstream's, or the reason why there is none.
func (s *Session) answer(reply []byte, err error) {
	if err != nil {
		s.replyErr(err)
	} else {
		s.replies.Local(reply)
	}
}

// replyOrDisconnect answers why a client cannot have a connection. One whose credentials
// were good before is disconnected, as if the user had been deleted.
func (s *Session) replyOrDisconnect(err error) {
	home := s.up.DefaultIdentity()
	var refused *upstream.RefusedError
	if !errors.As(err, &refused) || !refused.Credentials() || s.id.User == home.User && s.id.Secret == home.Secret {
		s.replyErr(err)
		return
	}
	s.closeAfterReplies()
}

// closeAfterReplies disconnects the client when it has all replies so far. Nothing that it has
// sent already may run.
func (s *Session) closeAfterReplies() {
	s.end.Now(clients.WhyUpstream)
	s.replies.Close()
}

// reply answers in the place of the upstream.
func (s *Session) reply(reply string) bool {
	s.flushBatches()
	s.replies.Local([]byte(reply))
	return true
}

// appendErr appends the error reply for err: one of a lock verb's, or of the upstream's. It
// appends nothing for a context's error: the client is gone.
func appendErr(b []byte, err error) []byte {
	if reply := lockcmd.AppendError(b, err); len(reply) > len(b) {
		return reply
	}
	return relay.AppendError(b, err)
}
