package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

func TestParseLockAll(t *testing.T) {
	l := Limits{}.WithDefaults()
	many := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprint("n", i))
		}
		return fmt.Sprintf("LOCKALL %d %s 30s", n, strings.Join(all, " "))
	}
	abc := locks.LockRequest{Key: locks.Key{Name: "a"}, Others: []locks.Key{{Name: "b"}, {Name: "c"}}, TTL: 30 * time.Second}
	with := func(change func(*locks.LockRequest)) locks.LockRequest {
		r := abc
		change(&r)
		return r
	}
	tests := []struct {
		line string
		want locks.LockRequest
		err  string // a part of it
	}{
		{"LOCKALL 3 a b c 30s", abc, ""},
		{"lockall 1 job 30s", locks.LockRequest{Key: locks.Key{Name: "job"}, TTL: 30 * time.Second}, ""},
		{"LOCKALL 3 a b c 30s OWNER me WAIT 5s REQ 1 INFO why", with(func(r *locks.LockRequest) { r.Owner, r.Wait, r.Req, r.Info = "me", 5*time.Second, "1", "why" }), ""},
		{"LOCKALL 3 a b c 30s SHARED OWNER me FRESH", with(func(r *locks.LockRequest) { r.Owner, r.Shared, r.Fresh = "me", true, true }), ""},
		{"LOCKALL 3 a b c 30s SESSION MAXHOLD 1m NOREENTER OWNER me", with(func(r *locks.LockRequest) { r.MaxHold, r.Owner, r.NoReenter = time.Minute, "me", true }), ""},
		{"LOCKALL 2 30s 40s 30s", locks.LockRequest{Key: locks.Key{Name: "30s"}, Others: []locks.Key{{Name: "40s"}}, TTL: 30 * time.Second}, ""},
		{"LOCKALL", locks.LockRequest{}, "ERR wrong number of arguments for 'lockall' command; usage: LOCKALL n name [name ...] ttl"},
		{"LOCKALL 1 a", locks.LockRequest{}, "ERR wrong number of arguments for 'lockall' command"},
		{"LOCKALL a b 30s", locks.LockRequest{}, "ERR 'a' is not a number of names; usage: LOCKALL n name"},
		{"LOCKALL 0 a 30s", locks.LockRequest{}, "ERR '0' is not a number of names"},
		{"LOCKALL -1 a 30s", locks.LockRequest{}, "ERR '-1' is not a number of names"},
		{"LOCKALL +1 a 30s", locks.LockRequest{}, "ERR '+1' is not a number of names"},
		{"LOCKALL 99999999999999999999 a 30s", locks.LockRequest{}, "is not a number of names"},
		{"LOCKALL 9223372036854775807 a 30s", locks.LockRequest{}, "names are over the maximum of 64"},
		{many(65), locks.LockRequest{}, "ERR 65 names are over the maximum of 64"},
		{"LOCKALL 3 a b 30s", locks.LockRequest{}, "ERR fewer arguments than for 3 names; usage: LOCKALL"},
		{"LOCKALL 1 a b 30s", locks.LockRequest{}, "ERR ttl 'b' is not a time"},
		{"LOCKALL 3 a b a 30s", locks.LockRequest{}, "ERR the name 'a' was given twice"},
		{"LOCKALL 2 a " + strings.Repeat("n", locks.MaxName+1) + " 30s", locks.LockRequest{}, "ERR the name of a lock"},
		{"LOCKALL 2 a b 30", locks.LockRequest{}, "write 30s for seconds"},
		{"LOCKALL 2 a b 30s PERMITS 2", locks.LockRequest{}, "ERR LOCKALL takes no PERMITS"},
		{"LOCKALL 2 a b 30s OWNER me REQ 1 WAIT 1s ASYNC", locks.LockRequest{}, "ERR LOCKALL takes no ASYNC"},
		{"LOCKALL 2 a b 30s QUICKLY", locks.LockRequest{}, "ERR unknown option 'QUICKLY'; usage: LOCKALL"},
		{"LOCKALL 2 a b 30s REQ 1", locks.LockRequest{}, "ERR REQ needs OWNER"},
	}
	for _, tt := range tests {
		got, err := l.ParseLockAll(words(tt.line))
		checkParse(t, tt.line, err, tt.err)
		if tt.err == "" && (!reflect.DeepEqual(got.LockRequest, tt.want) || !got.Several) {
			t.Errorf("%s: got %+v, want %+v", tt.line, got, tt.want)
		}
	}
	if a, err := l.ParseLockAll(words(many(64))); err != nil || len(a.Others) != 63 || a.Others[62].Name != "n63" {
		t.Errorf("64 names: %d others, %v", len(a.Others), err)
	}
}

func TestParseReleaseAll(t *testing.T) {
	l := Limits{}.WithDefaults()
	tests := []struct {
		line  string
		names string
		want  Release
		err   string
	}{
		{"RENEWALL 2 a b 30s", "[a b]", Release{TTL: 30 * time.Second}, ""},
		{"RENEWALL 1 a 30s me shared", "[a]", Release{TTL: 30 * time.Second, Owner: "me", Shared: true}, ""},
		{"RENEWALL 2 a b", "", Release{}, "ERR fewer arguments than for 2 names; usage: RENEWALL"},
		{"RENEWALL 2 a a 30s", "", Release{}, "ERR the name 'a' was given twice"},
		{"RENEWALL 2 a b 30", "", Release{}, "write 30s for seconds"},
		{"RENEWALL 2 a b 30s me ALL", "", Release{}, "ERR unknown option 'ALL'; usage: RENEWALL"},
		{"RENEWALL 2 a b 30s me FENCE 7", "", Release{}, "ERR RENEWALL takes no FENCE: each name has one of its own"},
		{"UNLOCKALL 2 a b", "[a b]", Release{}, ""},
		{"UNLOCKALL 2 a b me REQ 1 ALL SHARED", "[a b]", Release{Owner: "me", Req: "1", All: true, Shared: true}, ""},
		{"UNLOCKALL 1 a b", "[a]", Release{Owner: "b"}, ""},
		{"UNLOCKALL 1 a all", "[a]", Release{All: true}, ""},
		{"UNLOCKALL", "", Release{}, "wrong number of arguments for 'unlockall' command; usage: UNLOCKALL"},
		{"UNLOCKALL a b", "", Release{}, "ERR 'a' is not a number of names; usage: UNLOCKALL"},
		{"UNLOCKALL 3 a b", "", Release{}, "ERR fewer arguments than for 3 names"},
		{"UNLOCKALL 2 a b FENCE 7", "", Release{}, "ERR UNLOCKALL takes no FENCE"},
		{"UNLOCKALL 2 a b REQ 7", "", Release{}, "ERR REQ needs OWNER"},
		{"UNLOCKALL 2 a b c d", "", Release{}, "ERR unknown option 'd'; usage: UNLOCKALL"},
		{"UNLOCKALL 2 a b OWNER me", "", Release{}, "ERR unknown option 'me'; the owner is said without the word OWNER; usage: UNLOCKALL"},
	}
	for _, tt := range tests {
		parse := ParseUnlockAll
		if strings.HasPrefix(tt.line, "RENEW") {
			parse = l.ParseRenewAll
		}
		names, got, err := parse(words(tt.line))
		checkParse(t, tt.line, err, tt.err)
		if tt.err == "" && (fmt.Sprint(names) != tt.names || got != tt.want) {
			t.Errorf("%s: got %v, %+v, want %v, %+v", tt.line, names, got, tt.names, tt.want)
		}
	}
}

func TestAppendGrants(t *testing.T) {
	a := locks.Decision{Granted: true, Grant: locks.Grant{Key: locks.Key{Name: "b"}, Owner: "me", Fence: 7, Validity: 3 * time.Second, Holds: 1},
		Others: []locks.Grant{{Key: locks.Key{Name: "a", Reader: "me"}, Owner: "me", Fence: 9, Validity: 2 * time.Second, Holds: 3}}}
	const want = "*4\r\n:2000\r\n$2\r\nme\r\n*3\r\n$1\r\nb\r\n:7\r\n:1\r\n*3\r\n$1\r\na\r\n:9\r\n:3\r\n"
	if got := string(appendGrants(nil, a, time.Time{})); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(appendGrants(nil, a, time.Now().Add(-time.Minute))); !strings.HasPrefix(got, "*4\r\n:0\r\n") {
		t.Errorf("when it is over: %q", got)
	}
	refused := locks.Decision{Holder: "you", Remaining: 1500 * time.Microsecond, Waiters: 3, Of: locks.Key{Name: "a"}}
	if got := string(appendRefusalOf(nil, refused, "", "a")); got != "*5\r\n:0\r\n$0\r\n\r\n:2\r\n:3\r\n$1\r\na\r\n" {
		t.Errorf("refused: %q", got)
	}
}

// says runs a verb and returns its reply in one line, that of an error too.
func says(t *testing.T, c *Client, line string) string {
	t.Helper()
	args := words(line)
	conn := c.conn.(*watchedConn)
	if isLock(args[0]) {
		if err := c.Lock(t.Context(), args, false); err != nil {
			return err.Error()
		}
		return conn.replies[len(conn.replies)-1]
	}
	verb := map[string]Verb{"RENEW": (*Client).Renew, "UNLOCK": (*Client).Unlock, "RENEWALL": (*Client).RenewAll, "UNLOCKALL": (*Client).UnlockAll}[string(args[0])]
	reply, err := c.Do(t.Context(), verb, args)
	b := reply.Now()
	if err != nil {
		if b = AppendError(nil, err); b == nil {
			b = []byte("-" + err.Error())
		}
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

// A saying is a command of a client and what it is told, or the beginning of that.
type saying struct {
	client     int
	line, want string
}

func TestSeveral(t *testing.T) {
	const lost = "the lock is no longer held by this owner; what it protected may be compromised"
	for name, said := range map[string][]saying{
		"without an owner": {
			{0, "LOCKALL 2 a b 30s", "*4 :30000 $26"},
			{0, "RENEWALL 2 b a 20s", ":20000"},
			{1, "UNLOCKALL 2 a b", "-ERR this connection has not taken 'a' without OWNER; UNLOCKALL must name the owner, which LOCK answered"},
			{0, "UNLOCKALL 3 a c b", "-ERR this connection has not taken 'c' without OWNER; UNLOCKALL must name the owner, which LOCK answered"},
			{1, "LOCKALL 2 c b 30s", "*-1"},
			{0, "UNLOCK a", ":1"},
			{0, "UNLOCKALL 2 a b", ":1"}, // again, of one of them
			{0, "UNLOCKALL 2 a b", ":1"},
			{1, "LOCKALL 3 a b c 30s", "*5 :30000"},
			{1, "UNLOCKALL 3 a b c", ":1"},
			{1, "LOCK c 30s", "*4"},
			{1, "UNLOCK c", ":1"},
		},
		"of several LOCKs": {
			{0, "LOCK a 30s", "*4"},
			{0, "LOCK b 30s", "*4"},
			{0, "LOCKALL 2 c d 30s SHARED", "*4"},
			{0, "RENEWALL 4 a c b d 20s", ":20000"},
			{0, "UNLOCKALL 2 a d", ":1"},
			{1, "LOCKALL 2 a d 30s", "*4"},
			{0, "RENEWALL 2 b a 20s", "-NOTOWNER a: another owner holds the lock for 30000ms. The other name was renewed"},
			{0, "UNLOCKALL 2 b c", ":1"},
		},
		"SHARED twice": {
			{0, "LOCK a 30s SHARED", "*4"},
			{0, "LOCKALL 2 a b 30s SHARED", "*4"},
			{0, "UNLOCKALL 2 b a", "-ERR this connection has taken 'a' 2 times; UNLOCKALL must name the owner"},
			{0, "UNLOCKALL 2 b b", "-ERR the name 'b' was given twice"},
			{0, "UNLOCK b", ":1"},
		},
		"some are lost": {
			{0, "LOCKALL 4 a b c d 30s OWNER me", "*6"},
			{1, "UNLOCKALL 2 b d me", ":1"},
			{1, "LOCK d 30s OWNER you", "*4"},
			{0, "RENEWALL 4 a b c d 20s me", "-LOCKLOST b: " + lost + ". NOTOWNER d: another owner holds the lock for 30000ms. The other 2 names were renewed"},
			{0, "UNLOCKALL 2 d b me", ":1"}, // again
			{0, "RENEWALL 1 e 20s me", "-LOCKLOST e: " + lost},
			{0, "RENEWALL 2 e f 20s me", "-LOCKLOST e, f: " + lost},
			{1, "UNLOCKALL 2 a c me", ":1"},
		},
		"holds are left": {
			{0, "LOCKALL 2 a b 30s OWNER me", "*4 :30000 $2 me *3 $1 a :1 :1 *3 $1 b :2 :1"},
			{0, "LOCK a 20s OWNER me", "*4"},
			{1, "LOCKALL 2 b a 30s OWNER me", "*4 :30000 $2 me *3 $1 b :2 :2 *3 $1 a :1 :3"},
			{1, "LOCKALL 2 b c 30s OWNER me NOREENTER RETRYAFTER", "*5 :0 $2 me :30000 :0 $1 b"},
			{0, "UNLOCKALL 2 a b me", ":0"},
			{0, "UNLOCKALL 2 b a me", ":0"},
			{0, "UNLOCK a me", ":1"},
			{0, "LOCKALL 2 a b 30s OWNER me", "*4"},
			{0, "LOCKALL 2 a b 30s OWNER me", "*4"},
			{0, "UNLOCKALL 2 a b me ALL", ":1"},
		},
		"REQ": {
			{0, "LOCKALL 2 a b 30s OWNER me REQ 1", "*4 :30000 $2 me *3 $1 a :1 :1 *3 $1 b :2 :1"},
			{1, "LOCKALL 2 a b 30s OWNER me REQ 1", "*4 :30000 $2 me *3 $1 a :1 :1 *3 $1 b :2 :1"},
			{1, "UNLOCKALL 2 a b me REQ 1", ":1"},
			{1, "UNLOCKALL 2 a b me REQ 1", ":1"},
			{1, "LOCKALL 2 a b 30s OWNER me REQ 1", "*4 :0 $2 me *3 $1 a :1 :0 *3 $1 b :2 :0"},
		},
		"readers": {
			{0, "LOCKALL 2 a b 30s OWNER me SHARED", "*4"},
			{1, "LOCKALL 2 b c 30s OWNER you SHARED", "*4"},
			{1, "LOCKALL 2 a c 30s OWNER w RETRYAFTER", "*5"},
			{0, "UNLOCKALL 2 a b me", "-LOCKLOST a, b: " + lost},
			{0, "RENEWALL 2 a b 20s me SHARED", ":20000"},
			{0, "UNLOCKALL 2 a b me SHARED", ":1"},
		},
		"one is held": {
			{0, "LOCK b 30s OWNER me", "*4"},
			{1, "LOCKALL 3 c b a 20s OWNER you", "*-1"},
			{1, "LOCKALL 3 c b a 20s OWNER you RETRYAFTER", "*5 :0 $2 me :30000 :0 $1 b"},
			{0, "LOCKALL 2 a c 20s OWNER me", "*4"}, // nothing was taken
			{1, "LOCKALL 1 b 20s RETRYAFTER", "*5 :0 $2 me :30000 :0 $1 b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, conns, _ := asyncClients(t, 2, nil)
				for _, conn := range conns {
					conn.proto = 2
				}
				for i, s := range said {
					if got := says(t, c[s.client], s.line); got != s.want && (s.want[0] != '*' || !strings.HasPrefix(got, s.want+" ")) {
						t.Errorf("%d: %s:\ngot  %s\nwant %s", i, s.line, got, s.want)
					}
				}
			})
		})
	}
}

// fates is a Locker that answers by the owner of the locks: how long each is, after how long, and how many holds are left.
type fates struct {
	Locker
	validity map[string]time.Duration
	takes    map[string]time.Duration
	left     map[string]int
}

func (f *fates) RenewAll(_ context.Context, _ []locks.Key, r locks.RenewRequest) (time.Duration, error) {
	time.Sleep(f.takes[r.Owner])
	return f.validity[r.Owner], nil
}

func (f *fates) UnlockAll(_ context.Context, _ []locks.Key, r locks.UnlockRequest) (int, error) {
	return f.left[r.Owner], nil
}

// TestSeveral_OfSeveralOwners: the answer is of all of them: what is left of the shortest when the last one was renewed.
func TestSeveral_OfSeveralOwners(t *testing.T) { synctest.Test(t, ofSeveralOwners) }

func ofSeveralOwners(t *testing.T) {
	f := &fates{validity: map[string]time.Duration{"o1": 3 * time.Second, "o2": 2 * time.Second, "o3": 4 * time.Second, "o5": 4 * time.Second},
		takes: map[string]time.Duration{"o5": 2500 * time.Millisecond}, left: map[string]int{"o1": 0, "o2": 1, "o3": 0}}
	c := New(Options{Locker: f}, slog.New(slog.DiscardHandler)).NewClient(&watchedConn{})
	for name, owner := range map[string]string{"a": "o1", "b": "o2", "c": "o3", "d": "o1", "e": "o5"} {
		c.implicit.Add(locks.Grant{Key: locks.Key{Name: name}, Owner: owner, Fence: 1})
	}
	for line, want := range map[string]string{
		"RENEWALL 3 a b c 5s": ":2000", "RENEWALL 3 c d a 5s": ":3000", "RENEWALL 2 a e 5s": ":500", "RENEWALL 2 e b 5s": ":0",
		"UNLOCKALL 3 a b c": ":0", "UNLOCKALL 3 a c d": ":1", "UNLOCKALL 1 b": ":0",
	} {
		if got := says(t, &c, line); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestSeveral_EndsWaits: UNLOCKALL ends a LOCK with ASYNC that waits, as UNLOCK does.
func TestSeveral_EndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, conns, _ := asyncClients(t, 2, nil)
		says(t, c[0], "LOCK a 30s OWNER first")
		says(t, c[1], "LOCK a 30s OWNER me REQ r WAIT 1m ASYNC")
		says(t, c[1], "UNLOCKALL 2 b a me")
		says(t, c[0], "UNLOCK a first")
		synctest.Wait()
		if len(conns[1].told) != 0 {
			t.Errorf("told %q", conns[1].told)
		}
	})
}

// A deafConn is that of a client that has gone when it is to get a reply.
type deafConn struct{ watchedConn }

func (c *deafConn) Reply([]byte, error) bool { return false }

// TestSeveral_ClientHasLeft: what a client cannot be told of is undone, every name.
func TestSeveral_ClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := asyncClients(t, 2, nil)
		gone := c[0].verbs.NewClient(&deafConn{watchedConn{present: t.Context()}})
		if err := gone.Lock(t.Context(), words("LOCKALL 3 a b c 30s"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := says(t, c[1], "LOCKALL 3 a b c 30s"); !strings.HasPrefix(got, "*5 ") {
			t.Errorf("the next client is told %s", got)
		}
	})
}

// TestSeveral_RequireOwner: with --require-owner none is looked up.
func TestSeveral_RequireOwner(t *testing.T) {
	c := New(Options{RequireOwner: true}, slog.New(slog.DiscardHandler)).NewClient(&watchedConn{})
	if got := says(t, &c, "UNLOCKALL 2 a b"); got != "-ERR this proxy wants UNLOCKALL to name the owner" {
		t.Error(got)
	}
}

// TestSeveralError: the worst comes first, and names with the same fate are together.
func TestSeveralError(t *testing.T) {
	few := &locks.QuorumError{Op: "RENEW", Nodes: 3, Need: 2, Got: 1, Failed: []error{errors.New("n1 timeout")}}
	failed := map[string]error{"a": few, "b": locks.ErrClosed, "c": &locks.NotOwnerError{Remaining: time.Second}, "d": few, "e\r\n": locks.ErrLost}
	err := inOrder([]string{"a", "x", "b", "c", "d", "e\r\n"}, failed, "renewed")
	const want = "-LOCKLOST e  : the lock is no longer held by this owner; what it protected may be compromised. NOTOWNER c: another owner holds the lock for 1000ms. " +
		"NOQUORUM a, d: 1 of 3 answered, 2 needed: n1 timeout. ERR b: the lock service is closed. The other name was renewed\r\n"
	if got := string(AppendError(nil, err)); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
