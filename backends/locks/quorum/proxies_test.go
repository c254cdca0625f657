package quorum

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/scripts"
)

// enterOnTwoMajorities takes job for alice through s on nodes 0 and 1, and again through other on nodes 0 and 2.
func enterOnTwoMajorities(t *testing.T, s *timeless, other *proxy) (outer, inner locks.Grant) {
	t.Helper()
	s.failScripts(map[int]*scripts.Script{2: scripts.Acquire})
	outer = lock(t, s.proxy, "job", "alice", 30*time.Second)
	s.failScripts(map[int]*scripts.Script{1: scripts.Acquire})
	time.Sleep(10 * time.Millisecond)
	inner = lock(t, other, "job", "alice", 30*time.Second)
	s.failScripts(nil)
	time.Sleep(10 * time.Millisecond)
	return outer, inner
}

// TestUnlock_OneHoldOnTwoMajorities: an UNLOCK gives back one hold where the later LOCK has numbered the grant anew.
func TestUnlock_OneHoldOnTwoMajorities(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		other := s.another(t)
		enterOnTwoMajorities(t, s, other.proxy)
		if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice"}); err != nil {
			t.Error(err)
		}
		refused(t, other.proxy, "job", "bob", time.Second)
	})
}

// TestUnlock_HoldOfItsRequestOnASilentNode: an UNLOCK with the id of a LOCK gives back what that took, and not what else was read, where
// one node that has it does not answer the read.
func TestUnlock_HoldOfItsRequestOnASilentNode(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		other := s.another(t)
		lock(t, s.proxy, "job", "alice", 30*time.Second)
		time.Sleep(10 * time.Millisecond)
		s.failScripts(map[int]*scripts.Script{0: scripts.Acquire})
		d, err := s.Lock(t.Context(), locks.LockRequest{Key: jobKey, Owner: "alice", TTL: 2 * time.Second, Req: "a"})
		if err != nil || !d.Granted {
			t.Fatal(d, err)
		}
		s.failScripts(map[int]*scripts.Script{2: scripts.Read})
		if left, err := other.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice", Req: "a"}); err != nil || left != 1 {
			t.Errorf("%d, %v", left, err)
		}
		s.failScripts(nil)
		time.Sleep(3 * time.Second)
		refused(t, other.proxy, "job", "bob", time.Second)
	})
}

// TestUnlock_LeavesTheLongerLease: an UNLOCK through the proxy that took the first hold leaves the lock for as long as that was
// promised, since it means the hold taken last, which another proxy took; also where one node lacks that one, or has not heard of
// the UNLOCK yet, and with permits.
func TestUnlock_LeavesTheLongerLease(t *testing.T) {
	t.Parallel()
	for _, misses := range []map[int]*scripts.Script{nil, {2: scripts.Acquire}, {2: scripts.Release}} {
		for _, permits := range []int{0, 1} {
			inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
				ask := func(p *proxy, owner string, ttl time.Duration) bool {
					t.Helper()
					d, err := p.Lock(t.Context(), locks.LockRequest{Key: jobKey, Owner: owner, TTL: ttl, Shared: permits > 0, Permits: permits})
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * time.Millisecond)
					return d.Granted
				}
				other := s.another(t)
				ask(s.proxy, "alice", 30*time.Second)
				s.failScripts(misses)
				ask(other.proxy, "alice", 2*time.Second)
				if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice", Shared: permits > 0}); err != nil || left != 1 {
					t.Fatal(left, err)
				}
				s.failScripts(nil)
				time.Sleep(3 * time.Second)
				if v, err := other.Renew(t.Context(), locks.RenewRequest{Key: jobKey, Owner: "alice", TTL: 27 * time.Second, Shared: permits > 0}); err != nil {
					t.Error("RENEW: ", v, err)
				}
				time.Sleep(22 * time.Second)
				if ask(other.proxy, "bob", time.Second) {
					t.Errorf("permits %d, a node misses %v: granted while alice counts with 30 s", permits, misses)
				}
				time.Sleep(6 * time.Second)
				if !ask(other.proxy, "bob", time.Second) {
					t.Errorf("permits %d, a node misses %v: refused after that", permits, misses)
				}
			})
		}
	}
}

// TestUnlock_OfTheLastLeavesTheFirst: the hold that was taken first does not last longer when the last one is given back.
func TestUnlock_OfTheLastLeavesTheFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		other := s.another(t)
		lock(t, other.proxy, "job", "alice", 2*time.Second)
		time.Sleep(10 * time.Millisecond)
		lock(t, s.proxy, "job", "alice", 30*time.Second)
		time.Sleep(10 * time.Millisecond)
		unlock(t, s.proxy, "job", "alice", 1)
		time.Sleep(3 * time.Second)
		lock(t, other.proxy, "job", "bob", time.Second)
	})
}

// TestRenew_UnderTwoFences: a lock is not lost while a quorum has it, though not under one fence.
func TestRenew_UnderTwoFences(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
		enterOnTwoMajorities(t, s, s.proxy)
		unlock(t, s.proxy, "job", "alice", 1)
		time.Sleep(time.Second)
		if _, err := s.Service.Renew(t.Context(), locks.RenewRequest{Key: jobKey, Owner: "alice", TTL: 40 * time.Second}); errors.Is(err, locks.ErrLost) {
			t.Error(err)
		}
		refused(t, s.proxy, "job", "bob", time.Second)
	})
}

// TestRenew_ForgetsAHoldGivenBackElsewhere: a hold that was given back through another proxy stays away when the nodes have
// forgotten that it was.
func TestRenew_ForgetsAHoldGivenBackElsewhere(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, testOptions{MaxTTL: time.Hour, Retention: 3 * time.Hour}, func(t *testing.T, s *timeless) {
		other := s.another(t)
		for range 2 {
			lock(t, s.proxy, "job", "alice", 30*time.Second)
			time.Sleep(10 * time.Millisecond)
		}
		unlock(t, other.proxy, "job", "alice", 1)
		if v, err := s.Service.Renew(t.Context(), locks.RenewRequest{Key: jobKey, Owner: "alice", TTL: time.Hour}); err != nil {
			t.Fatal(v, err)
		}
		time.Sleep(2 * time.Minute)
		for _, n := range s.nodes {
			n.FastForward(2 * time.Minute) // their keys expire by a clock of their own
		}
		if g := lock(t, s.proxy, "job", "alice", 30*time.Second); g.Holds != 2 {
			t.Errorf("holds %d, want 2", g.Holds)
		}
		unlock(t, s.proxy, "job", "alice", 1)
		unlock(t, s.proxy, "job", "alice", 0)
	})
}

// TestUnlock_BesideARivalThroughAThirdProxy: no UNLOCK succeeds that is asked for after a rival was granted the name. The proxy
// remembers a hold whose validity would run, had another proxy not given it back; a third one took the last hold, which has ended.
func TestUnlock_BesideARivalThroughAThirdProxy(t *testing.T) {
	t.Parallel()
	for _, req := range []string{"", "a"} {
		inBubble(t, 3, testOptions{}, func(t *testing.T, s *timeless) {
			d, err := s.Lock(t.Context(), locks.LockRequest{Key: jobKey, Owner: "alice", TTL: 30 * time.Second, Req: req})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			second, third := s.another(t), s.another(t)
			renewTo(t, second.proxy, d.Grant, 40*time.Second)
			lock(t, third.proxy, "job", "alice", 2*time.Second)
			synctest.Wait()
			if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice", Req: req}); err != nil || left != 1 {
				t.Fatal(left, err)
			}
			time.Sleep(3 * time.Second)
			lock(t, third.proxy, "job", "bob", 30*time.Second)
			synctest.Wait()
			left, err := second.Unlock(t.Context(), locks.UnlockRequest{Key: jobKey, Owner: "alice"})
			if others := (*locks.NotOwnerError)(nil); !errors.Is(err, locks.ErrLost) && !errors.As(err, &others) {
				t.Errorf("with request %q: %d, %v", req, left, err)
			}
		})
	}
}
