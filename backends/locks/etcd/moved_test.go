package etcd_test

import (
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

// A sign is an address at which another member of etcd may come to be.
type sign struct {
	addr   string
	leads  atomic.Pointer[redistest.Etcd]
	server *httptest.Server
}

func newSign(member *redistest.Etcd) *sign {
	s := &sign{}
	s.leads.Store(member)
	pass := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: s.leads.Load().Addr()})
	}}
	s.server = httptest.NewServer(http.HandlerFunc(pass.ServeHTTP))
	s.addr = strings.TrimPrefix(s.server.URL, "http://")
	return s
}

// TestMoved: a member that has become one of another cluster grants nothing from that moment on, and is shown not to vote; when most members
// have, locks are kept there.
func TestMoved(t *testing.T) {
	t.Parallel()
	before, then := redistest.StartEtcd(t, 3), redistest.StartEtcd(t, 3)
	target := etcd.Target{Prefix: "test"}
	var signs []*sign
	for _, m := range before {
		signs = append(signs, newSign(m))
		target.Members = append(target.Members, signs[len(signs)-1].addr)
	}
	st, err := etcd.New(etcd.Options{Target: target, NodeTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range signs {
		t.Cleanup(s.server.Close) // after the Service has ended
	}
	s, other := serve(t, st), serve(t, newStore(t, before, "test"))
	for _, name := range []string{"job", "b", "c", "d"} {
		lock(t, other, locks.LockRequest{Key: locks.Key{Name: name}, Owner: "a"})
	}
	eventually(t, "all vote", func() bool { return st.Stats().Voting == 3 })
	refused(t, s, "b") // there are a floor and a lease
	signs[0].leads.Store(then[0])
	for _, name := range []string{"job", "b", "c", "d"} {
		d, err := s.Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: name}, Owner: "b", TTL: 30 * time.Second})
		if err != nil || d.Holder != "a" {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	lock(t, s, locks.LockRequest{Key: locks.Key{Name: "e"}, Owner: "b", TTL: 20 * time.Second})
	if r, err := other.Read(t.Context(), locks.Key{Name: "e"}); err != nil || r.Owner != "b" {
		t.Errorf("%+v, %v", r, err)
	}
	eventually(t, "it is shown", func() bool {
		n := st.Nodes()
		return n[0].State == locks.NodeRefusing && strings.Contains(n[0].Brief(), "cluster") && n[1].Ready() && n[2].Ready()
	})
	refused(t, s, "b")
	signs[1].leads.Store(then[1])
	signs[2].leads.Store(then[2])
	eventually(t, "all vote", func() bool { return st.Stats().Voting == 3 })
	lock(t, s, locks.LockRequest{Owner: "b"})
	if d := refused(t, serve(t, newStore(t, then, "test")), "c"); d.Holder != "b" {
		t.Errorf("%+v", d)
	}
}
