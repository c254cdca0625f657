package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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

// TestList: every name that is held is listed once, a part at a time, at either proxy; others are not.
func TestList(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	want := map[string]bool{}
	for i := range 25 {
		k := locks.Key{DB: i % 2, Name: fmt.Sprintf("name:%d", i)}
		lock(t, s[0], locks.LockRequest{Key: k, Owner: "a", Info: "text"})
		if k.DB == 0 && strings.Contains(k.Name, "1") {
			want[k.Name] = true
		}
	}
	lock(t, s[0], locks.LockRequest{Key: locks.Key{Name: "name:1000"}, Owner: "a"})
	if _, err := s[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "name:1000"}, Owner: "a"}); err != nil {
		t.Fatal(err)
	}
	r := locks.ListRequest{Match: "n?me:*1*", Count: 4}
	for turn := 0; ; turn++ {
		l, err := s[turn%2].List(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range l.Held {
			if !want[h.Name] || h.Owner != "a" || h.Info != "text" || h.Holds != 1 || h.Remaining <= 0 || h.Fence == 0 {
				t.Errorf("listed %+v", h)
			}
			delete(want, h.Name)
		}
		if r.Cursor = l.Cursor; l.Cursor == "0" {
			if turn < 5 {
				t.Errorf("all in %d calls", turn+1)
			}
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	if _, err := s[0].List(t.Context(), locks.ListRequest{Cursor: "12"}); !errors.As(err, new(*locks.CursorError)) {
		t.Errorf("a cursor of another store: %v", err)
	}
	names, complete, err := s[0].Names(t.Context(), locks.NamesRequest{DB: locks.AllDBs})
	if err != nil || !complete || len(names) != 25 {
		t.Errorf("%d names, %t, %v", len(names), complete, err)
	}
	held, err := s[1].Holdings(t.Context(), append(names, job))
	if err != nil || len(held) != 25 {
		t.Errorf("%d holdings, %v", len(held), err)
	}
}

// TestInspectAndForce: a name is shown with its holds and the members; FORCE takes it away from exactly the grant that is
// named, and its owner is told that it is lost.
func TestInspectAndForce(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	if in, err := s[0].Inspect(t.Context(), job); err != nil || in.Held {
		t.Errorf("%+v, %v", in, err)
	}
	lock(t, s[0], locks.LockRequest{Owner: "a", TTL: 30 * time.Second})
	g := lock(t, s[1], locks.LockRequest{Owner: "a", TTL: 50 * time.Second})
	eventually(t, "the member is seen", func() bool { return s[1].Nodes()[0].Ready() })
	in, err := s[1].Inspect(t.Context(), job)
	if err != nil || !in.Held || in.Holding.Owner != "a" || in.Holding.Holds != 2 || len(in.Each) != 2 || in.Need != 1 ||
		in.Each[0].Left > 31*time.Second || in.Each[1].Left < 31*time.Second || in.Nodes[0].Fence != g.Fence || in.Holding.Remaining < 31*time.Second {
		t.Errorf("%+v, %v", in, err)
	}
	if _, held, err := s[0].ForceGrant(t.Context(), job, g.Fence+1); !errors.As(err, new(*locks.OtherGrantError)) || held {
		t.Errorf("FORCE of another grant: %t, %v", held, err)
	}
	lostTo := make(chan locks.Loss, 1)
	session := s[1].NewSession(func(l locks.Loss) { lostTo <- l })
	lock(t, s[1], locks.LockRequest{Owner: "a", TTL: 50 * time.Second, Session: session})
	if was, held, err := s[0].ForceGrant(t.Context(), job, g.Fence); err != nil || !held || was.Owner != "a" || was.Holds != 3 {
		t.Errorf("FORCE: %+v, %t, %v", was, held, err)
	}
	select {
	case l := <-lostTo:
		if l.Fence != g.Fence {
			t.Errorf("told of %+v", l)
		}
	case <-time.After(time.Minute):
		t.Error("the session at the other proxy was not told")
	}
	lost(t, s[0], locks.UnlockRequest{Owner: "a"})
	lost(t, s[0], locks.UnlockRequest{Owner: "a", Fence: g.Fence})
	if _, held, err := s[0].Force(t.Context(), job); err != nil || held {
		t.Errorf("FORCE of a free name: %t, %v", held, err)
	}
	if next := lock(t, s[0], locks.LockRequest{Owner: "a"}); next.Fence <= g.Fence {
		t.Errorf("fence %d after %d", next.Fence, g.Fence)
	}
}

// TestRequests: a LOCK and an UNLOCK with an id are done once, whichever proxy they are sent to, also when the lock was given
// back meanwhile.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	g := lock(t, s[0], locks.LockRequest{Owner: "a", Req: "x"})
	if again := lock(t, s[1], locks.LockRequest{Owner: "a", Req: "x"}); again.Fence != g.Fence || again.Holds != 1 {
		t.Errorf("sent again: %+v", again)
	}
	if other := lock(t, s[1], locks.LockRequest{Owner: "a", Req: "y"}); other.Holds != 2 {
		t.Errorf("another request: %+v", other)
	}
	unlock(t, s[0], locks.UnlockRequest{Owner: "a", Req: "x"}, 1)
	unlock(t, s[1], locks.UnlockRequest{Owner: "a", Req: "x"}, 1)
	late := lock(t, s[1], locks.LockRequest{Owner: "a", Req: "x"})
	if late.Fence != g.Fence || late.Holds != 0 || late.Validity != 0 {
		t.Errorf("the LOCK after its UNLOCK: %+v", late)
	}
	unlock(t, s[1], locks.UnlockRequest{Owner: "a", Req: "y"}, 0)
	unlock(t, s[0], locks.UnlockRequest{Owner: "a", Req: "x"}, 1)
	next := lock(t, s[0], locks.LockRequest{Owner: "b", Req: "x"}) // ids are an owner's
	unlock(t, s[1], locks.UnlockRequest{Owner: "a", Req: "y"}, 0)
	if late := lock(t, s[0], locks.LockRequest{Owner: "a", Req: "y"}); late.Holds != 0 || late.Fence != g.Fence {
		t.Errorf("the LOCK of a request that is over, while another owner has the name: %+v", late)
	}
	if next.Fence <= g.Fence {
		t.Errorf("fence %d after %d", next.Fence, g.Fence)
	}
	// A request whose lease ended by itself is done anew.
	unlock(t, s[0], locks.UnlockRequest{Owner: "b"}, 0)
	lock(t, s[0], locks.LockRequest{Owner: "c", Req: "z", TTL: 2 * time.Second})
	eventually(t, "the lease has ended", func() bool {
		r, err := s[1].Read(t.Context(), job)
		return err == nil && !r.Held
	})
	if anew := lock(t, s[1], locks.LockRequest{Owner: "c", Req: "z"}); anew.Holds != 1 {
		t.Errorf("done anew: %+v", anew)
	}
	unlock(t, s[0], locks.UnlockRequest{Owner: "c", Req: "z"}, 0)
}

// TestNoQuorum: without a majority of members every answer is that there is none, and never that another owner has the name.
func TestNoQuorum(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 3)
	s := serve(t, newImpatientStore(t, members, "test"))
	g := lock(t, s, locks.LockRequest{Owner: "a", TTL: time.Minute})
	members[0].Kill()
	eventually(t, "two members go on", func() bool {
		_, err := s.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Minute})
		return err == nil
	})
	members[1].Pause()
	eventually(t, "no member is shown to vote", func() bool { return s.Stats().Voting == 0 })
	var few *locks.QuorumError
	for name, err := range map[string]error{
		"LOCK": func() error {
			_, err := s.Lock(t.Context(), locks.LockRequest{Key: job, Owner: "b", TTL: time.Second})
			return err
		}(),
		"RENEW": func() error {
			_, err := s.Renew(t.Context(), locks.RenewRequest{Key: job, Owner: "a", TTL: time.Minute}) // it may be done later
			return err
		}(),
		"UNLOCK": func() error { _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "b"}); return err }(),
		"INFO":   func() error { _, err := s.Inspect(t.Context(), job); return err }(),
		"LIST":   func() error { _, err := s.List(t.Context(), locks.ListRequest{}); return err }(),
	} {
		if !errors.As(err, &few) || few.Nodes != 3 || few.Need != 2 || len(few.Failed) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	members[1].Resume()
	eventually(t, "it goes on", func() bool {
		left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "a", Fence: g.Fence})
		return err == nil && left == 0
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	one, other := redistest.StartEtcd(t, 1), redistest.StartEtcd(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := serve(t, newStore(t, one, "test")).Check(ctx); err != nil {
		t.Error(err)
	}
	if err := serve(t, newStore(t, append(one, other...), "test")).Check(ctx); err == nil || !strings.Contains(err.Error(), "different etcd clusters") {
		t.Errorf("two clusters: %v", err)
	}
	_, port, _ := strings.Cut(one[0].Addr(), ":")
	target, err := etcd.Parse("etcd://127.0.0.1:" + port + ",localhost:" + port)
	if err != nil {
		t.Fatal(err)
	}
	st, err := etcd.New(etcd.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(t, st).Check(ctx); err == nil || !strings.Contains(err.Error(), "the same member") {
		t.Errorf("a member named twice: %v", err)
	}
}

func TestPost(t *testing.T) {
	t.Parallel()
	s := start(t, 2)
	post := func(i int, text string) []locks.Notice {
		t.Helper()
		all, err := s[i].Post(t.Context(), locks.PostRequest{Notice: locks.Notice{ID: fmt.Sprint("p", i), Text: text}, Keep: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := post(0, "one"); len(all) != 1 || all[0].Text != "one" || all[0].ID != "p0" {
		t.Errorf("%+v", all)
	}
	if all := post(1, "two"); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	if all := post(0, ""); len(all) != 1 || all[0].ID != "p1" {
		t.Errorf("%+v", all)
	}
}

// TestMembersAreSeen_WhileBusy: a member is looked at also while LOCKs have all connections to it that they may have, so that it does not seem to be down.
func TestMembersAreSeen_WhileBusy(t *testing.T) {
	t.Parallel()
	member := redistest.StartEtcd(t, 1)[0]
	const most = 128
	var changes, looks atomic.Int64
	var busy atomic.Bool
	let := make(chan struct{})
	pass := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: member.Addr()})
	pass.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/kv/txn") && busy.Load():
			changes.Add(1)
			<-let
			changes.Add(-1)
		case strings.HasSuffix(r.URL.Path, "/status") && changes.Load() == most:
			looks.Add(1)
		}
		pass.ServeHTTP(w, r)
	}))
	st, err := etcd.New(etcd.Options{Target: etcd.Target{Members: []string{strings.TrimPrefix(front.URL, "http://")}, Prefix: "test"}, NodeTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close) // after the Service has ended
	s := serve(t, st)
	lock(t, s, locks.LockRequest{Owner: "a"}) // there are a floor and a lease
	busy.Store(true)
	var all sync.WaitGroup
	for i := range 2 * most {
		all.Go(func() {
			k := locks.Key{Name: strconv.Itoa(i)}
			if d, err := s.Lock(t.Context(), locks.LockRequest{Key: k, Owner: "a", TTL: time.Minute}); err != nil || !d.Granted {
				t.Errorf("LOCK: %+v, %v", d, err)
			}
		})
	}
	defer all.Wait()
	defer close(let)
	eventually(t, "it is looked at", func() bool { return looks.Load() > 2 })
}
