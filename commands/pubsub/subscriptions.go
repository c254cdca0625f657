// Package pubsub holds what a client is subscribed to, and brings it the messages of a
// Cluster.
//
//   - [Subscriptions] follow the SUBSCRIBE commands that a client sends on a connection of
//     its own: there the upstream does the rest.
//   - A [Feed] is what reaches one client of a Cluster besides replies. It has
//   - a subscriber for the client's subscriptions, on connections of its own to the nodes, and
//   - a monitor, which shows the client what all masters do.
//
// Both write to the client through [relay.Replies], between replies.
// What comes is handled by the upstream connections' goroutines. The goroutines that a
// subscriber starts belong to the session's [relay.Redirector], which waits for them.
package pubsub

import (
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
)

// Subscriptions are what a client has asked to be subscribed to. The zero value is empty.
// A request that the upstream refused counts until the client takes it back. They are not
// safe for concurrent use.
type Subscriptions struct {
	byKind map[string]map[string]struct{}
}

// A kind of subscriptions is the first letter of its commands.
const (
	channels = ""
	patterns = "p"
	shards   = "s"
)

// parse reads the name of a command of the SUBSCRIBE family: the kind of subscriptions that
// it is about, and whether it begins some or ends some. It is not ok for other commands.
func parse(command []byte) (kind string, begins, ok bool) {
	const suffix = "SUBSCRIBE"
	n := len(command) - len(suffix)
	if n < 0 || n > len("PUN") || !resp.Is(command[n:], suffix) {
		return "", false, false
	}
	kind, ends := strings.CutSuffix(strings.ToLower(string(command[:n])), "un")
	return kind, !ends, kind == channels || kind == patterns || kind == shards
}

// Note takes over a command of the SUBSCRIBE family. Others change nothing. One that ends
// subscriptions and names none ends all of its kind.
func (s *Subscriptions) Note(args [][]byte) {
	kind, begins, ok := parse(args[0])
	if !ok {
		return
	}
	set, names := s.byKind[kind], args[1:]
	switch {
	case begins && s.byKind == nil:
		s.byKind = map[string]map[string]struct{}{}
		fallthrough
	case begins && set == nil:
		set = make(map[string]struct{}, len(names))
		s.byKind[kind] = set
	case !begins && len(names) == 0:
		clear(set)
	}
	for _, n := range names {
		if begins {
			set[string(n)] = struct{}{}
		} else {
			delete(set, string(n))
		}
	}
}

// Any reports whether any are left: a client of RESP2 may then say little else.
func (s *Subscriptions) Any() bool { return s.Counts() != [3]int{} }

// Counts are the numbers of channels, patterns and shard channels.
func (s *Subscriptions) Counts() [3]int {
	return [3]int{len(s.byKind[channels]), len(s.byKind[patterns]), len(s.byKind[shards])}
}

func (s *Subscriptions) has(kind, name string) bool {
	_, ok := s.byKind[kind][name]
	return ok
}

func (s *Subscriptions) names(kind string) (all [][]byte) {
	for name := range s.byKind[kind] {
		all = append(all, []byte(name))
	}
	return all
}
