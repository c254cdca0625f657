package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// grammar is what random streams are made of: templates of commands by family,
// whose replies depend on nothing but what was sent before. Left out is what
// depends on chance (SPOP, RANDOMKEY), on the clock (TTL), on the connection
// (CLIENT ID), and on the seed of a server's hash tables (SCAN, KEYS *, the order
// of a set of strings).
//
// A word in braces is replaced, as words says; a template that begins with = is
// sent as it is, any other may be made wrong on purpose by mutate.
var grammar = map[string][]string{
	"strings": {
		"SET {s} {v}", "SET {s} {V}", "SET {s} {v} NX", "SET {s} {v} XX GET", "SET {s} {n} KEEPTTL", "GET {s}", "GETSET {s} {v}", "GETDEL {s}", "GETEX {s} EXAT 9999999999", "GETEX {s} PERSIST",
		"APPEND {s} {v}", "STRLEN {s}", "INCR {s}", "DECRBY {s} {n}", "INCRBYFLOAT {s} {f}", "SETRANGE {s} {n} {v}", "GETRANGE {s} {n} {n}", "SUBSTR {s} 0 {n}", "SETNX {s} {v}",
		"MSET {s} {v} {s} {v}", "MSETNX {s} {v} {s} {v}", "MGET {s} {s} {any}", "LCS {s} {s}", "LCS {s} {s} LEN", "LCS {s} {s} IDX WITHMATCHLEN",
	},
	"bits": {
		"SETBIT {s} {n} 1", "SETBIT {s} 777 {n}", "GETBIT {s} {n}", "BITCOUNT {s}", "BITCOUNT {s} {n} {n} BIT", "BITPOS {s} 1 {n}", "BITPOS {s} 0 0 {n} BYTE",
		"BITOP AND {s} {s} {s}", "BITOP XOR {s} {s} {s} {s}", "BITOP NOT {s} {s}", "BITFIELD {s} SET u8 #1 {n} GET i5 3 OVERFLOW FAIL INCRBY u2 100 1", "BITFIELD {s} OVERFLOW SAT INCRBY i8 0 {n}", "BITFIELD_RO {s} GET u4 0",
	},
	"lists": {
		"LPUSH {l} {v} {v}", "RPUSH {l} {v} {n} {m}", "LPUSHX {l} {v}", "RPUSHX {l} {m}", "LPOP {l}", "RPOP {l} {n}", "LRANGE {l} 0 -1", "LRANGE {l} {n} {n}", "LLEN {l}", "LINDEX {l} {n}",
		"LSET {l} {n} {v}", "LINSERT {l} BEFORE {m} {v}", "LREM {l} {n} {m}", "LTRIM {l} {n} -2", "LMOVE {l} {l} LEFT RIGHT", "RPOPLPUSH {l} {l}", "LMPOP 2 {l} {l} LEFT COUNT 2", "LPOS {l} {m} RANK -1 COUNT 0",
		"SORT {l} ALPHA", "SORT {l} BY nosort GET # GET {s}", "SORT {l} LIMIT 0 3 DESC", "SORT {l} ALPHA STORE {l}", "SORT_RO {l}",
	},
	"hashes": {
		"HSET {h} {m} {v}", "HSET {h} {m} {n} {m} {v}", "HMSET {h} {m} {v}", "HSETNX {h} {m} {v}", "HGET {h} {m}", "HMGET {h} {m} {m}", "HGETALL {h}", "HDEL {h} {m} {m}", "HEXISTS {h} {m}",
		"HINCRBY {h} {m} {n}", "HINCRBYFLOAT {h} {m} {f}", "HKEYS {h}", "HVALS {h}", "HLEN {h}", "HSTRLEN {h} {m}", "HSCAN {h} 0",
	},
	"sets": { // of integers, which are kept in order; nothing else must come into them
		"=SADD {i} {e} {e} {e}", "=SREM {i} {e} {e}", "=SISMEMBER {i} {e}", "=SMISMEMBER {i} {e} {e}", "=SMEMBERS {i}", "=SCARD {i}", "=SMOVE {i} {i} {e}", "=SSCAN {i} 0", "=SINTER {i} {i}", "=SINTERSTORE {i} {i} {i}",
		"=SUNION {i} {i} {i}", "=SUNIONSTORE {i} {i} {i}", "=SDIFF {i} {i}", "=SDIFFSTORE {i} {i} {i}", "SINTERCARD 2 {i} {i} LIMIT {n}", "SORT {i} DESC", "SMEMBERS {l}", "SADD {s}", "=SINTER {i} {h}",
		"=SADD {t} {v} {m}", "=SREM {t} {m}", "=SISMEMBER {t} {m}", "=SCARD {t}", "=SORT {t} ALPHA",
	},
	"sorted sets": {
		"ZADD {z} {f} {m} {n} {m}", "ZADD {z} NX CH {n} {m}", "ZADD {z} GT {n} {m}", "ZADD {z} XX INCR {f} {m}", "ZADD {z} NX GT 1 {m}", "ZINCRBY {z} {f} {m}", "ZREM {z} {m} {m}", "ZCARD {z}", "ZSCORE {z} {m}",
		"ZMSCORE {z} {m} {m}", "ZRANK {z} {m}", "ZREVRANK {z} {m}", "ZCOUNT {z} {low} {high}", "ZLEXCOUNT {z} - {lex}", "ZRANGE {z} 0 -1 WITHSCORES", "ZRANGE {z} {low} {high} BYSCORE LIMIT 1 2", "ZRANGE {z} {lex} + BYLEX",
		"ZRANGE {z} + - BYLEX REV", "ZRANGEBYSCORE {z} {low} {high} WITHSCORES", "ZREVRANGE {z} 0 {n}", "ZRANGEBYLEX {z} - {lex}", "ZRANGESTORE {z} {z} 0 {n}", "ZPOPMIN {z}", "ZPOPMAX {z} {n}", "ZMPOP 2 {z} {z} MAX COUNT 2",
		"ZUNION 2 {z} {z} WITHSCORES", "ZUNIONSTORE {z} 2 {z} {z} WEIGHTS 2 {f} AGGREGATE MIN", "ZINTER 2 {z} {i}", "ZINTERCARD 2 {z} {z}", "ZDIFF 2 {z} {z} WITHSCORES", "ZDIFFSTORE {z} 2 {z} {z}",
		"ZREMRANGEBYRANK {z} 0 {n}", "ZREMRANGEBYSCORE {z} {low} 0", "ZREMRANGEBYLEX {z} [m7 {lex}",
	},
	"streams": {
		"XADD {x} {id} f {v}", "XADD {x} {id} f {v} {m} {n}", "XADD {x} NOMKSTREAM MAXLEN 5 {id} f {v}", "XLEN {x}", "XRANGE {x} - +", "XREVRANGE {x} + - COUNT 2", "XREAD COUNT 2 STREAMS {x} {x} 0 2", "XDEL {x} {id}", "XTRIM {x} MAXLEN 3",
		"XTRIM {x} MINID {n}", "XSETID {x} 9-{n}", "XINFO STREAM {x}", "XINFO GROUPS {x}", "XINFO HELP",
		"=XGROUP CREATE {x} g 0", "=XGROUP CREATE {x} g {n} MKSTREAM", "=XGROUP DESTROY {x} g", "=XGROUP CREATECONSUMER {x} g c", "=XGROUP DELCONSUMER {x} g c", "=XGROUP SETID {x} g 0", "=XREADGROUP GROUP g c COUNT 2 STREAMS {x} >",
		"=XREADGROUP GROUP g c STREAMS {x} 0", "=XACK {x} g {id} {id}", "=XPENDING {x} g", "=XCLAIM {x} g d 0 {id} JUSTID", "=XAUTOCLAIM {x} g d 0 0 COUNT 3",
	},
	"hyperloglogs": {"PFADD {p} {v} {m}", "PFADD {p}", "PFCOUNT {p}", "PFCOUNT {p} {p}", "PFMERGE {p} {p} {p}", "=GET {p}"},
	"geo": {
		"GEOADD {g} {lon} {lat} {m}", "GEOADD {g} NX {lon} {lat} {m} {lon} {lat} {m}", "GEODIST {g} {m} {m} km", "GEOPOS {g} {m} {m}", "GEOHASH {g} {m} {m}", "GEOSEARCH {g} FROMLONLAT {lon} {lat} BYRADIUS 900 km ASC WITHDIST WITHCOORD",
		"GEOSEARCH {g} FROMMEMBER {m} BYBOX 800 900 km ASC COUNT 2", "GEOSEARCHSTORE {g} {g} FROMLONLAT 15 37 BYRADIUS 500 km", "GEORADIUS {g} 15 37 300 km ASC WITHHASH", "GEORADIUSBYMEMBER_RO {g} {m} 100 mi DESC",
	},
	"scripts": {
		"EVAL return(redis.call('get',KEYS[1])) 1 {s}", "EVAL return{KEYS[1],ARGV[1],{1,2.9,{}},false,'x'} 1 {s} {v}", "EVAL return(redis.pcall('incr',KEYS[1])) 1 {any}", "EVAL return(redis.call('lpush',KEYS[1],ARGV[1])) 1 {any} {v}", "EVAL return{ok='fine'} 0",
		"EVAL return(redis.error_reply('MINE-" + "x')) 0", "EVAL return{double=3.5} 0", "EVAL redis.setresp(3);return(redis.call('hgetall',KEYS[1])) 1 {h}", "EVAL redis.setresp(3);return{map={a=1}} 0", "EVAL return(nosuch) 0", "EVAL return( 0", "EVAL return(#ARGV) 0 {v} {V}",
		"EVAL_RO return(redis.call('set',KEYS[1],1)) 1 {s}", "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0", "SCRIPT LOAD return(1)", "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db {v}", "SCRIPT FLUSH", "SCRIPT KILL",
		"=FUNCTION LOAD {library}", "=FUNCTION LOAD REPLACE {library}", "FCALL put 1 {s} {v}", "FCALL_RO put 1 {s} {v}", "FCALL nosuch 0", "FUNCTION LIST", "FUNCTION DELETE lib", "FUNCTION STATS",
	},
	"keys": {
		"DEL {any} {any}", "UNLINK {any}", "EXISTS {any} {any} {any}", "TYPE {any}", "TOUCH {any} none", "EXPIREAT {any} 9999999999", "EXPIREAT {any} 1", "PEXPIREAT {any} 9999999999999 NX", "EXPIREAT {any} 8888888888 LT", "EXPIRE {any} -1", "EXPIRETIME {any}", "PEXPIRETIME {any}",
		"PERSIST {any}", "=RENAME {any} {any}", "=RENAMENX {any} {any}", "=COPY {any} {any} REPLACE", "=COPY {s} {s} DB {d}", "MOVE {any} {d}", "=DUMP {s}", "=DUMP {l}", "=DUMP {z}", "OBJECT ENCODING {any}", "OBJECT REFCOUNT {l}", "OBJECT FREQ {any}", "OBJECT HELP", "KEYS {any}",
	},
	"server": {
		"DBSIZE", "FLUSHDB", "FLUSHALL SYNC", "SWAPDB {d} {d}", "SELECT {d}", "SELECT {d}", "PING", "PING {v}", "ECHO {V}", "PUBLISH c {v}", "=PUBSUB CHANNELS c", "PUBSUB NUMSUB c", "COMMAND INFO get nosuch", "COMMAND GETKEYS MSET a b c d", "COMMAND GETKEYS EVAL x 2 a b c", "CONFIG GET maxmemory-policy",
		"=LASTSAVE {v}", "NOSUCH {v}", "NOSUCH", "{V}", "LOCKX a b", "WAIT 0 {n}", "READONLY", "ROLE",
	},
	"types": {
		"=DEBUG PROTOCOL string", "=DEBUG PROTOCOL integer", "=DEBUG PROTOCOL double", "=DEBUG PROTOCOL null", "=DEBUG PROTOCOL array", "=DEBUG PROTOCOL set", "=DEBUG PROTOCOL map", "=DEBUG PROTOCOL attrib", "=DEBUG PROTOCOL verbatim", "=DEBUG PROTOCOL true", "=DEBUG PROTOCOL false", "=DEBUG PROTOCOL bignum", "DEBUG PROTOCOL {v}",
	},
	"transactions": {"MULTI", "MULTI", "MULTI", "EXEC", "EXEC", "EXEC", "DISCARD", "WATCH {any}", "WATCH {s} {s}", "UNWATCH", "SET {s}", "INCR {l}"},
	"blocking": {
		"=BLPOP {l} {l} 0.001", "=BRPOP {l} 0.001", "=BLMOVE {l} {l} LEFT RIGHT 0.001", "=BRPOPLPUSH {l} {l} 0.001", "=BLMPOP 0.001 2 {l} {l} LEFT", "=BZPOPMIN {z} 0.001", "=BZPOPMAX {z} {l} 0.001", "=BZMPOP 0.001 1 {z} MIN COUNT 2", "=XREAD BLOCK 1 STREAMS {x} $", "=XREAD BLOCK 1 STREAMS {x} 0", "=BLPOP {l} -1", "=BLPOP {l} x", "=BLPOP {l}",
	},
	"connection": {
		"HELLO", "HELLO 2", "HELLO 3", "HELLO 3", "HELLO 3 SETNAME {m}", "HELLO 2 AUTH app pw", "HELLO 3 AUTH app wrong", "HELLO 3 AUTH default any SETNAME {m}", "CLIENT SETNAME {m}", "CLIENT SETNAME {v}", "CLIENT GETNAME", "CLIENT NO-EVICT ON", "CLIENT GETREDIR", "CLIENT NOSUCH", "CLIENT HELP",
		"CLIENT KILL ID 99999999", "CLIENT KILL nobody:1", "CLIENT KILL TYPE master SKIPME no", "CLIENT UNBLOCK 99999999", "=CLIENT LIST TYPE master", "=CLIENT LIST ID 99999999", "CLIENT TRACKINGINFO", "=CLIENT TRACKING ON REDIRECT 99999999",
		"SELECT {d}", "RESET", "AUTH app pw", "AUTH app wrong", "AUTH reader pw", "AUTH default any", "AUTH wrong", "AUTH", "ACL WHOAMI", "ACL WHOAMI",
	},
	"messages": { // never all at once: the order in which channels are left is the hash table's
		"SUBSCRIBE c", "=SUBSCRIBE c {m}", "=PSUBSCRIBE c* {m}", "=SSUBSCRIBE {m}", "=UNSUBSCRIBE c", "=UNSUBSCRIBE {m} c", "=PUNSUBSCRIBE c*", "=PUNSUBSCRIBE {m}", "=SUNSUBSCRIBE {m} {m}",
		"PUBLISH c {v}", "PUBLISH c {v}", "SPUBLISH {m} {v}", "PING", "PING {v}", "RESET", "HELLO 3",
	},
	"silence": {"CLIENT REPLY OFF", "CLIENT REPLY ON", "CLIENT REPLY SKIP", "CLIENT REPLY SKIP"},
}

// A difference is one that is known between the proxy and a plain Redis 7.0, and
// kept out of the streams until it is mended.
type difference struct {
	what string
	// is reports it of a command; inTx: sent between MULTI and EXEC; before: the
	// command before it, may be nil.
	is func(args, before []string, inTx bool) bool
}

var knownDifferences = []difference{
	{"a RESET behind CLIENT REPLY in a transaction may end the connection", func(args, _ []string, inTx bool) bool {
		return inTx && args[0] == "CLIENT" && slices.Contains(args, "REPLY")
	}},
}

// withoutKnown are the commands without those of a known difference.
func withoutKnown(commands [][]string) (kept [][]string) {
	inTx := false
	var before []string
	for _, args := range commands {
		if slices.ContainsFunc(knownDifferences, func(d difference) bool { return d.is(args, before, inTx) }) {
			continue
		}
		switch {
		case args[0] == "MULTI" && len(args) == 1:
			inTx = true
		case args[0] == "EXEC" && len(args) == 1, args[0] == "DISCARD" && len(args) == 1, args[0] == "RESET":
			inTx = false
		}
		kept, before = append(kept, args), args
	}
	return kept
}

// library is a script with a function, for FUNCTION LOAD.
const library = "#!lua name=lib\nredis.register_function('put', function(keys, args) return redis.call('SET', keys[1], args[1]) end)"

// nonsense are arguments that most commands cannot use.
var nonsense = []string{"", "-1", "abc", "1.5", "nan", "99999999999999999999", "-9223372036854775808", "\x00\r\n$-1\r\n", "l1", "z1", "s1", "NX"}

// anyClass are the classes of keys that may meet any command; not x, whose groups
// keep times, and not t, whose order is the hash table's.
const anyClass = "slhizg"

// A speaker makes up commands. What it says depends on its source alone.
type speaker struct {
	*rand.Rand
	nextID int // of the next stream entry
}

// say makes one command of a template.
func (s *speaker) say(template string) []string {
	args := s.sayRight(template)
	if !strings.HasPrefix(template, "=") {
		args = s.mutate(args)
	}
	return args
}

// sayRight is say without what is wrong on purpose.
func (s *speaker) sayRight(template string) []string {
	template, exact := strings.CutPrefix(template, "=")
	args := strings.Fields(template)
	for i, a := range args {
		args[i] = s.word(a, exact)
	}
	return args
}

// mutate makes some commands wrong: too short, too long, an argument that makes no
// sense.
func (s *speaker) mutate(args []string) []string {
	switch n := s.IntN(100); {
	case n < 4 && len(args) > 1:
		return args[:len(args)-1]
	case n < 8:
		return append(args, strconv.Itoa(s.IntN(9)))
	case n < 12 && len(args) > 1:
		args[1+s.IntN(len(args)-1)] = s.one(nonsense...)
	}
	return args
}

// word replaces a word in braces. exact keys are of the class that is asked for;
// other keys may be of another.
func (s *speaker) word(w string, exact bool) string {
	switch w {
	case "{any}":
		return s.key(s.one(strings.Split(anyClass, "")...))
	case "{s}", "{l}", "{h}", "{i}", "{t}", "{z}", "{x}", "{p}", "{g}":
		class := w[1:2]
		if !exact && s.IntN(12) == 0 {
			class = s.one(strings.Split(anyClass, "")...)
		}
		return s.key(class)
	case "{v}":
		return s.value()
	case "{V}":
		return s.noise(s.IntN(s.one3(100, 5_000, 100_000)))
	case "{n}":
		return strconv.Itoa(s.IntN(14) - 3)
	case "{e}":
		return strconv.Itoa(s.IntN(30))
	case "{m}":
		return "m" + strconv.Itoa(s.IntN(9))
	case "{f}":
		return s.one("1", "-2.5", "0", "1e3", "inf", "-inf", "3.14159", "0.1")
	case "{d}":
		return strconv.Itoa(s.IntN(3))
	case "{low}":
		return s.one("-inf", "(1", "0", "2.5")
	case "{high}":
		return s.one("+inf", "(3", "5", "-1")
	case "{lex}":
		return s.one("[m3", "(m5", "+", "-")
	case "{lon}":
		return fmt.Sprintf("%.4f", 10+8*s.Float64())
	case "{lat}":
		return fmt.Sprintf("%.4f", 34+6*s.Float64())
	case "{id}":
		if s.IntN(4) > 0 {
			s.nextID++
		}
		return fmt.Sprintf("%d-%d", 1+s.nextID/3, s.nextID%3)
	case "{library}":
		return library
	}
	return w
}

func (s *speaker) key(class string) string { return class + strconv.Itoa(1+s.IntN(3)) }

// value is at most 40 bytes, so that hashes stay as small as their order asks.
func (s *speaker) value() string {
	switch s.IntN(8) {
	case 0:
		return ""
	case 1:
		return s.noise(40)
	case 2, 3:
		return strconv.Itoa(s.IntN(1000) - 100)
	}
	return strings.Repeat(s.one("a", "b", "c", "m1"), 1+s.IntN(8))
}

func (s *speaker) noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.Uint32())
	}
	return string(b)
}

func (s *speaker) one(of ...string) string { return of[s.IntN(len(of))] }

// one3 is mostly a, seldom b, very seldom c.
func (s *speaker) one3(a, b, c int) int {
	switch n := s.IntN(40); {
	case n == 0:
		return c
	case n < 6:
		return b
	}
	return a
}
