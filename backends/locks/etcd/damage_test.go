package etcd_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// write puts a key into etcd, as an operator or another program would.
func write(t *testing.T, m *redistest.Etcd, key, value string) {
	t.Helper()
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	ask(t, m, "kv/put", fmt.Sprintf(`{"key":%q,"value":%q}`, text(key), text(value)), &struct{}{})
}

// TestDamaged_Keys: keys of other programs below the prefix hide no name from LIST, and one that cannot be read does not keep the others from being
// renewed.
func TestDamaged_Keys(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	st := newStore(t, members, "test")
	s := serve(t, st)
	lock(t, s, locks.LockRequest{Owner: "a", Open: true})
	for i := range 25 {
		write(t, members[0], fmt.Sprint("test/lock/", i), "theirs")
		write(t, members[0], fmt.Sprintf("test/lock/0000000000000000/0:%d", i), "{}")
		write(t, members[0], fmt.Sprintf("test/lock/program-with-names/%d", i), "theirs")
	}
	r, held := locks.ListRequest{Count: 4}, 0
	for cursor := ""; cursor != "0"; r.Cursor = cursor {
		l, err := s.List(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		held, cursor = held+len(l.Held), l.Cursor
	}
	if held != 1 {
		t.Errorf("%d names are listed", held)
	}
	lock(t, s, locks.LockRequest{Key: locks.Key{Name: "damaged"}, Owner: "a"})
	write(t, members[0], keyOf(t, members[0], "damaged"), "theirs")
	f, err := st.RenewEndless(t.Context(), time.Hour)
	if f.Open != 1 || err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := s.List(t.Context(), locks.ListRequest{}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("LIST: %v", err)
	}
}

// keyOf is the key in etcd of a name that is held.
func keyOf(t *testing.T, m *redistest.Etcd, name string) string {
	t.Helper()
	var all struct{ Kvs []struct{ Key []byte } }
	ask(t, m, "kv/range", `{"key":"dGVzdC9sb2NrLw==","range_end":"dGVzdC9sb2NrMA==","keys_only":true}`, &all) // test/lock/ to test/lock0
	for _, kv := range all.Kvs {
		if strings.HasSuffix(string(kv.Key), ":"+name) {
			return string(kv.Key)
		}
	}
	t.Fatal("there is no key of " + name)
	return ""
}

// TestDamaged_Floor: fences go up whatever somebody writes in place of what they begin above.
func TestDamaged_Floor(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	s := []*locks.Service{serve(t, newStore(t, members, "test")), serve(t, newStore(t, members, "test"))}
	last := int64(0)
	for _, value := range []string{"", "1000", "theirs", "9223372036854775807", "-9223372036854775808"} {
		write(t, members[0], "test/floor", value)
		for i := range 4 {
			g := lock(t, s[i%2], locks.LockRequest{Owner: "a"})
			if g.Fence <= last || g.Fence >= 1<<53 {
				t.Fatalf("floor %q: fence %d after %d", value, g.Fence, last)
			}
			last = g.Fence
			unlock(t, s[i%2], locks.UnlockRequest{Owner: "a"}, 0)
		}
	}
}

// TestRevoked: what an operator revokes the lease of is gone; a proxy does not go on to use that lease.
func TestRevoked(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	s := serve(t, newStore(t, members, "test"))
	before := lock(t, s, locks.LockRequest{Owner: "a"})
	post := func() {
		t.Helper()
		all, err := s.Post(t.Context(), locks.PostRequest{Notice: locks.Notice{ID: "p", Text: "x"}, Keep: time.Hour})
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
	}
	post()
	revokeAll(t, members[0])
	post()
	if g := lock(t, s, locks.LockRequest{Owner: "b"}); g.Fence <= before.Fence {
		t.Errorf("fence %d after %d", g.Fence, before.Fence)
	}
	if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "a"}); err == nil {
		t.Error("the owner is not told")
	}
}

// TestUsers_Watch: a watch that is opened with a token that has become too old is opened again with another one, though nothing else logs in.
func TestUsers_Watch(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1, "--auth-token-ttl", "1")[0]
	enableUsers(t, member)
	var old, current atomic.Value
	old.Store("")
	current.Store("")
	let := make(chan struct{})
	st, front := behindFront(t, member, time.Minute, func(r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/watch"):
			current.Store(r.Header.Get("Authorization"))
		case strings.HasSuffix(r.URL.Path, "/kv/txn") && old.Load() != "":
			<-let
		}
	})
	t.Cleanup(func() { close(let) })
	s := serve(t, st)
	lock(t, s, locks.LockRequest{Owner: "a", TTL: time.Hour})
	inLine(t, s, "b")
	eventually(t, "it watches", func() bool { return current.Load() != "" })
	old.Store(current.Load())   // no LOCK logs in from now on
	time.Sleep(3 * time.Second) // the token is too old
	front.CloseClientConnections()
	eventually(t, "it watches with another token", func() bool { return current.Load() != old.Load() })
}
