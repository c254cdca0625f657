package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

const (
	enter = `if redis.call('HLEN', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return nil end return redis.call('PTTL', KEYS[1])`
	leave = `if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end redis.call('DEL', KEYS[1]) return 1`
)

// TestNote_SameRowByDecisionAndReply: what the lock nodes say that a call has done makes the same row as what its reply says.
func TestNote_SameRowByDecisionAndReply(t *testing.T) {
	const ttl = 5 * time.Second
	long := 2 * time.Second
	take, renew, release := idiom.Op{Do: idiom.Take, TTL: ttl}, idiom.Op{Do: idiom.Renew, TTL: ttl}, idiom.Op{Do: idiom.Release}
	enters, leaves, keeps := idiom.Op{Do: idiom.Enter, TTL: ttl}, idiom.Op{Do: idiom.Leave}, idiom.Op{Do: idiom.Take, TTL: idiom.Forever}
	type step struct {
		by, command, reply string
		did                idiom.Op
		after              time.Duration
	}
	for name, steps := range map[string][]step{
		"SET and scripts": {
			{"a", "SET lock:1 a NX PX 5000", "+OK", take, 0},
			{"b", "SET lock:1 b NX PX 5000", "$-1", idiom.Op{}, 0},
			{"b", "EVAL cad 1 lock:1 b", ":0", idiom.Op{}, 0},
			{"a", "EVAL cae 1 lock:1 a 5000", ":1", renew, long},
			{"a", "EVAL cad 1 lock:1 a", ":1", release, long},
		},
		"end too soon": {
			{"a", "SET lock:1 a NX PX 5000", "+OK", take, 0},
			{"b", "SET lock:1 b NX PX 5000", "+OK", take, 9 * time.Second},
			{"a", "EVAL cad 1 lock:1 a", ":0", idiom.Op{}, 0},
			{"b", "DEL lock:1", ":1", release, 0},
		},
		"take or extend": {
			{"a", "EVAL extend 1 lock:1 a 5000", ":1", take, 0},
			{"a", "EVAL extend 1 lock:1 a 5000", ":1", renew, long},
			{"b", "EVAL extend 1 lock:1 b 5000", ":0", idiom.Op{}, 0},
			{"c", "EVAL cad 1 lock:1 a", ":1", release, long},
		},
		"answers that do not tell": {
			{"a", "EVAL take 1 lock:1 a 5000", "$-1", take, 0},
			{"a", "EVAL ok 1 lock:1 a", "+OK", release, 0},
		},
		"without compare": {
			{"a", "SETNX lock:1 1", ":1", keeps, 0},
			{"a", "PEXPIRE lock:1 5000", ":1", renew, 0},
			{"a", "SET lock:1 1 XX PX 5000", "+OK", renew, long},
			{"b", "PEXPIRE lock:1 -1", ":1", release, 0},
		},
		"a hash": {
			{"a", "EVAL enter 1 lock:1 a 5000", "$-1", enters, 0},
			{"a", "EVAL enter 1 lock:1 a 5000", "$-1", enters, long},
			{"b", "EVAL enter 1 lock:1 b 5000", ":4000", idiom.Op{}, 0},
			{"a", "EVAL leave 1 lock:1 a", ":0", leaves, 0},
			{"a", "EVAL leave 1 lock:1 a", ":1", release, long},
		},
	} {
		var rows [2]string
		for i := range rows {
			w := newWorld(t, adoptedLocks())
			for _, s := range steps {
				w.now = w.now.Add(s.after)
				var args [][]byte
				for _, word := range strings.Fields(s.command) {
					if text := map[string]string{"enter": enter, "leave": leave}[word] + texts[word]; text != "" {
						word = text
					}
					args = append(args, []byte(word))
				}
				if i == 0 {
					s.did = idiom.Op{}
				}
				w.o.Note(w.client(s.by), Decided, 0, 2, args, []byte(s.reply+"\r\n"), s.did)
			}
			rows[i] = fmt.Sprintf("%+v", w.o.Report().Rows)
		}
		if rows[0] != rows[1] || !strings.Contains(rows[0], "lock:1") {
			t.Errorf("%s: the reply makes\n%s\nand not\n%s", name, rows[0], rows[1])
		}
	}
}

// TestNote_OverwriteTakesTheLock: a call that overwrites another's lock has taken it, which its reply does not say.
func TestNote_OverwriteTakesTheLock(t *testing.T) {
	for command, reply := range map[string]string{"GETSET lock:1 b": "$1\r\na\r\n", "SET lock:1 b PX 5000": "+OK\r\n"} {
		w := newWorld(t, adoptedLocks())
		var args [][]byte
		for _, word := range strings.Fields(command) {
			args = append(args, []byte(word))
		}
		w.do("a: ON SETNX lock:1 a > :1")
		w.o.Note(w.client("b"), Decided, 0, 2, args, []byte(reply), idiom.Op{Do: idiom.Replace, TTL: idiom.Forever})
		if r, _ := w.row(); r.Acquired != 2 || r.Contended != 0 {
			t.Errorf("%s: %d acquired, %d refused", command, r.Acquired, r.Contended)
		}
	}
}

// adoptedLocks are Options by which lock:* is adopted.
func adoptedLocks() Options {
	return Options{Patterns: []Pattern{{Glob: "lock:*", Literal: "lock:", Mode: Adopted, As: idiom.Full, NoExpiry: idiom.Forever,
		Match: func(_ int, key string) bool { return strings.HasPrefix(key, "lock:") }}}}
}
