package clients

import "github.com/lockproxy/lockproxy/backends/resp"

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
