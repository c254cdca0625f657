package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// aclUsers are users with rules of every kind; each has the password pw.
var aclUsers = []string{
	"all allkeys allcommands allchannels",
	"silent allkeys allcommands resetchannels",
	"nearly allkeys allcommands -flushall",
	"some ~a:* +@all",
	"unasked ~a:* +@all -acl",
	"writes %R~r:* %W~a:* +@all",
	"selects ~r:* +get (%W~a:* +set) (~b:* +get)",
	"reads ~* +@read",
	"unset ~* +@all -set",
	"nokeys +@all",
	"nothing ~a:*",
	"exact ~a:1 +@all -@admin",
	"default resetkeys ~b:* +@all",
}

var lockedNames = []string{"a:1", "a:2", "b:1", "r:1", "*"}

// setUsers creates the aclUsers on a server.
func setUsers(t *testing.T, s *redistest.Server) {
	t.Helper()
	for _, l := range aclUsers {
		args := strings.Fields(l)
		rules := append([]string{"ACL", "SETUSER", args[0], "on", ">pw"}, joinParens(args[1:])...)
		if args[0] == "default" {
			rules = append([]string{"ACL", "SETUSER", "default"}, args[1:]...)
		}
		if v := s.Do(t, rules...); v.Raw != "+OK\r\n" {
			t.Fatalf("%s: %v", l, v)
		}
	}
}

// joinParens makes one argument of each pair of parentheses.
func joinParens(words []string) (joined []string) {
	for _, w := range words {
		if n := len(joined) - 1; n >= 0 && strings.HasPrefix(joined[n], "(") && !strings.HasSuffix(joined[n], ")") {
			joined[n] += " " + w
		} else {
			joined = append(joined, w)
		}
	}
	return joined
}

// expectAccess takes and releases a lock, or expects to be refused.
func expectAccess(t *testing.T, c *redistest.Conn, who, name string, may bool) {
	t.Helper()
	v := c.Do(t, "LOCK", name, "10s", "OWNER", "me")
	switch {
	case may && len(v.Elems) != 4:
		t.Errorf("%s: LOCK %s: %v, and it may write that key", who, name, v)
	case may:
		mustUnlock(t, c, name)
	case !strings.HasPrefix(v.Text, "NOPERM "):
		t.Errorf("%s: LOCK %s: %v, and it may not write that key", who, name, v)
	}
}

// A user may LOCK a name if ACL DRYRUN allows it to write the key, on every kind of
// connection; nothing is written.
func TestLockVerbs_FollowTheUpstreamsACL(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	addr := redistest.StartProxy(t, data, redistest.StartNodes(t, 1)).Addr()
	places := map[string][]string{
		"shared": nil, "in RESP3": {"HELLO 3"}, "in another database": {"SELECT 3"}, "on its own": {"CLIENT NO-EVICT OFF"},
		"watching": {"WATCH a:1"}, "with messages": {"HELLO 3", "SUBSCRIBE news"},
	}
	open := map[string]*redistest.Conn{}
	for place := range places { // before the default user loses its rights
		open[place] = redistest.Open(t, addr)
	}
	admin := redistest.Open(t, data.Addr())
	admin.Do(t, "ACL", "SETUSER", "root", "on", ">pw", "allkeys", "allcommands", "allchannels")
	setUsers(t, data)
	admin = login(t, data.Addr(), "root", "pw")
	for _, l := range aclUsers {
		user, _, _ := strings.Cut(l, " ")
		for place, commands := range places {
			c := open[place]
			if user != "default" {
				c = login(t, addr, user, "pw")
			}
			for _, command := range commands {
				c.Do(t, strings.Fields(command)...) // some may not
			}
			if place == "with messages" && !strings.Contains(l, "allchannels") && user != "default" {
				continue
			}
			for _, name := range lockedNames {
				may := admin.Do(t, "ACL", "DRYRUN", user, "SET", name, "x").Raw == "+OK\r\n"
				expectAccess(t, c, user+" "+place, name, may)
			}
		}
	}
	if v := admin.Do(t, "INFO", "keyspace"); strings.Contains(v.Text, "db") {
		t.Errorf("asking has left keys: %v", v)
	}
}

// The node that is asked need not serve the key.
func TestLockVerbs_FollowTheACLOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for _, n := range cluster.Nodes {
		n.Do(t, "ACL", "SETUSER", "some", "on", ">pw", "~a:*", "+@all")
		n.Do(t, "ACL", "SETUSER", "all", "on", ">pw", "~*", "+@all")
	}
	addr := redistest.StartProxy(t, cluster, redistest.StartNodes(t, 1)).Addr()
	for _, watch := range []bool{false, true} {
		some, all := login(t, addr, "some", "pw"), login(t, addr, "all", "pw")
		if watch {
			some.Do(t, "WATCH", "a:x")
		}
		for i := range 12 {
			expectAccess(t, some, "some", fmt.Sprintf("a:%d", i), true)
			expectAccess(t, some, "some", fmt.Sprintf("b:%d", i), false)
			expectAccess(t, all, "all", fmt.Sprintf("b:%d", i), true)
		}
	}
}

// The upstream is asked once for a user who may do everything, and once for each name
// for others, however many clients there are.
func TestACLDecisions_AreCached(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	data.Do(t, "ACL", "SETUSER", "some", "on", ">pw", "~a:*", "+@all")
	addr := redistest.StartProxy(t, data, redistest.StartNodes(t, 1)).Addr()
	began := time.Now()
	for range 3 {
		c := redistest.Open(t, addr)
		for i := range 40 {
			mustUnlock(t, c, lock(t, c, fmt.Sprint("job:", i)))
		}
	}
	if time.Since(began) > 4*time.Second {
		t.Skip("this machine is too slow to tell")
	}
	if who, sets := data.Calls(t, "acl|whoami"), data.Calls(t, "set"); who != 1 || sets != 0 {
		t.Errorf("120 LOCKs of a user who may do everything asked who that is %d times, and about names %d times", who, sets)
	}
	began = time.Now()
	for range 3 {
		c := login(t, addr, "some", "pw")
		for i := range 40 {
			mustUnlock(t, c, lock(t, c, fmt.Sprint("a:", i%2)))
		}
	}
	if time.Since(began) > 4*time.Second {
		t.Skip("this machine is too slow to tell")
	}
	if who, sets := data.Calls(t, "acl|whoami"), data.Calls(t, "set"); who != 2 || sets != 2 {
		t.Errorf("120 LOCKs of two names asked who that is %d times, and about names %d times", who-1, sets)
	}
}

// lock takes a lock and returns its name.
func lock(t *testing.T, c *redistest.Conn, name string) string {
	t.Helper()
	mustLock(t, c, name)
	return name
}

// A change through the proxy counts at once, one at the server after seconds.
func TestACLDecisions_FollowChanges(t *testing.T) {
	t.Parallel()
	data := redistest.Start(t)
	data.Do(t, "ACL", "SETUSER", "some", "on", ">pw", "~a:*", "+@all")
	addr := redistest.StartProxy(t, data, redistest.StartNodes(t, 1)).Addr()
	c, admin := login(t, addr, "some", "pw"), redistest.Open(t, addr)
	for range 3 {
		expectAccess(t, c, "some", "a:1", true)
		expectAccess(t, c, "some", "b:1", false)
		admin.Do(t, "ACL", "SETUSER", "some", "resetkeys", "~b:*")
		expectAccess(t, c, "some", "a:1", false)
		expectAccess(t, c, "some", "b:1", true)
		admin.Do(t, "ACL", "SETUSER", "some", "allkeys")
		expectAccess(t, c, "some", "a:1", true)
		admin.Do(t, "ACL", "SETUSER", "some", "resetkeys", "~a:*")
	}
	expectAccess(t, c, "some", "a:1", true)
	data.Do(t, "ACL", "SETUSER", "some", "resetkeys", "~b:*")
	eventually(t, 8*time.Second, "what was changed at the upstream counts", func() bool {
		v := c.Do(t, "LOCK", "a:1", "10s", "OWNER", "me")
		return strings.HasPrefix(v.Text, "NOPERM ")
	})
}

// While the upstream does not answer, users lock what it allowed or never decided.
func TestACLDecisions_WhileTheUpstreamIsDown(t *testing.T) {
	t.Parallel()
	for _, trouble := range []string{"hangs", "is gone"} {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			data := redistest.Start(t)
			data.Do(t, "ACL", "SETUSER", "some", "on", ">pw", "~a:*", "+@all")
			data.Do(t, "ACL", "SETUSER", "never", "on", ">pw", "~a:*", "+@all")
			data.Do(t, "ACL", "SETUSER", "late", "on", ">pw", "~a:*", "+@all")
			addr := redistest.StartProxy(t, data, redistest.StartNodes(t, 3)).Addr()
			all, some, never := redistest.Open(t, addr), login(t, addr, "some", "pw"), login(t, addr, "never", "pw")
			expectAccess(t, all, "all", "b:1", true)
			expectAccess(t, some, "some", "a:1", true)
			expectAccess(t, some, "some", "b:1", false)
			mustLock(t, all, "held")
			time.Sleep(5100 * time.Millisecond)  // what was said is due again
			late := login(t, addr, "late", "pw") // the upstream has let it in less than a second ago
			if data.Pause(); trouble != "hangs" {
				data.Kill()
			}
			defer data.Resume()
			if v := late.Do(t, "LOCK", "held", "10s", "RETRYAFTER"); len(v.Elems) != 4 || v.Elems[1].Text != "" {
				t.Errorf("who has the lock, when nobody says who may know: %v", v)
			}
			if v := late.Do(t, "LOCKCTL", "FORCE", "held"); !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
				t.Errorf("FORCE, when nobody says who may: %v", v)
			}
			for range 2 {
				expectAccess(t, all, "all", "b:2", true)
				expectAccess(t, some, "some", "a:1", true)
				expectAccess(t, some, "some", "b:1", false)
				expectAccess(t, never, "never", "b:1", true)
				if v := some.Do(t, "LOCK", "a:2", "10s"); !strings.HasPrefix(v.Text, "UPSTREAMDOWN ") {
					t.Errorf("a name of which nothing was said: %v", v)
				}
			}
		})
	}
}
