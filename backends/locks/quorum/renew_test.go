package quorum

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

func TestRenew(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *proxy) {
		g := lock(t, s, "job", "alice", 10*time.Second)
		renew := func(owner string, ttl time.Duration, fence int64) (time.Duration, error) {
			return s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: owner, TTL: ttl, Fence: fence})
		}
		if v, err := renew("alice", 20*time.Second, 0); err != nil || v < 19*time.Second || v > 19798*time.Millisecond {
			t.Errorf("longer: %v, %v", v, err)
		}
		if _, err := renew("alice", time.Second, g.Fence-1); !errors.Is(err, locks.ErrLost) {
			t.Errorf("another fence: %v", err)
		}
		if v, err := renew("alice", 2*time.Second, g.Fence); err != nil || v <= 0 || v > 2*time.Second {
			t.Errorf("shorter: %v, %v", v, err)
		}
		time.Sleep(2050 * time.Millisecond)
		if _, err := renew("alice", time.Second, 0); !errors.Is(err, locks.ErrLost) {
			t.Errorf("after the lease: %v", err)
		}
		if _, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"}); !errors.Is(err, locks.ErrLost) {
			t.Errorf("UNLOCK after the lease: %v", err)
		}
		if h := lock(t, s, "job", "bob", time.Second); h.Fence <= g.Fence {
			t.Errorf("fence %d after %d", h.Fence, g.Fence)
		}
	})
}

func TestRenew_HoldGivenBackElsewhere(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	lock(t, p[0], "job", "alice", 10*time.Second)
	lock(t, p[0], "job", "alice", 10*time.Second)
	unlock(t, p[1], "job", "alice", 1)
	unlock(t, p[0], "job", "alice", 0)
	lock(t, p[1], "job", "bob", time.Second)
}

// TestRenew_LapsedLeaseIsNotReinstated: a shortened lease that has lapsed is not reinstated, if every node has noted
// the shortening. What a node may do that was too slow to note it is in docs/decisions/0003.
func TestRenew_LapsedLeaseIsNotReinstated(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	p := rivals(t, 2, nodes)
	lapsed := func(name string) bool {
		lock(t, p[0], name, "alice", 30*time.Second)
		if _, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: name}, Owner: "alice", TTL: time.Second}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1050 * time.Millisecond)
		left := 0
		for _, n := range nodes {
			left += int(n.Do(t, "EXISTS", p[0].RedisKeys(locks.Key{DB: 0, Name: name}).Lock).Int())
		}
		return left == 0
	}
	name := "job"
	for tries := 1; !lapsed(name); tries++ {
		if name = fmt.Sprint("job", tries); tries == 10 {
			t.Fatal("a shortening never reaches every node")
		}
	}
	if v, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: name}, Owner: "alice", TTL: 30 * time.Second}); !errors.Is(err, locks.ErrLost) {
		t.Errorf("RENEW: %v, %v", v, err)
	}
	lock(t, p[1], name, "bob", time.Second)
}

func TestRenew_ReinstatesOnAMinority(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 5)
	lock(t, s, "job", "alice", 30*time.Second)
	var conns []*redistest.Conn
	for _, n := range nodes {
		conns = append(conns, redistest.Open(t, n.Addr()))
	}
	key := s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock
	renewed := func(lost int) {
		t.Helper()
		for _, c := range conns[:lost] {
			c.Do(t, "DEL", key)
		}
		if _, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second}); err != nil {
			t.Errorf("%d nodes lost the record: %v", lost, err)
		}
	}
	renewed(3) // waits until a quorum has it again
	eventually(t, patient, "most have it again", func() bool {
		n := 0
		for _, c := range conns {
			n += int(c.Do(t, "EXISTS", key).Int())
		}
		return n >= 3
	})
	unlock(t, s, "job", "alice", 0)
	lock(t, s, "job", "bob", time.Second)
}

func TestRenew_LapsedHereRenewedElsewhere(t *testing.T) {
	t.Parallel()
	p := rivals(t, 2, redistest.StartNodes(t, 3))
	lock(t, p[0], "job", "alice", 3*time.Second)
	if _, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if v, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 10 * time.Second}); err != nil || v < 9*time.Second {
		t.Errorf("RENEW: %v, %v", v, err)
	}
}

// TestRenew_MovesAllHolds, also those taken through another proxy; a session moves its own.
func TestRenew_MovesAllHolds(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	lock(t, p[0], "job", "alice", 20*time.Second)
	in := lock(t, p[1], "job", "alice", 10*time.Second)
	renewed := func(hold string) (nodes int) {
		for _, c := range c {
			value := c.Do(t, "HGET", p[0].RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock, hold).Text
			end, _ := strconv.ParseInt(regexp.MustCompile(`^\d+`).FindString(value), 10, 64)
			if time.Until(time.UnixMilli(end)) > 30*time.Second {
				nodes++
			}
		}
		return nodes
	}
	everywhere(t, p[0], c)
	if _, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 40 * time.Second}); err != nil {
		t.Fatal(err)
	}
	eventually(t, patient, "the other proxy's hold is renewed by a quorum", func() bool { return renewed(in.Hold) >= p[0].set.Quorum })
	g, ok := p[1].grants.beginExtension(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}, in.Fence, []string{in.Hold}, p[1].Clock())
	if !ok {
		g = p[1].grants.lookup(locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"})
	}
	if len(g.holds) != 1 || g.holds[0].id != in.Hold {
		t.Errorf("a session would renew %+v", g.holds)
	}
}

// TestRenew_DoesNotReviveALease: another proxy shortened the lease; its note and its renewal reached different
// majorities. Neither the first RENEW, which reinstates the grant on one node, nor the next, which finds it
// there, revives the lease.
func TestRenew_DoesNotReviveALease(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	c := conns(t, nodes)
	allVote(t, s)
	g := lock(t, s, "job", "alice", 50*time.Second)
	everywhere(t, s, c)
	k, fence := s.RedisKeys(locks.Key{DB: 0, Name: "job"}), strconv.FormatInt(g.Fence, 10)
	for _, i := range []int{0, 1} {
		c[i].Do(t, s.Command(scripts.Note, k, fence)...)
	}
	for _, i := range []int{1, 2} {
		v := c[i].Do(t, s.Command(scripts.Renew, k, "alice", "100", fence, g.Hold, "another", "1", g.Hold+":0", "0", "0", g.Hold)...)
		if v.Elems[0].Int() != 1 {
			t.Fatal(v)
		}
	}
	for _, i := range []int{1, 2} {
		eventually(t, patient, "it lapses", func() bool { return c[i].Do(t, "EXISTS", k.Lock).Int() == 0 })
	}
	renew := func() error {
		_, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 50 * time.Second})
		return err
	}
	refusing(t, c[1], func() {
		if err := renew(); err == nil {
			t.Error("renewed while one node is out")
		}
	})
	for range 3 {
		if err := renew(); err == nil {
			t.Error("renewed after the lease had lapsed on a majority")
		}
	}
}

// TestRenew_SparesALOCKUnderWay: a RENEW that was sent before a LOCK was answered, and finds the hold of that LOCK
// by reading, does not shorten it.
func TestRenew_SparesALOCKUnderWay(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 3)
	c := conns(t, nodes)
	allVote(t, s)
	lock(t, s, "job", "alice", 10*time.Second)
	h := locks.Holder{Key: locks.Key{DB: 0, Name: "job"}, Owner: "alice"}
	spared, end := s.inflight.StartRenewal(h)
	defer end()
	in := lock(t, s, "job", "alice", 50*time.Second)
	v, result, votes, err := s.renewAfterRead(t.Context(), h, locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 5 * time.Second}, spared)
	if err != nil || result != tally.Applied || v > 5*time.Second {
		t.Fatalf("RENEW: %v, %v, %v, %v", v, result, votes, err)
	}
	kept := 0
	for _, n := range c {
		if n.Do(t, "PTTL", s.RedisKeys(locks.Key{DB: 0, Name: "job"}).Lock).Int() > 30_000 {
			kept++
		}
	}
	if kept < 2 {
		t.Errorf("%d nodes keep what LOCK told, %v", kept, in.Validity)
	}
}

// TestRenew_OfAHoldThatAQuorumMayHave: one node lacks a hold, and another that has it is silent when a proxy that
// did not grant it renews. The validity that RENEW returns is true of that hold too.
func TestRenew_OfAHoldThatAQuorumMayHave(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	allVote(t, p...)
	lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	refusing(t, c[1], func() {
		if g := lock(t, p[0], "job", "alice", 3*time.Second); g.Holds != 2 {
			t.Fatalf("%+v", g)
		}
		delivered(t, 1, p[0]) // and refused there
	})
	refusing(t, c[2], func() {
		if _, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 40 * time.Second}); err != nil {
			t.Fatal(err)
		}
		delivered(t, 2, p[1])
	})
	unlock(t, p[1], "job", "alice", 1)
	time.Sleep(4 * time.Second) // the hold's own ttl has passed where the RENEW did not come
	if a, err := p[1].Lock(t.Context(), locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second}); err != nil || a.Granted {
		t.Errorf("LOCK by bob, while alice has a hold that was renewed: %+v, %v", a, err)
	}
	unlock(t, p[0], "job", "alice", 0)
}

// TestRenew_LeavesWhatHasEnded: a RENEW through any proxy does not renew a hold that has ended, and the next UNLOCK
// gives that hold back if it was taken last.
func TestRenew_LeavesWhatHasEnded(t *testing.T) {
	t.Parallel()
	for _, through := range []int{0, 1} {
		for _, tt := range []struct {
			ttls []time.Duration
			left int // after one UNLOCK
		}{{[]time.Duration{time.Second, 30 * time.Second}, 0}, {[]time.Duration{30 * time.Second, time.Second}, 1}} {
			t.Run(fmt.Sprintf("%v, renewed through proxy %d", tt.ttls, through), func(t *testing.T) {
				t.Parallel()
				p, c, _ := proxies(t, 2)
				for _, ttl := range tt.ttls {
					lock(t, p[0], "job", "alice", ttl)
					time.Sleep(5 * time.Millisecond) // nodes tell the age of a hold in milliseconds
				}
				everywhere(t, p[0], c)
				time.Sleep(1500 * time.Millisecond)
				if _, err := p[through].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 40 * time.Second}); err != nil {
					t.Fatal(err)
				}
				unlock(t, p[through], "job", "alice", tt.left)
				a, err := lockInTime(t, p[0], locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second})
				if err != nil || a.Granted != (tt.left == 0) {
					t.Errorf("LOCK by bob: %+v, %v", a, err)
				}
			})
		}
	}
}

// TestRenew_GrantedSinceByAnotherProxy: what this proxy remembers is an earlier grant,
// whose validity would run still.
func TestRenew_GrantedSinceByAnotherProxy(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	for range 2 { // the second time the roles are changed
		first := lock(t, p[0], "job", "alice", 30*time.Second)
		unlock(t, p[1], "job", "alice", 0)
		second := lock(t, p[1], "job", "alice", 20*time.Second)
		everywhere(t, p[0], c)
		if v, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second}); err != nil || v < 25*time.Second {
			t.Errorf("RENEW: %v, %v", v, err)
		}
		if _, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second, Fence: first.Fence}); !errors.Is(err, locks.ErrLost) {
			t.Errorf("RENEW of the first grant: %v", err)
		}
		if v, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 40 * time.Second, Fence: second.Fence}); err != nil || v < 35*time.Second {
			t.Errorf("RENEW of the second grant: %v, %v", v, err)
		}
		unlock(t, p[0], "job", "alice", 0)
		p[0], p[1] = p[1], p[0]
	}
}

// TestRenew_GivenBackSinceItWasRead: another client gives the lock back between the read and the renewal, and not all
// nodes had it: the RENEW is to read again.
func TestRenew_GivenBackSinceItWasRead(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	k := p[0].RedisKeys(locks.Key{Name: "job"})
	lock(t, p[0], "job", "alice", 30*time.Second)
	everywhere(t, p[0], c)
	c[0].Do(t, "DEL", k.Lock)
	meanwhile := func() []string { c[1].Do(t, "DEL", k.Lock); return nil }
	_, result, _, err := p[1].renewAfterRead(t.Context(), locks.Holder{Key: locks.Key{Name: "job"}, Owner: "alice"},
		locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 10 * time.Second}, meanwhile)
	if result != tally.Conflict || err != nil {
		t.Errorf("outcome %v, %v", result, err)
	}
}

// TestRenewUnderNewEpoch_SharesNoHolds: a late vote may have a node asked for the holds of a renewal when its caller has changed, or
// the cache forgotten, those that it returned.
func TestRenewUnderNewEpoch_SharesNoHolds(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	lock(t, p[0], "job", "alice", 30*time.Second)
	h := locks.Holder{Key: locks.Key{Name: "job"}, Owner: "alice"}
	votes, began, err := p[1].readAgreed(t.Context(), question{holder: h})
	if err != nil {
		t.Fatal(err)
	}
	g, _ := p[1].readGrant(votes, h, 0, began)
	r := &leaseRenewal{holder: h, ttl: 30 * time.Second, grant: g, change: grows}
	renewed, result, _, err := p[1].renewUnderNewEpoch(t.Context(), r, votes, false)
	if err != nil || result != tally.Applied || len(renewed.holds) != 1 {
		t.Fatalf("%+v, %v, %v", renewed, result, err)
	}
	renewed.holds[0].id = "another"
	if r.grant.holds[0].id == "another" {
		t.Error("what a late vote asks for changes with the grant that was returned")
	}
}
