package idiom

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

func isLock(key string) bool { return strings.HasPrefix(key, "lock:") }

// isFence is of which lock a key is the fence.
func isFence(key string) string {
	if lock, is := strings.CutPrefix(key, "fence:"); is && isLock(lock) {
		return lock
	}
	return ""
}

func each(t *testing.T, cases []scriptCase, do func(t *testing.T, c scriptCase, text string)) {
	t.Helper()
	for _, c := range cases {
		for i, text := range c.texts {
			t.Run(fmt.Sprint(c.name, " ", i), func(t *testing.T) { do(t, c, text) })
		}
	}
}

// scriptCases are all that are to be adopted.
var scriptCases = slices.Concat(takeCases, releaseCases, extendCases, hashCases, sortedCases, permitCases)

func TestAccept(t *testing.T) {
	each(t, scriptCases, func(t *testing.T, c scriptCase, text string) {
		call, err := ParseScript(text).CallFenced(c.keys, c.args, 2, false, isLock, isFence)
		if err != nil {
			t.Fatal(err)
		}
		c.accepted(t, call)
	})
}

// accepted checks what the call does in each state, and returns its class.
func (c *scriptCase) accepted(t *testing.T, call *Call) Class {
	t.Helper()
	rows, class := call.Accept(time.Now())
	var does []string
	for _, r := range rows {
		word := r.Outcome.Op.Do.String()
		if r.Refused != nil {
			word = r.Refused.Why
		}
		does = append(does, strings.Replace(word, "nothing", "-", 1))
	}
	if got := strings.Join(does, " "); class != c.class || got != c.does {
		t.Errorf("%s: %s, want %s: %s", class, got, c.class, c.does)
	}
	return class
}

// TestCases_SeveralScriptsEach: every sentence about what is adopted is tested with several scripts.
func TestCases_SeveralScriptsEach(t *testing.T) {
	for _, c := range scriptCases {
		if len(c.texts) < 4 && c.class != Overwrite {
			t.Errorf("%s: %d scripts", c.name, len(c.texts))
		}
	}
}

func TestAccept_Refuses(t *testing.T) {
	each(t, refusedCases, func(t *testing.T, c scriptCase, text string) {
		call, err := ParseScript(text).CallFenced(c.keys, c.args, 2, false, isLock, isFence)
		if err != nil {
			t.Log(err)
			return
		}
		if call == nil {
			t.Fatal("it would go to the upstream")
		}
		rows, class := call.Accept(time.Now())
		if Usual.Allows(class) {
			t.Errorf("%s", class)
		}
		for _, r := range rows {
			if r.Refused != nil {
				t.Logf("%s: %v", r.Name, r.Refused)
			}
		}
	})
}

// states are those that calls are tried in on a real server.
var states = []State{
	{},
	{Kind: String, Value: "me", Left: 7 * time.Second},
	{Kind: String, Value: "me", Left: Forever},
	{Kind: String, Value: "", Left: 7 * time.Second},
	{Kind: String, Value: "other", Left: 7 * time.Second},
	{Kind: String, Value: "other", Left: Forever},
	{Kind: Hash, Value: "me", Count: 1, Left: 7 * time.Second},
	{Kind: Hash, Value: "me", Count: 2, Left: 7 * time.Second},
	{Kind: Hash, Value: "other", Count: 1, Left: Forever},
	{Kind: Sorted, Value: "me", Left: 7 * time.Second},
	{Kind: Sorted, Value: "other", Left: 7 * time.Second},
	{Kind: Permits, Value: "me", Left: 7 * time.Second},
	{Kind: Permits, Value: "me", Owners: 1, Left: 7 * time.Second},
	{Kind: Permits, Value: "me", Owners: 2, Left: 7 * time.Second},
	{Kind: Permits, Owners: 1, Left: 7 * time.Second},
	{Kind: Permits, Owners: 3, Left: 7 * time.Second},
}

// put lets lock:a on a server be in this state.
func (s State) put(t *testing.T, c *redistest.Conn) {
	t.Helper()
	c.Do(t, "FLUSHALL")
	switch s.Kind {
	case String:
		c.Do(t, "SET", "lock:a", s.Value)
	case Hash:
		c.Do(t, "HSET", "lock:a", s.Value, strconv.Itoa(s.Count))
	case Sorted, Permits:
		for _, m := range membersOf(s, time.Now()) {
			if s.Kind == Permits { // which no script takes for over
				m.score = float64(time.Now().Add(time.Hour).UnixMilli())
			}
			c.Do(t, "ZADD", "lock:a", strconv.FormatFloat(m.score, 'f', -1, 64), m.name)
		}
	default:
		return
	}
	if s.Left != Forever {
		c.Do(t, "PEXPIRE", "lock:a", strconv.FormatInt(s.Left.Milliseconds(), 10))
	}
}

// look reads the state of lock:a on a server.
func look(t *testing.T, c *redistest.Conn) (s State) {
	t.Helper()
	switch c.Do(t, "TYPE", "lock:a").Text {
	case "string":
		s.Kind, s.Value = String, c.Do(t, "GET", "lock:a").Text
	case "hash":
		s.Kind = Hash
		all := c.Do(t, "HGETALL", "lock:a").Elems
		s.Value = all[0].Text
		s.Count, _ = strconv.Atoi(all[1].Text)
	case "zset":
		s.Kind = Sorted
		var names []string
		for _, m := range setOn(t, c) {
			names = append(names, m.name)
		}
		if slices.Contains(names, writer) {
			s.Value = strings.Join(slices.DeleteFunc(names, func(name string) bool { return name == writer }), " and ")
			break
		}
		s.Kind, s.Owners = Permits, len(names)
		if slices.Contains(names, "me") {
			s.Value, s.Owners = "me", len(names)-1
		}
	default:
		return s
	}
	s.Left = Forever
	if ms := c.Do(t, "PTTL", "lock:a").Int(); ms >= 0 {
		s.Left = time.Duration(ms) * time.Millisecond
	}
	return s
}

// setOn are the members of lock:a on a server.
func setOn(t *testing.T, c *redistest.Conn) (all []member) {
	t.Helper()
	flat := c.Do(t, "EVAL", "return redis.call('zrange', KEYS[1], 0, -1, 'WITHSCORES')", "1", "lock:a").Elems
	for i := 0; i+1 < len(flat); i += 2 {
		f, err := strconv.ParseFloat(flat[i+1].Text, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, member{name: flat[i].Text, score: f})
	}
	return all
}

// sameSet compares the members of a sorted set on a server with those that a run of a call leaves.
func sameSet(t *testing.T, c *redistest.Conn, call *Call, s State) {
	t.Helper()
	w := call.world(s, time.Now())
	_, _ = call.run(w)
	if got := setOn(t, c); !slices.EqualFunc(got, w.members, func(a, b member) bool {
		return a.name == b.name && math.Abs(a.score-b.score) < float64(patience.Milliseconds())
	}) {
		t.Errorf("%v: Redis has %v, here %v", s, got, w.members)
	}
}

// after is the state that an outcome leads to.
func after(s State, op Op) State {
	switch op.Do {
	case Take, Replace:
		if op.Kind == Sorted {
			return State{Kind: Sorted, Value: op.Value, Left: op.TTL}
		}
		if op.Kind == Permits {
			return State{Kind: Permits, Value: op.Value, Owners: s.Owners, Left: op.TTL}
		}
		return State{Kind: String, Value: op.Value, Left: op.TTL}
	case Enter:
		return State{Kind: Hash, Value: op.Value, Count: s.Count + 1, Left: op.TTL}
	case Renew:
		s.Left = op.TTL
	case Leave:
		if s.Count--; op.TTL != 0 {
			s.Left = op.TTL
		}
	case Release:
		if op.Kind == Permits && op.Value != "" && op.Value == s.Value && s.Owners > 0 {
			s.Value = ""
			return s
		}
		return State{}
	}
	return s
}

// patience is by how much ends may differ: the machine may be busy.
const patience = 3 * time.Second

func near(a, b time.Duration) bool {
	if a == Forever || b == Forever {
		return a == b
	}
	return (a - b).Abs() < patience
}

// dialectOf is the dialect of a server.
func dialectOf(t testing.TB, c *redistest.Conn) Dialect {
	t.Helper()
	d := DialectOf(c.Do(t, "INFO", "server").Text)
	if d.Version == 0 {
		t.Fatal("the server does not say what it is")
	}
	return d
}

// same compares a call with the server's answer to the same, in every state.
func same(t *testing.T, c *redistest.Conn, call *Call, command []string) {
	t.Helper()
	for _, s := range states {
		out, err := call.Run(s, time.Now())
		if err != nil {
			t.Logf("%v: %v", s, err)
			continue
		}
		s.put(t, c)
		raw := c.Do(t, command...).Raw
		if raw != string(out.Reply) && !(out.TimeRead && sameKindOfNumber(raw, string(out.Reply))) {
			t.Errorf("%v: Redis answers %q, here %q", s, raw, out.Reply)
		}
		got, want := look(t, c), after(s, out.Op)
		left, wanted := got.Left, want.Left
		got.Left, want.Left = 0, 0
		if got != want || !near(left, wanted) {
			t.Errorf("%v: Redis has %v for %v, here %v for %v", s, got, left, want, wanted)
		}
		if want.Kind == Sorted {
			sameSet(t, c, call, s)
		}
		if out.Op.Latch != "" && out.Op.Do != Nothing { // sent again, it has the same answer, and does nothing
			if again := c.Do(t, command...).Raw; again != raw {
				t.Errorf("%v: Redis answers %q, and %q when it is sent again", s, raw, again)
			}
			again := look(t, c)
			if again.Left = 0; again != got {
				t.Errorf("%v: Redis has %v, and %v when it is sent again", s, got, again)
			}
		}
	}
}

// sameKindOfNumber reports whether both are whole numbers of one sign: what is left of a lease.
func sameKindOfNumber(a, b string) bool {
	return len(a) > 1 && len(b) > 1 && a[0] == b[0] && (a[1] == '-') == (b[1] == '-') && a[0] != '-'
}

// TestScripts_AsRedis runs every script in every state, here and on a server.
func TestScripts_AsRedis(t *testing.T) {
	n := redistest.StartNodes(t, 1)
	for _, proto := range []int{2, 3} {
		c := redistest.Open(t, n[0].Addr())
		d := dialectOf(t, c)
		c.Do(t, "HELLO", strconv.Itoa(proto))
		each(t, scriptCases, func(t *testing.T, sc scriptCase, text string) {
			call, err := ParseScript(text).CallFenced(sc.keys, sc.args, proto, false, isLock, isFence)
			if err != nil {
				t.Fatal(err)
			}
			call.Speak(d)
			call.Granted(1) // the server has counted none before
			same(t, c, call, append(append([]string{"EVAL", text, strconv.Itoa(len(sc.keys))}, sc.keys...), sc.args...))
		})
	}
}

// plainCommands are those on the key of a lock.
var plainCommands = []string{
	"SET K me NX PX 5000", "set K me px 5000 nx", "SET K me EX 5 NX", "SET K me NX", "SETNX K me", "SET K me XX PX 5000", "SET K other2 XX EX 5",
	"SET K me PX 5000", "SET K me NX GET", "SET K me GET", "SET K me KEEPTTL", "SET K me XX KEEPTTL", "SET K you XX KEEPTTL", "SET K you KEEPTTL GET", "SET K me XX GET PX 5000", "SET K me XX", "SET K me NX XX", "SET K me PX 0 NX", "SET K me PX -1",
	"SET K me PX x", "SET K me PX", "SET K me EX 9223372036854775807", "SET K me WHAT", "SET K me EXAT 1", "SET K me PXAT 0", "SET K me PX 5 EX 5", "SET K",
	"SETEX K 5 me", "PSETEX K 5000 me", "SETEX K 0 me", "SETEX K x me", "GETSET K me", "GET K", "GET", "GET K K", "STRLEN K",
	"MGET K", "MGET", "GETRANGE K 0 1", "GETRANGE K -2 -1", "GETRANGE K 5 9", "GETRANGE K x 1", "GETRANGE K -1 -5", "GETRANGE K -9 -8", "SUBSTR K 0 0",
	"EXISTS K", "TOUCH K", "TYPE K", "TTL K", "PTTL K", "EXPIRETIME K", "PEXPIRETIME K", "DEL K", "UNLINK K", "GETDEL K",
	"EXPIRE K 5", "PEXPIRE K 5000", "EXPIRE K 0", "EXPIRE K -1", "EXPIRE K x", "EXPIRE K 9223372036854775807", "PEXPIRE K 9223372036854775807", "EXPIREAT K 1", "EXPIREAT K 9999999999",
	"EXPIRE K 5 NX", "EXPIRE K 5 XX", "EXPIRE K 5 GT", "EXPIRE K 500 GT", "EXPIRE K 5 LT", "EXPIRE K 500 LT", "EXPIRE K 5 WHAT", "PERSIST K",
	"HEXISTS K me", "HGET K me", "HLEN K", "HKEYS K", "HVALS K", "HGETALL K", "HSTRLEN K me", "HSET K me 1", "HSETNX K me 1", "HINCRBY K me 1", "HINCRBY K me -1", "HINCRBY K me x", "HDEL K me",
	"SET K me NX NX NX NX NX NX NX NX NX", "HSET K me 1 you 1", "HSET K me", "HDEL K me you", "HDEL K", "GETEX K", "GETEX K PX 5000", "GETEX K EX x", "GETEX K EX 0", "GETEX K EXAT 0", "GETEX K EX", "GETEX K PERSIST EX 5", "EXPIRE K 5 XX GT", "EXPIRE K",
	"SET K me IFEQ me PX 5000", "SET K you2 IFEQ me PX 5000", "SET K me ifeq other GET", "SET K me EX 5 GET IFEQ me", "SET K me IFEQ", "SET K me IFEQ me EX 0", "SET K me2 IFEQ other KEEPTTL", "SET K me IFEQ me IFEQ me", "SET K me IFEQ me IFNE me",
	"SET K me NX IFEQ me", "SET K me IFEQ me XX", "SET K me IFNE me", "SET K me IFDEQ me", "DELEX K IFEQ me", "DELEX K IFEQ", "DELEX K", "DELEX", "DELEX K ifeq other", "DELEX K WHAT me", "DELEX K IFNE me", "DELEX K IFEQ me me",
	"ZREM K me", "ZREM K you2", "ZREM K", "ZREM K me you2", "ZSCORE K me", "ZSCORE K __write__", "ZSCORE K", "ZCARD K", "ZCOUNT K -inf +inf", "ZCOUNT K (5 inf", "ZCOUNT K -inf 5", "ZCOUNT K x 1", "ZCOUNT K 99999999999999 inf", "ZCOUNT K 1 (",
	"ZRANGE K 0 -1", "ZRANGE K 0 -1 WITHSCORES", "ZREVRANGE K 0 0 withscores", "ZRANGE K 1 0", "ZRANGE K -9 9", "ZRANGE K x 1", "ZREVRANGE K -1 -1", "ZRANGE K 0 -1 REV", "ZREVRANGE K 5 9 WITHSCORES",
	"DELIFEQ K me", "DELIFEQ K", "DELIFEQ K other",
}

// TestPlain_AsRedis runs every command in every state, here and on a server.
func TestPlain_AsRedis(t *testing.T) {
	n := redistest.StartNodes(t, 1)
	for _, proto := range []int{2, 3} {
		c := redistest.Open(t, n[0].Addr())
		d := dialectOf(t, c)
		c.Do(t, "HELLO", strconv.Itoa(proto))
		for _, line := range plainCommands {
			args := strings.Fields(strings.ReplaceAll(line, "K", "lock:a"))
			for i, a := range args { // the K of KEEPTTL and others is no key
				if strings.Contains(a, "lock:a") && a != "lock:a" {
					args[i] = strings.ReplaceAll(a, "lock:a", "K")
				}
			}
			t.Run(fmt.Sprint(proto, " ", line), func(t *testing.T) {
				call, err := Plain(args, proto)
				if err != nil {
					t.Skip(err)
				}
				if len(c.Do(t, "COMMAND", "INFO", args[0]).Elems[0].Elems) == 0 {
					t.Skip("the server has no such command")
				}
				call.Speak(d)
				same(t, c, call, args)
			})
		}
	}
}
