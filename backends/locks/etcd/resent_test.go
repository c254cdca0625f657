package etcd_test

import (
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

// A lossy stands before a member of etcd. What it passes on is done; the answers to some transactions are lost.
type lossy struct {
	mu    sync.Mutex
	lose  int           // so many answers from now on
	then  func()        // called when one was lost, before the proxy hears of it
	lease time.Duration // how long one takes
}

// slow has leases of etcd take this long.
func (l *lossy) slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease = d
}

// set has the next n answers lost.
func (l *lossy) set(n int, then func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.then = n, then
}

// lossyStore is a Service whose one member is behind a lossy.
func lossyStore(t *testing.T, member *redistest.Etcd) (*locks.Service, *lossy) {
	t.Helper()
	l := &lossy{}
	target, err := url.Parse("http://" + member.Addr())
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/lease/grant") {
			l.mu.Lock()
			slow := l.lease
			l.mu.Unlock()
			time.Sleep(slow)
		}
		if !strings.HasSuffix(r.URL.Path, "/kv/txn") {
			pass.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		l.mu.Lock()
		lost, then := l.lose > 0, l.then
		if lost {
			l.lose--
		}
		l.mu.Unlock()
		if lost {
			if then != nil {
				then()
			}
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	st, err := etcd.New(etcd.Options{Target: etcd.Target{Members: []string{strings.TrimPrefix(front.URL, "http://")}, Prefix: "test"}, NodeTimeout: 10 * time.Second, MaxTTL: 20 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close) // after the Service has ended
	s := serve(t, st)
	lock(t, s, locks.LockRequest{Key: locks.Key{Name: "first"}, Owner: "a"}) // there are a floor and a lease
	return s, l
}

// TestLostAnswers: what was done, and whose answer was lost, is asked again, and is not done twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)
	other := serve(t, newStore(t, member, "test"))
	s, l := lossyStore(t, member[0])

	l.set(2, nil)
	g := lock(t, s, locks.LockRequest{Owner: "a"})
	if g.Holds != 1 {
		t.Errorf("LOCK: %+v", g)
	}
	again := lock(t, other, locks.LockRequest{Owner: "a"})
	if again.Holds != 2 || again.Fence != g.Fence {
		t.Errorf("re-entered: %+v, %d was the fence", again, g.Fence)
	}
	l.set(2, nil)
	unlock(t, s, locks.UnlockRequest{Owner: "a"}, 1)
	l.set(2, nil)
	if v, err := s.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Minute}); err != nil || v < 50*time.Second {
		t.Errorf("RENEW: %v, %v", v, err)
	}
	l.set(2, nil)
	unlock(t, s, locks.UnlockRequest{Owner: "a"}, 0)

	// Another change between the release and its second sending: the UNLOCK gives back one hold, not two.
	lock(t, s, locks.LockRequest{Owner: "a"})
	lock(t, s, locks.LockRequest{Owner: "a"})
	l.set(1, func() { lock(t, other, locks.LockRequest{Owner: "a"}) })
	if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "a"}); err == nil {
		t.Errorf("UNLOCK that may have been done: %d", left)
	}
	if r, err := other.Read(t.Context(), job); err != nil || r.Holds != 2 {
		t.Errorf("%+v, %v, want two holds of three and one given back", r, err)
	}
	// With an id it is known.
	l.set(1, func() { lock(t, other, locks.LockRequest{Owner: "a"}) })
	if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "a", Req: "x"}); err != nil || left != 1 {
		t.Errorf("UNLOCK with an id: %d, %v", left, err)
	}
	// A LOCK that is never answered leaves nothing behind.
	unlock(t, other, locks.UnlockRequest{Owner: "a", All: true}, 0)
	if r, err := s.Read(t.Context(), job); err != nil || r.Held { // so that it is asked for as free
		t.Fatalf("%+v, %v", r, err)
	}
	l.set(1<<30, nil)
	if d, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: "a", TTL: 15 * time.Minute}); err == nil {
		t.Errorf("LOCK: %+v", d)
	}
	l.set(0, nil)
	eventually(t, "it is undone", func() bool {
		r, err := other.Read(t.Context(), job)
		return err == nil && !r.Held
	})
}

// TestLostAnswers_ChangedSince: a LOCK that was done, and whose grant was renewed elsewhere before it was asked again, is one hold.
func TestLostAnswers_ChangedSince(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)
	other := serve(t, newStore(t, member, "test"))
	s, l := lossyStore(t, member[0])
	const ttl = 20 * time.Second
	for i, want := range []int{1, 2, 1} { // it is free, then the owner's, and then dropped
		fresh := i == 2
		l.set(1, func() {
			if _, err := other.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Minute}); err != nil {
				t.Error(err)
			}
		})
		g := lock(t, s, locks.LockRequest{Owner: "a", TTL: ttl, Fresh: fresh})
		if g.Holds != want || g.Validity > ttl-locks.Drift(ttl) {
			t.Errorf("%+v, want %d holds", g, want)
		}
		if r, err := s.Read(t.Context(), job); err != nil || r.Holds != want || r.Fence != g.Fence {
			t.Errorf("%+v, %v, want %d holds, fence %d", r, err, want, g.Fence)
		}
	}
}

// TestLostAnswers_Force: a FORCE that was done says so when it is asked again, and takes nothing from who was granted the name since.
func TestLostAnswers_Force(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)
	other := serve(t, newStore(t, member, "test"))
	s, l := lossyStore(t, member[0])
	lock(t, s, locks.LockRequest{Owner: "a"})
	l.set(1, nil)
	if was, held, err := s.Force(t.Context(), job); err != nil || !held || was.Owner != "a" {
		t.Errorf("FORCE: %+v, %t, %v", was, held, err)
	}
	lock(t, s, locks.LockRequest{Owner: "a"})
	l.set(1, func() { lock(t, other, locks.LockRequest{Owner: "b"}) })
	if was, held, err := s.Force(t.Context(), job); err != nil || !held || was.Owner != "a" {
		t.Errorf("FORCE: %+v, %t, %v", was, held, err)
	}
	if r, err := other.Read(t.Context(), job); err != nil || r.Owner != "b" {
		t.Errorf("%+v, %v, want it held by b", r, err)
	}
}

// TestLearner: where the member that is asked first is a learner, which decides nothing, the next one is asked.
func TestLearner(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)[0]
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"code":9,"message":"etcdserver: rpc not supported for learner"}`))
	}))
	t.Cleanup(front.Close)
	target := etcd.Target{Members: []string{strings.TrimPrefix(front.URL, "http://"), member.Addr()}, Prefix: "test"}
	st, err := etcd.New(etcd.Options{Target: target, NodeTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s, err := locks.New(st, locks.Options{}) // it does not run, and so does not look at members
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	lock(t, s, locks.LockRequest{Owner: "a"})
}

// TestValidityIsCountedFromTheQuestion: time that a slow answer took is not part of it.
func TestValidityIsCountedFromTheQuestion(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)
	s, l := lossyStore(t, member[0])
	const slow = 300 * time.Millisecond
	l.slow(slow) // another lease may have been looked for before that one, and have just enough left
	if g := lock(t, s, locks.LockRequest{Key: locks.Key{Name: "other"}, Owner: "a", TTL: 50 * time.Second}); g.Validity > 50*time.Second-slow-locks.Drift(50*time.Second) {
		t.Errorf("%v, with a slow lease", g.Validity)
	}
	l.slow(0)
	l.set(1, func() { time.Sleep(slow) })
	if g := lock(t, s, locks.LockRequest{Owner: "a", TTL: 30 * time.Second}); g.Validity > 30*time.Second-slow-locks.Drift(30*time.Second) {
		t.Errorf("%v", g.Validity)
	}
	l.set(1, func() { time.Sleep(slow) })
	if v, err := s.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: 30 * time.Second}); err != nil || v > 30*time.Second-slow-locks.Drift(30*time.Second) {
		t.Errorf("%v, %v", v, err)
	}
}
