package clients

import "github.com/lockproxy/lockproxy/backends/resp"

// ReplyMode tracks CLIENT REPLY ON, OFF and SKIP on a passthrough connection. The zero
// value means that it is not known.
type ReplyMode struct {
	Known bool // else everything may or may not be answered
	Off   bool
	Skip  bool // the next command is not answered
}

// On reports whether the next command is answered.
func (h *ReplyMode) On() bool { return h.Known && !h.Off && !h.Skip }

// Note takes over a command that goes upstream. One inside a transaction takes effect only
// if that is executed, so the mode is unknown from then on.
func (h *ReplyMode) Note(args [][]byte, inTx bool) {
	h.Skip = false
	if len(args) != 3 || !resp.Is(args[0], "CLIENT") || !resp.Is(args[1], "REPLY") {
		return
	}
	switch {
	case inTx:
		*h = ReplyMode{}
	case resp.Is(args[2], "ON"):
		h.Off = false
	case resp.Is(args[2], "OFF"):
		h.Off = h.Known
	case resp.Is(args[2], "SKIP"):
		h.Skip = h.Known && !h.Off
	}
}
