package commands

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/relay"
	"github.com/lockproxy/lockproxy/commands/spec"
)

// A splitRule is how a command whose keys are of several slots becomes one command
// for each slot, and their replies one reply.
type splitRule struct {
	values int // arguments behind each key
	merge  func(places [][]int, parts [][]byte) []byte
}

// anyPlace is a merge for which it does not matter where the keys were.
func anyPlace(merge merger) func([][]int, [][]byte) []byte {
	return func(_ [][]int, parts [][]byte) []byte { return merge(parts) }
}

// A merger makes one reply of those of several nodes, none of which is an error.
type merger func(parts [][]byte) []byte

// trySplit sends a command in parts, if there are connections to all nodes that it
// needs. The keys are where route has just found them.
func (s *Session) trySplit(sp *splitRule, args [][]byte) bool {
	at := s.keyArgs
	var slots []int
	places := map[int][]int{} // of a slot's keys, in order
	for place, i := range at {
		slot := spec.Slot(args[i])
		if places[slot] == nil {
			slots = append(slots, slot)
		}
		places[slot] = append(places[slot], place)
	}
	requests := make([]*relay.Request, len(slots))
	conns := make([]*upstream.Conn, len(slots))
	ordered := make([][]int, len(slots))
	for n, slot := range slots {
		pool := s.router.view.Master(slot)
		if pool == nil {
			s.up.Refresh()
			return s.reply(relay.SlotUncovered)
		}
		if conns[n] = s.router.conn(pool, s.connClass); conns[n] == nil {
			return false
		}
		part := [][]byte{args[0]}
		for _, place := range places[slot] {
			part = append(part, args[at[place]:at[place]+1+sp.values]...)
		}
		requests[n] = s.newRequest(route{kind: oneNode, slot: slot, pool: pool}, resp.AppendCommand(nil, part...))
		ordered[n] = places[slot]
	}
	s.sendParts(conns, requests, func(parts [][]byte) []byte { return sp.merge(ordered, parts) })
	return true
}

// sendParts sends requests, each on its connection, whose replies become one: the first
// error among them, or what merge makes of them.
func (s *Session) sendParts(conns []*upstream.Conn, requests []*relay.Request, merge merger) {
	s.flushBatch()
	s.replies.ExpectFanIn(requests, func(parts [][]byte) []byte {
		if refused := firstError(parts); refused != nil {
			return refused
		}
		return merge(parts)
	})
	for i, c := range requests {
		s.router.gather(conns[i], c)
	}
}

// noCluster is what a single server says of CLUSTER.
func noCluster([][]byte) string { return "-ERR This instance has cluster support disabled\r\n" }

func notOne(args [][]byte) string {
	return string(resp.AppendError(nil, "ERR "+upper(args[0])+" is about one server, and the upstream is a Cluster: send it to one of its nodes"))
}

func upper(name []byte) string { return string(bytes.ToUpper(name)) }

// lower is a name in lower case, for comparisons and error texts; only the beginning of
// one that is too long for any command.
func lower(name []byte) string {
	const most = 64
	if len(name) > most {
		return strings.ToLower(string(name[:most])) + "..."
	}
	return strings.ToLower(string(name))
}

// tryFanOut sends a command to all masters, if there are connections to them.
func (s *Session) tryFanOut(merge merger, raw []byte) bool {
	masters := s.router.view.Masters()
	conns := make([]*upstream.Conn, len(masters))
	requests := make([]*relay.Request, len(masters))
	for i, pool := range masters {
		if conns[i] = s.router.conn(pool, s.connClass); conns[i] == nil {
			return false
		}
		requests[i] = s.newRequest(route{slot: relay.NoSlot, pool: pool}, raw)
	}
	if len(requests) == 0 {
		return false
	}
	s.sendParts(conns, requests, merge)
	return true
}

func firstError(parts [][]byte) []byte {
	for _, p := range parts {
		if len(p) > 0 && (p[0] == '-' || p[0] == '!') {
			return p
		}
	}
	return nil
}

func mergeFirst(parts [][]byte) []byte { return parts[0] }

func mergeSum(parts [][]byte) []byte {
	var n int64
	for _, p := range parts {
		n += resp.Int(p)
	}
	return resp.AppendInt(nil, n)
}

func mergeMin(parts [][]byte) []byte {
	n := resp.Int(parts[0])
	for _, p := range parts {
		n = min(n, resp.Int(p))
	}
	return resp.AppendInt(nil, n)
}

// mergeElements puts the elements of the parts' arrays where their keys were.
func mergeElements(places [][]int, parts [][]byte) []byte {
	n := 0
	for _, p := range places {
		n += len(p)
	}
	all := make([][]byte, n)
	for i, part := range parts {
		elems, ok := resp.Elements(part)
		if !ok || len(elems) != len(places[i]) {
			return unmergeable()
		}
		for j, e := range elems {
			all[places[i][j]] = e
		}
	}
	return appendElements(parts[0][0], all)
}

// unmergeable is for replies that should not be.
func unmergeable() []byte {
	return resp.AppendError(nil, "ERR the nodes of the Cluster answered in a way that cannot be put together")
}

// appendElements is an aggregate of replies; an error for a map of an odd number.
func appendElements(kind byte, all [][]byte) []byte {
	if kind == '%' && len(all)%2 != 0 {
		return unmergeable()
	}
	return resp.AppendElements(nil, kind, all)
}

// mergeUnion is the elements of all arrays, each once.
func mergeUnion(parts [][]byte) []byte {
	var all [][]byte
	seen := map[string]struct{}{}
	for _, part := range parts {
		elems, ok := resp.Elements(part)
		if !ok {
			return unmergeable()
		}
		for _, e := range elems {
			if _, again := seen[string(e)]; !again {
				seen[string(e)] = struct{}{}
				all = append(all, e)
			}
		}
	}
	return appendElements(parts[0][0], all)
}

// mergePairs adds the numbers behind the same names.
func mergePairs(parts [][]byte) []byte {
	sums, ok := resp.Elements(parts[0])
	if !ok {
		return unmergeable()
	}
	for _, part := range parts[1:] {
		elems, ok := resp.Elements(part)
		if !ok || len(elems) != len(sums) {
			return unmergeable()
		}
		for i := 1; i < len(elems); i += 2 {
			sums[i] = resp.AppendInt(nil, resp.Int(sums[i])+resp.Int(elems[i]))
		}
	}
	return appendElements(parts[0][0], sums)
}

// mergeLeast is, element by element, the least of all numbers.
func mergeLeast(parts [][]byte) []byte {
	least, ok := resp.Elements(parts[0])
	if !ok {
		return unmergeable()
	}
	for _, part := range parts[1:] {
		elems, ok := resp.Elements(part)
		if !ok || len(elems) != len(least) {
			return unmergeable()
		}
		for i, e := range elems {
			if resp.Int(e) < resp.Int(least[i]) {
				least[i] = e
			}
		}
	}
	return appendElements(parts[0][0], least)
}

// mergeAny is one of the replies that are not null.
func mergeAny(parts [][]byte) []byte {
	for _, i := range rand.Perm(len(parts)) {
		if p := parts[i]; p[0] != '_' && !bytes.HasPrefix(p, []byte("$-1")) {
			return p
		}
	}
	return parts[0]
}

// standaloneInfo is INFO of a server of its own.
func standaloneInfo(reply []byte) []byte {
	if len(reply) == 0 || reply[0] != '$' && reply[0] != '=' {
		return reply
	}
	text := resp.Bulk(reply)
	text = bytes.Replace(text, []byte("redis_mode:cluster"), []byte("redis_mode:standalone"), 1)
	text = bytes.Replace(text, []byte("server_mode:cluster"), []byte("server_mode:standalone"), 1) // Valkey's name for it
	text = bytes.Replace(text, []byte("cluster_enabled:1"), []byte("cluster_enabled:0"), 1)
	b := resp.AppendBulk(nil, text)
	b[0] = reply[0]
	return b
}

// mergeInfo is INFO of the first node, with the keys of all.
func mergeInfo(parts [][]byte) []byte {
	info := standaloneInfo(parts[0])
	head, rest, ok := bytes.Cut(resp.Bulk(info), []byte("# Keyspace\r\n"))
	if !ok || len(parts) == 1 {
		return info
	}
	var keys, expires, ttl int64
	for _, p := range parts {
		k, e, t := keyspace(resp.Bulk(p))
		keys, expires, ttl = keys+k, expires+e, ttl+t*e
	}
	if _, line, ok := bytes.Cut(rest, []byte("db0:")); ok {
		_, rest, _ = bytes.Cut(line, []byte("\r\n"))
	}
	text := append(bytes.Clone(head), "# Keyspace\r\n"...)
	if keys > 0 {
		text = fmt.Appendf(text, "db0:keys=%d,expires=%d,avg_ttl=%d\r\n", keys, expires, ttl/max(expires, 1))
	}
	b := resp.AppendBulk(nil, append(text, rest...))
	b[0] = info[0]
	return b
}

// keyspace is what INFO says of database 0.
func keyspace(info []byte) (keys, expires, ttl int64) {
	_, line, _ := bytes.Cut(info, []byte("\r\ndb0:"))
	fmt.Sscanf(string(line), "keys=%d,expires=%d,avg_ttl=%d", &keys, &expires, &ttl)
	return keys, expires, ttl
}

// standaloneHello is HELLO of a server of its own.
func standaloneHello(reply []byte) []byte {
	return bytes.Replace(reply, []byte("$4\r\nmode\r\n$7\r\ncluster\r\n"), []byte("$4\r\nmode\r\n$10\r\nstandalone\r\n"), 1)
}
