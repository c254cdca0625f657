package integration

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// Scripts of semaphores in sorted sets: a member for each owner of a permit, by the time of its client.
const (
	takePermit = `local limit, ms, now = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
		redis.call('zremrangebyscore', KEYS[1], '-inf', now - ms)
		if redis.call('zcard', KEYS[1]) >= limit then return 0 end
		redis.call('zadd', KEYS[1], now, ARGV[2]) redis.call('pexpire', KEYS[1], ms) return 1`
	extendPermit = `redis.call('zremrangebyscore', KEYS[1], '-inf', ARGV[4] - ARGV[3])
		if not redis.call('zscore', KEYS[1], ARGV[2]) then return 0 end
		redis.call('zadd', KEYS[1], ARGV[4], ARGV[2]) redis.call('pexpire', KEYS[1], ARGV[3]) return 1`
	releasePermit = `local there = redis.call('zrem', KEYS[1], ARGV[2])
		if there == 1 then redis.call('publish', 'free', KEYS[1]) end
		return {there, redis.call('zcard', KEYS[1])}`
)

// permits is a function that runs one of these scripts on lock:a.
func permits(t *testing.T, ms int) func(c *redistest.Conn, script string, limit int, who string) string {
	return func(c *redistest.Conn, script string, limit int, who string) string {
		t.Helper()
		return c.Do(t, "EVAL", script, "1", "lock:a", strconv.Itoa(limit), who, strconv.Itoa(ms), fmt.Sprint(time.Now().UnixMilli())).String()
	}
}

// TestAdopt_Permits: at most so many have a permit, through two proxies, and so with LOCK.
func TestAdopt_Permits(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--adopt", "lock:*")
	c, other, run := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr()), permits(t, 50_000)
	want := func(got, want string) {
		t.Helper()
		if got != want && !(strings.HasSuffix(want, "…") && strings.HasPrefix(got, strings.TrimSuffix(want, "…"))) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	waiter := redistest.Open(t, r.proxies[1].Addr())
	waiter.Do(t, "SUBSCRIBE", "free")

	want(run(c, takePermit, 2, "a"), ":1")
	want(run(other, takePermit, 2, "b"), ":1")
	want(run(c, takePermit, 2, "c"), ":0")
	want(run(other, takePermit, 2, "c"), ":0")
	want(run(other, takePermit, 3, "c"), ":1") // a larger limit is in force at once
	want(run(c, takePermit, 2, "a"), ":0")     // though it has one
	want(run(c, takePermit, 4, "a"), ":1")     // which is the same
	wantReplies(t, other, [2]string{"ZCARD lock:a", ":3"}, [2]string{"TYPE lock:a", "+zset"}, [2]string{"EXISTS lock:a", ":1"}, [2]string{"GET lock:a", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		[2]string{"SET lock:a x NX PX 9000", "$-1"}, [2]string{"LOCK lock:a 10s OWNER me", "*-1"}, [2]string{"LOCK lock:a 10s OWNER me PERMITS 3", "*-1"}, [2]string{"ZREM lock:a nobody", ":0"})
	for _, refused := range []string{"ZRANGE lock:a 0 -1", "PEXPIRE lock:a 90000", "ZREM lock:a a b", "ZADD lock:a 1 a"} {
		want(other.Do(t, strings.Fields(refused)...).String(), "-ADOPTREFUSED…")
	}
	want(run(other, extendPermit, 2, "a"), ":1")
	want(run(other, extendPermit, 2, "nobody"), ":0")
	want(run(other, takePermit, 2000, "d"), "-ADOPTREFUSED…")

	wantReplies(t, other, [2]string{"ZREM lock:a a", ":1"}, [2]string{"ZREM lock:a a", ":0"})
	want(run(c, releasePermit, 0, "b"), "*[:1 :1]")
	if v := waiter.Read(t); !strings.Contains(v.String(), "lock:a") {
		t.Error(v)
	}
	wantReplies(t, c, [2]string{"ZCARD lock:a", ":1"})
	want(c.Do(t, "LOCK", "lock:a", "10s", "OWNER", "me", "PERMITS", "2").String(), "*[:…")
	want(run(other, takePermit, 3, "d"), ":1")
	want(run(c, takePermit, 3, "e"), ":0")
	want(c.Do(t, "DEL", "lock:a").String(), "-ADOPTREFUSED…")
	wantReplies(t, c, [2]string{"UNLOCK lock:a me SHARED", ":1"}, [2]string{"DEL lock:a", ":1"}, [2]string{"EXISTS lock:a", ":0"}, [2]string{"DEL lock:a", ":0"})
	want(run(other, extendPermit, 2, "c"), ":0")
	wantReplies(t, other, [2]string{"SET lock:a x NX PX 50000", "+OK"})
	want(run(c, takePermit, 2, "a"), "-ADOPTREFUSED…")
	wantReplies(t, other, [2]string{"ZREM lock:a a", "-WRONGTYPE Operation against a key holding the wrong kind of value"}, [2]string{"DEL lock:a", ":1"})
	want(run(c, takePermit, 1, "a"), ":1")
	if v := r.data.Do(t, "KEYS", "*"); len(v.Elems) != 0 {
		t.Errorf("the upstream has %v", v)
	}
}

// TestAdopt_PermitsEnd: a permit ends by itself, and no other with it, although in Redis the key is one.
func TestAdopt_PermitsEnd(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, 2, "--adopt", "lock:*")
	c, other := redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())
	short, long := permits(t, 3000), permits(t, 50_000)
	if got := short(c, takePermit, 2, "a") + long(other, takePermit, 2, "b"); got != ":1:1" {
		t.Fatal(got)
	}
	for deadline := time.Now().Add(30 * time.Second); long(other, takePermit, 2, "c") != ":1"; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the permit is there still")
		}
	}
	if got := long(c, extendPermit, 2, "a") + long(c, extendPermit, 2, "b") + long(c, takePermit, 2, "a"); got != ":0:1:0" {
		t.Error(got)
	}
}

// TestAdopt_PermitsGuard: while somebody has the semaphore at the upstream there are no permits.
func TestAdopt_PermitsGuard(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--adopt", "lock:*")
	c, run := redistest.Open(t, r.addr()), permits(t, 50_000)
	r.data.Do(t, "ZADD", "lock:a", "1", "old")
	if got := run(c, takePermit, 2, "a"); got != ":0" {
		t.Error(got)
	}
	r.data.Do(t, "DEL", "lock:a")
	if got := run(c, takePermit, 2, "a"); got != ":1" {
		t.Error(got)
	}
}

// TestAdopt_PermitsBurst: of many acquisitions that one connection sends at once, a few ask the nodes, and each is answered as if it had
// come alone.
func TestAdopt_PermitsBurst(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--adopt", "lock:*")
	c, run := redistest.Open(t, r.addr()), permits(t, 50_000)
	run(c, takePermit, 1, "a")
	sha, now := c.Do(t, "SCRIPT", "LOAD", takePermit).Text, fmt.Sprint(time.Now().UnixMilli())
	take := func(who string) string { return fmt.Sprintf("EVALSHA %s 1 lock:a 1 %s 50000 %s", sha, who, now) }

	const polls = 300
	before := r.nodes[0].Calls(t, "evalsha")
	c.Send(t, strings.Repeat(lines(take("b")), polls))
	for range polls {
		if v := c.Read(t); v.String() != ":0" {
			t.Fatalf("all permits are taken: %v", v)
		}
	}
	if n := r.nodes[0].Calls(t, "evalsha") - before; n > polls/3 { // a burst is read in parts
		t.Errorf("%d polls asked a node %d times", polls, n)
	}
	for range 20 {
		c.Send(t, lines(take("b"), take("a"), "ZREM lock:a b", take("b"), "ZREM lock:a a", take("b"), take("a"), "ZCARD lock:a", "ZREM lock:a b", take("a")))
		var got []string
		for range 10 {
			got = append(got, c.Read(t).String())
		}
		if all := strings.Join(got, ""); all != ":0:0:0:0:1:1:0:1:1:1" {
			t.Fatal(all)
		}
	}
}

// TestAdopt_PermitsAsRedis: random commands on a semaphore are answered as by one Redis.
func TestAdopt_PermitsAsRedis(t *testing.T) {
	t.Parallel()
	now := fmt.Sprint(time.Now().UnixMilli())
	limit := strconv.Itoa(1 + rand.IntN(4))
	asOneRedis(t, func(pick func(n int) int) []string {
		who := string(rune('a' + pick(5)))
		switch pick(8) {
		case 0, 1, 2:
			return []string{"EVAL", takePermit, "1", "lock:a", limit, who, "50000", now}
		case 3:
			return []string{"EVAL", extendPermit, "1", "lock:a", limit, who, "50000", now}
		case 4:
			return []string{"EVAL", releasePermit, "1", "lock:a", limit, who, "50000", now}
		case 5, 6:
			return []string{"ZREM", "lock:a", who}
		}
		return []string{[]string{"ZCARD", "EXISTS", "TYPE", "GET", "DEL"}[pick(5)], "lock:a"}
	})
}

// TestAdopt_ReadersAsRedis: random commands on a read/write lock are answered as by one Redis.
func TestAdopt_ReadersAsRedis(t *testing.T) {
	t.Parallel()
	asOneRedis(t, func(pick func(n int) int) []string {
		who := string(rune('a' + pick(3)))
		switch pick(8) {
		case 0, 1:
			return []string{"EVAL", readShare, "1", "lock:a", "50000", who}
		case 2, 3:
			return []string{"EVAL", unreadShare, "1", "lock:a", "0", who}
		case 4:
			return []string{"EVAL", writeShare, "1", "lock:a", "50000", who + ":write"}
		case 5:
			return []string{"EVAL", unwriteShare, "1", "lock:a", "50000", who + ":write"}
		case 6:
			return []string{"HGET", "lock:a", []string{who, who + ":write", "mode"}[pick(3)]}
		}
		return []string{[]string{"EXISTS", "TYPE", "GET", "DEL"}[min(3, pick(12)%5)], "lock:a"}
	})
}

// asOneRedis does the same at one Redis and, through two proxies, at the lock nodes. next returns the next command.
func asOneRedis(t *testing.T, next func(pick func(n int) int) []string) {
	t.Helper()
	r := startRig(t, 3, 2, "--adopt", "lock:*")
	alone := redistest.Open(t, redistest.StartNodes(t, 1)[0].Addr())
	through := []*redistest.Conn{redistest.Open(t, r.addr()), redistest.Open(t, r.proxies[1].Addr())}
	seed := uint64(time.Now().UnixNano())
	pick := rand.New(rand.NewPCG(seed, 0)).IntN
	var did []string
	for range 300 {
		command, at := next(pick), pick(2)
		want, got := alone.Do(t, command...), through[at].Do(t, command...)
		did = append(did, fmt.Sprint("proxy ", at, ": ", strings.Join(strings.Fields(strings.Join(command, " ")), " "), " > ", got))
		if got.String() != want.String() && !(want.Kind == ':' && got.Kind == ':' && want.Int() > 1000 && got.Int() > 1000) { // what is left of a lease
			t.Fatalf("seed %d: %s\nwant %s", seed, strings.Join(did[max(0, len(did)-12):], "\n"), want)
		}
	}
}
