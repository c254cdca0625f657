package commands

import "github.com/lockproxy/lockproxy/backends/resp"

// replyMode tracks CLIENT REPLY ON, OFF and SKIP on a passthrough connection. The zero
// value means unknown.
type replyMode struct {
	known bool
	off   bool
	skip  bool // the next command is not answered
}

// on reports whether the next command is answered.
func (h *replyMode) on() bool { return h.known && !h.off && !h.skip }

// note takes over a command that goes upstream. One inside a transaction takes effect only
// if that is executed, so the mode is unknown from then on.
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

// takeReplyMode reports whether a verb goes unanswered. After SKIP the upstream gets a
// command in the verb's place, or it would skip the reply to the next one.
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
