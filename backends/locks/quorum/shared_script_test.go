package quorum

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/integration/redistest"
	"github.com/lockproxy/lockproxy/scripts"
)

// A readNode is one node whose scripts a test calls about job and its readers.
type readNode struct {
	*testing.T
	s    *proxy
	n    *redistest.Conn
	name nodekeys.Keys
	set  string // the key of those who read it
}

func startReadNode(t *testing.T) *readNode {
	t.Helper()
	s, nodes := start(t, 1)
	lock(t, s, "warm", "x", time.Second) // the node has the scripts
	name := s.RedisKeys(locks.Key{Name: "job"})
	return &readNode{t, s, redistest.Open(t, nodes[0].Addr()), name, name.Lock[:len(name.Lock)-len("lock:0:job")] + "lockr0:job"}
}

// reading is the lock by which an owner reads.
func (r *readNode) reading(owner string) nodekeys.Keys {
	return r.s.RedisKeys(locks.Key{Name: "job", Reader: owner})
}

// asks has an owner ask for a lock with a hold that is called like it.
func (r *readNode) asks(k nodekeys.Keys, owner, ttl, intent string) []redistest.Value {
	r.Helper()
	args := asks(owner, ttl, r.s.proposal(), owner)
	args[8] = intent
	return r.n.Do(r.T, r.s.Command(scripts.Acquire, k, args...)...).Elems
}

func (r *readNode) reads(owner, ttl string) []redistest.Value {
	r.Helper()
	return r.asks(r.reading(owner), owner, ttl, "0")
}

func (r *readNode) writes(owner string) []redistest.Value {
	r.Helper()
	return r.asks(r.name, owner, "10000", "0")
}

// granted wants a grant, and returns what is known of it.
func (r *readNode) granted(k nodekeys.Keys, owner string, v []redistest.Value) locks.Grant {
	r.Helper()
	if v[0].Int() != 1 {
		r.Fatalf("%s: %v, want a grant", owner, v)
	}
	g := locks.Grant{Key: locks.Key{Name: "job"}, Owner: owner, Fence: v[1].Int(), Hold: owner}
	if k.Name != "" {
		g.Reader = owner
	}
	return g
}

// refused wants a refusal that names a holder and why; with an empty why it is a writer.
func (r *readNode) refused(v []redistest.Value, holder, why string) {
	r.Helper()
	got := ""
	if len(v) > 4 {
		got = v[4].Text
	}
	if v[0].Int() != 0 || v[1].Text != holder || got != why || v[2].Int() <= 0 || v[2].Int() > 60_000 {
		r.Errorf("%v, want a refusal by %q, %q", v, holder, why)
	}
}

func (r *readNode) releases(k nodekeys.Keys, g locks.Grant, how string) []redistest.Value {
	r.Helper()
	return r.n.Do(r.T, r.s.Command(scripts.Release, k, gives(g.Owner, g, how, "")...)...).Elems
}

// counter is the largest fence of a lock.
func (r *readNode) counter(k nodekeys.Keys) int64 {
	r.Helper()
	n, err := strconv.ParseInt(r.n.Do(r.T, "HGET", k.Fences, "c").Text, 10, 64)
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// follows wants the set of readers to know the end of an owner's lease.
func (r *readNode) follows(owner, after string) {
	r.Helper()
	end, known := r.n.Do(r.T, "HGET", r.reading(owner).Lock, "e"), r.n.Do(r.T, "ZSCORE", r.set, owner)
	if end.Text != known.Text {
		r.Errorf("after %s the lease of %s ends at %v, and the set says %v", after, owner, end, known)
	}
	if left, stays := r.n.Do(r.T, "PTTL", r.reading(owner).Lock).Int(), r.n.Do(r.T, "PTTL", r.set).Int(); stays < left-1000 {
		r.Errorf("after %s the lease of %s runs for %d ms, and the set stays for %d ms", after, owner, left, stays)
	}
}

func TestSharedScript_Guards(t *testing.T) {
	t.Parallel()
	r := startReadNode(t)
	alice := r.granted(r.reading("alice"), "alice", r.reads("alice", "50000"))
	bob := r.granted(r.reading("bob"), "bob", r.reads("bob", "20000"))
	dave := r.granted(r.reading("dave"), "dave", r.reads("dave", "10000"))
	r.refused(r.writes("carol"), "alice", "readers")
	r.refused(r.writes("alice"), "bob", "upgrade")
	r.refused(r.writes("dave"), "alice", "upgrade")
	r.releases(r.reading("alice"), alice, "unlock")
	r.refused(r.writes("alice"), "bob", "readers")
	r.releases(r.reading("bob"), bob, "unlock")
	r.refused(r.writes("bob"), "dave", "readers")
	w := r.granted(r.name, "dave", r.writes("dave")) // the only one who reads
	if w.Fence <= dave.Fence {
		t.Errorf("fence %d after a reading under %d", w.Fence, dave.Fence)
	}
	r.refused(r.reads("alice", "10000"), "dave", "")
	r.granted(r.reading("dave"), "dave", r.reads("dave", "10000"))
	r.releases(r.name, w, "unlock")
	r.granted(r.reading("alice"), "alice", r.reads("alice", "10000"))
	for _, owner := range []string{"alice", "dave"} {
		r.n.Do(t, "DEL", r.reading(owner).Lock)
		r.n.Do(t, "ZADD", r.set, inMillis(-time.Second), owner)
	}
	r.granted(r.name, "carol", r.writes("carol")) // the leases of all have lapsed
}

// TestSharedScript_TheSetFollows: who reads, and for how long, is what the records of the readers say.
func TestSharedScript_TheSetFollows(t *testing.T) {
	t.Parallel()
	r := startReadNode(t)
	k := r.reading("alice")
	g := r.granted(k, "alice", r.reads("alice", "30000"))
	r.follows("alice", "a LOCK")
	r.granted(r.reading("bob"), "bob", r.reads("bob", "1000"))
	r.follows("alice", "a shorter one of another")
	again := asks("alice", "50000", r.s.proposal(), "again")
	r.n.Do(t, r.s.Command(scripts.Acquire, k, again...)...)
	r.follows("alice", "a longer re-entry")
	second := g
	second.Hold = "again"
	r.releases(k, second, "undo")
	r.follows("alice", "an undo of that")
	number := int64(0)
	for _, ttl := range []time.Duration{50 * time.Second, 20 * time.Second} {
		number++
		v := r.n.Do(t, renewal(r.s, g, ttl, vote.Version{Epoch: g.Hold, Sequence: number}, "0")...)
		if v.Elems[0].Int() != 1 {
			t.Fatal(v)
		}
		r.follows("alice", fmt.Sprint("a renewal for ", ttl))
	}
	r.n.Do(t, "DEL", k.Lock, r.set)
	if v := r.n.Do(t, renewal(r.s, g, 40*time.Second, vote.Version{Epoch: g.Hold, Sequence: 3}, "1")...); !reinstated(v) {
		t.Fatal(v)
	}
	r.follows("alice", "a renewal that puts it back")
	r.releases(k, g, "unlock")
	if v := r.n.Do(t, "ZSCORE", r.set, "alice"); v.Text != "" {
		t.Errorf("after UNLOCK the set says %v", v)
	}
}

// TestSharedScript_ClockSteppedBack: readers do not stay for hours, and the set does not end before their records.
func TestSharedScript_ClockSteppedBack(t *testing.T) {
	t.Parallel()
	r := startReadNode(t)
	k := r.reading("alice")
	g := r.granted(k, "alice", r.reads("alice", "10000"))
	ahead := inMillis(time.Hour)
	r.n.Do(t, "HSET", k.Lock, "e", ahead, g.Hold, ahead+" "+inMillis(0))
	r.n.Do(t, "PEXPIREAT", k.Lock, ahead)
	r.n.Do(t, "ZADD", r.set, ahead, "alice", ahead, "bob")
	r.refused(r.writes("carol"), "bob", "readers")
	for _, owner := range []string{"alice", "bob"} {
		if end := r.n.Do(t, "ZSCORE", r.set, owner).Int(); end > time.Now().Add(61*time.Second).UnixMilli() {
			t.Errorf("%s is in the way until %d", owner, end)
		}
	}
	r.n.Do(t, "ZADD", r.set, inMillis(5*time.Second), "alice") // that was 55 seconds ago
	if v := r.n.Do(t, r.s.Command(scripts.Acquire, k, asks("alice", "30000", r.s.proposal(), "again")...)...); v.Elems[0].Int() != 1 {
		t.Fatal(v)
	}
	r.follows("alice", "a re-entry")
}

// TestSharedScript_PutBack: a renewal puts nobody back beside one who has the name since, nor under a fence that is over.
func TestSharedScript_PutBack(t *testing.T) {
	t.Parallel()
	r := startReadNode(t)
	k := r.reading("alice")
	write := r.granted(r.name, "alice", r.writes("alice"))
	read := r.granted(k, "alice", r.reads("alice", "10000"))
	number := int64(0)
	back := func(g locks.Grant) redistest.Value {
		number++
		return r.n.Do(t, renewal(r.s, g, 40*time.Second, vote.Version{Epoch: g.Hold, Sequence: number}, "1")...)
	}
	forget := func(keys ...string) { r.n.Do(t, append([]string{"DEL"}, keys...)...) }
	notBack := func(g locks.Grant, what, holder string) {
		t.Helper()
		if v := back(g); v.Elems[0].Int() != 0 || v.Elems[1].Text != holder {
			t.Errorf("%s: %v, want a refusal by %q", what, v, holder)
		}
		if r.n.Do(t, "EXISTS", r.s.RedisKeys(g.Key).Lock).Int() != 0 {
			t.Errorf("%s has a record", what)
		}
	}
	forget(r.name.Lock, k.Lock, r.set)
	bob := r.granted(r.reading("bob"), "bob", r.reads("bob", "10000"))
	notBack(write, "a writer beside a reader", "bob")
	if !reinstated(back(read)) {
		t.Error("a reader beside a reader is not put back")
	}
	forget(k.Lock, r.set, r.reading("bob").Lock)
	if !reinstated(back(write)) {
		t.Error("the writer is not put back where nobody is")
	}
	if !reinstated(back(read)) {
		t.Error("nor is its own reading beside it")
	}
	forget(r.name.Lock, r.name.Fences, k.Lock, r.set)
	if !reinstated(back(read)) || r.counter(r.name) != read.Fence {
		t.Errorf("the reading is back under %d, and the name has %d", read.Fence, r.counter(r.name))
	}
	forget(k.Lock, r.set)
	carol := r.granted(r.name, "carol", r.writes("carol"))
	for _, c := range []int64{carol.Fence, read.Fence} { // the fence alone tells it as well
		r.n.Do(t, "HSET", r.name.Fences, "c", strconv.FormatInt(c, 10))
		notBack(read, "a reader beside a writer", "carol")
	}
	r.n.Do(t, "HSET", r.name.Fences, "c", strconv.FormatInt(carol.Fence, 10))
	forget(r.name.Lock)
	notBack(read, "a reader after a writer", "")
	r.n.Do(t, "DEL", r.name.Fences, k.Fences)
	g := r.granted(k, "alice", r.reads("alice", "10000"))
	r.releases(k, g, "unlock")
	notBack(g, "a reader after its UNLOCK", "")
	r.releases(r.reading("bob"), bob, "unlock")
}

// TestSharedScript_Fences: that of a reading is the name's as it stands, unless its owner has read under as large a one.
func TestSharedScript_Fences(t *testing.T) {
	t.Parallel()
	r := startReadNode(t)
	w := r.granted(r.name, "carol", r.writes("carol"))
	r.releases(r.name, w, "unlock")
	at := r.counter(r.name)
	alice, bob := r.reading("alice"), r.reading("bob")
	first := r.granted(alice, "alice", r.reads("alice", "10000"))
	if first.Fence != at || r.granted(bob, "bob", r.reads("bob", "10000")).Fence != at {
		t.Errorf("a reading under %d, and the name is at %d", first.Fence, at)
	}
	r.releases(alice, first, "unlock")
	second := r.granted(alice, "alice", r.reads("alice", "10000"))
	if second.Fence <= first.Fence || r.counter(r.name) != second.Fence {
		t.Errorf("a reading under %d after one under %d, and the name has %d", second.Fence, first.Fence, r.counter(r.name))
	}
	higher := strconv.FormatInt(second.Fence+1000, 10)
	if v := r.n.Do(t, r.s.Command(scripts.Settle, alice, "alice", higher, "alice")...); v.Elems[0].Int() != 1 || r.counter(r.name) != second.Fence+1000 {
		t.Errorf("%v: a reading got the fence %s, and the name has %d", v, higher, r.counter(r.name))
	}
	r.n.Do(t, "DEL", r.name.Fences)
	if g := r.granted(r.reading("dave"), "dave", r.reads("dave", "10000")); g.Fence <= second.Fence+1000 || r.counter(r.name) != g.Fence {
		t.Errorf("where the name's are forgotten a reading has the fence %d, and the name %d", g.Fence, r.counter(r.name))
	}
	floor := time.Now().Add(time.Minute).UnixMicro()
	r.n.Do(t, "HSET", r.name.Node, "floor", strconv.FormatInt(floor, 10))
	if g := r.granted(r.reading("eve"), "eve", r.reads("eve", "10000")); g.Fence <= floor {
		t.Errorf("a reading at the floor %d: %d", floor, g.Fence)
	}
}

// TestSharedScript_UndoBelowAReading: no undo and no settle lowers the fence of the owner's own writing that its reading was told.
func TestSharedScript_UndoBelowAReading(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"LOCK", "re-entry", "settle"} {
		for _, end := range []string{"undo", "settle"} {
			t.Run(how+", "+end, func(t *testing.T) {
				t.Parallel()
				r := startReadNode(t)
				k := r.reading("alice")
				if how != "LOCK" {
					r.granted(k, "alice", r.reads("alice", "10000"))
				}
				w := r.granted(r.name, "alice", r.writes("alice"))
				told := w.Fence
				switch how {
				case "LOCK":
					told = r.granted(k, "alice", r.reads("alice", "10000")).Fence
				case "re-entry":
					v := r.n.Do(t, r.s.Command(scripts.Acquire, k, asks("alice", "10000", r.s.proposal(), "again")...)...)
					told = v.Elems[1].Int()
				default:
					r.n.Do(t, r.s.Command(scripts.Settle, k, "alice", strconv.FormatInt(told, 10), "alice")...)
				}
				if told < w.Fence {
					t.Fatalf("told %d below %d", told, w.Fence)
				}
				if end == "undo" {
					r.releases(r.name, w, "undo")
				} else {
					r.n.Do(t, r.s.Command(scripts.Settle, r.name, "alice", strconv.FormatInt(w.Fence-1, 10), "alice")...)
				}
				if c := r.counter(r.name); c < w.Fence {
					t.Errorf("the name has %d, and a reading was told %d", c, told)
				}
			})
		}
	}
}

func TestSharedScript_Intents(t *testing.T) {
	t.Parallel()
	r := startReadNode(t)
	waits := func(owner string) {
		t.Helper()
		r.refused(r.asks(r.name, owner, "10000", "5000"), "alice", "readers")
	}
	intent := func(want string) {
		t.Helper()
		if v := r.n.Do(t, "HGET", r.name.Fences, "w").Text; len(v) < len(want) || v[len(v)-len(want):] != want || want == "" && v != "" {
			t.Errorf("the intent is %q, want that of %q", v, want)
		}
	}
	yields := func(owner string, want int64) {
		t.Helper()
		if v := r.n.Do(t, r.s.Command(scripts.DropIntent, r.name, owner)...); v.Elems[0].Int() != want {
			t.Errorf("%s yields: %v, want %d", owner, v, want)
		}
	}
	alice := r.granted(r.reading("alice"), "alice", r.reads("alice", "30000"))
	r.writes("carol")
	intent("") // it does not wait
	waits("carol")
	intent("carol")
	r.refused(r.reads("bob", "10000"), "", "intent")
	r.granted(r.reading("alice"), "alice", r.reads("alice", "30000"))
	carol := r.granted(r.reading("carol"), "carol", r.reads("carol", "10000"))
	r.releases(r.reading("carol"), carol, "unlock")
	waits("dave")
	intent("carol")
	yields("dave", 0)
	intent("carol")
	r.refused(r.reads("bob", "10000"), "", "intent")
	yields("carol", 1)
	intent("")
	bob := r.granted(r.reading("bob"), "bob", r.reads("bob", "10000"))
	r.releases(r.reading("bob"), bob, "unlock")
	for _, end := range []time.Duration{-time.Second, 20 * time.Second, time.Hour} { // the latter ones from before the clock was stepped back
		r.n.Do(t, "HSET", r.name.Fences, "w", inMillis(end)+" carol")
		bob = r.granted(r.reading("bob"), "bob", r.reads("bob", "10000"))
		r.releases(r.reading("bob"), bob, "unlock")
		waits("dave")
		intent("dave")
	}
	waiting := locks.Grant{Owner: "dave", Fence: alice.Fence + 1, Hold: "elsewhere"}
	r.releases(r.name, waiting, "undo")
	intent("dave")
	r.releases(r.name, locks.Grant{Owner: "carol", Fence: alice.Fence + 1, Hold: "carol"}, "unlock")
	intent("dave")
	r.releases(r.name, waiting, "unlock")
	intent("")
	waits("dave")
	r.releases(r.reading("alice"), alice, "unlock")
	r.granted(r.name, "dave", r.writes("dave"))
	intent("")
}

// TestSharedScript_LastReaderTells: those who wait for the name are told when the last reader goes.
func TestSharedScript_LastReaderTells(t *testing.T) {
	t.Parallel()
	r := startReadNode(t)
	r.n.Do(t, "SET", "other", "") // the connection is up before the next
	ear := redistest.Open(t, r.s.Nodes()[0].Address)
	ear.Do(t, "SUBSCRIBE", r.name.Lock)
	alice := r.granted(r.reading("alice"), "alice", r.reads("alice", "30000"))
	bob := r.granted(r.reading("bob"), "bob", r.reads("bob", "30000"))
	for i, g := range []locks.Grant{alice, bob} {
		if v := r.releases(r.s.RedisKeys(g.Key), g, "unlock"); v[0].Int() != 1 || v[4].Int() != int64(i) {
			t.Errorf("UNLOCK of %s: %v, want %d listeners", g.Owner, v, i)
		}
	}
}

// TestSharedScript_FullNode: a node without memory lets nobody in, and who reads can give back.
func TestSharedScript_FullNode(t *testing.T) {
	t.Parallel()
	r := startReadNode(t)
	alice := r.granted(r.reading("alice"), "alice", r.reads("alice", "30000"))
	r.n.Do(t, "CONFIG", "SET", "maxmemory", "1")
	v := r.n.Do(t, r.s.Command(scripts.Acquire, r.reading("bob"), asks("bob", "10000", r.s.proposal(), "bob")...)...)
	if len(v.Elems) > 0 || r.n.Do(t, "EXISTS", r.reading("bob").Lock).Int() != 0 {
		t.Errorf("another reader: %v", v)
	}
	if v := r.releases(r.reading("alice"), alice, "unlock"); len(v) == 0 || v[0].Int() != 1 {
		t.Errorf("UNLOCK: %v", v)
	}
	if n := r.n.Do(t, "EXISTS", r.set, r.reading("alice").Lock).Int(); n != 0 {
		t.Errorf("%d keys of readers are left", n)
	}
}
