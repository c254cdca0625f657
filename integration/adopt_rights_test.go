package integration

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestAdopt_Rights: what a user may do with an adopted key is what the upstream lets them do with that key.
func TestAdopt_Rights(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	p := startAdopting(t, data)
	data.Do(t, "ACL", "SETUSER", "reader", "on", ">pw", "~lock:*", "+get", "+evalsha", "+eval")
	data.Do(t, "ACL", "SETUSER", "writer", "on", ">pw", "~lock:mine*", "+set", "+evalsha")
	data.Do(t, "ACL", "SETUSER", "scripts", "on", ">pw", "~lock:*", "+@all", "-eval")
	data.Do(t, "ACL", "SETUSER", "hashes", "on", ">pw", "~lock:h*", "+hincrby", "+hget", "+evalsha", "+eval")
	data.Do(t, "ACL", "SETUSER", "nothing", "on", ">pw")
	sha := data.Do(t, "SCRIPT", "LOAD", compareAndDelete).Text
	admin := redistest.Open(t, p.Addr())
	admin.Do(t, "SCRIPT", "LOAD", compareAndDelete)
	enter, leave := admin.Do(t, "SCRIPT", "LOAD", enterOrLeft).Text, admin.Do(t, "SCRIPT", "LOAD", leaveLatched).Text
	wantReplies(t, admin, [2]string{"SET lock:held me NX PX 60000", "+OK"})
	const refused = "-NOPERM"
	for _, tt := range []struct {
		user  string
		steps [][2]string
	}{
		{"reader", [][2]string{
			{"GET lock:held", `$"me"`}, {"STRLEN lock:held", refused}, {"GET lock:none", "$-1"}, {"TTL lock:held", refused},
			{"SET lock:a me NX PX 60000", refused}, {"SET lock:held me NX PX 60000", refused}, {"DEL lock:held", refused}, {"EXPIRE lock:held 50", refused},
			{"EVALSHA " + sha + " 1 lock:held me", refused}, {"EVAL return(redis.call('get',KEYS[1])) 1 lock:held", `$"me"`},
		}},
		{"writer", [][2]string{
			{"SET lock:mine1 me NX PX 60000", "+OK"}, {"SET lock:a me NX PX 60000", refused}, {"GET lock:mine1", refused},
			{"EVALSHA " + sha + " 1 lock:mine1 me", ":1"}, {"EVAL return(redis.call('del',KEYS[1])) 1 lock:mine1", refused},
		}},
		{"scripts", [][2]string{{"EVAL return(redis.call('del',KEYS[1])) 1 lock:held", refused}, {"EVALSHA " + sha + " 1 lock:held you", ":0"}}},
		{"hashes", [][2]string{
			{"EVALSHA " + enter + " 1 lock:h1 5000 me", "$-1"}, {"EVAL return(redis.call('hget',KEYS[1],ARGV[1])) 1 lock:h1 me", `$"1"`}, {"HGET lock:h1 me", `$"1"`}, {"HLEN lock:h1", refused},
			{"HINCRBY lock:h1 me 1", ":2"}, {"EVALSHA " + leave + " 2 lock:h1 latch:a@ 5000 me", ":0"}, {"EVALSHA " + leave + " 2 lock:h1 latch:b@ 5000 me", ":1"},
			{"SET lock:h1 me NX PX 60000", refused}, {"EVALSHA " + enter + " 1 lock:a 5000 me", refused}, {"EVAL return(redis.call('hget',KEYS[1],ARGV[1])) 1 lock:a me", refused},
		}},
		{"writer", [][2]string{{"EVALSHA " + enter + " 1 lock:mine1 5000 me", refused}, {"HINCRBY lock:mine1 me 1", refused}}},
		{"nothing", [][2]string{{"SET lock:a me NX PX 60000", refused}, {"GET lock:held", refused}, {"EVALSHA " + sha + " 1 lock:held me", refused}}},
	} {
		for _, first := range []string{"PING", "CLIENT REPLY ON", "WATCH x"} {
			c := redistest.Open(t, p.Addr())
			wantReplies(t, c, [2]string{"AUTH " + tt.user + " pw", "+OK"})
			c.Do(t, strings.Fields(first)...)
			for _, s := range tt.steps {
				v := c.Do(t, strings.Fields(strings.ReplaceAll(s[0], "@", strings.Fields(first)[0]))...)
				if got := v.String(); got != s[1] && !(s[1] == refused && strings.HasPrefix(got, refused)) {
					t.Errorf("%s behind %s: %s: %v, want %s", tt.user, first, s[0], v, s[1])
				}
			}
		}
	}
}

// TestAdopt_NotAuthenticated: a client that must authenticate is told so, as the upstream words it.
func TestAdopt_NotAuthenticated(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t, "--requirepass", "pw")
	c := redistest.Open(t, startAdopting(t, data).Addr())
	for _, command := range []string{"SET lock:a me NX PX 60000", "GET lock:a", "DEL lock:a b", "EVAL return(redis.call('del',KEYS[1])) 1 lock:a"} {
		wantReplies(t, c, [2]string{command, "-NOAUTH Authentication required."})
	}
	wantReplies(t, c, [2]string{"AUTH pw", "+OK"}, [2]string{"SET lock:a me NX PX 60000", "+OK"}, [2]string{"DEL lock:a", ":1"})
}

// TestAdopt_OnlyTheConnectionKnowsWho: a client that has authenticated where the proxy could not see whether it was let
// in is asked about on its own connection.
func TestAdopt_OnlyTheConnectionKnowsWho(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t, "--requirepass", "pw")
	p := startAdopting(t, data)
	there := redistest.Open(t, data.Addr())
	there.Do(t, "AUTH", "pw")
	there.Do(t, "ACL", "SETUSER", "reader", "on", ">pw", "~*", "+get")
	for _, user := range []string{"default", "reader"} {
		c := redistest.Open(t, p.Addr())
		for _, command := range []string{"MONITOR", "MULTI", "AUTH " + user + " pw", "EXEC"} {
			c.Do(t, strings.Fields(command)...)
		}
		if user == "reader" {
			if v := c.Do(t, "SET", "lock:a", "me", "NX", "PX", "60000"); !strings.HasPrefix(v.String(), "-NOPERM") {
				t.Errorf("a reader: %v", v)
			}
			wantReplies(t, c, [2]string{"GET lock:a", "$-1"})
			continue
		}
		there.Do(t, "SET", "lock:a", "direct")
		wantReplies(t, c, [2]string{"SET lock:a me NX PX 60000", "$-1"})
		there.Do(t, "DEL", "lock:a")
		wantReplies(t, c, [2]string{"SET lock:a me NX PX 60000", "+OK"}, [2]string{"GET lock:a", `$"me"`})
		if v := c.Do(t, "EVAL", releaseAndTell, "1", "lock:a", "me", "free", "list"); v.String() != ":1" {
			t.Error(v)
		}
		wantReplies(t, there, [2]string{"LRANGE list 0 -1", `*[$"token"]`})
		wantReplies(t, c, [2]string{"GET lock:a", "$-1"}, [2]string{"GET none", "$-1"})
	}
}
