package quorum

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockproxy/lockproxy/scripts"
)

// A simNode is a simulated master: what Redis does of what the scripts ask for, against a
// map, with a clock and a memory of its own. It runs the real scripts. simWorld.mu guards it.
type simNode struct {
	w       *simWorld
	index   int
	keys    map[string]*simKey
	scripts map[string]*lua.FunctionProto // loaded, by SHA-1
	replid  string
	runID   string
	old     map[string]*simKey // a snapshot to restart from

	rate   float64       // of its clock; 1 is true
	offset time.Duration // of its clock when the world began, and by how much it was stepped since

	down, stopped bool // killed; paused, so that what arrives waits
	refuses       int  // by so many faults: scripts get an error
	waits         []arrival
	conns         []*simConn
}

// An arrival is what reached a node that is paused.
type arrival struct {
	conn *simConn
	segment
}

// A simKey is a string or a hash, whose fields keep the order in which they were set.
type simKey struct {
	text   string
	fields []simField // nil: a string
	until  int64      // when it expires, in ms of the node's clock; 0: never
}

type simField struct{ name, value string }

type simStatus string

var errWrongType = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")

// micros is the node's clock.
func (n *simNode) micros() int64 {
	return n.w.began.Add(n.offset + time.Duration(float64(time.Since(n.w.began))*n.rate)).UnixMicro()
}

// restart gives the node a new process, with this memory.
func (n *simNode) restart(keys map[string]*simKey) {
	n.keys, n.scripts = keys, map[string]*lua.FunctionProto{}
	n.replid, n.runID = n.w.hex(), n.w.hex()
	n.down, n.stopped, n.waits = false, false, nil
}

// votes reports whether the node may vote, and answers.
func (n *simNode) votes() bool {
	return !n.down && !n.stopped && n.refuses == 0 && n.remembers()
}

// remembers reports whether the node has a record of itself that is not of before it forgot, and is in no quarantine.
func (n *simNode) remembers() bool {
	said := n.executeData("HMGET", []string{"lockproxy:node", "id", "until", "sync"}).([]any)
	until, _ := said[1].(string)
	end, err := strconv.ParseInt(until, 10, 64)
	return err == nil && said[0] == n.replid && end <= n.micros()/1000 && said[2] == "1"
}

// inDoubt reports whether there is a name about which the node does not vote.
func (n *simNode) inDoubt() bool {
	for name := range n.keys {
		if strings.HasPrefix(name, "lockproxy:doubt:") && n.key(name) != nil {
			return true
		}
	}
	return false
}

// copyKeys is a snapshot.
func (n *simNode) copyKeys() map[string]*simKey {
	out := make(map[string]*simKey, len(n.keys))
	for name, k := range n.keys {
		c := *k
		c.fields = slices.Clone(k.fields)
		out[name] = &c
	}
	return out
}

// key is what is stored there, nil if nothing is.
func (n *simNode) key(name string) *simKey {
	k := n.keys[name]
	if k != nil && k.until != 0 && k.until <= n.micros()/1000 {
		delete(n.keys, name)
		return nil
	}
	return k
}

// hash is the hash that is stored there, empty if nothing is.
func (n *simNode) hash(name string) *simKey {
	if k := n.key(name); k != nil {
		return k
	}
	return &simKey{fields: []simField{}}
}

func (k *simKey) field(name string) int {
	return slices.IndexFunc(k.fields, func(f simField) bool { return f.name == name })
}

// is reports whether a field is there, with that value.
func (k *simKey) is(field, value string) bool {
	i := k.field(field)
	return i >= 0 && k.fields[i].value == value
}

// execute runs one command. c is nil in a script.
func (n *simNode) execute(c *simConn, args []string) any {
	name, a := args[0], args[1:]
	switch name {
	case "HELLO":
		return simMap{"server", "redis", "proto", int64(3)}
	case "CLIENT":
		return simStatus("OK")
	case "PING":
		return simStatus("PONG")
	case "INFO":
		return n.info(a)
	case "SCRIPT":
		return n.script(a)
	case "EVALSHA":
		return n.evalsha(a)
	case "PUBLISH":
		return n.publish(a[0], a[1])
	case "PUBSUB":
		return []any{a[1], int64(len(n.listeners(a[1])))}
	case "SUBSCRIBE":
		return c.subscribe(a)
	case "UNSUBSCRIBE":
		return c.unsubscribe(a)
	}
	return n.executeData(name, a)
}

// executeData is execute for what reads and writes keys, and the clock.
func (n *simNode) executeData(name string, a []string) any {
	switch name {
	case "TIME":
		us := n.micros()
		return []any{strconv.FormatInt(us/1e6, 10), strconv.FormatInt(us%1e6, 10)}
	case "GET":
		return n.get(a[0])
	case "SET":
		return n.set(a)
	case "DEL":
		there := n.key(a[0]) != nil
		delete(n.keys, a[0])
		if there {
			return int64(1)
		}
		return int64(0)
	case "PEXPIRE":
		return n.expire(a, n.micros()/1000)
	case "PEXPIREAT":
		return n.expire(a, 0)
	case "PTTL":
		return n.pttl(a[0])
	case "HSET":
		return n.hset(a)
	case "HDEL":
		return n.hdel(a)
	case "HMGET":
		return n.hmget(a)
	case "HGET":
		return n.hmget(a).([]any)[0]
	case "HLEN":
		return int64(len(n.hash(a[0]).fields))
	case "SCAN":
		return []any{"0", n.matching(a[2])}
	case "HKEYS":
		return n.hash(a[0]).list(false)
	case "HGETALL":
		return n.hash(a[0]).list(true)
	}
	if strings.HasPrefix(name, "Z") {
		return n.executeSorted(name, a)
	}
	return fmt.Errorf("ERR unknown command '%s'", name)
}

// simMap is a map in RESP3.
type simMap []any

// simPushes are several pushes in RESP3.
type simPushes [][]any

func (n *simNode) info(a []string) any {
	if a[0] == "server" {
		return "# Server\r\nredis_version:7.4.0\r\nredis_mode:standalone\r\nrun_id:" + n.runID + "\r\n"
	}
	return "# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_replid:" + n.replid + "\r\nmaster_replid2:" + strings.Repeat("0", 40) + "\r\n"
}

func (n *simNode) script(a []string) any {
	if a[0] == "FLUSH" {
		clear(n.scripts)
		return simStatus("OK")
	}
	sha := shaOf(a[1])
	p, err := compileSim(a[1])
	if err != nil {
		return err
	}
	n.scripts[sha] = p
	return sha
}

// shaOf is a shortcut: only the scripts that exist are ever loaded.
func shaOf(source string) string {
	for _, s := range scripts.All() {
		if s.Source == source {
			return s.SHA1
		}
	}
	panic("an unknown script")
}

func (n *simNode) evalsha(a []string) any {
	p := n.scripts[a[0]]
	keys, err := strconv.Atoi(a[1])
	switch {
	case err != nil || len(a) < 2+keys:
		return errors.New("ERR Number of keys can't be greater than number of args")
	case n.refuses > 0:
		return errors.New("NOPERM User default has no permissions to run the 'evalsha' command")
	case p == nil:
		return errors.New("NOSCRIPT No matching script. Please use EVAL.")
	}
	argv := a[2+keys:]
	reply := runSim(n, p, a[2:2+keys], argv)
	name := nameOf(a[0])
	n.checkAlone(a[2])
	r, ok := reply.([]any)
	if name == "calls" && ok {
		n.ranCalls(a[2:2+keys], argv, r)
	} else {
		n.ran(name, a[2], argv, reply)
	}
	return reply
}

// ranCalls tells the world what each call of the script calls has done.
func (n *simNode) ranCalls(keys, argv []string, replies []any) {
	common, rest, key := argv[:4], argv[4:], keys[0]
	next := keys[3:]
	for i, reply := range replies {
		script, own := rest[0], rest[1]
		last, _ := strconv.Atoi(rest[2])
		switch {
		case own == "0":
			n.w.history.count("hand-overs")
		case i == 0 && own == "3":
			next = next[1:]
		case i > 0:
			k, _ := strconv.Atoi(own)
			key, next = next[0], next[k:]
			n.w.history.count("joined calls")
		}
		n.ran(script, key, slices.Concat(common, rest[3:3+last]), reply)
		n.checkAlone(key)
		rest = rest[3+last:]
	}
}

// ran tells the world what a script has done.
func (n *simNode) ran(name, key string, argv []string, reply any) {
	n.spring(name)
	if name == "acquire" || name == "settle" {
		n.w.history.acquired(key, argv[4])
	}
	r, ok := reply.([]any)
	switch {
	case ok && name == "acquire" && argv[8] == "replace" && r[0] == int64(1):
		n.w.history.dropped(key, argv[11], argv[10])
	case ok && name == "copy" && argv[4] == "commit" && r[0] == int64(1):
		n.w.history.count("copies")
	case name == "renew" && len(argv[11]) > 1:
		n.w.history.count("renewals carried to a node that forgot")
	}
	if n.w.trace {
		n.w.history.log(nodeName(n.index), "", "%s %q -> %v", name, argv[4:], reply)
	}
}

// checkAlone blames a node whose record is marked as not entered (its field p begins with "0 ") and does not have exactly one
// hold: a release relies on that.
func (n *simNode) checkAlone(key string) {
	k, holds := n.hash(key), 0
	for _, f := range k.fields {
		if len(f.name) > 1 {
			holds++
		}
	}
	if at := k.field("p"); at >= 0 && strings.HasPrefix(k.fields[at].value, "0 ") && holds != 1 {
		n.w.history.blame(key, "the record on %s is not marked as entered, and has %d holds", nodeName(n.index), holds)
	}
}

// A simTrap tells when a node has run a script, before anybody hears of it.
type simTrap struct {
	node   *simNode // nil: any
	script string
	sprung chan *simNode // holds one
}

// trap sets one.
func (w *simWorld) trap(n *simNode, script string) *simTrap {
	t := &simTrap{n, script, make(chan *simNode, 1)}
	w.with(func() { w.traps = append(w.traps, t) })
	return t
}

// wait reports the node that ran the script; nil if none did in time.
func (t *simTrap) wait(w *simWorld, patience time.Duration) *simNode {
	select {
	case n := <-t.sprung:
		return n
	case <-time.After(patience):
		w.with(func() { w.traps = slices.DeleteFunc(w.traps, func(other *simTrap) bool { return other == t }) })
		return nil
	}
}

func (n *simNode) spring(script string) {
	n.w.traps = slices.DeleteFunc(n.w.traps, func(t *simTrap) bool {
		hit := t.script == script && (t.node == nil || t.node == n)
		if hit {
			t.sprung <- n
		}
		return hit
	})
}

func nameOf(sha string) string {
	for _, s := range scripts.All() {
		if s.SHA1 == sha {
			return s.Name
		}
	}
	return sha
}

func (n *simNode) get(name string) any {
	switch k := n.key(name); {
	case k == nil:
		return nil
	case k.fields != nil:
		return errWrongType
	default:
		return k.text
	}
}

func (n *simNode) hmget(a []string) any {
	k, out := n.hash(a[0]), make([]any, len(a)-1)
	for i, name := range a[1:] {
		if at := k.field(name); at >= 0 {
			out[i] = k.fields[at].value
		}
	}
	return out
}

func (n *simNode) set(a []string) any {
	if len(a) == 3 && a[2] == "XX" && n.key(a[0]) == nil {
		return nil
	}
	ms, err := strconv.ParseInt(a[3], 10, 64)
	if a[2] != "PX" || err != nil {
		return errors.New("ERR syntax error")
	}
	if len(a) == 5 && a[4] == "NX" && n.key(a[0]) != nil {
		return nil
	}
	n.keys[a[0]] = &simKey{text: a[1], until: n.micros()/1000 + ms}
	return simStatus("OK")
}

// expire is PEXPIREAT where since is 0, else PEXPIRE.
func (n *simNode) expire(a []string, since int64) any {
	ms, err := strconv.ParseInt(a[1], 10, 64)
	k := n.key(a[0])
	switch {
	case err != nil:
		return errors.New("ERR value is not an integer or out of range")
	case k == nil:
		return int64(0)
	}
	k.until = since + ms
	return int64(1)
}

func (n *simNode) pttl(name string) any {
	switch k := n.key(name); {
	case k == nil:
		return int64(-2)
	case k.until == 0:
		return int64(-1)
	default:
		return k.until - n.micros()/1000
	}
}

func (n *simNode) hset(a []string) any {
	k := n.hash(a[0])
	if k.fields == nil {
		return errWrongType
	}
	n.keys[a[0]] = k
	added := int64(0)
	for i := 1; i+1 < len(a); i += 2 {
		if at := k.field(a[i]); at >= 0 {
			k.fields[at].value = a[i+1]
		} else {
			k.fields = append(k.fields, simField{a[i], a[i+1]})
			added++
		}
	}
	return added
}

func (n *simNode) hdel(a []string) any {
	k, removed := n.hash(a[0]), int64(0)
	for _, name := range a[1:] {
		if at := k.field(name); at >= 0 {
			k.fields = slices.Delete(k.fields, at, at+1)
			removed++
		}
	}
	if len(k.fields) == 0 {
		delete(n.keys, a[0])
	}
	return removed
}

// matching are the keys that match a pattern that ends in an asterisk and has no other; before that may be a set of letters.
func (n *simNode) matching(pattern string) []any {
	out := []any{}
	prefix, letters, _ := strings.Cut(strings.TrimSuffix(pattern, "*"), "[")
	letters = strings.TrimSuffix(letters, "]")
	for _, name := range slices.Sorted(maps.Keys(n.keys)) {
		tail, ours := strings.CutPrefix(name, prefix)
		if ours && (letters == "" || tail != "" && strings.ContainsRune(letters, rune(tail[0]))) && n.key(name) != nil {
			out = append(out, name)
		}
	}
	return out
}

// list is the names of a hash's fields, with their values if asked for.
func (k *simKey) list(values bool) []any {
	out := []any{}
	for _, f := range k.fields {
		if out = append(out, f.name); values {
			out = append(out, f.value)
		}
	}
	return out
}

func (n *simNode) listeners(channel string) (out []*simConn) {
	for _, c := range n.conns {
		if slices.Contains(c.channels, channel) {
			out = append(out, c)
		}
	}
	return out
}

func (n *simNode) publish(channel, message string) any {
	all := n.listeners(channel)
	for _, c := range all {
		c.answer(appendReply(nil, simPushes{{"message", channel, message}}))
	}
	return int64(len(all))
}

// appendReply appends a reply as RESP3.
func appendReply(b []byte, reply any) []byte {
	switch r := reply.(type) {
	case nil:
		return append(b, "_\r\n"...)
	case int64:
		return fmt.Appendf(b, ":%d\r\n", r)
	case string:
		return fmt.Appendf(b, "$%d\r\n%s\r\n", len(r), r)
	case simStatus:
		return fmt.Appendf(b, "+%s\r\n", string(r))
	case error:
		return fmt.Appendf(b, "-%s\r\n", strings.NewReplacer("\r", " ", "\n", " ").Replace(r.Error()))
	case []any:
		return appendReplies(fmt.Appendf(b, "*%d\r\n", len(r)), r)
	case simMap:
		return appendReplies(fmt.Appendf(b, "%%%d\r\n", len(r)/2), r)
	case simPushes:
		for _, p := range r {
			b = appendReplies(fmt.Appendf(b, ">%d\r\n", len(p)), p)
		}
		return b
	}
	panic(fmt.Sprintf("a reply of type %T", reply))
}

func appendReplies(b []byte, all []any) []byte {
	for _, r := range all {
		b = appendReply(b, r)
	}
	return b
}

// parseCommand takes one command, an array of bulk strings, off b; args is nil when it is
// not complete.
func parseCommand(b []byte) (args []string, rest []byte, err error) {
	n, rest, ok, err := parseHeader(b, '*')
	if err != nil || !ok {
		return nil, b, err
	}
	for range n {
		var size int
		size, rest, ok, err = parseHeader(rest, '$')
		if err != nil || !ok || len(rest) < size+2 {
			return nil, b, err
		}
		args, rest = append(args, string(rest[:size])), rest[size+2:]
	}
	return args, rest, nil
}

func parseHeader(b []byte, kind byte) (n int, rest []byte, ok bool, err error) {
	end := slices.Index(b, '\n')
	if end < 0 {
		return 0, b, false, nil
	}
	if b[0] != kind {
		return 0, b, false, fmt.Errorf("%q is no command", b[:end])
	}
	n, err = strconv.Atoi(string(b[1 : end-1]))
	return n, b[end+1:], err == nil, err
}
