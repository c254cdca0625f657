package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_AnswersLikeRedis: commands on an adopted key are answered byte for byte as by a server whose key it is, in
// RESP2 and RESP3: where nobody has the lock, where it is held, and where the command is wrong in itself. Each is
// sent in a state of its own; a reply that tells how much is left may differ by a second.
func TestAdopt_AnswersLikeRedis(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t)
	p := startAdopting(t, redistest.Start(t))
	soon, later := time.Now().Add(40*time.Second), time.Now().Add(50*time.Second)
	fill := strings.NewReplacer("<at>", fmt.Sprint(soon.Unix()), "<atms>", fmt.Sprint(later.UnixMilli()))
	commands := []string{
		"SET k v NX EX 30", "SET k v nx px 30000", "SET k v PX 30000 NX", "SET k v NX EXAT <at>", "SET k v NX PXAT <atms>", "SET k v NX PX 30000 GET", "SET k v GET NX PX 30000",
		"SET k mine XX PX 30000", "SET k mine XX KEEPTTL", "SET k mine XX GET PX 30000",
		"SET k v NX XX", "SET k v NX PX", "SET k v NX PX x", "SET k v NX PX 1.5", "SET k v NX PX 0", "SET k v NX PX -1", "SET k v NX EX 0", "SET k v NX EXAT 0", "SET k v NX PXAT -5",
		"SET k v NX EX 9223372036854775807", "SET k v NX PX 99999999999999999999", "SET k v NX PX 30000 EX 30", "SET k v NX PX 1 PX 30000", "SET k v NX KEEPTTL PX 30000", "SET k v NX bogus", "SET k v bogus", "SET k",
		"SET k v NX PX 030000", "SET k v NX PX +30000", "SETEX k 0 v", "SETEX k x v", "PSETEX k -1 v", "SETEX k v", "SETNX k", "SETNX k v w", "GETSET k",
		"GET k", "GET", "GET k k", "get k", "STRLEN k", "GETRANGE k 0 1", "GETRANGE k -3 -2", "GETRANGE k 2 1", "GETRANGE k x 1", "GETRANGE k 0", "SUBSTR k 1 99", "SUBSTR k 0 x",
		"GETEX k", "GETEX k EX 30", "GETEX k PX 30000", "GETEX k EXAT <at>", "GETEX k PXAT <atms>", "GETEX k EX x", "GETEX k EX 0", "GETEX k EX -1", "GETEX k bogus", "GETEX k EX 30 PX 3", "GETEX k EXAT 1", "GETEX k EXAT 0", "GETEX k PX 9223372036854775807", "GETEX k EX", "GETEX k PERSIST EX 3", "GETEX",
		"GETDEL k", "GETDEL k k", "EXISTS k", "EXISTS k k", "EXISTS", "TOUCH k", "TOUCH k k", "TYPE k", "TYPE k k",
		"TTL k", "PTTL k", "EXPIRETIME k", "PEXPIRETIME k", "TTL", "TTL k k",
		"DEL k", "DEL k k", "UNLINK k", "DEL",
		"EXPIRE k 20", "PEXPIRE k 20000", "EXPIREAT k <at>", "PEXPIREAT k <atms>", "EXPIRE k 0", "EXPIRE k -1", "PEXPIRE k 0", "EXPIREAT k 1", "EXPIRE k x", "EXPIRE k 9223372036854775807", "EXPIRE k -9223372036854775808",
		"PEXPIRE k 9223372036854775807", "EXPIRE k", "EXPIRE k 20 NX", "EXPIRE k 20 XX", "EXPIRE k 20 GT", "EXPIRE k 50 GT", "EXPIRE k 20 lt", "EXPIRE k 50 LT", "EXPIRE k 20 bogus", "EXPIRE k 20 NX XX", "EXPIRE k 20 GT LT", "EXPIRE k 20 XX LT", "EXPIRE k 20 XX GT", "EXPIRE k 20 NX GT",
		"EXPIRE k x bogus", "EXPIRE k 20 NX bogus", "PEXPIREAT k 10 XX",
		"SETNX k v", "SET k v NX", "SET k v NX GET", "SET k mine XX", "PERSIST k", "GETEX k PERSIST", "PERSIST", "PERSIST k k", "HGET k f", "HEXISTS k f", "HLEN k", "HGETALL k", "HKEYS k", "HVALS k", "HSTRLEN k f", "HMGET k f g", "HGET k", "HMGET k", "MGET k", "MGET k k x", "MGET",
		"SET k mine IFEQ mine PX 30000", "SET k mine PX 30000 GET IFEQ mine", "SET k v IFEQ other PX 30000", "SET k v ifeq other GET", "SET k v IFEQ", "SET k v IFEQ v EX 0", "SET k v IFEQ v what", "SET k v NX IFNE",
		"DELEX k", "DELEX k IFEQ mine", "DELEX k ifeq v", "DELEX k IFEQ", "DELEX", "DELEX k WHAT mine", "DELIFEQ k mine", "DELIFEQ k v", "DELIFEQ k", "DELIFEQ",
	}
	for _, hello := range []string{"2", "3"} {
		direct, through := redistest.Open(t, plain.Addr()), redistest.Open(t, p.Addr())
		for _, c := range []*redistest.Conn{direct, through} {
			c.Do(t, "HELLO", hello)
		}
		for i, command := range commands {
			for _, held := range []string{"", "NX PX 45000", "NX"} {
				key := fmt.Sprintf("lock:%s:%d:%s", hello, i, strings.ReplaceAll(held, " ", "-"))
				var got [2]redistest.Value
				for n, c := range []*redistest.Conn{direct, through} {
					if held != "" {
						if v := c.Do(t, append([]string{"SET", key, "mine"}, strings.Fields(held)...)...); v.String() != "+OK" {
							t.Fatal(v)
						}
					}
					args := strings.Fields(fill.Replace(command))
					for a := range args {
						if args[a] == "k" {
							args[a] = key
						}
					}
					got[n] = c.Do(t, args...)
				}
				if got[0].Raw != got[1].Raw && !closeTo(got[0], got[1]) {
					t.Errorf("RESP%s, held: %q, %s\nRedis     %v\nlockproxy %v", hello, held, command, got[0], got[1])
					continue
				}
				var left [2]redistest.Value
				for n, c := range []*redistest.Conn{direct, through} {
					left[n] = c.Do(t, "PTTL", key)
				}
				if left[0].Raw != left[1].Raw && !closeTo(left[0], left[1]) {
					t.Errorf("RESP%s, held: %q, %s: then Redis has %v ms left, lockproxy %v", hello, held, command, left[0], left[1])
				}
			}
		}
	}
}

// closeTo reports whether both are times that a busy machine makes differ.
func closeTo(a, b redistest.Value) bool {
	return a.Kind == ':' && b.Kind == ':' && a.Int() > 10 && b.Int() > 10 && max(a.Int(), b.Int())-min(a.Int(), b.Int()) < 5000
}

// TestAdopt_Refuses: what has no meaning for a lock, or would take it from somebody without comparing the value, is
// refused, with nothing done at the nodes or the upstream.
func TestAdopt_Refuses(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	c := redistest.Open(t, redistest.StartProxy(t, data, redistest.StartNodes(t, 1), "--adopt", "lock:* no-expiry=refuse").Addr())
	wantReplies(t, c, [2]string{"SET lock:k mine NX PX 60000", "+OK"})
	for _, command := range []string{
		"SET k v", "SET k v PX 30000", "SET k v XX PX 30000", "SET k mine", "SET k v GET", "SET k mine KEEPTTL", "SET k v NX", "SET k v NX PX 999999999", "SETEX k 30 v", "PSETEX k 30000 v", "GETSET k v", "SETNX k v", "PERSIST k", "GETEX k PERSIST", "EXPIRE k 99999",
		"INCR k", "APPEND k v", "SETRANGE k 0 v", "SETBIT k 0 1", "GETBIT k 0", "BITCOUNT k", "RENAME k x", "RENAMENX x k", "COPY k x", "COPY x k", "DUMP k", "MOVE k 1", "OBJECT ENCODING k", "OBJECT FREQ k", "MEMORY USAGE k",
		"SORT k", "SORT x STORE k", "LPUSH k v", "LLEN k", "BLPOP k 1", "BLPOP x k 1", "BRPOPLPUSH x k 1", "SADD k v", "ZADD k 1 v", "HINCRBYFLOAT k f 1", "HSCAN k 0", "XADD k * f v", "PFADD k v", "GEOADD k 1 1 v", "MSET x 1 k 2", "MSETNX k 1 x 2",
		"SINTERSTORE x k y", "SUNIONSTORE k x y", "BITOP AND x k y", "LCS k x", "FCALL f 1 k", "FCALL_RO f 1 k", "FCALL f 0 k", "RESTORE k 0 x", "MIGRATE 127.0.0.1 1 k 0 100", "XREAD STREAMS x k 0 0", "XREADGROUP GROUP g c STREAMS k >", "EVAL return(redis.call('incr',KEYS[1])) 1 k",
	} {
		args := strings.Fields(command)
		for i := range args {
			if args[i] == "k" {
				args[i] = "lock:k"
				if strings.HasPrefix(command, "SET k v NX") || strings.HasPrefix(command, "SETNX") {
					args[i] = "lock:free"
				}
			}
		}
		v := c.Do(t, args...)
		if want := "-ADOPTREFUSED " + args[0] + " lock:"; !strings.HasPrefix(v.String(), want) || !strings.HasSuffix(v.String(), `; adopted by "lock:*"`) {
			t.Errorf("%s: %v", command, v)
		}
	}
	wantReplies(t, c, [2]string{"GET lock:k", `$"mine"`}, [2]string{"EXISTS lock:free", ":0"})
	if v := c.Do(t, "TTL", "lock:k"); v.Int() < 20 || v.Int() > 60 {
		t.Errorf("the lease was changed: %v", v)
	}
	if v := data.Do(t, "KEYS", "*"); len(v.Elems) != 0 {
		t.Errorf("the upstream has %v", v)
	}
}

// TestAdopt_UnknownCommands are answered by the upstream, which does not have them either.
func TestAdopt_UnknownCommands(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	direct, through := redistest.Open(t, data.Addr()), redistest.Open(t, startAdopting(t, data).Addr())
	for _, command := range []string{"DELIFEQ lock:k v", "NOSUCH lock:k", "NOSUCH x lock:k", "GET lock:k extra", "EVAL return 0", "EVAL return x lock:k", "EVAL return 9 lock:k", "EVALSHA 0 9 lock:k"} {
		want, got := direct.Do(t, strings.Fields(command)...), through.Do(t, strings.Fields(command)...)
		if want.Raw != got.Raw {
			t.Errorf("%s: Redis %v, lockproxy %v", command, want, got)
		}
	}
}
