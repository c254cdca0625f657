package integration

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// dialogues are what ordinary clients say, for both protocol versions.
var dialogues = []dialogue{
	{name: "status, integer, bulk, nulls", bytes: lines("SET a 1", "INCR a", "GET a", "GET none", "DEL a none", "PING", "ECHO x", "TYPE a")},
	{name: "null array", bytes: lines("BLPOP none 0.01", "LPOP none 2", "XREAD STREAMS none 0", "SET k v", "SET k w NX", "EXEC")},
	{name: "empty bulk and array", bytes: redistest.Command("SET", "e", "") + lines("GET e", "LRANGE none 0 -1", "HGETALL none", "MGET e none")},
	{name: "errors", bytes: lines("SET", "NOSUCH a b", "LPUSH l 1", "INCR l", "GET l", "EVAL return(1", "SELECT 99", "SELECT x", "OBJECT nosuch", "CONFIG GET")},
	{name: "empty command name", bytes: redistest.Command("", "a") + redistest.Command("")},
	{name: "nested", bytes: lines("EVAL return{1,{2,{3,'x'},{}},false,'y'} 0", "GEOADD g 13.361389 38.115556 p", "GEOPOS g p none", "XADD s 1-1 f v", "XRANGE s - +", "XINFO STREAM s FULL", "COMMAND INFO get none")},
	{name: "shapes that differ with the protocol", bytes: lines("ZADD z 1.5 a 2 b", "ZRANGE z 0 -1 WITHSCORES", "ZSCORE z a", "ZSCORE z none", "HSET h f v", "HGETALL h", "CONFIG GET maxmemory-policy", "SADD s 1", "SMEMBERS s", "EVAL return{double=3.5} 0", "EVAL redis.setresp(3);return{map={a=1}} 0", "DEBUG PROTOCOL attrib", "DEBUG PROTOCOL bignum", "DEBUG PROTOCOL true", "DEBUG PROTOCOL verbatim", "DEBUG PROTOCOL double", "DEBUG PROTOCOL set", "DEBUG PROTOCOL map", "DEBUG PROTOCOL push", "LOLWUT VERSION 0")},
	{name: "binary", bytes: redistest.Command("SET", "b\x00\r\n$", "\x00\xff\r\n$5\r\n") + redistest.Command("GET", "b\x00\r\n$") + redistest.Command("STRLEN", "b\x00\r\n$")},
	{name: "database", bytes: lines("SELECT 1", "SET d one", "SELECT 0", "GET d", "SELECT 1", "GET d", "MOVE d 2", "SELECT 2", "GET d", "SWAPDB 0 2", "GET d", "SELECT 0", "GET d")},
	{name: "transaction", bytes: lines("MULTI", "SET t 1", "INCR t", "LPUSH t x", "GET t", "EXEC", "GET t")},
	{name: "transaction discarded", bytes: lines("SET t 1", "MULTI", "INCR t", "DISCARD", "GET t", "DISCARD", "EXEC")},
	{name: "transaction aborted", bytes: lines("MULTI", "SET t", "NOSUCH", "SET t 2", "EXEC", "GET t")},
	{name: "transaction nested and empty", bytes: lines("MULTI", "MULTI", "WATCH a", "EXEC", "MULTI", "EXEC")},
	{name: "transaction watched by itself", bytes: lines("WATCH w", "SET w 1", "MULTI", "GET w", "EXEC", "WATCH w", "MULTI", "GET w", "EXEC", "WATCH w", "UNWATCH", "SET w 2", "MULTI", "GET w", "EXEC")},
	{name: "transaction with SELECT", bytes: lines("MULTI", "SELECT 3", "SET in three", "EXEC", "GET in", "SELECT 0", "GET in")},
	{name: "blocking answered at once", bytes: lines("RPUSH q 1 2 3", "BLPOP q 1", "BRPOP none q 1", "BLMOVE q r LEFT RIGHT 1", "BLPOP none 0.02", "PING", "BLPOP none -1", "BLPOP none x", "WAIT 0 10")},
	{name: "scripts", bytes: lines("SCRIPT LOAD return(1)", "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0", "EVAL return{KEYS[1],ARGV[1]} 1 a b", "EVAL return(redis.error_reply('MINE-x')) 0", "EVAL return(redis.call('get')) 0")},
	{name: "publish without subscribers", bytes: lines("PUBLISH c m", "PUBSUB CHANNELS", "PUBSUB NUMSUB c")},
	{name: "subscribe and unsubscribe", bytes: lines("SUBSCRIBE c d", "PSUBSCRIBE p*", "PING", "PING x", "UNSUBSCRIBE c", "UNSUBSCRIBE d", "PUNSUBSCRIBE p*", "GET a", "UNSUBSCRIBE", "PUNSUBSCRIBE")},
	{name: "refused while subscribed", bytes: lines("SUBSCRIBE c", "GET a", "SET a 1", "UNSUBSCRIBE", "GET a")},
	{name: "sharded subscribe", bytes: lines("SSUBSCRIBE c", "SUNSUBSCRIBE c", "GET a")},
	{name: "reset", bytes: lines("SELECT 1", "SET r one", "RESET", "GET r", "MULTI", "RESET", "EXEC", "SUBSCRIBE c", "RESET", "GET a")},
	{name: "hello", bytes: lines("HELLO", "HELLO 2", "HELLO 3", "HELLO", "HELLO 2")},
	{name: "hello refused", bytes: lines("HELLO 4", "HELLO x", "HELLO 3 AUTH", "HELLO 3 NOSUCH", "HELLO 3 AUTH none none", "HELLO 3 SETNAME", "CLIENT GETNAME", "PING"), refused: true},
	{name: "hello with a name", bytes: lines("HELLO 3 SETNAME me", "CLIENT GETNAME", "HELLO 2", "CLIENT GETNAME")},
	{name: "hello with a name refused", bytes: lines("HELLO 3 SETNAME x NOSUCH", "CLIENT GETNAME", "HELLO 2 SETNAME y AUTH", "CLIENT GETNAME", "CLIENT SETNAME z", "HELLO 3 SETNAME v SETNAME", "CLIENT GETNAME", "MULTI", "HELLO 3 SETNAME w NOSUCH", "EXEC", "CLIENT GETNAME")},
	{name: "hello auth default", bytes: lines("HELLO 3 AUTH default any", "ZADD z 1 a", "ZRANGE z 0 -1 WITHSCORES")},
	{name: "client name", bytes: lines("CLIENT GETNAME", "CLIENT SETNAME one", "CLIENT GETNAME", "SET a 1", "BLPOP none 0.01", "CLIENT GETNAME") + redistest.Command("CLIENT", "SETNAME", "with space") + lines("CLIENT SETINFO lib-name x", "CLIENT NOSUCH")},
	{name: "name kept in a transaction", bytes: lines("CLIENT SETNAME one", "MULTI", "CLIENT GETNAME", "EXEC")},
	{name: "name set while watching", bytes: lines("WATCH k", "CLIENT SETNAME one", "UNWATCH", "CLIENT GETNAME", "WATCH k", "EXEC", "CLIENT GETNAME")},
	{name: "name set in a transaction", bytes: lines("MULTI", "CLIENT SETNAME one", "EXEC", "CLIENT GETNAME", "MULTI", "CLIENT SETNAME two", "DISCARD", "CLIENT GETNAME")},
	{name: "auth without a password set", bytes: lines("AUTH x", "AUTH default x", "AUTH none x", "AUTH", "AUTH a b c", "ACL WHOAMI"), refused: true},
	{name: "inline", bytes: "SET a 1\r\nGET a\r\nPING\nset  b   'x y'\r\nget b\r\nSET c \"q\\x41\\n\\\"\"\r\nGET c\r\n\r\n\n  \r\nECHO ''\r\nNOSUCH\r\n"},
	{name: "inline between arrays", bytes: lines("SET a 1") + "GET a\r\n" + lines("GET a") + "INCR a\r\n" + lines("GET a")},
	{name: "ignored", bytes: "*0\r\n*-1\r\n\r\n\n" + lines("PING") + "*0\r\n" + lines("PING")},
	{name: "one byte at a time", chunks: -1, bytes: lines("SET a 1", "GET a", "MULTI", "INCR a", "EXEC") + "GET a\r\n" + redistest.Command("SET", "b", "\r\n\r\n") + lines("GET b")},
	{name: "small pieces", chunks: 40, bytes: lines("RPUSH l a b c", "LRANGE l 0 -1", "DEL l") + redistest.Command("SET", "b", noise(5000)) + lines("GET b", "STRLEN b")},
	{name: "pipeline of 10,000", bytes: pipeline(10_000)},
	{name: "pipeline of 10,000 in pieces", chunks: 997, bytes: pipeline(10_000)},
	{name: "many arguments", bytes: manyArguments(100_000) + lines("DEL l")},
}

// pipeline is n commands of several kinds, errors among them.
func pipeline(n int) string {
	var b strings.Builder
	for i := range n {
		switch i % 5 {
		case 0:
			b.WriteString(redistest.Command("SET", fmt.Sprint("k", i%100), fmt.Sprint("v", i)))
		case 1:
			b.WriteString(redistest.Command("GET", fmt.Sprint("k", (i-1)%100)))
		case 2:
			b.WriteString(redistest.Command("INCR", "n"))
		case 3:
			b.WriteString(redistest.Command("LPUSH", "n", "x"))
		case 4:
			b.WriteString(redistest.Command("MGET", "k0", "none", "n"))
		}
	}
	return b.String() + lines("DEL n")
}

// manyArguments pushes a list of n elements and reads it back.
func manyArguments(n int) string {
	args := make([]string, 0, n+2)
	args = append(args, "RPUSH", "l")
	for i := range n {
		args = append(args, fmt.Sprint(i))
	}
	return redistest.Command(args...) + lines("LRANGE l 0 -1")
}

func TestPassThrough(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, d := range dialogues {
		for _, proto := range []string{"RESP2", "RESP3"} {
			t.Run(proto+" "+d.name, func(t *testing.T) {
				w.both(t, "FLUSHALL")
				w.both(t, "SCRIPT", "FLUSH")
				d := d
				if proto == "RESP3" {
					d.bytes = lines("HELLO 3") + d.bytes
				}
				w.compare(t, d)
			})
		}
	}
}

func TestPassThroughValueSizes(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	for _, size := range []int{0, 1, 2, 511, 4095, 16 << 10, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 1<<20 + 7, 64 << 20} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			w.compare(t, dialogue{name: "SET and GET", bytes: redistest.Command("SET", "v", noise(size)) + lines("STRLEN v", "MGET none v", "GET none")})
		})
	}
}

// TestPassThroughHalfClose is printf | nc: a client that has said all it will must
// still get every reply.
func TestPassThroughHalfClose(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	input := strings.Repeat(lines("SET a 1", "GET a", "INCR n"), 500) + lines("DEL n") + "PING\r\n"
	for name, addr := range map[string]string{"plain": w.plain.Addr(), "proxy": w.via} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, input); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(string(got), ":500\r\n:1\r\n+PONG\r\n") || strings.Count(string(got), "+OK\r\n") != 500 {
			t.Errorf("%s: error %v, %d bytes ending in %s", name, err, len(got), excerpt(string(got), len(got)))
		}
	}
}

// TestPassThroughSlowReader sends more than any buffer holds before it reads.
func TestPassThroughSlowReader(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	w.behind.Do(t, "SET", "v", noise(1<<20))
	c := redistest.Open(t, w.via)
	const gets = 100
	c.Send(t, strings.Repeat(lines("GET v"), gets))
	time.Sleep(300 * time.Millisecond)
	want := noise(1 << 20)
	for i := range gets {
		if v := c.Read(t); v.Text != want {
			t.Fatalf("reply %d of %d: %d bytes, not the value", i, gets, len(v.Text))
		}
	}
}

// TestPassThroughRandom holds random dialogues of the families that do not block, in random pieces.
func TestPassThroughRandom(t *testing.T) {
	t.Parallel()
	w := startTwin(t)
	seed := uint64(time.Now().UnixNano())
	for i := range 150 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		d := dialogue{name: fmt.Sprintf("seed %d, dialogue %d", seed, i), bytes: randomDialogue(r, 80), chunks: 1 + r.IntN(30)}
		w.compare(t, d)
		if t.Failed() {
			return
		}
	}
}

// families are commands whose replies depend on nothing but the data. A letter
// in braces is replaced: {k} a key, {v} a value, {n} a small number.
var families = []string{
	"SET {k} {v}", "SET {k} {v} NX", "SET {k} {v} GET", "GET {k}", "GETSET {k} {v}", "GETDEL {k}", "APPEND {k} {v}", "STRLEN {k}", "INCR {k}", "INCRBYFLOAT {k} 1.5",
	"SETRANGE {k} {n} {v}", "GETRANGE {k} 0 {n}", "MSET {k} {v} {k} {v}", "MGET {k} {k} {k}", "MSETNX {k} {v} {k} {v}", "SETBIT {k} {n} 1", "BITCOUNT {k}", "BITPOS {k} 1", "LCS {k} {k}",
	"DEL {k}", "UNLINK {k} {k}", "EXISTS {k} {k}", "TYPE {k}", "EXPIRE {k} 1000", "PERSIST {k}", "RENAME {k} {k}", "COPY {k} {k}", "DUMP {k}", "OBJECT ENCODING {k}", "TOUCH {k}",
	"LPUSH {k} {v} {v}", "RPUSH {k} {v}", "LPOP {k}", "RPOP {k} {n}", "LRANGE {k} 0 -1", "LLEN {k}", "LINDEX {k} {n}", "LSET {k} {n} {v}", "LINSERT {k} BEFORE {v} {v}", "LMOVE {k} {k} LEFT RIGHT", "LMPOP 1 {k} LEFT", "LPOS {k} {v}",
	"HSET {k} {v} {v}", "HGET {k} {v}", "HMGET {k} {v} {v}", "HGETALL {k}", "HDEL {k} {v}", "HINCRBY {k} {v} {n}", "HKEYS {k}", "HLEN {k}", "HSTRLEN {k} {v}",
	"SADD {k} {n} {n}", "SREM {k} {n}", "SISMEMBER {k} {n}", "SMISMEMBER {k} {n} {n}", "SMEMBERS {k}", "SCARD {k}", "SINTERCARD 2 {k} {k}",
	"ZADD {k} {n} {v}", "ZADD {k} INCR {n} {v}", "ZRANGE {k} 0 -1 WITHSCORES", "ZRANGEBYSCORE {k} 0 {n}", "ZRANK {k} {v}", "ZSCORE {k} {v}", "ZMSCORE {k} {v} {v}", "ZPOPMIN {k}", "ZRANGESTORE {k} {k} 0 -1", "ZMPOP 1 {k} MIN", "ZUNION 2 {k} {k} WITHSCORES",
	"XLEN {k}", "XRANGE {k} - +", "XADD {k} {n}-1 f {v}", "XREAD COUNT 2 STREAMS {k} 0", "XGROUP CREATE {k} g 0", "XREADGROUP GROUP g c STREAMS {k} >",
	"PFADD {k} {v}", "PFCOUNT {k} {k}", "GEOADD {k} 13.3 38.1 {v}", "GEOHASH {k} {v}", "SORT {k} ALPHA",
	"EVAL return(redis.call('get',KEYS[1])) 1 {k}", "EVAL return{KEYS[1],{1,2}} 1 {k}", "SELECT {d}", "DBSIZE", "PING", "ECHO {v}", "WATCH {k}", "UNWATCH", "MULTI", "DISCARD", "EXEC", "SUBSCRIBE c", "UNSUBSCRIBE", "RESET", "HELLO 2", "HELLO 3", "NOSUCH {k}", "GET", "SET {k}", "CLIENT SETNAME {v}", "CLIENT GETNAME",
}

// randomDialogue is n random commands that leave no transaction, no subscription
// and no data behind.
func randomDialogue(r *rand.Rand, n int) string {
	replace := map[string]func() string{
		"{k}": func() string { return fmt.Sprint("k", r.IntN(6)) },
		"{v}": func() string { return strings.Repeat(string(rune('a'+r.IntN(5))), 1+r.IntN(8)) },
		"{n}": func() string { return fmt.Sprint(r.IntN(9)) },
		"{d}": func() string { return fmt.Sprint(r.IntN(3)) },
	}
	var b strings.Builder
	for range n {
		f := strings.Fields(families[r.IntN(len(families))])
		for i := range f {
			if value, ok := replace[f[i]]; ok {
				f[i] = value()
			}
		}
		b.WriteString(redistest.Command(f...))
	}
	return b.String() + lines("RESET", "FLUSHALL", "HELLO 2")
}
