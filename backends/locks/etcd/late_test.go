package etcd_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// A tap stands before a member of etcd, and keeps the last change of a lock that came by, for a member that does it late.
type tap struct {
	member string
	mu     sync.Mutex
	last   []byte
	cut    bool // changes are kept, and not passed on
}

func (l *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := &url.URL{Scheme: "http", Host: l.member}
	if body, err := io.ReadAll(r.Body); err == nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		if strings.HasSuffix(r.URL.Path, "/kv/txn") && bytes.Contains(body, []byte(`"request_put"`)) {
			l.mu.Lock()
			l.last = body
			cut := l.cut
			l.mu.Unlock()
			if cut {
				panic(http.ErrAbortHandler)
			}
		}
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.FlushInterval = -1
	pass.ServeHTTP(w, r)
}

func (l *tap) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

// taken is the last change.
func (l *tap) taken() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// do has etcd do a change, and returns what it answers.
func (l *tap) do(t *testing.T, change []byte) string {
	t.Helper()
	resp, err := http.Post("http://"+l.member+"/v3/kv/txn", "application/json", bytes.NewReader(change))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tapped is a Service whose one member is behind a tap.
func tapped(t *testing.T, member *redistest.Etcd) (*locks.Service, *etcd.Store, *tap) {
	t.Helper()
	l := &tap{member: member.Addr()}
	front := httptest.NewServer(l)
	st, err := etcd.New(etcd.Options{Target: etcd.Target{Members: []string{strings.TrimPrefix(front.URL, "http://")}, Prefix: "test"}, NodeTimeout: 2 * time.Second, MaxTTL: 20 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close) // after the Service has ended
	s := serve(t, st)
	lock(t, s, locks.LockRequest{Key: locks.Key{Name: "first"}, Owner: "a"}) // there are a floor and a lease
	return s, st, l
}

// revokeAll revokes all leases of an etcd.
func revokeAll(t *testing.T, m *redistest.Etcd) {
	t.Helper()
	var all struct{ Leases []struct{ ID string } }
	ask(t, m, "lease/leases", "{}", &all)
	for _, l := range all.Leases {
		ask(t, m, "lease/revoke", fmt.Sprintf(`{"ID":%q}`, l.ID), &struct{}{})
	}
}

// TestLateLock_Revoked: a LOCK that was not answered is undone soon, though the leases that this takes have been revoked.
func TestLateLock_Revoked(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)
	s, st, l := tapped(t, member[0])
	for range 2 {
		l.setCut(true)
		if d, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: "a", TTL: 15 * time.Minute}); err == nil {
			t.Fatalf("LOCK: %+v", d)
		}
		revokeAll(t, member[0])
		l.setCut(false)
		eventually(t, "it is undone", st.Idle)
	}
}

// TestLateLock_EtcdStaysAway: nobody tries for longer than its lease to undo a LOCK that etcd did not answer, however long max-ttl is.
func TestLateLock_EtcdStaysAway(t *testing.T) {
	t.Parallel()
	s, st, l := tapped(t, redistest.StartEtcd(t, 1)[0])
	l.setCut(true)
	if d, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: "a", TTL: time.Second}); err == nil {
		t.Fatalf("LOCK: %+v", d)
	}
	if st.Idle() {
		t.Error("it is not tried")
	}
	eventually(t, "it is given up", st.Idle)
	if n := st.Stats().Undos; n != 1 {
		t.Errorf("%d undone", n)
	}
}

// TestLateLock: a LOCK that a member of etcd does when it is over gives nobody the name, until its lease has ended, and etcd refuses it for that.
func TestLateLock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *locks.Service, *locks.Service, *etcd.Store, *tap) []byte{
		"given back": func(t *testing.T, s, _ *locks.Service, _ *etcd.Store, l *tap) []byte {
			lock(t, s, locks.LockRequest{Owner: "a", TTL: 8 * time.Second})
			change := l.taken()
			unlock(t, s, locks.UnlockRequest{Owner: "a"}, 0)
			return change
		},
		"given back by another, and no owner named": func(t *testing.T, s, other *locks.Service, _ *etcd.Store, l *tap) []byte {
			g := lock(t, s, locks.LockRequest{TTL: 8 * time.Second})
			change := l.taken()
			unlock(t, other, locks.UnlockRequest{Owner: g.Owner}, 0)
			return change
		},
		"forced": func(t *testing.T, s, other *locks.Service, _ *etcd.Store, l *tap) []byte {
			lock(t, s, locks.LockRequest{Owner: "a", TTL: 8 * time.Second})
			change := l.taken()
			if _, held, err := other.Force(t.Context(), job); err != nil || !held {
				t.Fatalf("FORCE: %v, %v", held, err)
			}
			return change
		},
		"refused": func(t *testing.T, s, other *locks.Service, _ *etcd.Store, l *tap) []byte {
			lock(t, other, locks.LockRequest{Owner: "b"})
			refused(t, s, "a")
			change := l.taken()
			unlock(t, other, locks.UnlockRequest{Owner: "b"}, 0)
			return change
		},
		"not answered": func(t *testing.T, s, _ *locks.Service, st *etcd.Store, l *tap) []byte {
			l.setCut(true)
			if d, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: "a", TTL: 8 * time.Second}); err == nil {
				t.Fatalf("LOCK: %+v", d)
			}
			change := l.taken()
			l.setCut(false)
			eventually(t, "it is undone", st.Idle)
			return change
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			member := redistest.StartEtcd(t, 1)
			other := serve(t, newStore(t, member, "test"))
			s, st, l := tapped(t, member[0])
			change := test(t, s, other, st, l)
			eventually(t, "etcd cannot do it any more", func() bool {
				said := l.do(t, change)
				if r, err := other.Read(t.Context(), job); err != nil || r.Held {
					t.Fatalf("%s has the name, %v; etcd said %s", r.Owner, err, said)
				}
				return strings.Contains(said, "lease not found")
			})
		})
	}
}
