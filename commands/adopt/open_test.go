package adopt

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestOpen: a lock without an end is one to every command, through every proxy, until it gets an end or is given back.
func TestOpen(t *testing.T) {
	scripts := map[string]string{
		"cad": compareAndDelete,
		// takes without an end, or says what is left
		"take": `if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then return 1 end return redis.call('pttl', KEYS[1])`,
		// gives an end to a lock that has none, as code does whose holder may have died between SETNX and EXPIRE
		"fix": `if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then return 1 end
			if redis.call('ttl', KEYS[1]) == -1 then redis.call('expire', KEYS[1], 5) end return 0`,
		"persist": `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('persist', KEYS[1]) end return -1`,
	}
	const wait = 5 * time.Minute // five times the longest lease
	for name, steps := range map[string][]string{
		"kept until DEL":                {"0 SETNX me > :1", "0 TTL > :-1", "1 PTTL > :-1", "1 EXPIRETIME > :-1", "wait", "1 TTL > :-1", "1 SETNX you > :0", "0 GET > $2 me", "1 DEL > :1", "0 SETNX you > :1"},
		"released by value":             {"0 SET me NX > +OK", "wait", "1 SET you NX PX 5000 > $-1", "1 EVAL cad you > :0", "1 EVAL cad me > :1", "0 EVAL cad me > :0", "0 TTL > :-2"},
		"EXPIRE gives one":              {"0 SETNX me > :1", "wait", "1 EXPIRE 7 > :1", "0 TTL > :7", "short", "1 TTL > :4", "long", "1 EXISTS > :0", "wait", "0 EXISTS > :0"},
		"EXPIRE here":                   {"0 SETNX me > :1", "0 EXPIRE 7 > :1", "0 TTL > :7", "short", "long", "0 EXISTS > :0"},
		"EXPIRE NX and XX":              {"0 SETNX me > :1", "1 EXPIRE 7 XX > :0", "1 EXPIRE 7 GT > :0", "1 TTL > :-1", "1 EXPIRE 7 NX > :1", "0 EXPIRE 9 NX > :0", "0 TTL > :7", "0 EXPIRE 3 LT > :1", "1 TTL > :3"},
		"EXPIRE LT":                     {"0 SETNX me > :1", "1 EXPIRE 7 LT > :1", "0 TTL > :7"},
		"PERSIST":                       {"0 SET me NX PX 5000 > +OK", "1 PERSIST > :1", "0 TTL > :-1", "0 PERSIST > :0", "wait", "0 GET > $2 me", "0 PEXPIRE 5000 > :1", "1 PERSIST > :1", "wait", "1 TTL > :-1"},
		"PERSIST of nothing":            {"0 PERSIST > :0", "0 SET me NX PX 5000 > +OK", "long", "long", "0 PERSIST > :0"},
		"PERSIST by value":              {"0 SET me NX PX 5000 > +OK", "1 EVAL persist you > :-1", "1 EVAL persist me > :1", "0 EVAL persist me > :0", "wait", "0 TTL > :-1"},
		"GETEX":                         {"0 SET me NX PX 5000 > +OK", "1 GETEX PERSIST > $2 me", "0 TTL > :-1", "0 GETEX EX 7 > $2 me", "1 TTL > :7"},
		"a script takes":                {"0 EVAL take me > :1", "1 EVAL take you > :-1", "wait", "1 EVAL take you > :-1", "0 EVAL cad me > :1", "1 EVAL take you > :1"},
		"a script gives one":            {"0 EVAL fix me > :1", "1 EVAL fix you > :0", "0 TTL > :5", "0 EVAL fix me > :0", "long", "long", "1 EVAL fix you > :1", "0 TTL > :-1"},
		"SET XX":                        {"0 SET me NX > +OK", "1 SET me XX PX 5000 > +OK", "0 PTTL > :5000", "0 SET me XX KEEPTTL > +OK", "1 PTTL > :5000", "1 SET me XX > +OK", "0 TTL > :-1", "0 SET me XX KEEPTTL > +OK", "1 TTL > :-1"},
		"nobody keeps it past max-hold": {"0 SETNX me > :1", "wait", "hold", "1 EXISTS > :0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := proxies(t, 2, "lock:* guard=no")
				for _, step := range steps {
					said, want, isCall := strings.Cut(step, " > ")
					if !isCall {
						time.Sleep(map[string]time.Duration{"wait": wait, "short": 3 * time.Second, "long": 4 * time.Second, "hold": time.Hour - wait}[step])
						continue
					}
					words := strings.Fields(said)
					args := append([]string{words[1], "lock:a"}, words[2:]...)
					if words[1] == "EVAL" {
						args = []string{"EVAL", scripts[words[2]], "1", "lock:a", words[3]}
					}
					if got := p[words[0][0]-'0'].do(args...); got != want {
						t.Fatalf("%s: %s", step, got)
					}
				}
			})
		})
	}
}

// TestOpen_Refused: a hash has an end, and so has every lock where the pattern says it.
func TestOpen_Refused(t *testing.T) {
	const enterAlone = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then return redis.call('hincrby', KEYS[1], ARGV[1], 1) end return 0`
	c := proxies(t, 1, "lock:* guard=no", "job:* guard=no no-expiry=refuse")[0]
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"EVAL", enterAlone, "1", "lock:a", "me"}, "a hash that has no end: give it a ttl"},
		{[]string{"EVAL", enterHash, "1", "lock:a", "5000", "me"}, "$-1"},
		{[]string{"PERSIST", "lock:a"}, "a hash that has no end: give it a ttl"},
		{[]string{"SETNX", "job:a", "me"}, "it has no end: set no-expiry=keep or no-expiry=lease:DURATION"},
		{[]string{"SET", "job:a", "me", "NX", "PX", "5000"}, "+OK"},
		{[]string{"PERSIST", "job:a"}, "it has no end: set no-expiry=keep or no-expiry=lease:DURATION"},
	} {
		if got := c.do(tt.args...); !strings.Contains(got, tt.want) {
			t.Errorf("%.40q: %s", tt.args, got)
		}
	}
}
