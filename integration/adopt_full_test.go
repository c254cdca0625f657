package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_FullAnswersLikeRedis: with as=full, what overwrites a lock is answered byte for byte as by a server whose key
// it is, and leaves the same there: where nobody has it, and where it is a string or a hash.
func TestAdopt_FullAnswersLikeRedis(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t)
	p := redistest.StartProxy(t, redistest.Start(t), redistest.StartNodes(t, 3), "--adopt", "lock:* as=full no-expiry=lease:55s")
	at := time.Now().Add(40 * time.Second)
	fill := strings.NewReplacer("<at>", fmt.Sprint(at.Unix()), "<atms>", fmt.Sprint(at.UnixMilli()))
	states := map[string][]string{
		"absent": nil, "string": {"SET", "k", "mine", "PX", "45000"},
		"hash": {"EVAL", "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 45000) return 1 end return 0", "1", "k", "mine"},
	}
	commands := []string{ // ~ is a space
		"SET k v", "SET k v PX 30000", "SET k v EX 30", "SET k v EXAT <at>", "SET k v PXAT <atms>", "set k v px 30000", "SET k mine", "SET k mine PX 30000", "SET k v GET", "SET k v GET PX 30000", "SET k v PX 30000 GET",
		"SET k v XX", "SET k v XX PX 30000", "SET k v XX GET", "SET k v XX GET EX 30", "SET k mine XX GET", "SET k mine KEEPTTL", "SET k mine XX KEEPTTL", "SET k v NX GET", "SET k v PX 0", "SET k v PX x", "SET k v EX 30 KEEPTTL", "SET k v bogus",
		"SETEX k 30 v", "SETEX k 0 v", "SETEX k x v", "PSETEX k 30000 v", "PSETEX k -1 v", "SETEX k 30", "GETSET k v", "GETSET k mine", "GETSET k", "GETSET k v w",
		"EVAL return~redis.call('set',KEYS[1],ARGV[1],'PX',ARGV[2]) 1 k v 30000", "EVAL return~redis.pcall('getset',KEYS[1],ARGV[1]) 1 k v", "EVAL return~redis.call('set',KEYS[1],ARGV[1],'XX','PX',ARGV[2]) 1 k v 30000",
		"EVAL redis.call('psetex',KEYS[1],ARGV[2],ARGV[1])~return~redis.call('pttl',KEYS[1]) 1 k v 30000",
		"EVAL if~redis.call('type',KEYS[1]).ok=='string'~and~redis.call('get',KEYS[1])==ARGV[1]~then~redis.call('set',KEYS[1],ARGV[2],'PX',ARGV[3])~return~1~end~return~0 1 k mine v 30000",
	}
	for _, hello := range []string{"2", "3"} {
		conns := [2]*redistest.Conn{redistest.Open(t, plain.Addr()), redistest.Open(t, p.Addr())}
		for _, c := range conns {
			c.Do(t, "HELLO", hello)
		}
		for i, command := range commands {
			for state, set := range states {
				if state == "hash" && strings.Contains(command, "mine") && strings.Contains(command, "KEEPTTL") {
					continue // refused
				}
				key := fmt.Sprintf("lock:%s:%d:%s", hello, i, state)
				do := func(c *redistest.Conn, args []string) redistest.Value {
					args = append([]string(nil), args...)
					for a := range args {
						if args[a] = strings.ReplaceAll(args[a], "~", " "); args[a] == "k" {
							args[a] = key
						}
					}
					return c.Do(t, args...)
				}
				var reply, kind, value, left [2]redistest.Value
				for n, c := range conns {
					if set != nil {
						do(c, set)
					}
					reply[n] = do(c, strings.Fields(fill.Replace(command)))
					kind[n], value[n], left[n] = do(c, []string{"TYPE", "k"}), do(c, []string{"GET", "k"}), do(c, []string{"PTTL", "k"})
				}
				endless := left[0].Int() == -1 && left[1].Int() > 50000 && left[1].Int() <= 55000
				if reply[0].Raw != reply[1].Raw && !closeTo(reply[0], reply[1]) || kind[0].Raw != kind[1].Raw || value[0].Raw != value[1].Raw || left[0].Raw != left[1].Raw && !closeTo(left[0], left[1]) && !endless {
					t.Errorf("RESP%s, %s, %s\nRedis     %v; then %v %v %v\nlockproxy %v; then %v %v %v", hello, state, command, reply[0], kind[0], value[0], left[0], reply[1], kind[1], value[1], left[1])
				}
			}
		}
	}
}

// TestAdopt_FullReplaces: who overwrites a lock has it, through any proxy, and whose lock it was does not. A lock that
// LOCK has taken stays, and so do all with as=usual.
func TestAdopt_FullReplaces(t *testing.T) {
	t.Parallel()
	data, nodes := redistest.Start(t), redistest.StartNodes(t, 5)
	var conns [2]*redistest.Conn
	for i := range conns {
		conns[i] = redistest.Open(t, redistest.StartProxy(t, data, nodes, "--adopt", "lock:* as=full", "--adopt", "job:*").Addr())
	}
	a, b := conns[0], conns[1]
	free := func(c *redistest.Conn, value string) redistest.Value {
		return c.Do(t, "EVAL", "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0", "1", "lock:a", value)
	}
	wantReplies(t, a, [2]string{"SET lock:a one NX PX 30000", "+OK"})
	before := a.Do(t, "LOCKCTL", "FENCE", "lock:a", "one").Int()
	wantReplies(t, b, [2]string{"SET lock:a two PX 40000", "+OK"})
	if after := a.Do(t, "LOCKCTL", "FENCE", "lock:a", "two").Int(); after <= before || before == 0 {
		t.Errorf("fence %d, then %d", before, after)
	}
	if v := free(a, "one"); v.Int() != 0 {
		t.Errorf("who was overwritten released it: %v", v)
	}
	nodes[0].Kill()
	nodes[1].Kill()
	// A node that is late may have the first try undone where others have given the lock up: then nobody has it at the second.
	if v := a.Do(t, "SET", "lock:a", "three", "PX", "40000", "GET"); v.Text != "two" && !v.Null {
		t.Errorf("SET GET with two of five nodes: %v", v)
	}
	wantReplies(t, a, [2]string{"GETEX lock:a", `$"three"`})
	wantReplies(t, b, [2]string{"GET lock:a", `$"three"`})
	if v := free(b, "three"); v.Int() != 1 {
		t.Errorf("release: %v", v)
	}
	wantReplies(t, a, [2]string{"EXISTS lock:a", ":0"})
	b.Do(t, "LOCK", "lock:native", "30s", "OWNER", "native")
	wantReplies(t, a, [2]string{"SET lock:native x PX 30000", `-ADOPTREFUSED SET lock:native: a change of a lock that was taken with LOCK; adopted by "lock:*"`},
		[2]string{"SET job:a one NX PX 30000", "+OK"}, [2]string{"SET job:a two PX 30000", `-ADOPTREFUSED SET job:a: OVERWRITE does not compare the value: set as=full; adopted by "job:*"`}, [2]string{"GET job:a", `$"one"`})
	wantReplies(t, b, [2]string{"UNLOCK lock:native native", ":1"})
	data.Do(t, "SET", "lock:direct", "x")
	wantReplies(t, a, [2]string{"SET lock:direct y PX 30000", `-ADOPTREFUSED SET lock:direct: the upstream has the key, which a program has taken that goes past the proxies; adopted by "lock:*"`})
}

// TestAdopt_FullTogether: of several that overwrite one lock at once, through several proxies, each does so once, and no two
// read the same value: they would have replaced the same grant. (One that two have begun to replace may be gone for both.)
func TestAdopt_FullTogether(t *testing.T) {
	t.Parallel()
	data, nodes := redistest.Start(t), redistest.StartNodes(t, 5)
	var proxies [2]*redistest.Proxy
	for i := range proxies {
		proxies[i] = redistest.StartProxy(t, data, nodes, "--adopt", "lock:* as=full")
	}
	const writers, times = 6, 15
	var mu sync.Mutex
	read := map[string]int{}
	var all sync.WaitGroup
	for i := range writers {
		c := redistest.Open(t, proxies[i%2].Addr())
		all.Go(func() {
			for n := range times {
				v, err := c.Try("SET", "lock:a", fmt.Sprint(i, ".", n), "GET", "PX", "30000")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				read[v.String()]++
				mu.Unlock()
				if v.IsError() {
					t.Error(v)
				}
			}
		})
	}
	all.Wait()
	nobody := read["$-1"] - 1
	if len(read)+nobody != writers*times || nobody > writers*times/4 {
		t.Errorf("%d values were read, and %d times none: %v", len(read)-1, nobody, read)
	}
}
