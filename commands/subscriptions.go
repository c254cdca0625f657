package commands

import "github.com/lockproxy/lockproxy/backends/resp"

// subscriptions are what a client asked to be subscribed to, by how it asked. The
// zero value is none. A request that the upstream's ACL refused counts until the
// client takes it back.
type subscriptions struct {
	channels, patterns, shards map[string]struct{}
}

// note takes over a command of the SUBSCRIBE family; others change nothing.
func (s *subscriptions) note(args [][]byte) {
	switch {
	case resp.Is(args[0], "SUBSCRIBE"):
		subscribeTo(&s.channels, args[1:])
	case resp.Is(args[0], "PSUBSCRIBE"):
		subscribeTo(&s.patterns, args[1:])
	case resp.Is(args[0], "SSUBSCRIBE"):
		subscribeTo(&s.shards, args[1:])
	case resp.Is(args[0], "UNSUBSCRIBE"):
		unsubscribeFrom(s.channels, args[1:])
	case resp.Is(args[0], "PUNSUBSCRIBE"):
		unsubscribeFrom(s.patterns, args[1:])
	case resp.Is(args[0], "SUNSUBSCRIBE"):
		unsubscribeFrom(s.shards, args[1:])
	}
}

// any reports whether there are subscriptions left: a RESP2 connection is then for
// messages only.
func (s *subscriptions) any() bool { return len(s.channels)+len(s.patterns)+len(s.shards) > 0 }

// of are the subscriptions of one kind.
func (s *subscriptions) of(kind string) map[string]struct{} {
	switch kind {
	case patterns:
		return s.patterns
	case shards:
		return s.shards
	}
	return s.channels
}

func (s *subscriptions) has(kind, name string) bool {
	_, ok := s.of(kind)[name]
	return ok
}

func (s *subscriptions) names(kind string) (all [][]byte) {
	for name := range s.of(kind) {
		all = append(all, []byte(name))
	}
	return all
}

func subscribeTo(set *map[string]struct{}, names [][]byte) {
	if *set == nil {
		*set = make(map[string]struct{}, len(names))
	}
	for _, n := range names {
		(*set)[string(n)] = struct{}{}
	}
}

// unsubscribeFrom takes out names, or all if there are none.
func unsubscribeFrom(set map[string]struct{}, names [][]byte) {
	if len(names) == 0 {
		clear(set)
	}
	for _, n := range names {
		delete(set, string(n))
	}
}
