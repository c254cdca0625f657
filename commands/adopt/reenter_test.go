package adopt

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	enterHash = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
		redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end
		return redis.call('pttl', KEYS[1])`
	leaveHash = `if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
		redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) return 1`
	leaveHashAsItIs = `if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
		if left == 0 then redis.call('del', KEYS[1]) end return left`
	leaveLatched = `local first = redis.call('get', KEYS[2]) if first then return tonumber(first) end
		if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		local function say(n) redis.call('set', KEYS[2], n, 'px', 20000) return n end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return say(0) end
		redis.call('del', KEYS[1]) redis.call('publish', 'free', KEYS[1]) return say(1)`
	extendHash = `if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then redis.call('pexpire', KEYS[1], ARGV[1]) return 1 end return 0`
	deleteHash = `if redis.call('del', KEYS[1]) == 1 then redis.call('publish', 'free', KEYS[1]) return 1 end return 0`
	enterCount = `if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
		local n = redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return n`
)

// TestHash: who has a lock enters it again, through any proxy, and it is free when all holds are given back. A proxy
// that remembers another count answers by the one that is there.
func TestHash(t *testing.T) {
	scripts := map[string]string{"enter": enterHash, "leave": leaveHash, "less": leaveHashAsItIs, "extend": extendHash, "delete": deleteHash, "count": enterCount}
	for name, steps := range map[string][]string{
		"enter and leave": {"0 enter 5000 me > $-1", "0 enter 5000 you > :5000", "1 enter 5000 you > :5000", "1 leave 5000 you > $-1", "0 leave 5000 me > :1", "1 enter 5000 you > $-1"},
		"again":           {"0 enter 5000 me > $-1", "1 enter 5000 me > $-1", "0 leave 5000 me > :0", "0 enter 5000 you > :5000", "1 leave 5000 me > :1", "1 leave 5000 me > $-1", "0 leave 5000 me > $-1"},
		"counts": {"0 count 5000 me > :1", "0 count 5000 me > :2", "1 count 5000 me > :3", "0 count 5000 me > :4", "1 less 0 me > :3", "0 less 0 me > :2", "1 count 5000 me > :3",
			"0 less 0 me > :2", "0 less 0 me > :1", "1 less 0 me > :0", "0 less 0 me > $-1"},
		"released with an old count":       {"0 enter 5000 me > $-1", "1 enter 5000 me > $-1", "0 leave 5000 me > :0", "0 leave 5000 me > :1"},
		"left once more elsewhere":         {"0 count 5000 me > :1", "0 count 5000 me > :2", "1 leave 5000 me > :0", "0 leave 5000 me > :1", "0 leave 5000 me > $-1"},
		"deleted, whatever the count":      {"0 enter 5000 me > $-1", "0 enter 5000 me > $-1", "1 delete > :1", "1 delete > :0", "0 leave 5000 me > $-1"},
		"extended":                         {"0 enter 5000 me > $-1", "1 extend 9000 me > :1", "1 extend 9000 you > :0", "0 enter 5000 you > :9000"},
		"entering again shortens nothing":  {"0 count 9000 me > :1", "0 count 5000 me > :2", "0 less 0 me > :1", "1 enter 1 you > :9000"},
		"nor does it elsewhere":            {"0 count 9000 me > :1", "1 count 5000 me > :2", "0 less 0 me > :1", "1 enter 1 you > :9000"},
		"a hold less, extended elsewhere":  {"0 count 5000 me > :1", "0 count 5000 me > :2", "1 extend 9000 me > :1", "0 less 0 me > :1", "1 enter 1 you > :9000"},
		"a hold more, extended elsewhere":  {"0 count 5000 me > :1", "1 extend 9000 me > :1", "0 count 5000 me > :2", "1 enter 1 you > :9000"},
		"ends as Redis lets it":            {"0 count 9000 me > :1", "0 count 9000 me > :2", "0 leave 5000 me > :0", "1 enter 1 you > :5000"},
		"an outer hold lives as the inner": {"0 count 5000 me > :1", "sleep 4", "0 count 9000 me > :2", "sleep 4", "1 enter 1 you > :5000", "0 leave 5000 me > :0", "0 leave 5000 me > :1"},
		"and so elsewhere":                 {"0 count 5000 me > :1", "sleep 4", "1 count 9000 me > :2", "sleep 4", "0 leave 5000 me > :0", "1 leave 5000 me > :1"},
		"a latch answers again": {"0 count 5000 me > :1", "0 count 5000 me > :2", "0 latched a me > :0", "0 latched a me > :0", "1 latched a me > :0", "1 enter 1 you > :5000", "1 latched b me > :1",
			"0 latched b me > :1", "1 latched b me > :1", "0 latched a me > :0", "0 latched c me > $-1", "1 latched c me > $-1"},
		"a latch of one that lapsed":          {"0 count 5000 me > :1", "0 latched a me > :1", "1 count 5000 you > :1", "0 latched a me > :1", "1 latched a me > :1", "1 latched b me > $-1", "0 HGET you > $1 1"},
		"a latch, and a hold since":           {"0 count 5000 me > :1", "0 latched a me > :1", "1 count 5000 me > :1", "0 latched a me > :1", "1 latched a me > :1", "1 HGET me > $1 1"},
		"latches of others":                   {"0 count 5000 me > :1", "0 latched a you > $-1", "0 latched a me > :1", "1 latched a you > $-1"},
		"a latch with an old count":           {"0 count 5000 me > :1", "1 count 5000 me > :2", "0 latched a me > :0", "1 latched a me > :0", "0 latched b me > :1", "1 latched b me > :1"},
		"string in place of a latch's hash":   {"0 SET me > +OK", "0 latched a me > WRONGTYPE"},
		"a string since":                      {"0 count 5000 me > :1", "0 latched a me > :1", "1 SET me > +OK", "0 latched a me > :1", "1 latched a me > :1", "1 latched b me > WRONGTYPE"},
		"a later end stays with fewer":        {"0 count 5000 me > :1", "0 count 9000 me > :2", "0 less 0 me > :1", "1 enter 1 you > :9000"},
		"a string is of another kind":         {"0 SET me > +OK", "0 enter 5000 me > " + "WRONGTYPE"},
		"a hash is of another kind":           {"0 enter 5000 me > $-1", "0 GET > WRONGTYPE", "0 SET me > $-1"},
		"who has it is no owner of the verbs": {"0 enter 5000 me > $-1", "0 HGET me > $1 1", "0 HGET you > $-1", "0 HLEN > :1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := proxies(t, 2, "lock:* guard=no")
				for _, step := range steps {
					said, want, _ := strings.Cut(step, " > ")
					words := strings.Fields(said)
					if words[0] == "sleep" {
						n, _ := strconv.Atoi(words[1])
						time.Sleep(time.Duration(n) * time.Second)
						continue
					}
					c := p[words[0][0]-'0']
					args := append([]string{words[1], "lock:a"}, words[2:]...)
					if text := scripts[words[1]]; text != "" {
						args = append([]string{"EVAL", text, "1", "lock:a"}, words[2:]...)
					} else if words[1] == "latched" {
						args = []string{"EVAL", leaveLatched, "2", "lock:a", "latch:" + words[2], "5000", words[3]}
					} else if words[1] == "SET" {
						args = append(args, "NX", "PX", "5000")
					}
					if got := c.do(args...); got != want && (want != "WRONGTYPE" || !strings.Contains(got, want)) {
						t.Fatalf("%s: %s", step, got)
					}
				}
			})
		})
	}
}

// TestHash_Signals go out with the last hold.
func TestHash_Signals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 2, "lock:* guard=no")
		run := func(at int, text, want string, asked int) {
			t.Helper()
			if got := p[at].do("EVAL", text, "1", "lock:a", "5000", "me"); got != want || len(p[at].asked) != asked {
				t.Errorf("%s, %q", got, p[at].asked)
			}
		}
		run(0, enterHash, "$-1", 0)
		run(1, enterHash, "$-1", 0)
		run(0, leaveHash, ":0", 0) // it remembers one hold, of two
		run(0, leaveHash, ":1", 1)
	})
}

// TestHash_Lapses: a hold ends with its lease.
func TestHash_Lapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxies(t, 1, "lock:* guard=no")
		for i, want := range []string{":1", ":1"} {
			if got := p[0].do("EVAL", enterCount, "1", "lock:a", "5000", "me"); got != want {
				t.Errorf("%d: %s", i, got)
			}
			time.Sleep(6 * time.Second)
		}
	})
}

// TestHash_ConcurrentCallsShareOneQuestion: calls that come together enter with one question to the nodes. One that has the
// lock is not refused by what another was told.
func TestHash_ConcurrentCallsShareOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decided := make(chan struct{})
		holder := locks.NewAdoptedHash("me")
		e := &scripted{
			lock: func(r locks.LockRequest) (locks.Decision, error) {
				<-decided
				if r.Owner == holder {
					return granting(r)
				}
				return locks.Decision{Holder: holder, Remaining: time.Minute}, nil
			},
			read:  locks.Reading{Held: true, Owner: holder, Fence: 1, Remaining: time.Minute, Holds: 1},
			takes: time.Millisecond, // else a read is over before the next call comes to share it
		}
		c := at(t, e, "lock:* guard=no")
		replies := make(chan string, 51)
		for i := range 51 {
			field := "you" + strconv.Itoa(i)
			if i == 50 {
				field = "me"
			}
			go func() { replies <- c.do("EVAL", enterHash, "1", "lock:a", "5000", field) }()
			synctest.Wait()
		}
		close(decided)
		told := map[string]int{}
		for range 51 {
			told[<-replies]++
		}
		if told[":60000"] != 50 || told["$-1"] != 1 {
			t.Errorf("told %v", told)
		}
		if n := e.asked.Load(); n > 6 { // three acquisitions, and reads of who has it and of what is left
			t.Errorf("%d rounds for 51 calls that came together", n)
		}
	})
}
