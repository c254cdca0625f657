package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/integration/redistest"
)

// readsAs is the request by which an owner reads job.
func readsAs(owner string, ttl time.Duration) locks.LockRequest {
	return locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: owner, TTL: ttl, Shared: true}
}

func mustLock(tb testing.TB, s *proxy, r locks.LockRequest) locks.Grant {
	tb.Helper()
	a, err := s.Lock(tb.Context(), r)
	if err != nil || !a.Granted {
		tb.Fatalf("LOCK %+v: %+v, %v", r, a, err)
	}
	return a.Grant
}

// refuses wants a LOCK refused for a reason.
func refuses(tb testing.TB, s *proxy, r locks.LockRequest, why locks.Obstacle) {
	tb.Helper()
	if a, err := s.Lock(tb.Context(), r); err != nil || a.Granted || a.Why != why {
		tb.Errorf("LOCK %+v: %+v, %v, want a refusal because %d", r, a, err, why)
	}
}

// endReading has an owner give back what it reads.
func endReading(tb testing.TB, s *proxy, r locks.UnlockRequest, want int) {
	tb.Helper()
	r.Name, r.Shared = "job", true
	if left, err := s.Unlock(tb.Context(), r); err != nil || left != want {
		tb.Errorf("UNLOCK %+v: %d, %v, want %d", r, left, err, want)
	}
}

// setOf is the key of those who read a name.
func setOf(s *proxy, name string) string {
	return strings.Replace(s.RedisKeys(locks.Key{Name: name}).Lock, "lock:", "lockr", 1)
}

// TestShared_FencesOfNodesThatDiffer: a writer's fence is above all that readers were told, and theirs are not below that of a
// writer before, though each node knows of another one.
func TestShared_FencesOfNodesThatDiffer(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	lock(t, p[0], "warm", "x", time.Second)
	k, last := p[0].RedisKeys(locks.Key{Name: "job"}), int64(0)
	for i := range 9 {
		high := time.Now().Add(time.Duration(i+1) * time.Minute).UnixMicro()
		c[i%3].Do(t, "HSET", k.Fences, "c", strconv.FormatInt(high, 10))
		out := (i + 1 + i/3%2) % 3 // not the one that knows it
		refusing(t, c[out], func() {
			for _, owner := range []string{"alice", "bob"} {
				g := mustLock(t, p[i%2], readsAs(owner, 10*time.Second))
				if g.Fence < high || g.Fence < last {
					t.Errorf("%d: %s reads under fence %d, after %d and beside %d", i, owner, g.Fence, last, high)
				}
				last = max(last, g.Fence)
			}
			for _, owner := range []string{"alice", "bob"} {
				endReading(t, p[i%2], locks.UnlockRequest{Owner: owner}, 0)
			}
		})
		refusing(t, c[i%3], func() { // not the one that knew it
			g := lock(t, p[(i+1)%2], "job", "carol", 10*time.Second)
			if g.Fence <= last {
				t.Errorf("%d: a writer has the fence %d, after a reader had %d", i, g.Fence, last)
			}
			last = g.Fence
			unlock(t, p[(i+1)%2], "job", "carol", 0)
		})
	}
}

func TestShared_Force(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	alice := mustLock(t, p[0], readsAs("alice", 50*time.Second))
	mustLock(t, p[0], readsAs("alice", 50*time.Second))
	mustLock(t, p[1], readsAs("bob", 40*time.Second))
	other := readsAs("carol", 30*time.Second)
	other.Name = "other"
	mustLock(t, p[0], other)
	was := force(t, p[1], "job")
	if was.Owner != "alice" && was.Owner != "bob" || was.Readers != 2 || was.Reader != was.Owner || was.Name != "job" {
		t.Errorf("forced %+v", was)
	}
	for _, s := range p {
		for _, owner := range []string{"alice", "bob"} {
			if v, err := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: owner, TTL: time.Second, Shared: true}); !errors.Is(err, locks.ErrLost) {
				t.Errorf("RENEW by %s: %v, %v", owner, v, err)
			}
			if left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: owner, Shared: true}); !errors.Is(err, locks.ErrLost) {
				t.Errorf("UNLOCK by %s: %d, %v", owner, left, err)
			}
		}
	}
	if g := lock(t, p[0], "job", "dave", 30*time.Second); g.Fence <= alice.Fence {
		t.Errorf("fence %d after %d", g.Fence, alice.Fence)
	}
	if _, held, err := p[0].Force(t.Context(), locks.Key{Name: "nobody"}); held || err != nil {
		t.Errorf("a name that nobody has: %v, %v", held, err)
	}
	if in := inspect(t, p[0], "other"); len(in.Readers) != 1 {
		t.Errorf("another name: %+v", in)
	}
	// Whoever writes is taken first; its own reading stays.
	unlock(t, p[0], "job", "dave", 0)
	mustLock(t, p[0], readsAs("eve", 30*time.Second))
	lock(t, p[0], "job", "eve", 30*time.Second)
	if was, held, err := p[1].ForceReaders(t.Context(), locks.Key{Name: "job"}); held || !errors.As(err, new(*locks.OtherGrantError)) {
		t.Errorf("from readers, but eve writes: %+v, %v, %v", was, held, err)
	}
	if was := force(t, p[1], "job"); was.Owner != "eve" || was.Reader != "" {
		t.Errorf("forced %+v", was)
	}
	if in := inspect(t, p[0], "job"); in.Held || len(in.Readers) != 1 || in.Readers[0].Owner != "eve" {
		t.Errorf("after FORCE of a writer: %+v", in)
	}
	endReading(t, p[0], locks.UnlockRequest{Owner: "eve"}, 0)
	nothingLeft(t, p[0], c)
}

// TestShared_ForceGrant: where readers have different fences, one is taken with its fence, and the others stay.
func TestShared_ForceGrant(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	mustLock(t, p[0], readsAs("alice", 50*time.Second))
	endReading(t, p[0], locks.UnlockRequest{Owner: "alice"}, 0)
	bob := mustLock(t, p[0], readsAs("bob", 40*time.Second))
	alice := mustLock(t, p[0], readsAs("alice", 50*time.Second))
	carol := mustLock(t, p[0], readsAs("carol", 30*time.Second))
	if alice.Fence == bob.Fence || carol.Fence != alice.Fence {
		t.Fatalf("the fences are %d, %d and %d", alice.Fence, bob.Fence, carol.Fence)
	}
	other := (*locks.OtherGrantError)(nil)
	if _, held, err := p[1].ForceGrant(t.Context(), locks.Key{Name: "job"}, alice.Fence+1000); held || !errors.As(err, &other) {
		t.Errorf("a fence of nobody: %v, %v", held, err)
	}
	if was, held, err := p[1].ForceGrant(t.Context(), locks.Key{Name: "job"}, bob.Fence); err != nil || !held || was.Owner != "bob" {
		t.Errorf("the fence of bob: %+v, %v, %v", was, held, err)
	}
	if in := inspect(t, p[0], "job"); len(in.Readers) != 2 {
		t.Errorf("left: %+v, want alice and carol", in.Readers)
	}
	if was, held, err := p[0].ForceGrant(t.Context(), locks.Key{Name: "job"}, alice.Fence); err != nil || !held || was.Readers != 2 {
		t.Errorf("the fence of two: %+v, %v, %v", was, held, err)
	}
	mustLock(t, p[0], readsAs("alice", 50*time.Second))
	mustLock(t, p[0], readsAs("eve", 30*time.Second))
	if was, held, err := p[1].ForceReaders(t.Context(), locks.Key{Name: "job"}); err != nil || !held || was.Readers != 2 {
		t.Errorf("whoever reads: %+v, %v, %v", was, held, err)
	}
	if was, held, err := p[1].ForceReaders(t.Context(), locks.Key{Name: "job"}); err != nil || held {
		t.Errorf("nobody reads: %+v, %v, %v", was, held, err)
	}
	lock(t, p[0], "job", "dave", time.Second)
}

// TestShared_List: a name that is only read is listed as any, once, also if one node has missed it.
func TestShared_List(t *testing.T) {
	t.Parallel()
	p, c, _ := proxiesFor(t, 2, 30*time.Minute) // it takes a busy machine minutes
	lock(t, p[0], "warm", "x", time.Second)
	unlock(t, p[0], "warm", "x", 0)
	var want []string
	for i := range 60 {
		name := fmt.Sprintf("job:%02d", i)
		want = append(want, name)
		refusing(t, c[i%3], func() {
			for _, owner := range []string{"alice", "bob"}[:1+i%2] {
				r := readsAs(owner, 25*time.Minute)
				r.Name = name
				mustLock(t, p[0], r)
			}
			if i%4 == 0 { // who reads it writes as well: it has two keys
				lock(t, p[0], name, "alice", 25*time.Minute)
			}
		})
	}
	for _, count := range []int{0, 1, 7} {
		if got := listAll(t, p[1], "job:*", count); !slices.Equal(got, want) {
			t.Errorf("COUNT %d: %d names, want %d: %v", count, len(got), len(want), got)
		}
	}
	names, complete, err := p[1].Names(t.Context(), locks.NamesRequest{Match: "job:*"})
	if err != nil || !complete || len(names) != len(want) {
		t.Errorf("names: %d, %v, %v, want %d", len(names), complete, err, len(want))
	}
	l, err := p[1].List(t.Context(), locks.ListRequest{Match: "job:01", Count: 1000})
	if err != nil || len(l.Held) != 1 || l.Held[0].Owner != "" || l.Held[0].Readers != 2 || l.Held[0].Remaining < 15*time.Minute {
		t.Errorf("one name: %+v, %v", l, err)
	}
}

func TestShared_Inspect(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	mustLock(t, p[0], readsAs("alice", 20*time.Second))
	mustLock(t, p[1], readsAs("bob", 50*time.Second))
	refusing(t, c[0], func() {
		mustLock(t, p[1], readsAs("carol", 30*time.Second))
		delivered(t, 0, p[1]) // and refused there
	})
	c[1].Do(t, "ZADD", setOf(p[0], "job"), inMillis(50*time.Second), "one node's") // which no quorum lets in
	in := inspect(t, p[0], "job")
	var who []string
	for _, r := range in.Readers {
		who = append(who, r.Owner)
	}
	if in.Held || !slices.Equal(who, []string{"bob", "carol", "alice"}) || in.Readers[0].Remaining < 30*time.Second || in.Holding.Readers != 3 {
		t.Errorf("three read it: %+v", in)
	}
	if r, err := p[0].Read(t.Context(), locks.Key{Name: "job"}); err != nil || r.Held {
		t.Errorf("nobody has it alone: %+v, %v", r, err)
	}
	for _, owner := range []string{"bob", "carol", "alice"} {
		endReading(t, p[0], locks.UnlockRequest{Owner: owner}, 0)
	}
	c[1].Do(t, "DEL", setOf(p[0], "job"))
	eventually(t, patient, "nobody reads it", func() bool { in := inspect(t, p[1], "job"); return len(in.Readers) == 0 && in.Holding.Readers == 0 })
}

// TestShared_SilentNodesMayDecide: two nodes have a reader's lock, and one of those that do not answer may have it too. Nobody is told that
// the name is free; a reader that a quorum knows is taken away by FORCE, which then says that there may be another.
func TestShared_SilentNodesMayDecide(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 5)
	s := rivals(t, 1, nodes)[0]
	mustLock(t, s, readsAs("bob", 50*time.Second))
	for _, n := range nodes[3:] {
		n.Pause()
	}
	c := conns(t, nodes[:3])
	eventually(t, patient, "the three have it", func() bool {
		return !slices.ContainsFunc(c, func(c *redistest.Conn) bool { return c.Do(t, "ZCARD", setOf(s, "job")).Int() != 1 })
	})
	aliceReads := func() { // as a question that silent nodes leave open takes seconds, her lease begins anew for each
		c[0].Do(t, "ZADD", setOf(s, "job"), inMillis(50*time.Second), "alice")
	}
	aliceReads()
	noQuorum := func(err error) bool { return errors.As(err, new(*locks.QuorumError)) }
	if in, err := s.Inspect(t.Context(), locks.Key{Name: "job"}); !noQuorum(err) || len(in.Readers) != 1 || in.Readers[0].Owner != "bob" {
		t.Errorf("inspected: %+v, %v", in, err)
	}
	aliceReads()
	if was, held, err := s.Force(t.Context(), locks.Key{Name: "job"}); !noQuorum(err) || !held || was.Owner != "bob" {
		t.Errorf("forced: %+v, %v, %v", was, held, err)
	}
	for range 2 {
		aliceReads()
		if in, err := s.Inspect(t.Context(), locks.Key{Name: "job"}); !noQuorum(err) || len(in.Readers) != 0 {
			t.Errorf("inspected without bob: %+v, %v", in, err)
		}
		aliceReads()
		if was, held, err := s.Force(t.Context(), locks.Key{Name: "job"}); !noQuorum(err) || held {
			t.Errorf("forced without bob: %+v, %v, %v", was, held, err)
		}
	}
	aliceReads()
	if l, err := s.List(t.Context(), locks.ListRequest{Count: 1000}); err != nil || len(l.Held) > 1 {
		t.Errorf("listed: %+v, %v", l, err)
	}
	aliceReads()
	if got := listAll(t, s, "", 0); !slices.Equal(got, []string{"job"}) {
		t.Errorf("listed %v", got)
	}
	lock(t, s, "other", "carol", 50*time.Second)
	c[0].Do(t, "ZADD", setOf(s, "other"), inMillis(50*time.Second), "carol")
	if in := inspect(t, s, "other"); !in.Held || in.Holding.Owner != "carol" {
		t.Errorf("whether its writer reads it too is not known: %+v", in)
	}
	c[0].Do(t, "DEL", setOf(s, "job"))
	if in := inspect(t, s, "job"); in.Held || len(in.Readers) != 0 {
		t.Errorf("what none of three nodes has: %+v", in)
	}
}

// TestShared_OnlyReadsAmongMany: so it is told beside more readers than are listed.
func TestShared_OnlyReadsAmongMany(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 1)
	mustLock(t, p[0], readsAs("alice", 50*time.Second))
	for i := range locks.MaxReaders {
		mustLock(t, p[0], readsAs(fmt.Sprint(i), 60*time.Second))
	}
	if in := inspect(t, p[0], "job"); slices.ContainsFunc(in.Readers, func(r locks.ReadBy) bool { return r.Owner == "alice" }) {
		t.Fatal("alice is listed")
	}
	if _, err := p[0].Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice"}); !errors.Is(err, locks.ErrOnlyReads) {
		t.Errorf("UNLOCK: %v", err)
	}
}

// TestShared_OnlyReads: an owner that reads has nothing to write; its RENEW and UNLOCK say why.
func TestShared_OnlyReads(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	g := mustLock(t, p[0], readsAs("alice", 50*time.Second))
	wants := func(owner string, want error) {
		t.Helper()
		for i, s := range p {
			_, renewed := s.Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: owner, TTL: time.Second})
			_, unlocked := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: owner})
			for _, err := range []error{renewed, unlocked} {
				if !errors.Is(err, locks.ErrLost) || errors.Is(err, locks.ErrOnlyReads) != (want == locks.ErrOnlyReads) {
					t.Errorf("%s through proxy %d: %v, want %v", owner, i, err, want)
				}
			}
		}
	}
	wants("alice", locks.ErrOnlyReads)
	wants("bob", locks.ErrLost)
	if v, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: g.Key.Whole(), Owner: "alice", TTL: 40 * time.Second, Fence: g.Fence, Shared: true}); err != nil || v < 30*time.Second {
		t.Errorf("RENEW SHARED: %v, %v", v, err)
	}
	endReading(t, p[1], locks.UnlockRequest{Owner: "alice", Fence: g.Fence}, 0)
	wants("alice", locks.ErrLost)
}

// TestShared_Requests: a reader's LOCK and UNLOCK with a REQ are done once, through whichever proxy they come again.
func TestShared_Requests(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	r := readsAs("alice", 30*time.Second)
	r.Req = "once"
	g := mustLock(t, p[0], r)
	for _, s := range []*proxy{p[1], p[0], p[1]} {
		if again := mustLock(t, s, r); again.Fence != g.Fence || again.Holds != 1 {
			t.Errorf("again: %+v, want %+v", again, g)
		}
	}
	mustLock(t, p[1], readsAs("alice", 30*time.Second))
	for range 2 {
		for _, s := range p {
			endReading(t, s, locks.UnlockRequest{Owner: "alice", Req: "once"}, 1)
		}
	}
	endReading(t, p[0], locks.UnlockRequest{Owner: "alice"}, 0)
	for _, s := range p { // it is over: it is answered, and nobody reads
		a, err := s.Lock(t.Context(), r)
		if err != nil || !a.Granted || a.Grant.Fence != g.Fence || a.Grant.Validity != 0 || a.Grant.Holds != 0 {
			t.Errorf("after UNLOCK: %+v, %v", a, err)
		}
	}
	// The same REQ of the owner's own writing is another request.
	w := locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 30 * time.Second, Req: "once"}
	if own := mustLock(t, p[1], w); own.Fence <= g.Fence || own.Holds != 1 {
		t.Errorf("it writes: %+v after %+v", own, g)
	}
	unlock(t, p[0], "job", "alice", 0)
	nothingLeft(t, p[0], c)
}

func TestShared_FreshAndNoReenter(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	// A LOCK that comes to a node behind FRESH adds a dropped hold to the new grant there, and an UNLOCK may then find one left.
	holds := func(n int64) {
		t.Helper()
		rec := p[0].RedisKeys(locks.Holder{Key: locks.Key{Name: "job"}, Owner: "alice"}.Reading().Key).Lock
		for _, node := range c {
			eventually(t, time.Minute, "each node knows of alice's holds", func() bool { return node.Do(t, "HLEN", rec).Int() == 9+n })
		}
	}
	g := mustLock(t, p[0], readsAs("alice", 30*time.Second))
	mustLock(t, p[0], readsAs("alice", 30*time.Second))
	bob := mustLock(t, p[0], readsAs("bob", 30*time.Second))
	holds(2)
	r := readsAs("alice", 30*time.Second)
	r.NoReenter = true
	refuses(t, p[1], r, locks.Held)
	r.NoReenter, r.Fresh = false, true
	fresh := mustLock(t, p[1], r)
	if fresh.Fence <= g.Fence || fresh.Holds != 1 {
		t.Errorf("FRESH: %+v after %+v", fresh, g)
	}
	holds(1)
	if _, err := p[0].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: time.Second, Fence: g.Fence, Shared: true}); !errors.Is(err, locks.ErrLost) {
		t.Errorf("RENEW of what it dropped: %v", err)
	}
	if v, err := p[1].Renew(t.Context(), locks.RenewRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: 20 * time.Second, Fence: bob.Fence, Shared: true}); err != nil || v < 10*time.Second {
		t.Errorf("RENEW of another reader: %v, %v", v, err)
	}
	endReading(t, p[0], locks.UnlockRequest{Owner: "alice"}, 0)
	endReading(t, p[0], locks.UnlockRequest{Owner: "bob"}, 0)
	if w := lock(t, p[0], "job", "carol", time.Second); w.Fence <= fresh.Fence {
		t.Errorf("a writer's fence %d after %d", w.Fence, fresh.Fence)
	}
}

// TestShared_Session: what a session reads is renewed, and it is told when that is taken away.
func TestShared_Session(t *testing.T) {
	t.Parallel()
	p, _, _ := proxies(t, 2)
	c := newClient(p[0])
	r := readsAs("alice", 900*time.Millisecond)
	r.Session = c.Session
	g := mustLock(t, p[0], r)
	eventually(t, time.Minute, "two renewals", func() bool { return counter(p[0], "session_renewals_total") >= 2 || len(c.told()) > 0 })
	if l := c.told(); len(l) > 0 {
		t.Fatalf("told %+v", l)
	}
	refuses(t, p[1], locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second}, locks.Readers)
	force(t, p[1], "job")
	eventually(t, time.Minute, "it is told", func() bool { return len(c.told()) > 0 })
	if l := c.told(); len(l) != 1 || l[0].Name != "job" || l[0].Owner != "alice" || l[0].Fence != g.Fence {
		t.Errorf("told %+v", l)
	}
	free(t, p[0], "job", time.Minute)
	c.Session.End()
}

// TestShared_NodeThatForgot: a node that restarts empty lets no writer in beside readers that it has forgotten.
func TestShared_NodeThatForgot(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	o := forgetful(t, nodes)
	o.MaxTTL = 3 * time.Second
	s := serve(t, o)
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := newClient(s)
	r := readsAs("alice", 2*time.Second)
	r.Session = c.Session
	g := mustLock(t, s, r)
	redistest.Open(t, nodes[0].Addr()).Do(t, "FLUSHALL")
	nodes[1].Kill()
	w := locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second}
	if a, err := s.Lock(t.Context(), w); a.Granted || err == nil && len(c.told()) == 0 {
		t.Errorf("LOCK by half the memory: %+v, %v", a, err)
	}
	if err := nodes[1].Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "all vote again", func() bool { return allVoting(s) })
	if a, err := s.Lock(t.Context(), w); len(c.told()) == 0 && (a.Granted || err != nil) {
		t.Errorf("LOCK beside a reader: %+v, %v", a, err)
	}
	if len(c.told()) == 0 {
		endReading(t, s, locks.UnlockRequest{Owner: "alice"}, 0)
	}
	eventually(t, time.Minute, "bob writes", func() bool {
		a, err := s.Lock(t.Context(), w)
		if err == nil && a.Granted && a.Grant.Fence <= g.Fence {
			t.Errorf("fence %d after %d", a.Grant.Fence, g.Fence)
		}
		return err == nil && a.Granted
	})
}

// TestShared_Lapsed: readers whose leases have ended are in nobody's way, and after some more LOCKs with SHARED they are removed.
func TestShared_Lapsed(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	for i := range 5 {
		mustLock(t, p[i%2], readsAs(fmt.Sprint("gone", i), 100*time.Millisecond))
	}
	mustLock(t, p[0], readsAs("alice", 30*time.Second))
	w := locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", TTL: 20 * time.Second}
	eventually(t, time.Minute, "nobody else reads", func() bool {
		a, err := p[1].Lock(t.Context(), w)
		return err == nil && a.Granted
	})
	unlock(t, p[0], "job", "alice", 0)
	mustLock(t, p[0], readsAs("bob", 30*time.Second))
	eventually(t, time.Minute, "the sets have two", func() bool {
		endReading(t, p[0], locks.UnlockRequest{Owner: "bob"}, 0)
		mustLock(t, p[0], readsAs("bob", 30*time.Second))
		return !slices.ContainsFunc(c, func(n *redistest.Conn) bool { return n.Do(t, "ZCARD", setOf(p[0], "job")).Int() != 2 })
	})
}

// TestShared_NoPermission: nodes that may not use one command of sorted sets say so, grant nothing, and lose nothing.
func TestShared_NoPermission(t *testing.T) {
	t.Parallel()
	s, nodes := start(t, 1)
	n := redistest.Open(t, nodes[0].Addr())
	mustLock(t, s, readsAs("alice", 50*time.Second))
	k := s.RedisKeys(locks.Key{Name: "job"})
	for _, command := range []string{"zadd", "zrevrange", "zscore", "zrem"} {
		n.Do(t, "ACL", "SETUSER", "default", "-"+command)
		fails := func(err error, what string) {
			t.Helper()
			if q := (*locks.QuorumError)(nil); !errors.As(err, &q) || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("without %s: %s: %v", command, what, err)
			}
		}
		lock := func(r locks.LockRequest) error {
			t.Helper()
			a, err := s.Lock(t.Context(), r)
			if a.Granted {
				t.Errorf("without %s: %+v", command, a)
			}
			return err
		}
		switch command {
		case "zadd":
			fails(lock(readsAs("bob", time.Second)), "LOCK SHARED")
			if v := n.Do(t, "EXISTS", s.RedisKeys(locks.Key{Name: "job", Reader: "bob"}).Lock); v.Int() != 0 {
				t.Errorf("without %s it is there", command)
			}
		case "zrem":
			_, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Shared: true})
			if q := (*locks.QuorumError)(nil); !errors.As(err, &q) {
				t.Errorf("without zrem: UNLOCK: %v", err)
			}
			if v := n.Do(t, "EXISTS", s.RedisKeys(locks.Key{Name: "job", Reader: "alice"}).Lock); v.Int() != 1 {
				t.Fatalf("without %s half of it is gone", command)
			}
		default:
			fails(lock(locks.LockRequest{Key: locks.Key{Name: "job"}, Owner: "bob", TTL: time.Second}), "LOCK")
			if v := n.Do(t, "EXISTS", k.Lock); v.Int() != 0 {
				t.Errorf("without %s it is there", command)
			}
		}
		if members := n.Do(t, "ZRANGE", setOf(s, "job"), "0", "-1"); len(members.Elems) != 1 {
			t.Errorf("without %s: %v read it, want alice", command, members)
		}
		n.Do(t, "ACL", "SETUSER", "default", "+"+command)
		eventually(t, time.Minute, "it votes again", func() bool { return allVoting(s) })
	}
	eventually(t, time.Minute, "alice gives back", func() bool {
		left, err := s.Unlock(t.Context(), locks.UnlockRequest{Key: locks.Key{Name: "job"}, Owner: "alice", Shared: true})
		return err == nil && left == 0
	})
	lock(t, s, "job", "bob", time.Second)
}
