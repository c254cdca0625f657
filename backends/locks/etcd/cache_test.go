package etcd

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// TestMemory_EmptiedEtcd: what an etcd shows that counts its revisions anew is newer than what it showed before, so that the end of a hold is counted from
// when it was first seen.
func TestMemory_EmptiedEtcd(t *testing.T) {
	s := &Store{cache: newCache(10, nil)}
	k := locks.Key{Name: "job"}
	see := func(id string, at int64, now time.Duration) *view {
		v := &view{now: now}
		s.cache.learn(k, &record{Owner: []byte("a"), Holds: []hold{{ID: id, TTL: 10_000}}}, at, at, nil, v)
		return v
	}
	s.learnFloor(&keyValue{Value: []byte("1000000"), Mod: 2})
	see("before", 5000, time.Minute)
	s.learnFloor(&keyValue{Value: []byte("2000000"), Mod: 3})
	first := see("after", 7, 2*time.Minute)
	again := see("after", 9, 2*time.Minute+time.Second)
	if len(first.holds) != 1 || len(again.holds) != 1 || first.holds[0].end != again.holds[0].end {
		t.Errorf("%+v, and a second later %+v", first.holds, again.holds)
	}
	if old := see("before", 8, 2*time.Minute); s.cache.view(k, old.now).rec.Holds[0].ID != "after" {
		t.Error("an answer that came late is remembered")
	}
}

// TestExpiry_Forgotten: nothing is kept of a lock that was given back, however long its lease was, and of one that was renewed only once.
func TestExpiry_Forgotten(t *testing.T) {
	target, err := Parse(redistest.EtcdURL(redistest.StartEtcd(t, 1), "test"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := New(Options{Target: target, NodeTimeout: 10 * time.Second, MaxTTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s, err := locks.New(st, locks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i := range 20 {
		k := locks.Key{Name: strconv.Itoa(i)}
		if d, err := s.Lock(t.Context(), locks.LockRequest{Key: k, Owner: "a", TTL: time.Hour}); err != nil || !d.Granted {
			t.Fatalf("LOCK: %+v, %v", d, err)
		}
		if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: k, Owner: "a", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: k, Owner: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := st.chores.Len(); n != 1 {
		t.Errorf("%d chores, want that of the one lock that is held", n)
	}
}
