package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestReplaced: under proxies that run, each member is taken out of etcd and let in again as a new one, which knows nothing. What is held stays so,
// fences go up, and who waits at a proxy that listened to that member is woken.
func TestReplaced(t *testing.T) {
	t.Parallel()
	members := redistest.StartEtcd(t, 3)
	all := func(m ...*redistest.Etcd) string {
		return strings.TrimSuffix(strings.TrimPrefix(redistest.EtcdURL(m, "test"), "etcd://"), "/test")
	}
	holder, waiter := serve(t, storeAt(t, all(members[2], members[1], members[0]), time.Second)), serve(t, storeAt(t, all(members...), time.Second))
	kept := lock(t, holder, locks.LockRequest{Key: locks.Key{Name: "kept"}, Owner: "a", TTL: 15 * time.Minute})
	last := kept.Fence
	for i := range members {
		lock(t, holder, locks.LockRequest{Owner: "a", TTL: 15 * time.Minute})
		waits := inLine(t, waiter, "b")
		if err := members[i].Replace(members[(i+1)%3]); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is given back", func() bool {
			_, err := holder.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "a"})
			return err == nil
		})
		g := soon(t, waits)
		if g.Fence <= last {
			t.Errorf("fence %d after %d", g.Fence, last)
		}
		last = g.Fence
		eventually(t, "it is given back", func() bool {
			_, err := waiter.Unlock(t.Context(), locks.UnlockRequest{Key: job, Owner: "b"})
			return err == nil
		})
	}
	if r, err := waiter.Read(t.Context(), kept.Key); err != nil || r.Owner != "a" || r.Fence != kept.Fence {
		t.Errorf("%+v, %v", r, err)
	}
}
