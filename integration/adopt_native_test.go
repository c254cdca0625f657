package integration

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_Native: locks that LOCK has taken and adopted ones exclude each other; a native one reads as a string,
// and is changed by the verbs alone.
func TestAdopt_Native(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 2, "--adopt", "lock:*")
	redistest.Open(t, r.addr()).Do(t, "SCRIPT", "LOAD", compareAndDelete)
	sha := r.data.Do(t, "SCRIPT", "LOAD", compareAndDelete).Text
	const refused = `; adopted by "lock:*"`
	r.run(t, script{"native, then adopted", []step{
		{"a", "LOCK lock:n 60s OWNER me", `*[:<fence> $"me" :<_> :1]`},
		{"b", "SET lock:n me NX PX 30000", "$-1"}, {"other.b", "SET lock:n me NX PX 30000", "$-1"},
		{"b", "GET lock:n", `$"lockproxy:<fence>"`}, {"other.b3", "GET lock:n", `$"lockproxy:<fence>"`}, {"b", "TYPE lock:n", "+string"}, {"b", "EXISTS lock:n", ":1"},
		{"b", "STRLEN lock:n", ":<11..40>"}, {"b", "TTL lock:n", ":<1..60>"}, {"b", "SET lock:n me NX GET PX 30000", `$"lockproxy:<fence>"`}, {"b", "HGET lock:n f", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"b", "DEL lock:n", "-ADOPTREFUSED DEL lock:n: a change of a lock that was taken with LOCK" + refused},
		{"other.b", "EXPIRE lock:n 50", "-ADOPTREFUSED EXPIRE lock:n: a change of a lock that was taken with LOCK" + refused},
		{"b", "SET lock:n lockproxy:<fence> XX PX 50000", "-ADOPTREFUSED SET lock:n: a change of a lock that was taken with LOCK" + refused},
		{"b", "EVALSHA " + sha + " 1 lock:n lockproxy:<fence>", "-ADOPTREFUSED EVALSHA lock:n: a change of a lock that was taken with LOCK" + refused},
		{"b", "EVALSHA " + sha + " 1 lock:n me", ":0"},
		{"a", "UNLOCK lock:n me", ":1"}, {"b", "GET lock:n", "$-1"}, {"b", "SET lock:n me NX PX 30000", "+OK"},
		{"a", "LOCK lock:n 60s OWNER me", "*-1"}, {"other.a", "LOCK lock:n 60s", "*-1"}, {"a", "UNLOCK lock:n you", "-NOTOWNER <...>"}, {"a", "RENEW lock:n 60s you", "-NOTOWNER <...>"},
		{"b", "GET lock:n", `$"me"`}, {"other.b", "DEL lock:n", ":1"}, {"a", "LOCK lock:n 60s OWNER me", `*[:<later> $"me" :<_> :1]`}, {"less", "fence later", ""},
		{"a", "UNLOCK lock:n me", ":1"},
	}})
}

// TestAdopt_Scripts: a script is known by its hash from wherever its text has come by, until SCRIPT FLUSH; those that
// may not write are held to it.
func TestAdopt_Scripts(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, 1, "--adopt", "lock:*")
	c := redistest.Open(t, r.addr())
	const unknown = "-NOSCRIPT No matching script. Please use EVAL."
	scripts := []string{
		"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- loaded",
		"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- in a pipeline",
		"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- in MULTI",
		"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- by a subscriber",
		"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- run",
	}
	var shas []string
	for _, s := range scripts {
		shas = append(shas, r.data.Do(t, "SCRIPT", "LOAD", s).Text)
		wantReplies(t, c, [2]string{"EVALSHA " + shas[len(shas)-1] + " 1 lock:a me", unknown}, [2]string{"EVALSHA_RO " + shas[len(shas)-1] + " 1 lock:a me", unknown})
	}
	c.Do(t, "SCRIPT", "LOAD", scripts[0])
	c.Send(t, lines("PING")+redistest.Command("SCRIPT", "LOAD", scripts[1])+lines("EVALSHA "+shas[1]+" 1 lock:a me", "MULTI")+
		redistest.Command("SCRIPT", "LOAD", scripts[2])+lines("EXEC", "EVALSHA "+strings.ToUpper(shas[2])+" 1 lock:a me"))
	for _, want := range []string{"+PONG", `$"` + shas[1] + `"`, ":0", "+OK", "+QUEUED", `*[$"` + shas[2] + `"]`, ":0"} {
		if v := c.Read(t); v.String() != want {
			t.Errorf("%v, want %s", v, want)
		}
	}
	subscriber := redistest.Open3(t, r.addr())
	subscriber.Do(t, "SUBSCRIBE", "x")
	subscriber.Do(t, "SCRIPT", "LOAD", scripts[3])
	c.Do(t, "EVAL", scripts[4], "1", "lock:a", "me")
	for i, sha := range shas {
		wantReplies(t, c, [2]string{"SET lock:a me NX PX 60000", "+OK"}, [2]string{"EVALSHA " + sha + " 1 lock:a you", ":0"}, [2]string{"EVALSHA " + sha + " 1 lock:a me", ":1"})
		if t.Failed() {
			t.Fatalf("script %d", i)
		}
	}
	wantReplies(t, c, [2]string{"EVALSHA " + shas[0] + " 1 other me", ":0"}, [2]string{"SCRIPT EXISTS " + shas[0], "*[:1]"}, [2]string{"SCRIPT FLUSH", "+OK"})
	for _, sha := range shas {
		wantReplies(t, c, [2]string{"EVALSHA " + sha + " 1 lock:a me", unknown})
	}

	wantReplies(t, c, [2]string{"SET lock:a me NX PX 60000", "+OK"})
	const read, write = "return redis.call('get', KEYS[1])", "return redis.call('del', KEYS[1])"
	for _, tt := range []struct{ command, text, want string }{
		{"EVAL", read, `$"me"`}, {"EVAL_RO", read, `$"me"`}, {"EVAL", "#!lua flags=no-writes\n" + read, `$"me"`},
		{"EVAL_RO", write, "-ADOPTREFUSED EVAL_RO lock:a: "}, {"EVAL", "#!lua flags=no-writes\n" + write, "-ADOPTREFUSED EVAL lock:a: "},
		{"EVAL", "#!js\n" + read, "-ADOPTREFUSED EVAL lock:a: a script for js"},
		{"EVAL", "return redis.call('get', KEYS[1]", "-ADOPTREFUSED EVAL lock:a: "},
		{"EVAL", "redis.call('del', KEYS[1]) return redis.call('incr', 'x')", "-ADOPTREFUSED EVAL lock:a: "},
		{"EVAL", "redis.call('del', KEYS[1], 'lock:b') return 1", "-ADOPTREFUSED EVAL lock:a: "},
	} {
		if v := c.Do(t, tt.command, tt.text, "1", "lock:a"); !strings.HasPrefix(v.String(), tt.want) {
			t.Errorf("%s %q: %v, want %s", tt.command, tt.text, v, tt.want)
		}
	}
	wantReplies(t, c, [2]string{"GET lock:a", `$"me"`})
	if v := r.data.Do(t, "KEYS", "*"); len(v.Elems) != 0 {
		t.Errorf("the upstream has %v", v)
	}
}
