package commands

import "github.com/lockproxy/lockproxy/backends/resp"

// A hush is what CLIENT REPLY makes of the replies on a connection on which they are not
// counted. The zero value is: not known.
type replyMode struct {
	known bool
	off   bool
	skip  bool // the next command is not answered
}

// on reports whether the next command is answered.
func (h *replyMode) on() bool { return h.known && !h.off && !h.skip }

// note takes over a command that goes upstream. What a transaction holds takes effect
// if it is executed, which is not known.
func (h *replyMode) note(args [][]byte, inTx bool) {
	h.skip = false
	if len(args) != 3 || !resp.Is(args[0], "CLIENT") || !resp.Is(args[1], "REPLY") {
		return
	}
	switch {
	case inTx:
		*h = replyMode{}
	case resp.Is(args[2], "ON"):
		h.off = false
	case resp.Is(args[2], "OFF"):
		h.off = h.known
	case resp.Is(args[2], "SKIP"):
		h.skip = h.known && !h.off
	}
}

// takeReplyMode reports whether the verb which has come is not answered. What the upstream was to
// leave unanswered it still would: it gets a command in the verb's place.
func (s *Session) takeReplyMode() bool {
	if !s.pass.replyMode.skip {
		return s.pass.replyMode.off
	}
	s.pass.replyMode.skip = false
	raw, _ := s.barrier()
	s.enqueue(raw)
	s.flushBatches()
	return true
}
