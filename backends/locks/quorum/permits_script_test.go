package quorum

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// A seatNode is one node whose scripts a test calls about job and those who have permits of it.
type seatNode struct {
	*readNode
	sitters string // the key of those who were given the seats
}

func startSeatNode(t *testing.T) *seatNode {
	t.Helper()
	r := startReadNode(t)
	return &seatNode{r, r.set[:len(r.set)-len("lockr0:job")] + "locks0:job"}
}

// sits has an owner ask for a seat with a hold that is called like it.
func (s *seatNode) sits(owner string, seat, permits int) []redistest.Value {
	s.Helper()
	return s.sitsAs(owner, seats.Named(owner, seat), permits, "plain", 0)
}

// sitsAs is sits with this hold, in this mode, by a proxy that knows the fence of the owner's grant.
func (s *seatNode) sitsAs(owner, hold string, permits int, how string, known int64) []redistest.Value {
	s.Helper()
	args := asks(owner, "30000", s.s.proposal(), hold)
	args[4], args[6], args[8] = how, strconv.FormatInt(known, 10), strconv.Itoa(permits)
	return s.n.Do(s.T, s.s.Command(scripts.Acquire, s.reading(owner), args...)...).Elems
}

// permit wants a grant of a seat that the owner asked for with a hold that is called like it.
func (s *seatNode) permit(owner string, seat int, v []redistest.Value) locks.Grant {
	s.Helper()
	return s.permitOf(owner, seats.Named(owner, seat), v)
}

// permitOf wants a grant that is known by this hold.
func (s *seatNode) permitOf(owner, grant string, v []redistest.Value) locks.Grant {
	s.Helper()
	g := s.granted(s.reading(owner), owner, v)
	if v[7].Text != grant {
		s.Errorf("%v, want the grant %q", v, grant)
	}
	g.Hold = grant
	return g
}

// taken wants a refusal because of the seat, which names its owner and the seats that are free, and when the first of the others
// lapses.
func (s *seatNode) taken(v []redistest.Value, holder string, within time.Duration, free ...int) {
	s.Helper()
	s.refused(v, holder, "seat")
	var named []int
	for _, seat := range v[min(5, len(v)):] {
		named = append(named, int(seat.Int()))
	}
	if !slices.Equal(named, free) || v[2].Int() > within.Milliseconds() {
		s.Errorf("%v, want the free seats %v, and the first of the others to lapse within %v", v, free, within)
	}
}

// keeps wants an owner's record, and the index, to say who has the seat.
func (s *seatNode) keeps(owner string, seat int) {
	s.Helper()
	grant, sitter := s.n.Do(s.T, "HGET", s.reading(owner).Lock, "a").Text, s.n.Do(s.T, "HGET", s.sitters, strconv.Itoa(seat)).Text
	if seats.Of(grant) != seat || sitter != owner {
		s.Errorf("%s has the grant %q, and the seat %d is that of %q", owner, grant, seat, sitter)
	}
}

func (s *seatNode) forget(keys ...string) { s.n.Do(s.T, append([]string{"DEL"}, keys...)...) }

// endsIn sets the end of an owner's lease, without having the record go then.
func (s *seatNode) endsIn(owner string, d time.Duration) {
	s.Helper()
	s.n.Do(s.T, "HSET", s.reading(owner).Lock, "e", inMillis(d))
	s.n.Do(s.T, "PERSIST", s.reading(owner).Lock)
}

func TestPermitsScript_Guards(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	alice := s.permit("alice", 0, s.sits("alice", 0, 2))
	s.taken(s.sits("bob", 0, 2), "alice", 30*time.Second, 1)
	bob := s.permit("bob", 1, s.sits("bob", 1, 2))
	s.endsIn("bob", 10*time.Second)
	s.taken(s.sits("carol", 0, 2), "alice", 10*time.Second)
	s.taken(s.sits("carol", 1, 2), "bob", 10*time.Second)
	s.taken(s.sits("carol", seats.None, 2), "", 10*time.Second) // a hold without a seat is none
	s.taken(s.sits("carol", 4, 2), "", 10*time.Second)          // nor is one above the permits
	s.taken(s.sits("carol", 1, 4), "bob", 10*time.Second, 2, 3)
	if v := s.n.Do(t, "EXISTS", s.reading("carol").Lock).Int(); v != 0 {
		t.Error("who was refused has a record")
	}
	carol := s.permit("carol", 2, s.sits("carol", 2, 3))
	s.taken(s.sits("dave", 0, 1), "alice", 30*time.Second)

	s.granted(s.reading("dave"), "dave", s.reads("dave", "10000")) // who only reads takes none
	s.refused(s.sits("dave", 3, 9), "dave", "upgrade")
	if n := s.n.Do(t, "HLEN", s.reading("dave").Lock).Int(); n != 10 {
		t.Errorf("the record of one who only reads has %d fields", n)
	}
	s.refused(s.writes("eve"), "carol", "readers")

	s.releases(s.reading("bob"), bob, "unlock")
	s.taken(s.sits("eve", 0, 2), "alice", 30*time.Second, 1)
	s.permit("eve", 1, s.sits("eve", 1, 2))
	s.releases(s.reading("alice"), alice, "unlock")
	s.releases(s.reading("carol"), carol, "undo")
	if all := s.n.Do(t, "HKEYS", s.sitters).Elems; len(all) != 1 || all[0].Text != "1" {
		t.Errorf("of the seats that were given back there is %v", all)
	}
	s.forget(s.reading("dave").Lock, s.reading("eve").Lock, s.set)
	w := s.granted(s.name, "writer", s.writes("writer"))
	s.refused(s.sits("alice", 0, 2), "writer", "")
	s.releases(s.name, w, "unlock")
	s.permit("alice", 0, s.sits("alice", 0, 2))
}

// TestPermitsScript_OneSeatAnOwner: whatever seats are asked for, an owner has that of its grant.
func TestPermitsScript_OneSeatAnOwner(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	g := s.permit("alice", 0, s.sits("alice", 0, 2))
	s.permitOf("alice", "alice/0", s.sitsAs("alice", "again/1", 2, "plain", 0))
	s.permitOf("alice", "alice/0", s.sitsAs("alice", "reads", 0, "plain", 0))
	s.keeps("alice", 0)
	s.taken(s.sits("bob", 0, 2), "alice", 30*time.Second, 1)
	settle := func(fence int64, hold string) int64 {
		t.Helper()
		return s.n.Do(t, s.s.Command(scripts.Settle, s.reading("alice"), "alice", strconv.FormatInt(fence, 10), hold)...).Elems[0].Int()
	}
	before := s.n.Do(t, "HMGET", s.reading("alice").Lock, "a", "f", "p").String() + fmt.Sprint(s.counter(s.name), s.counter(s.reading("alice")))
	for _, fence := range []int64{g.Fence - 1, g.Fence, g.Fence + 1000} {
		for _, hold := range []string{"again/1", "reads"} {
			if settle(fence, hold) != 0 {
				t.Errorf("a settle of %q and fence %d is answered as done: the grant has another seat", hold, fence)
			}
		}
	}
	after := s.n.Do(t, "HMGET", s.reading("alice").Lock, "a", "f", "p").String() + fmt.Sprint(s.counter(s.name), s.counter(s.reading("alice")))
	if before != after {
		t.Errorf("settles of other seats made %s of %s", after, before)
	}
	if settle(g.Fence+1000, "alice/0") != 1 || s.counter(s.name) != g.Fence+1000 {
		t.Errorf("a settle of the seat itself: the name has %d, not %d", s.counter(s.name), g.Fence+1000)
	}
	s.permit("bob", 1, s.sits("bob", 1, 2))
}

// TestPermitsScript_Lapsed: what the index says of one whose lease has ended, or who has another seat now, counts for nothing.
func TestPermitsScript_Lapsed(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	s.permit("alice", 0, s.sits("alice", 0, 1))
	s.endsIn("alice", -time.Second)
	s.permit("bob", 0, s.sits("bob", 0, 1))
	s.keeps("bob", 0)
	s.forget(s.reading("bob").Lock)
	s.permit("carol", 0, s.sits("carol", 0, 1))
	s.n.Do(t, "HSET", s.sitters, "1", "carol", "2", "nobody")
	s.permit("dave", 1, s.sits("dave", 1, 3))
	s.taken(s.sits("eve", 0, 3), "carol", 30*time.Second, 2)
}

// TestPermitsScript_Fresh: the grant that is dropped gives its seat up, and the new one needs one that is nobody else's.
func TestPermitsScript_Fresh(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	g := s.permit("alice", 0, s.sits("alice", 0, 3))
	s.permit("bob", 1, s.sits("bob", 1, 3))
	s.taken(s.sitsAs("alice", "new/1", 3, "fresh", g.Fence), "bob", 30*time.Second, 0, 2)
	s.taken(s.sitsAs("alice", "new", 3, "fresh", g.Fence), "", 30*time.Second, 0, 2)
	s.keeps("alice", 0)
	now := s.permitOf("alice", "new/2", s.sitsAs("alice", "new/2", 3, "fresh", g.Fence))
	if now.Fence <= g.Fence {
		t.Errorf("fence %d after %d", now.Fence, g.Fence)
	}
	s.keeps("alice", 2)
	s.permit("carol", 0, s.sits("carol", 0, 3))
	s.taken(s.sits("dave", 2, 3), "alice", 30*time.Second)
	s.permitOf("alice", "newer/2", s.sitsAs("alice", "newer/2", 3, "fresh", now.Fence))
	s.keeps("alice", 2)

	r := s.granted(s.reading("reader"), "reader", s.reads("reader", "10000"))
	s.permitOf("reader", "reader/3", s.sitsAs("reader", "reader/3", 4, "fresh", r.Fence)) // it has none to lose
	s.keeps("reader", 3)

	s.granted(s.reading("again"), "again", s.sitsAs("again", "ABCDEFGHIJKLMNOP.1", 0, "fresh", 0))
	s.refused(s.sitsAs("again", "ABCDEFGHIJKLMNOP.2/4", 9, "fresh", 0), "again", "upgrade") // the same request, which got no permit
}

// TestPermitsScript_PutBack: a renewal puts nobody back whose seat is another's.
func TestPermitsScript_PutBack(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	k := s.reading("alice")
	g := s.permit("alice", 0, s.sits("alice", 0, 2))
	number := int64(0)
	back := func() redistest.Value {
		number++
		return s.n.Do(t, renewal(s.s, g, 40*time.Second, vote.Version{Epoch: g.Hold, Sequence: number}, "1")...)
	}
	notBack := func(holder string) {
		t.Helper()
		if v := back(); v.Elems[0].Int() != 0 || v.Elems[1].Text != holder || s.n.Do(t, "EXISTS", k.Lock).Int() != 0 {
			t.Errorf("%v, want a refusal by %q", v, holder)
		}
	}
	s.forget(k.Lock)
	bob := s.permit("bob", 0, s.sits("bob", 0, 2))
	notBack("") // the fence tells it as well
	for _, fences := range []nodekeys.Keys{s.name, k} {
		s.n.Do(t, "HSET", fences.Fences, "c", strconv.FormatInt(g.Fence, 10))
	}
	notBack("")
	s.keeps("bob", 0)
	s.releases(s.reading("bob"), bob, "undo")
	s.n.Do(t, "HSET", s.name.Fences, "c", strconv.FormatInt(g.Fence, 10))
	s.forget(s.sitters)
	if !reinstated(back()) {
		t.Error("it is not put back where its seat is free")
	}
	s.keeps("alice", 0)
	s.taken(s.sits("bob", 0, 2), "alice", 40*time.Second, 1)
}

// TestPermitsScript_Fences: that of a permit is above all that were told of the name, those of readers as well.
func TestPermitsScript_Fences(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	last := s.granted(s.reading("reader"), "reader", s.reads("reader", "30000")).Fence
	above := func(what string, fence int64) {
		t.Helper()
		if fence <= last || s.counter(s.name) != fence {
			t.Errorf("%s has fence %d, after %d, and the name has %d", what, fence, last, s.counter(s.name))
		}
		last = fence
	}
	for i := range 3 {
		owner := fmt.Sprint("p", i)
		g := s.permit(owner, i, s.sits(owner, i, 9))
		above(owner, g.Fence)
		if i == 1 {
			s.releases(s.reading(owner), g, "unlock")
		}
	}
	if g := s.granted(s.reading("other"), "other", s.reads("other", "30000")); g.Fence != last {
		t.Errorf("who only reads has fence %d, and the name has %d", g.Fence, last)
	}
	last = time.Now().Add(time.Hour).UnixMicro() // what another node's clock said, say
	if v := s.n.Do(t, s.s.Command(scripts.Settle, s.reading("p0"), "p0", strconv.FormatInt(last, 10), "p0/0")...); v.Elems[0].Int() != 1 {
		t.Fatal(v)
	}
	above("one who had one before", s.permit("p1", 1, s.sits("p1", 1, 9)).Fence)
	above("the next", s.permit("p3", 3, s.sits("p3", 3, 9)).Fence)
	again := s.permitOf("p3", "p3/3", s.sitsAs("p3", "again/3", 9, "plain", 0))
	if v := s.n.Do(t, "HGET", s.reading("p3").Lock, "f").Int(); v != last || again.Fence <= last {
		t.Errorf("a re-entry proposes %d, and the grant has fence %d, not %d", again.Fence, v, last)
	}
}

// TestPermitsScript_EachTells: those who wait are told of every permit that is given back.
func TestPermitsScript_EachTells(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	s.n.Do(t, "SET", "other", "") // the connection is up before the next
	ear := redistest.Open(t, s.s.Nodes()[0].Address)
	ear.Do(t, "SUBSCRIBE", s.name.Lock)
	alice, bob := s.permit("alice", 0, s.sits("alice", 0, 2)), s.permit("bob", 1, s.sits("bob", 1, 2))
	reader := s.granted(s.reading("reader"), "reader", s.reads("reader", "30000"))
	for _, c := range []struct {
		g     locks.Grant
		heard int64
	}{{alice, 1}, {reader, 0}, {bob, 1}} {
		if v := s.releases(s.s.RedisKeys(c.g.Key), c.g, "unlock"); v[0].Int() != 1 || v[4].Int() != c.heard {
			t.Errorf("UNLOCK of %s: %v, want %d listeners", c.g.Owner, v, c.heard)
		}
	}
}

// TestPermitsScript_IndexStays: it is known who has a seat for as long as that owner's lease runs.
func TestPermitsScript_IndexStays(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	k := s.reading("alice")
	stays := func(after string) {
		t.Helper()
		if left, index := s.n.Do(t, "PTTL", k.Lock).Int(), s.n.Do(t, "PTTL", s.sitters).Int(); index < left-1000 {
			t.Errorf("after %s the lease runs for %d ms, and the index stays for %d ms", after, left, index)
		}
		s.keeps("alice", 0)
		s.n.Do(t, "PEXPIRE", s.sitters, "5000") // as after a while
	}
	g := s.permit("alice", 0, s.sits("alice", 0, 2))
	stays("a LOCK")
	args := asks("alice", "50000", s.s.proposal(), "again/0")
	s.n.Do(t, s.s.Command(scripts.Acquire, k, args...)...)
	stays("a longer re-entry")
	both := append(renewal(s.s, g, 55*time.Second, vote.Version{Epoch: g.Hold, Sequence: 1}, "0"), "again/0")
	if v := s.n.Do(t, both...); v.Elems[0].Int() != 1 {
		t.Fatal(v)
	}
	stays("a renewal")
	s.endsIn("alice", time.Hour) // the clock was stepped back
	s.n.Do(t, s.s.Command(scripts.Acquire, k, args...)...)
	stays("another re-entry when the clock was stepped back")
	args[0], args[1], args[5], args[8] = "bob", "1000", "bob/1", "2"
	if v := s.n.Do(t, s.s.Command(scripts.Acquire, s.reading("bob"), args...)...); v.Elems[0].Int() != 1 {
		t.Fatal(v)
	}
	stays("a shorter lease of another")
}

// TestPermitsScript_FullNode: a node without memory gives no permit, and who has one can give it back.
func TestPermitsScript_FullNode(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	alice := s.permit("alice", 0, s.sits("alice", 0, 2))
	s.n.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if v := s.sits("bob", 1, 2); len(v) > 0 || s.n.Do(t, "EXISTS", s.reading("bob").Lock).Int() != 0 || s.n.Do(t, "HLEN", s.sitters).Int() != 1 {
		t.Errorf("another permit: %v", v)
	}
	if v := s.releases(s.reading("alice"), alice, "unlock"); len(v) == 0 || v[0].Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
	if n := s.n.Do(t, "EXISTS", s.set, s.sitters, s.reading("alice").Lock).Int(); n != 0 {
		t.Errorf("%d keys of permits are left", n)
	}
}

// TestPermitsScript_ClockSteppedBack: an owner that has gone does not keep its seat for hours.
func TestPermitsScript_ClockSteppedBack(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	k := s.reading("alice")
	s.permit("alice", 0, s.sits("alice", 0, 1))
	ahead := inMillis(time.Hour)
	s.n.Do(t, "HSET", k.Lock, "e", ahead, "alice/0", ahead+" "+inMillis(0))
	s.n.Do(t, "PEXPIREAT", k.Lock, ahead)
	s.taken(s.sits("bob", 0, 1), "alice", time.Minute)
	latest := time.Now().Add(61 * time.Second).UnixMilli()
	if e, left := s.n.Do(t, "HGET", k.Lock, "e").Int(), s.n.Do(t, "PTTL", k.Lock).Int(); e > latest || left > 60_000 {
		t.Errorf("alice has its seat until %d, and its record stays for %d ms", e, left)
	}
}

// TestPermitsScript_RevivedRecord: where a lease has lapsed unseen and another owner got the seat, or the name, the record is no grant
// any more when the clock is stepped back before Redis has removed it; and who gives it back takes nothing from the other.
func TestPermitsScript_RevivedRecord(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	notRenewed := func(g locks.Grant) {
		t.Helper()
		if v := s.n.Do(t, renewal(s.s, g, 40*time.Second, vote.Version{Epoch: g.Hold, Sequence: 1}, "0")...); v.Elems[0].Int() != 0 {
			t.Errorf("it is renewed: %v", v)
		}
	}
	alice := s.permit("alice", 0, s.sits("alice", 0, 1))
	s.endsIn("alice", -time.Second)
	bob := s.permit("bob", 0, s.sits("bob", 0, 1))
	s.endsIn("alice", 20*time.Second)
	s.refused(s.sitsAs("alice", "again/0", 1, "plain", 0), "", "")
	notRenewed(alice)
	s.releases(s.reading("alice"), alice, "undo")
	s.taken(s.sits("carol", 0, 1), "bob", 30*time.Second)
	s.releases(s.reading("bob"), bob, "unlock")

	reader := s.granted(s.reading("alice"), "alice", s.reads("alice", "30000"))
	s.endsIn("alice", -time.Second)
	s.forget(s.set)
	s.granted(s.name, "writer", s.writes("writer"))
	s.endsIn("alice", 20*time.Second)
	s.refused(s.reads("alice", "30000"), "writer", "")
	notRenewed(reader)
}

// TestNextSeat_OfThePermits: a seat above the permits is not asked for, whatever a node says is free.
func TestNextSeat_OfThePermits(t *testing.T) {
	t.Parallel()
	s := startSeatNode(t)
	for _, tt := range []struct {
		free []int
		want int
	}{{[]int{1}, 1}, {[]int{2}, seats.Any}, {[]int{-7}, seats.Any}, {nil, seats.Any}} {
		a := &acquisition{Attempt: locks.Attempt{LockRequest: locks.LockRequest{Permits: 2}}}
		if got := s.s.nextSeat(a, []vote.Vote{{Kind: vote.No, Why: locks.Permits, Free: tt.free}}); got != tt.want {
			t.Errorf("free %v: %d, want %d", tt.free, got, tt.want)
		}
	}
}
