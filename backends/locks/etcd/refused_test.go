package etcd_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// storeAt is a Store whose one member is at an address, perhaps with user:password@ in front.
func storeAt(t *testing.T, member string, timeout time.Duration) *etcd.Store {
	t.Helper()
	target, err := etcd.Parse("etcd://" + member + "/test")
	if err != nil {
		t.Fatal(err)
	}
	st, err := etcd.New(etcd.Options{Target: target, NodeTimeout: timeout, MaxTTL: 20 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// TestRefused_NothingToUndo: a LOCK that was not written leaves nothing to do: else that is tried again for max-ttl, and more of it comes with each.
func TestRefused_NothingToUndo(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1, "--max-request-bytes", "4000")[0]
	large := storeAt(t, member.Addr(), 10*time.Second)
	larger := serve(t, large)
	lock(t, larger, locks.LockRequest{Key: locks.Key{Name: "first"}, Owner: "a"}) // there are a floor and a lease
	refuses := func(what string, st *etcd.Store, s *locks.Service, name string) {
		t.Helper()
		r := locks.LockRequest{Key: locks.Key{Name: name}, Owner: "a", TTL: 30 * time.Second}
		for _, r.Others = range [][]locks.Key{nil, {{Name: "second"}}} {
			if d, err := s.Lock(t.Context(), r); err == nil {
				t.Fatalf("%s: %+v", what, d)
			} else if n := st.Stats().Undos; n != 0 || !st.Idle() {
				t.Errorf("%s: %d undone after %v", what, n, err)
			}
		}
	}
	refuses("too large", large, larger, strings.Repeat("x", 3000))
	nobody := storeAt(t, redistest.Reserve(t).Addr(), time.Second)
	refuses("nobody is there", nobody, serve(t, nobody), "job")
	enableUsers(t, member)
	for _, user := range []string{"", "other:x@", "proxy:wrong@"} {
		st := storeAt(t, user+member.Addr(), 10*time.Second)
		refuses(user, st, serve(t, st), "job")
	}
	refuses("users were enabled", large, larger, "job")
}

// TestRefused_AskedSeldom: who cannot reach etcd asks again, later each time: 1,000 clients that wait would keep it down with 50 handshakes a
// second each.
func TestRefused_AskedSeldom(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var dials atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			_, _ = http.ReadRequest(bufio.NewReader(c))
			_ = c.Close()
		}
	}()
	began := time.Now()
	_, err = storeAt(t, l.Addr().String(), 2*time.Second).Read(t.Context(), locks.Key{Name: "job"})
	n, took := dials.Load(), time.Since(began)
	if most := 6 + int64(took/(250*time.Millisecond)); n < 2 || n > most {
		t.Errorf("asked %d times in %v, want at most %d", n, took, most)
	}
	saysWhy(t, err, l.Addr().String()+" connection closed")
	closed := redistest.Reserve(t).Addr()
	_, err = storeAt(t, closed, time.Second).Read(t.Context(), locks.Key{Name: "job"})
	saysWhy(t, err, closed+" connection refused")
}

// saysWhy checks that an error names the reason, not that the time in which it was asked again and again is over.
func saysWhy(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}

// TestRefused_NoSpace: an etcd that has no space left also says so where it has written, so a LOCK is undone that was told so; and where it was not
// written, that takes no space.
func TestRefused_NoSpace(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1, "--quota-backend-bytes", "400000")[0]
	var written atomic.Bool
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: member.Addr()})
	pass.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/kv/txn") || !written.CompareAndSwap(true, false) {
			pass.ServeHTTP(w, r)
			return
		}
		pass.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"code":8,"message":"etcdserver: mvcc: database space exceeded"}`)
	}))
	st := storeAt(t, strings.TrimPrefix(front.URL, "http://"), 10*time.Second)
	t.Cleanup(front.Close) // after the Service has ended
	s, other := serve(t, st), serve(t, storeAt(t, member.Addr(), 10*time.Second))
	r := locks.LockRequest{Key: locks.Key{Name: "first"}, Owner: "a", TTL: 10 * time.Minute}
	lock(t, s, r) // there are a floor and a lease
	r.Key = job
	without := func(what string) {
		t.Helper()
		if d, err := s.Lock(t.Context(), r); err == nil || !strings.Contains(err.Error(), "space") {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
		eventually(t, what+": it is free, and nothing is left to do", func() bool {
			read, err := other.Read(t.Context(), job)
			return err == nil && !read.Held && st.Idle()
		})
	}
	written.Store(true)
	without("written")
	for full := false; !full; {
		resp, err := http.Post("http://"+member.Addr()+"/v3/kv/put", "", strings.NewReader(`{"key":"eA==","value":"`+strings.Repeat("eHh4", 8000)+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		full = resp.StatusCode != http.StatusOK
	}
	without("not written")
}
