package clients

import (
	"strconv"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
)

// Hello is the arguments of a HELLO; Proto 0: it names no protocol.
type Hello struct {
	Proto        int
	Auth         bool
	User, Secret []byte
	Name         []byte
}

// ParseHello reads a HELLO. It reports false for one that is not well formed.
func ParseHello(args [][]byte) (h Hello, ok bool) {
	if len(args) == 1 {
		return h, true
	}
	switch string(args[1]) {
	case "2":
		h.Proto = 2
	case "3":
		h.Proto = 3
	default:
		return h, false
	}
	for rest := args[2:]; len(rest) > 0; {
		switch {
		case resp.Is(rest[0], "AUTH") && len(rest) >= 3:
			h.Auth, h.User, h.Secret = true, rest[1], rest[2]
			rest = rest[3:]
		case resp.Is(rest[0], "SETNAME") && len(rest) >= 2:
			h.Name = rest[1]
			rest = rest[2:]
		default:
			return h, false
		}
	}
	return h, true
}

// Identity is who the HELLO makes of a client that is id.
func (h *Hello) Identity(id upstream.Identity) upstream.Identity {
	if h.Proto != 0 {
		id.Proto = h.Proto
	}
	if h.Auth {
		id.User, id.Secret = string(h.User), string(h.Secret)
	}
	return id
}

// Nameless is the HELLO without SETNAME; it must name a protocol.
func (h *Hello) Nameless() []byte {
	args := []string{"HELLO", strconv.Itoa(h.Proto)}
	if h.Auth {
		args = append(args, "AUTH", string(h.User), string(h.Secret))
	}
	return resp.AppendCommand(nil, args...)
}

// ParseAuth is who an AUTH makes of a client that is id. It reports false for one that cannot
// succeed.
func ParseAuth(id upstream.Identity, args [][]byte) (became upstream.Identity, ok bool) {
	switch {
	case len(args) == 2 && len(args[1]) > 0:
		id.User, id.Secret = "", string(args[1])
		return id, true
	case len(args) == 3 && len(args[1]) > 0:
		id.User, id.Secret = string(args[1]), string(args[2])
		return id, true
	}
	return id, false
}

// ParseSelect is the database of a SELECT. It reports false for one that cannot succeed.
func ParseSelect(args [][]byte) (db int, ok bool) {
	if len(args) != 2 {
		return 0, false
	}
	n, err := strconv.Atoi(string(args[1]))
	return n, err == nil && n >= 0 && strconv.Itoa(n) == string(args[1])
}

// ParseSetName is the name that a CLIENT SETNAME gives. It reports false for one that cannot
// succeed.
func ParseSetName(args [][]byte) (name []byte, ok bool) {
	if len(args) != 3 || !resp.Is(args[1], "SETNAME") || !ValidName(args[2]) {
		return nil, false
	}
	return args[2], true
}
