package observe

import (
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// tracking is what a connection has said with CLIENT TRACKING and CACHING.
type tracking struct {
	on, optIn, optOut, broadcast bool
	next, this                   cached
	prefixes                     string // of a broadcast, each behind a 0 byte
}

// cached is what CLIENT CACHING says of the next command, or has said of this one.
type cached uint8

const (
	asTracked cached = iota
	yes
	no
)

// note notes what a CLIENT command says about tracking.
func (c *Client) note(args [][]byte) {
	switch sub := args[1]; {
	case resp.Is(sub, "SETNAME") && len(args) == 3:
		c.name = short(args[2])
	case resp.Is(sub, "SETINFO") && len(args) == 4 && resp.Is(args[2], "LIB-NAME"):
		c.library = short(args[3])
	case resp.Is(sub, "CACHING") && len(args) == 3:
		c.reads.next = no
		if resp.Is(args[2], "YES") {
			c.reads.next = yes
		}
	case resp.Is(sub, "TRACKING") && len(args) > 2:
		c.reads = tracking{on: resp.Is(args[2], "ON")}
		for i := 3; i < len(args); i++ {
			switch {
			case resp.Is(args[i], "OPTIN"):
				c.reads.optIn = true
			case resp.Is(args[i], "OPTOUT"):
				c.reads.optOut = true
			case resp.Is(args[i], "BCAST"):
				c.reads.broadcast = true
			case resp.Is(args[i], "PREFIX") && i+1 < len(args):
				i++
				c.reads.prefixes += "\x00" + short(args[i])
			}
		}
	}
}

// short returns the beginning of a text of a client, as much of it as is kept.
func short(text []byte) string { return string(text[:min(len(text), 64)]) }

// tracks reports whether the client keeps what it reads from a key.
func (t *tracking) tracks(key string) bool {
	switch {
	case !t.on:
		return false
	case t.broadcast && t.prefixes == "":
		return true
	case t.broadcast:
		for _, prefix := range strings.Split(t.prefixes[1:], "\x00") {
			if strings.HasPrefix(key, prefix) {
				return true
			}
		}
		return false
	case t.optIn:
		return t.this == yes
	}
	return t.this != no
}
