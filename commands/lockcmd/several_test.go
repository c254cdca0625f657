package lockcmd

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
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
