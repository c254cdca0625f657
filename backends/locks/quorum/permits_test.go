package quorum

import (
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// TestPermits_FreeSeats: a refusal because of a seat says which are free, and what is not a number is no vote.
func TestPermits_FreeSeats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply string
		free  []int
		why   locks.Obstacle
		fails bool
	}{
		{"*5\r\n:0\r\n$1\r\nb\r\n:500\r\n:0\r\n$4\r\nseat\r\n", nil, locks.Permits, false},
		{"*8\r\n:0\r\n$1\r\nb\r\n:500\r\n:0\r\n$4\r\nseat\r\n:0\r\n:2\r\n:999\r\n", []int{0, 2, 999}, locks.Permits, false},
		{"*7\r\n:0\r\n$1\r\nb\r\n:500\r\n:0\r\n$4\r\nseat\r\n:0\r\n$1\r\nx\r\n", nil, 0, true},
		{"*7\r\n:0\r\n$1\r\nb\r\n:500\r\n:0\r\n$4\r\nseat\r\n$1\r\nx\r\n:0\r\n", nil, 0, true},
		{"*5\r\n:0\r\n$1\r\nb\r\n:500\r\n:0\r\n$7\r\nreaders\r\n", nil, locks.Readers, false},
		{"*4\r\n:0\r\n$1\r\nb\r\n:500\r\n:9\r\n", nil, locks.Held, false},
	} {
		client := answering(t, []byte(c.reply))
		v := vote.OfResult(client.Do(t.Context(), client.B().Arbitrary("EVALSHA").Build()), vote.ParseAcquire)
		client.Close()
		switch {
		case c.fails && (v.Kind != vote.Silent || v.Err == nil):
			t.Errorf("%q is read as %+v", c.reply, v)
		case !c.fails && (v.Kind != vote.No || v.Why != c.why || !slices.Equal(v.Free, c.free) || v.Owner != "b" || v.Rest != 500*time.Millisecond):
			t.Errorf("%q is read as %+v", c.reply, v)
		}
	}
}

// TestPermits_SeatToAskFor: that of the owner's grant while it runs, as far as this proxy knows; for an owner that had none, or whose
// grant has ended, one that may be free.
func TestPermits_SeatToAskFor(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	job := locks.Key{Name: "job"}
	request := func(owner string, permits int) locks.LockRequest {
		return locks.LockRequest{Key: job, Owner: owner, TTL: time.Minute, Shared: true, Permits: permits}
	}
	asked := func(owner string, permits, try int) int {
		t.Helper()
		r := locks.Attempt{LockRequest: request(owner, permits)}
		r.Reader = owner
		a, _ := s.newAcquisition(r, 0, try, s.proposal())
		s.inflight.End(a.holder, a.id)
		return seats.Of(a.id)
	}
	wants := func(owner string, permits, try, want int) {
		t.Helper()
		if got := asked(owner, permits, try); got != want {
			t.Errorf("%s asks for the seat %d of %d, not %d", owner, got, permits, want)
		}
	}
	take := func(r locks.LockRequest) locks.Grant {
		t.Helper()
		d, err := lockInTime(t, s, r)
		if err != nil || !d.Granted {
			t.Fatalf("%+v, %v", d, err)
		}
		return d.Grant
	}
	wants("reader", 0, seats.Any, seats.None)
	wants("alice", 1, seats.Any, 0)
	wants("alice", 9, 7, 7)
	wants("alice", 9, seats.None, seats.None)

	seat := seats.Of(take(request("alice", 5)).Hold)
	for _, permits := range []int{seat + 1, 5, 9} { // its own seat
		wants("alice", permits, seats.Any, seat)
	}
	wants("alice", 0, seats.Any, seats.None) // who only reads needs none
	if got := asked("alice", seat, seats.Any); got >= max(0, seat) {
		t.Errorf("alice asks for the seat %d of %d", got, seat)
	}
	short := request("bob", 0)
	short.TTL = 100 * time.Millisecond
	take(short)
	eventually(t, patient, "the reading of bob has ended", func() bool {
		known := s.grants.lookup(locks.Holder{Key: job, Owner: "bob"}.Reading())
		return known.fence == 0 || known.until() <= s.Now()
	})
	if got := asked("bob", 5, seats.Any); got < 0 || got == seat {
		t.Errorf("bob asks for the seat %d of 5, and has read before; alice has %d", got, seat)
	}
}

// TestPermits_NextSeat: after votes that granted nothing, the seat that the owner has is asked for; else one that a quorum may find
// free.
func TestPermits_NextSeat(t *testing.T) {
	t.Parallel()
	s, _ := start(t, 3)
	has := func(grant string) vote.Vote {
		return vote.Vote{Kind: vote.Yes, Fence: 7, Reentered: 5, Grant: grant}
	}
	told := has("t/3")
	told.Reentered = -1
	fresh := vote.Vote{Kind: vote.Yes, Fence: 7, Grant: "new/0"}
	taken := func(free ...int) vote.Vote {
		return vote.Vote{Kind: vote.No, Owner: "b", Why: locks.Permits, Free: free}
	}
	for _, c := range []struct {
		name  string
		votes []vote.Vote
		want  int
	}{
		{"its own seat", []vote.Vote{has("g/2"), fresh, fresh}, 2},
		{"the one that most nodes know", []vote.Vote{has("g/2"), has("h/1"), has("i/1")}, 1},
		{"one that a renewal put back", []vote.Vote{told, taken(1), taken(1)}, 3},
		{"its own reading, which has no seat", []vote.Vote{has("g"), fresh, fresh}, seats.Any},
		{"its own, above the permits", []vote.Vote{has("g/5"), taken(1), taken(1)}, 1},
		{"free at two", []vote.Vote{taken(1, 2), taken(2), taken(0)}, 2},
		{"free at two, as far as is known", []vote.Vote{taken(4), {}, taken()}, 4},
		{"free at one only", []vote.Vote{taken(4), taken(), taken()}, seats.Any},
		{"none above the permits", []vote.Vote{taken(5), taken(5), taken(5)}, seats.Any},
		{"readers are no seats", []vote.Vote{{Kind: vote.No, Why: locks.Readers, Free: []int{1}}, taken(), taken()}, seats.Any},
	} {
		if got := s.nextSeat(&acquisition{Attempt: locks.Attempt{LockRequest: locks.LockRequest{Permits: 5}}}, c.votes); got != c.want {
			t.Errorf("%s: %d, not %d", c.name, got, c.want)
		}
	}
}

// TestPermits_OtherSeat: a proxy that knows nothing of an owner's permit proposes any seat, and the owner enters the one it has,
// also where a node has lost it.
func TestPermits_OtherSeat(t *testing.T) {
	t.Parallel()
	p, c, _ := proxies(t, 2)
	job := locks.Key{Name: "job"}
	r := locks.LockRequest{Key: job, Owner: "alice", TTL: time.Minute, Permits: 100}
	first, err := p[0].Lock(t.Context(), r)
	if err != nil || !first.Granted {
		t.Fatal(first, err)
	}
	h := locks.Holder{Key: job, Owner: "alice"}.Reading()
	keys := p[0].RedisKeys(h.Key)
	seat := seats.Of(first.Grant.Hold)
	everywhere := func() bool {
		for _, n := range c {
			if seats.Of(n.Do(t, "HGET", keys.Lock, "a").Text) != seat {
				return false
			}
		}
		return true
	}
	eventually(t, patient, "all nodes have the permit", everywhere)
	for _, lost := range []int{0, 1} { // of three
		for _, n := range c[:lost] {
			n.Do(t, "DEL", keys.Lock)
		}
		p[1].grants.invalidate(h)
		again, err := p[1].Lock(t.Context(), r)
		if err != nil || !again.Granted || again.Grant.Fence != first.Grant.Fence {
			t.Fatalf("%d nodes lack it: %+v, %v, want fence %d", lost, again, err, first.Grant.Fence)
		}
		if known := p[1].grants.lookup(h); seats.Of(known.id) != seat {
			t.Errorf("%d nodes lack it: the grant is known as %q, and has the seat %d", lost, known.id, seat)
		}
	}
	r.NoReenter = true
	if d, err := p[1].Lock(t.Context(), r); err != nil || d.Granted {
		t.Errorf("NOREENTER: %+v, %v", d, err)
	}
}
