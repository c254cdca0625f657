// Package pubsub holds what a client is subscribed to, and brings it the messages of a
// Cluster.
//
//   - [Subscriptions] follow the SUBSCRIBE commands that a client sends on a connection of
//     its own: there the upstream does the rest.
//   - A [Subscriber] has the subscriptions of one client of a Cluster, on connections of
//     its own to the nodes.
//   - A [Monitor] shows a client what all masters of a Cluster do.
//
// Subscriber and Monitor write to the client through [relay.Replies], between replies.
// What comes is handled by the upstream connections' goroutines. The goroutines that a
// Subscriber starts belong to the session's [relay.Redirector], which waits for them.
package pubsub

import "github.com/lockproxy/lockproxy/backends/resp"

// Subscriptions are what a client has asked to be subscribed to, by kind. The zero value
// is empty. A request that the upstream refused counts until the client takes it back.
// They are not safe for concurrent use.
type Subscriptions struct {
	channels, patterns, shards map[string]struct{}
}

// A kind of subscriptions is the first letter of its commands.
const (
	channels = ""
	patterns = "p"
	shards   = "s"
)

// Note takes over a command of the SUBSCRIBE family. Others change nothing.
func (s *Subscriptions) Note(args [][]byte) {
	switch {
	case resp.Is(args[0], "SUBSCRIBE"):
		add(&s.channels, args[1:])
	case resp.Is(args[0], "PSUBSCRIBE"):
		add(&s.patterns, args[1:])
	case resp.Is(args[0], "SSUBSCRIBE"):
		add(&s.shards, args[1:])
	case resp.Is(args[0], "UNSUBSCRIBE"):
		remove(s.channels, args[1:])
	case resp.Is(args[0], "PUNSUBSCRIBE"):
		remove(s.patterns, args[1:])
	case resp.Is(args[0], "SUNSUBSCRIBE"):
		remove(s.shards, args[1:])
	}
}

// Any reports whether any are left: a client of RESP2 may then say little else.
func (s *Subscriptions) Any() bool { return len(s.channels)+len(s.patterns)+len(s.shards) > 0 }

// Counts are the numbers of channels, patterns and shard channels.
func (s *Subscriptions) Counts() [3]int {
	return [3]int{len(s.channels), len(s.patterns), len(s.shards)}
}

func (s *Subscriptions) of(kind string) map[string]struct{} {
	switch kind {
	case patterns:
		return s.patterns
	case shards:
		return s.shards
	}
	return s.channels
}

func (s *Subscriptions) has(kind, name string) bool {
	_, ok := s.of(kind)[name]
	return ok
}

func (s *Subscriptions) names(kind string) (all [][]byte) {
	for name := range s.of(kind) {
		all = append(all, []byte(name))
	}
	return all
}

func add(set *map[string]struct{}, names [][]byte) {
	if *set == nil {
		*set = make(map[string]struct{}, len(names))
	}
	for _, n := range names {
		(*set)[string(n)] = struct{}{}
	}
}

// remove removes names, all if there are none.
func remove(set map[string]struct{}, names [][]byte) {
	if len(names) == 0 {
		clear(set)
	}
	for _, n := range names {
		delete(set, string(n))
	}
}
