package etcd

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// TestMemory_EmptiedEtcd: what an etcd shows that counts its revisions anew is newer than what it showed before, so that the end of a hold is counted from
// when it was first seen.
func TestMemory_EmptiedEtcd(t *testing.T) {
	s := &Store{memory: newMemory(10)}
	k := locks.Key{Name: "job"}
	see := func(id string, at int64, now time.Duration) *view {
		v := &view{now: now}
		s.memory.learn(k, &record{Owner: []byte("a"), Holds: []hold{{ID: id, TTL: 10_000}}}, at, at, nil, v)
		return v
	}
	if err := s.learnFloor(&keyValue{Value: []byte("1000000"), Mod: 2}); err != nil {
		t.Fatal(err)
	}
	see("before", 5000, time.Minute)
	if err := s.learnFloor(&keyValue{Value: []byte("2000000"), Mod: 3}); err != nil {
		t.Fatal(err)
	}
	first := see("after", 7, 2*time.Minute)
	again := see("after", 9, 2*time.Minute+time.Second)
	if len(first.holds) != 1 || len(again.holds) != 1 || first.holds[0].end != again.holds[0].end {
		t.Errorf("%+v, and a second later %+v", first.holds, again.holds)
	}
	if old := see("before", 8, 2*time.Minute); s.memory.view(k, old.now).rec.Holds[0].ID != "after" {
		t.Error("an answer that came late is remembered")
	}
}
