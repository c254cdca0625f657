package commands

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/backends/resp"
	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/commands/table"
)

// A splitting is how a command whose keys are of several slots becomes one command
// for each slot, and their replies one reply.
type splitting struct {
	values int // arguments behind each key
	join   func(places [][]int, parts [][]byte) []byte
}

var splits = map[string]*splitting{
	"mget":   {join: joinElements},
	"mset":   {values: 1, join: anyhow(joinFirst)},
	"del":    {join: anyhow(joinSum)},
	"unlink": {join: anyhow(joinSum)},
	"exists": {join: anyhow(joinSum)},
	"touch":  {join: anyhow(joinSum)},
}

// anyhow is a joining for which it does not matter where the keys were.
func anyhow(join joining) func([][]int, [][]byte) []byte {
	return func(_ [][]int, parts [][]byte) []byte { return join(parts) }
}

// A joining makes one reply of those of several nodes, none of which is an error.
type joining func(parts [][]byte) []byte

// trySplit sends a command in parts, if there are connections to all nodes that it
// needs. The keys are where plan has just found them.
func (s *Session) trySplit(sp *splitting, args [][]byte) bool {
	at := s.rt.at
	var slots []int
	places := map[int][]int{} // of a slot's keys, in order
	for place, i := range at {
		slot := table.Slot(args[i])
		if places[slot] == nil {
			slots = append(slots, slot)
		}
		places[slot] = append(places[slot], place)
	}
	calls := make([]*call, len(slots))
	conns := make([]*upstream.Conn, len(slots))
	ordered := make([][]int, len(slots))
	for n, slot := range slots {
		pool := s.rt.view.Master(slot)
		if pool == nil {
			s.d.opt.Upstream.Hurry()
			return s.say(unservedBy)
		}
		if conns[n] = s.rt.conn(pool, s.lane); conns[n] == nil {
			return false
		}
		part := [][]byte{args[0]}
		for _, place := range places[slot] {
			part = append(part, args[at[place]:at[place]+1+sp.values]...)
		}
		calls[n] = s.newCall(plan{kind: keyed, slot: slot, pool: pool}, resp.AppendCommand(nil, part...))
		ordered[n] = places[slot]
	}
	s.sendParts(conns, calls, func(parts [][]byte) []byte { return sp.join(ordered, parts) })
	return true
}

// sendParts sends calls, each on its connection, whose replies become one: the first
// error among them, or what join makes of them.
func (s *Session) sendParts(conns []*upstream.Conn, calls []*call, join joining) {
	s.flushHome()
	s.replies.CallParts(calls, func(parts [][]byte) []byte {
		if refused := firstError(parts); refused != nil {
			return refused
		}
		return join(parts)
	})
	for i, c := range calls {
		s.rt.gather(conns[i], c)
	}
}

// spreads are the commands without keys that all masters of a Cluster do, and how
// their replies become one.
var spreads = map[string]joining{
	"dbsize": joinSum, "slowlog|len": joinSum, "latency|reset": joinSum, "pubsub|numpat": joinSum,
	"keys": joinUnion, "pubsub|channels": joinUnion, "pubsub|shardchannels": joinUnion,
	"pubsub|numsub": joinPairs, "pubsub|shardnumsub": joinPairs,
	"script|exists": joinLeast,
	"randomkey":     joinAny,
	"lastsave":      joinMin,
	"info":          joinInfo,
	"flushall":      joinFirst, "flushdb": joinFirst,
	"script|load": joinFirst, "script|flush": joinFirst,
	"function|load": joinFirst, "function|delete": joinFirst, "function|flush": joinFirst, "function|restore": joinFirst,
	"config|set": joinFirst, "config|resetstat": joinFirst, "config|rewrite": joinFirst,
	"acl|setuser": joinFirst, "acl|deluser": joinFirst, "acl|load": joinFirst, "acl|save": joinFirst,
	"save": joinFirst, "bgsave": joinFirst, "bgrewriteaof": joinFirst,
	"slowlog|reset": joinFirst, "memory|purge": joinFirst,
}

// refusal is what a command is answered with that would show, or change, one node of a
// Cluster where a client sees a single server; nil for any other command.
func refusal(name string) func(args [][]byte) string {
	if strings.HasPrefix(name, "cluster|") {
		return noCluster
	}
	return refusals[name]
}

var refusals = map[string]func(args [][]byte) string{
	"cluster": noCluster, "readonly": noCluster, "readwrite": noCluster, "asking": noCluster,
	"shutdown": notOne, "failover": notOne, "replicaof": notOne, "slaveof": notOne,
	"sync": notOne, "psync": notOne, "replconf": notOne,
}

func noCluster([][]byte) string { return "-ERR This instance has cluster support disabled\r\n" }

func notOne(args [][]byte) string {
	return string(resp.AppendError(nil, "ERR "+upper(args[0])+" is about one server, and the upstream is a Cluster: send it to one of its nodes"))
}

func upper(name []byte) string { return string(bytes.ToUpper(name)) }

// trySpread sends a command to all masters, if there are connections to them.
func (s *Session) trySpread(join joining, raw []byte) bool {
	masters := s.rt.view.Masters()
	conns := make([]*upstream.Conn, len(masters))
	calls := make([]*call, len(masters))
	for i, pool := range masters {
		if conns[i] = s.rt.conn(pool, s.lane); conns[i] == nil {
			return false
		}
		calls[i] = s.newCall(plan{slot: noSlot, pool: pool}, raw)
	}
	if len(calls) == 0 {
		return false
	}
	s.sendParts(conns, calls, join)
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

func joinFirst(parts [][]byte) []byte { return parts[0] }

// integer is the value of an integer reply.
func integer(reply []byte) int64 {
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(reply[1:])), 10, 64)
	return n
}

func joinSum(parts [][]byte) []byte {
	var n int64
	for _, p := range parts {
		n += integer(p)
	}
	return resp.AppendInt(nil, n)
}

func joinMin(parts [][]byte) []byte {
	n := integer(parts[0])
	for _, p := range parts {
		n = min(n, integer(p))
	}
	return resp.AppendInt(nil, n)
}

// joinElements puts the elements of the parts' arrays where their keys were.
func joinElements(places [][]int, parts [][]byte) []byte {
	n := 0
	for _, p := range places {
		n += len(p)
	}
	all := make([][]byte, n)
	for i, part := range parts {
		elems, ok := elements(part)
		if !ok || len(elems) != len(places[i]) {
			return strange()
		}
		for j, e := range elems {
			all[places[i][j]] = e
		}
	}
	return appendElements(parts[0][0], all)
}

// strange is for replies that should not be.
func strange() []byte {
	return resp.AppendError(nil, "ERR the nodes of the Cluster answered in a way that cannot be put together")
}

// appendElements is an aggregate, or strange where all is no map and kind one.
func appendElements(kind byte, all [][]byte) []byte {
	n := len(all)
	if kind == '%' { // its length counts pairs
		if n%2 != 0 {
			return strange()
		}
		n /= 2
	}
	b := append([]byte{kind}, strconv.Itoa(n)...)
	b = append(b, "\r\n"...)
	for _, e := range all {
		b = append(b, e...)
	}
	return b
}

// joinUnion is the elements of all arrays, each once.
func joinUnion(parts [][]byte) []byte {
	var all [][]byte
	seen := map[string]struct{}{}
	for _, part := range parts {
		elems, ok := elements(part)
		if !ok {
			return strange()
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

// joinPairs adds the numbers behind the same names.
func joinPairs(parts [][]byte) []byte {
	sums, ok := elements(parts[0])
	if !ok {
		return strange()
	}
	for _, part := range parts[1:] {
		elems, ok := elements(part)
		if !ok || len(elems) != len(sums) {
			return strange()
		}
		for i := 1; i < len(elems); i += 2 {
			sums[i] = resp.AppendInt(nil, integer(sums[i])+integer(elems[i]))
		}
	}
	return appendElements(parts[0][0], sums)
}

// joinLeast is, element by element, the least of all numbers.
func joinLeast(parts [][]byte) []byte {
	least, ok := elements(parts[0])
	if !ok {
		return strange()
	}
	for _, part := range parts[1:] {
		elems, ok := elements(part)
		if !ok || len(elems) != len(least) {
			return strange()
		}
		for i, e := range elems {
			if integer(e) < integer(least[i]) {
				least[i] = e
			}
		}
	}
	return appendElements(parts[0][0], least)
}

// joinAny is one of the replies that are not null.
func joinAny(parts [][]byte) []byte {
	for _, i := range rand.Perm(len(parts)) {
		if p := parts[i]; p[0] != '_' && !bytes.HasPrefix(p, []byte("$-1")) {
			return p
		}
	}
	return parts[0]
}

// plainInfo is INFO of a server of its own.
func plainInfo(reply []byte) []byte {
	if len(reply) == 0 || reply[0] != '$' && reply[0] != '=' {
		return reply
	}
	text := bulk(reply)
	text = bytes.Replace(text, []byte("redis_mode:cluster"), []byte("redis_mode:standalone"), 1)
	text = bytes.Replace(text, []byte("server_mode:cluster"), []byte("server_mode:standalone"), 1) // Valkey's name for it
	text = bytes.Replace(text, []byte("cluster_enabled:1"), []byte("cluster_enabled:0"), 1)
	b := resp.AppendBulk(nil, text)
	b[0] = reply[0]
	return b
}

// joinInfo is INFO of the first node, with the keys of all.
func joinInfo(parts [][]byte) []byte {
	info := plainInfo(parts[0])
	head, rest, ok := bytes.Cut(bulk(info), []byte("# Keyspace\r\n"))
	if !ok || len(parts) == 1 {
		return info
	}
	var keys, expires, ttl int64
	for _, p := range parts {
		k, e, t := keyspace(bulk(p))
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

// plainHello is HELLO of a server of its own.
func plainHello(reply []byte) []byte {
	return bytes.Replace(reply, []byte("$4\r\nmode\r\n$7\r\ncluster\r\n"), []byte("$4\r\nmode\r\n$10\r\nstandalone\r\n"), 1)
}
