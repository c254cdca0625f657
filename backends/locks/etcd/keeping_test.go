package etcd_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/etcd"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestEmptied: fences go up also when etcd has lost everything, under proxies that run, and after a move from fences of the clock.
func TestEmptied(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	s := serve(t, newStore(t, members, "test"))
	last := time.Now().UnixMicro() // as a lock node would have told
	for range 2 {
		for range 50 {
			g := lock(t, s, locks.LockRequest{Owner: "a"})
			if g.Fence <= last || g.Fence >= 1<<53 {
				t.Fatalf("fence %d after %d", g.Fence, last)
			}
			last = g.Fence
			unlock(t, s, locks.UnlockRequest{Owner: "a"}, 0)
		}
		empty(t, members[0])
	}
}

// empty has the only member of an etcd lose everything.
func empty(t *testing.T, m *redistest.Etcd) {
	t.Helper()
	m.Kill()
	if err := os.RemoveAll(filepath.Join(m.Dir, "data")); err != nil {
		t.Fatal(err)
	}
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
}

// TestEmptied_SameRevisions: an etcd that was emptied counts its revisions from one. What a proxy remembers of the revisions before decides nothing.
func TestEmptied_SameRevisions(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	s, other := serve(t, newStore(t, members, "test")), serve(t, newStore(t, members, "test"))
	before := lock(t, s, locks.LockRequest{Owner: "a"})
	empty(t, members[0])
	g := lock(t, other, locks.LockRequest{Owner: "b"})
	if g.Fence <= before.Fence {
		t.Errorf("fence %d after %d", g.Fence, before.Fence)
	}
	var held *locks.NotOwnerError
	if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "a"}); !errors.As(err, &held) {
		t.Errorf("UNLOCK of what etcd has lost: %d, %v", left, err)
	}
	if d := refused(t, s, "c"); d.Holder != "b" || d.Fence != g.Fence {
		t.Errorf("refused with %+v, b has %d", d, g.Fence)
	}
	unlock(t, other, locks.UnlockRequest{Owner: "b"}, 0)
	if next := lock(t, s, locks.LockRequest{Owner: "c"}); next.Fence <= g.Fence {
		t.Errorf("fence %d after %d", next.Fence, g.Fence)
	}
}

// TestFence_FromTheFloor: a fence is the floor plus the revisions since that was written, whatever etcd had done before. So a floor that an
// operator has removed is made again above all fences.
func TestFence_FromTheFloor(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)[0]
	call := func(what, body string, answer any) {
		t.Helper()
		ask(t, member, "kv/"+what, body, answer)
	}
	var answer struct {
		Kvs []struct {
			Value []byte
			Mod   int64 `json:"mod_revision,string"`
		}
	}
	for range 20 {
		call("put", `{"key":"eA==","value":"eA=="}`, &answer)
	}
	s := serve(t, newStore(t, []*redistest.Etcd{member}, "test"))
	last := int64(0)
	for range 3 {
		g := lock(t, s, locks.LockRequest{Owner: "a"})
		call("range", `{"key":"dGVzdC9mbG9vcg=="}`, &answer) // test/floor
		value, err := strconv.ParseInt(string(answer.Kvs[0].Value), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		floor := answer.Kvs[0].Mod
		call("range", `{"key":"dGVzdC9sb2NrLw==","range_end":"dGVzdC9sb2NrMA=="}`, &answer) // test/lock/ to test/lock0
		if want := value + answer.Kvs[0].Mod - floor; g.Fence != want || g.Fence <= last {
			t.Errorf("fence %d after %d, want %d", g.Fence, last, want)
		}
		last = g.Fence
		unlock(t, s, locks.UnlockRequest{Owner: "a"}, 0)
		call("deleterange", `{"key":"dGVzdC9mbG9vcg=="}`, &answer)
	}
}

// ask asks a member of etcd.
func ask(t *testing.T, m *redistest.Etcd, what, body string, answer any) {
	t.Helper()
	resp, err := http.Post("http://"+m.Addr()+"/v3/"+what, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %s", what, err, resp.Status)
	}
}

// TestFence_MovedBack: a proxy that starts with an etcd which was used some time ago makes fences above all that were told since, and all proxies
// go on from there.
func TestFence_MovedBack(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	value := strconv.AppendInt(nil, time.Now().Add(-time.Hour).UnixMicro(), 10)
	ask(t, members[0], "kv/put", `{"key":"dGVzdC9mbG9vcg==","value":"`+base64.StdEncoding.EncodeToString(value)+`"}`, &struct{}{}) // test/floor
	told := time.Now().UnixMicro()                                                                                                 // by Redis
	s := []*locks.Service{serve(t, newStore(t, members, "test")), serve(t, newStore(t, members, "test"))}
	if _, err := s[1].Read(t.Context(), job); err != nil { // which shows it the floor as well
		t.Fatal(err)
	}
	for i := range 4 {
		g := lock(t, s[i%2], locks.LockRequest{Owner: "a"})
		if g.Fence <= told {
			t.Errorf("fence %d after %d", g.Fence, told)
		}
		told = g.Fence
		unlock(t, s[1-i%2], locks.UnlockRequest{Owner: "a"}, 0)
	}
}

// TestFence_LateFloor: a floor that a member of etcd writes when the proxy that sent it has long been told otherwise is not written.
func TestFence_LateFloor(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)[0]
	l := &tap{member: member.Addr(), cut: true}
	front := httptest.NewServer(l)
	st, err := etcd.New(etcd.Options{Target: etcd.Target{Members: []string{strings.TrimPrefix(front.URL, "http://")}, Prefix: "test"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close) // after the Service has ended
	if d, err := serve(t, st).Lock(t.Context(), locks.LockRequest{Key: job, Owner: "a", TTL: time.Second}); err == nil {
		t.Fatalf("LOCK: %+v", d)
	}
	var granted struct{ Leases []struct{ ID string } }
	eventually(t, "the leases have ended", func() bool {
		granted.Leases = nil
		ask(t, member, "lease/leases", "{}", &granted)
		return len(granted.Leases) == 0
	})
	if said := l.do(t, l.taken()); !strings.Contains(said, "lease not found") {
		t.Errorf("a late floor: %s", said)
	}
}

// TestFence_Restored: proxies that start with an etcd which was restored from a backup make fences above those that were told since the backup.
func TestFence_Restored(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	data, backup := filepath.Join(members[0].Dir, "data"), filepath.Join(t.TempDir(), "backup")
	s := serve(t, newStore(t, members, "test"))
	last := lock(t, s, locks.LockRequest{Key: locks.Key{Name: "first"}, Owner: "a"}).Fence
	members[0].Kill()
	if err := errors.Join(os.CopyFS(backup, os.DirFS(data)), members[0].Restart()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		last = lock(t, s, locks.LockRequest{Owner: "a"}).Fence
		unlock(t, s, locks.UnlockRequest{Owner: "a"}, 0)
	}
	members[0].Kill()
	if err := errors.Join(os.RemoveAll(data), os.Rename(backup, data), members[0].Restart()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // an etcd is not restored sooner after the start of a proxy
	if g := lock(t, serve(t, newStore(t, members, "test")), locks.LockRequest{Owner: "a"}); g.Fence <= last {
		t.Errorf("fence %d after %d", g.Fence, last)
	}
}

// TestProxyIsGone: a name whose proxy has gone stays locked for its ttl, longer than any short lease of etcd, and is free after that
// for who waits, whatever lease of etcd it is under.
func TestProxyIsGone(t *testing.T) {
	t.Parallel()
	proxyIsGone(t, 8*time.Second)
}

// TestLongestHold: so it is where the owner has entered once more, for a shorter time.
func TestLongestHold(t *testing.T) {
	t.Parallel()
	proxyIsGone(t, 8*time.Second, 200*time.Millisecond)
}

// proxyIsGone has a proxy grant a name for these times, and end without giving it back.
func proxyIsGone(t *testing.T, ttls ...time.Duration) {
	t.Helper()
	members := redistest.StartEtcd(t, 1)
	gone, err := locks.New(newStore(t, members, "test"), locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, newStore(t, members, "test"))
	before := time.Now()
	first := lock(t, gone, locks.LockRequest{Owner: "a", TTL: ttls[0]})
	for _, ttl := range ttls[1:] {
		lock(t, gone, locks.LockRequest{Owner: "a", TTL: ttl})
	}
	d := refused(t, s, "b")
	if err := gone.Run(ended(t)); err != nil {
		t.Fatal(err)
	}
	if d.Remaining > ttls[0]+locks.Drift(ttls[0]) {
		t.Errorf("%v remain", d.Remaining)
	}
	next := lock(t, s, locks.LockRequest{Owner: "b", Wait: 5 * time.Minute})
	if took := time.Since(before); took < first.Validity || next.Fence <= first.Fence {
		t.Errorf("granted after %v, in a validity of %v; fence %d after %d", took, first.Validity, next.Fence, first.Fence)
	}
}

// TestRenewEndless: a lock without an end is kept by another proxy when its own has gone, and ends when max-hold is over, or its owner
// says so.
func TestRenewEndless(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	target, err := etcd.Parse(redistest.EtcdURL(members, "test"))
	if err != nil {
		t.Fatal(err)
	}
	open := func() *etcd.Store {
		st, err := etcd.New(etcd.Options{Target: target, NodeTimeout: 10 * time.Second, MaxTTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	gone, err := locks.New(open(), locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st := open()
	s := serve(t, st)
	if a, err := gone.Lock(t.Context(), locks.LockRequest{Key: job, Owner: "a", Open: true}); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := gone.Run(ended(t)); err != nil {
		t.Fatal(err)
	}
	adopted := 0
	for begin := time.Now(); adopted < 3; time.Sleep(50 * time.Millisecond) {
		f, err := st.RenewEndless(t.Context(), time.Hour)
		if err != nil || f.Missed > 0 || f.Open > 1 || time.Since(begin) > time.Minute {
			t.Fatalf("%+v, %v", f, err)
		}
		adopted += f.Adopted
	}
	refused(t, s, "b")
	eventually(t, "max-hold is over", func() bool {
		f, err := st.RenewEndless(t.Context(), time.Second)
		return err == nil && len(f.Lapsing) == 1
	})
	eventually(t, "it is free", func() bool {
		r, err := s.Read(t.Context(), job)
		return err == nil && !r.Held
	})
	if a, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: "a", Open: true}); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	if f, err := st.RenewEndless(t.Context(), time.Hour); err != nil || f.Open != 0 {
		t.Errorf("a lock that was given an end: %+v, %v", f, err)
	}
}

// TestUsers: a user with a password is let in, again when its token is old; one without rights, or with a wrong password, is
// refused with etcd's reason, and not shown the password.
func TestUsers(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1, "--auth-token-ttl", "1")
	enableUsers(t, members[0])
	user := func(credentials string) *locks.Service {
		target, err := etcd.Parse("etcd://" + credentials + "@" + members[0].Addr() + "/test")
		if err != nil {
			t.Fatal(err)
		}
		st, err := etcd.New(etcd.Options{Target: target, NodeTimeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, st)
	}
	s := user("proxy:p%40ss%3Asecret")
	lock(t, s, locks.LockRequest{Owner: "a"})
	waits := inLine(t, s, "b")
	time.Sleep(3 * time.Second) // the token is too old
	unlock(t, s, locks.UnlockRequest{Owner: "a"}, 0)
	soon(t, waits)
	for credentials, want := range map[string]string{"other:x": "permission denied", "proxy:wrongsecret": "authentication failed"} {
		_, err := user(credentials).Lock(t.Context(), locks.LockRequest{Key: job, Owner: "a", TTL: time.Second})
		if few := (*locks.QuorumError)(nil); !errors.As(err, &few) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", credentials, err)
		}
	}
}

// TestUsers_Enabled: members that no longer let this user in are shown not to vote within seconds, also where nobody asks for a lock.
func TestUsers_Enabled(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 1)
	s := serve(t, newStore(t, members, "test"))
	eventually(t, "it votes", func() bool { return s.Stats().Voting == 1 })
	enableUsers(t, members[0])
	eventually(t, "it refuses", func() bool {
		n := s.Nodes()[0]
		return n.State == locks.NodeRefusing && strings.Contains(n.Brief(), "user name is empty")
	})
}

// enableUsers gives etcd the user proxy, who may use keys of test, and other, who may not.
func enableUsers(t *testing.T, m *redistest.Etcd) {
	t.Helper()
	for _, call := range [][2]string{
		{"auth/user/add", `{"name":"root","password":"rootsecret"}`}, {"auth/role/add", `{"name":"root"}`}, {"auth/user/grant", `{"user":"root","role":"root"}`},
		{"auth/role/add", `{"name":"locks"}`}, {"auth/user/add", `{"name":"proxy","password":"p@ss:secret"}`}, {"auth/user/add", `{"name":"other","password":"x"}`},
		{"auth/role/grant", `{"name":"locks","perm":{"permType":"READWRITE","key":"dGVzdC8=","range_end":"dGVzdDA="}}`}, // test/ to test0
		{"auth/user/grant", `{"user":"proxy","role":"locks"}`}, {"auth/enable", `{}`},
	} {
		ask(t, m, call[0], call[1], &struct{}{})
	}
}

// behindFront is a store with a user, and a server between it and a member that sees each request first. Looks at the member do not pass: they
// would log in.
func behindFront(t *testing.T, member *redistest.Etcd, timeout time.Duration, see func(*http.Request)) (*etcd.Store, *httptest.Server) {
	t.Helper()
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: member.Addr()})
	pass.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if see(r); strings.HasSuffix(r.URL.Path, "/kv/range") {
			panic(http.ErrAbortHandler)
		}
		pass.ServeHTTP(w, r)
	}))
	target, err := etcd.Parse("etcd://proxy:p%40ss%3Asecret@" + strings.TrimPrefix(front.URL, "http://") + "/test")
	if err != nil {
		t.Fatal(err)
	}
	st, err := etcd.New(etcd.Options{Target: target, NodeTimeout: timeout, MaxTTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close) // after the Service has ended
	return st, front
}

// TestUsers_OneLogsIn: where a token has become too old, many LOCKs at once do not each log in, which etcd could not bear.
func TestUsers_OneLogsIn(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1, "--auth-token-ttl", "1")[0]
	enableUsers(t, member)
	var logins atomic.Int64
	st, _ := behindFront(t, member, 10*time.Second, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/auth/authenticate") {
			logins.Add(1)
		}
	})
	s := serve(t, st)
	lock(t, s, locks.LockRequest{Owner: "a", TTL: time.Hour}) // there is a lease of etcd for all
	time.Sleep(3 * time.Second)                               // the token is too old
	before := logins.Load()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			k := locks.Key{Name: strconv.Itoa(i)}
			if d, err := s.Lock(t.Context(), locks.LockRequest{Key: k, Owner: "a", TTL: time.Hour}); err != nil || !d.Granted {
				t.Errorf("LOCK: %+v, %v", d, err)
			}
		})
	}
	all.Wait()
	if n := logins.Load() - before; n > 30 {
		t.Errorf("%d logins for 100 LOCKs", n)
	}
}
