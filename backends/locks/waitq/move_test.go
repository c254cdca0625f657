package waitq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// joinFor joins a line of keys like "a b c", with a request of its owner's.
func joinFor(t *testing.T, q *Queues[string, *string], owner, keys string) *Waiter[string, *string] {
	t.Helper()
	w, err := q.Join(strings.Fields(keys), owner, "1", Alone, &owner)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// lineOf is who stands in a line.
func lineOf(q *Queues[string, *string], key string) (all string) {
	for _, e := range q.List(key) {
		all += *e.Value
	}
	return all
}

// wantLines fails unless these stand in the lines of a, b and c.
func wantLines(t *testing.T, q *Queues[string, *string], a, b, c string) {
	t.Helper()
	if lineOf(q, "a") != a || lineOf(q, "b") != b || lineOf(q, "c") != c {
		t.Fatalf("the lines are %q, %q and %q", lineOf(q, "a"), lineOf(q, "b"), lineOf(q, "c"))
	}
}

// has is what is known when a key is held.
func has(owner string) Known {
	return Known{Asked: true, Holder: owner, Fence: 7, Until: 2 * time.Hour}
}

// asks reports whether it is the turn of w now.
func asks(q *Queues[string, *string], w *Waiter[string, *string]) bool {
	d, head := q.pause(w)
	return head && d <= 0
}

// refuseFor has w ask for keys, in vain.
func refuseFor(t *testing.T, q *Queues[string, *string], w *Waiter[string, *string], keys, of string) {
	t.Helper()
	if _, err := q.Ask(w, strings.Fields(keys)...); err != nil {
		t.Fatal(err)
	}
	if of == w.Key {
		q.Asked(w, has("holder"))
	} else {
		q.Move(w, of, has("holder"))
	}
}

// TestMove_InFrontOfWhoCameLater: it stands where somebody came before it or in the line of the key in the way, with its number, and holds up
// nobody elsewhere.
func TestMove_InFrontOfWhoCameLater(t *testing.T) {
	q := still(20)
	x := joinFor(t, q, "x", "b")
	g := joinFor(t, q, "g", "a b c")
	if g.First || g.Key != "b" {
		t.Fatalf("it does not stand behind x, but for %s", g.Key)
	}
	y, z := joinFor(t, q, "y", "a"), joinFor(t, q, "z", "c")
	h := joinFor(t, q, "h", "b c") // behind g
	if !y.First || !z.First {
		t.Fatal("it holds up others where it does not stand")
	}
	refuseFor(t, q, y, "", "a")
	refuseFor(t, q, z, "", "c")
	wantLines(t, q, "y", "xgh", "z")
	q.Leave(x, true)
	refuseFor(t, q, g, "a b c", "a") // y came after it, so that it need not mind y
	wantLines(t, q, "gy", "h", "z")
	if !isHead(g) || isHead(y) || asks(q, y) || !asks(q, h) {
		t.Error("h knows nothing of b, and y is not the head")
	}
	q.Wake("a")
	refuseFor(t, q, g, "a b c", "b")
	wantLines(t, q, "y", "gh", "z")
	if !isHead(y) || isHead(h) || !asks(q, y) {
		t.Error("y does not ask, which is the head again")
	}
	q.Leave(h, false)
	q.Leave(g, false)
	q.Leave(y, false)
	q.Leave(z, false)
	if q.Total() != 0 || len(q.lines) != 0 || len(q.owned) != 0 {
		t.Errorf("%d are left", q.Total())
	}
}

// TestMove_BehindWhoCameBefore: it asks only when nobody who came before it stands in the line of another of its keys; else it stands there.
func TestMove_BehindWhoCameBefore(t *testing.T) {
	q := still(20)
	x, y := joinFor(t, q, "x", "a"), joinFor(t, q, "y", "b")
	g := joinFor(t, q, "g", "b a")
	h := joinFor(t, q, "h", "c b")
	wantLines(t, q, "x", "ygh", "")
	q.Leave(y, true)
	if _, err := q.Ask(g, "a", "b"); !errors.Is(err, ErrOvertaken) {
		t.Errorf("it asks before x: %v", err)
	}
	wantLines(t, q, "xg", "h", "")
	if _, err := q.Ask(h, "b", "c"); err != nil {
		t.Errorf("g is in its way where it does not stand: %v", err)
	}
	q.Move(h, "a", has("holder")) // as if it wanted a as well
	wantLines(t, q, "xgh", "", "")
	if !q.Pass(g, "b", "c") || q.Pass(h, "a") == false || g.Key != "a" {
		t.Error("it may not pass, though nobody stands elsewhere")
	}
	z := joinFor(t, q, "z", "c")
	if !q.Pass(h, "c") {
		t.Error("z came after it")
	}
	q.Leave(x, false)
	q.Move(g, "c", has("holder"))
	if wantLines(t, q, "h", "", "zg"); q.Pass(h, "c") {
		t.Error("g came before it")
	}
	wantLines(t, q, "", "", "zgh") // z is asking
	q.Asked(z, has("holder"))
	wantLines(t, q, "", "", "ghz")
}

// TestMove_Own: who stands for a key that the owner has, or may share, is not in the way.
func TestMove_Own(t *testing.T) {
	q := still(20)
	x, r := joinFor(t, q, "x", "a"), joinFor(t, q, "y", "b")
	refuse(q, r)
	q.Ask(x)
	q.Asked(x, has("g"))
	g := joinFor(t, q, "g", "c a")
	if _, err := q.Ask(g, "a", "c"); err != nil || g.Key != "c" {
		t.Errorf("its owner has a: %v", err)
	}
	q.Ask(r)
	q.Asked(r, Known{Asked: true, Soon: true, Holder: "reader", Until: time.Hour})
	for use, passes := range map[Use]bool{Sharing: true, Alone: false} {
		w, err := q.Join([]string{"c"}, "me", "", use, new(string))
		if err != nil {
			t.Fatal(err)
		}
		if q.Pass(w, "b") != passes {
			t.Errorf("use %d passes: %v", use, !passes)
		}
		q.Leave(w, false)
	}
}

// TestMove_Beside: who shares several keys asks at once where all before it share them as well, and have not been refused: it goes
// from no line to another.
func TestMove_Beside(t *testing.T) {
	q := still(20)
	sharing := func(keys ...string) *Waiter[string, *string] {
		w, err := q.Join(keys, keys[0], "", Sharing, new(string))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	sharing("a")
	b := sharing("b")
	w := sharing("a", "b")
	if reenter, err := q.AwaitTurn(t.Context(), w); err != nil || !reenter || !q.Pass(w, "a", "b") {
		t.Errorf("beside those who ask it does not: %v, %v; it stands in the line of %s", reenter, err, w.Key)
	}
	q.Ask(b)
	q.Asked(b, has("writer"))
	if q.Pass(w, "a", "b") || w.Key != "b" {
		t.Errorf("it passes one who was refused, and stands in the line of %s", w.Key)
	}
	if _, err := q.Join([]string{"a"}, "writer", "", Alone, new(string)); err != nil {
		t.Fatal(err)
	}
	v := sharing("c", "a")
	if v.Key != "a" || len(v.reenter) > 0 {
		t.Errorf("it goes before one who wants a key alone, and stands in the line of %s", v.Key)
	}
}

// TestMove_AsksAgain: in a line where nobody stood a release may have gone unnoticed, so that it asks again soon; where somebody stood it goes
// by what that one was told.
func TestMove_AsksAgain(t *testing.T) {
	q := still(20)
	q.opt.Random = func(below time.Duration) time.Duration { return below / 2 }
	g := joinFor(t, q, "g", "a b")
	refuseFor(t, q, g, "a b", "b")
	if d, head := q.pause(g); !head || d != nobodyPause/2 {
		t.Errorf("it sleeps for %v", d)
	}
	if k, _ := q.Known("b"); k.Holder != "holder" {
		t.Errorf("of b is known %+v", k)
	}
	refuseFor(t, q, g, "a b", "b")
	if d, _ := q.pause(g); d < time.Minute {
		t.Errorf("it sleeps for %v when it was told where it stands", d)
	}
	q.Wake("a")
	if asks(q, g) {
		t.Error("it asks, since another key is free")
	}
	x := joinFor(t, q, "x", "a")
	refuse(q, x)
	refuseFor(t, q, g, "a b", "a")
	if d, head := q.pause(g); !head || d < time.Minute {
		t.Errorf("it sleeps for %v in front of one that knows", d)
	}
	if !errors.Is(q.Sleep(t.Context(), x), ErrOvertaken) {
		t.Error("x was not overtaken")
	}
}

// TestMove_Place: it comes back to one place, with its number, wherever it stood.
func TestMove_Place(t *testing.T) {
	q := still(20)
	g := joinFor(t, q, "g", "a b c")
	refuseFor(t, q, g, "a b c", "c")
	h := joinFor(t, q, "h", "c")
	x := joinFor(t, q, "x", "b")
	q.Ask(x)
	if q.Leave(g, false); len(q.places) != 1 {
		t.Errorf("%d places", len(q.places))
	}
	g = joinFor(t, q, "g", "a b c")
	wantLines(t, q, "g", "x", "h")
	if in, ahead, _, ok := q.Place([]string{"a", "b", "c"}, "g", "1"); in != "a" || ahead != 0 || !ok {
		t.Errorf("it stands for %s, %d before it, %v", in, ahead, ok)
	}
	refuseFor(t, q, g, "a b c", "c")
	wantLines(t, q, "", "x", "gh")
	refuseFor(t, q, g, "a b c", "b")
	wantLines(t, q, "", "xg", "h") // x is asking
	if in, ahead, _, ok := q.Place([]string{"a", "b", "c"}, "g", "1"); in != "b" || ahead != 1 || !ok {
		t.Errorf("it stands for %s, %d before it, %v", in, ahead, ok)
	}
	q.Leave(g, true)
	joinFor(t, q, "g", "c")
	wantLines(t, q, "", "x", "hg")
	q.Leave(h, false)
}

// TestMove_Ends: it may leave, and is told of the end, in every state; a wake-up for the key where it stood before is not one.
func TestMove_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		x := joinFor(t, q, "x", "b")
		q.Ask(x)
		g, h := joinFor(t, q, "g", "a b"), joinFor(t, q, "h", "b")
		q.Asked(x, has("g")) // so that g is let in
		q.Move(g, "a", has("holder"))
		ctx, cancel := context.WithCancel(t.Context())
		var told [3]error
		go func() { told[0] = q.Sleep(t.Context(), g) }()
		go func() { _, told[1] = q.AwaitTurn(ctx, h) }()
		if len(g.reenter) > 0 {
			t.Error("it is let in to a, since its owner has b")
		}
		resumed := make(chan bool, 1)
		p := joinFor(t, q, "p", "c b")
		if !q.Park(t.Context(), p, time.Hour, func() { resumed <- true }) {
			t.Error("it is not parked")
		}
		cancel()
		synctest.Wait()
		if told[1] == nil {
			t.Error("it waits on")
		}
		q.Leave(h, false)
		q.Leave(x, true)
		if <-resumed; !isHead(p) {
			t.Error("it is not the head")
		}
		refuseFor(t, q, p, "b c", "c")
		go func() { told[2] = q.Sleep(t.Context(), p) }()
		synctest.Wait()
		q.Close()
		synctest.Wait()
		if told[0] != ErrClosed || told[2] != ErrClosed {
			t.Errorf("told %v", told)
		}
		q.Leave(g, false)
		q.Leave(p, false)
		if q.Total() != 0 || len(q.lines) != 0 || len(q.owned) != 0 {
			t.Errorf("%d are left", q.Total())
		}
	})
}

// A street is a random crowd of waiters for one key and for several, and who has these keys.
type street struct {
	t      *testing.T
	r      *rand.Rand
	q      *Queues[string, *string]
	keys   []string
	has    map[string]string // the holders, by key
	people map[string]*person
	away   []*person // who may come back to their places
	n      int
	served int
}

// A person wants keys, of which it may have the first already.
type person struct {
	name   string
	keys   []string
	at     *Waiter[string, *string]
	asking bool
}

// wants are the keys that a person does not have.
func (s *street) wants(p *person) (keys []string) {
	for _, k := range p.keys {
		if s.has[k] != p.name {
			keys = append(keys, k)
		}
	}
	return keys
}

func (s *street) join(p *person) {
	p.at = joinFor(s.t, s.q, p.name, strings.Join(s.wants(p), " "))
	s.people[p.name] = p
}

func (s *street) leave(p *person, served bool) {
	s.q.Leave(p.at, served)
	delete(s.people, p.name)
	if !served && s.has[p.keys[0]] == p.name {
		s.release(p.keys[0])
	}
}

// mayAsk reports whether a person is to ask now.
func (s *street) mayAsk(p *person) bool {
	return !p.asking && asks(s.q, p.at)
}

func (s *street) ask(p *person) {
	before := p.at.Key
	_, err := s.q.Ask(p.at, s.wants(p)...)
	if p.asking = err == nil; !p.asking && p.at.Key == before {
		s.t.Fatalf("%s may ask, but: %v", p.name, err)
	}
}

// answer answers a person who asks.
func (s *street) answer(p *person) {
	p.asking = false
	if s.r.IntN(20) == 0 { // too few nodes
		k := Known{Asked: true, Err: errors.New("no quorum")}
		s.q.Asked(p.at, k)
		s.q.Wake(p.at.Key) // the pause after an error is over
		return
	}
	for _, k := range p.keys {
		if by := s.has[k]; by != "" && by != p.name {
			known := Known{Asked: true, Holder: by, Fence: 1, Until: 2 * time.Hour}
			if s.mayRelease(k) && s.r.IntN(3) == 0 { // it is released before they know
				s.release(k)
			}
			if k == p.at.Key {
				s.q.Asked(p.at, known)
			} else {
				s.q.Move(p.at, k, known)
			}
			return
		}
	}
	known := Known{Asked: true, Fresh: true, Holder: p.name, Fence: 1, Until: 2 * time.Hour}
	for _, k := range p.keys {
		s.has[k] = p.name
	}
	s.q.Asked(p.at, known)
	s.leave(p, true)
	s.served++
}

func (s *street) release(k string) {
	delete(s.has, k)
	s.q.Wake(k)
}

// mayRelease reports whether who has a key does not wait for others.
func (s *street) mayRelease(k string) bool { return s.has[k] != "" && s.people[s.has[k]] == nil }

// pick picks somebody.
func (s *street) pick(which func(*person) bool) *person {
	names := make([]string, 0, len(s.people))
	for n, p := range s.people {
		if which(p) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return s.people[names[s.r.IntN(len(names))]]
}

func (s *street) someKeys() []string {
	n := 1
	if s.r.IntN(2) == 0 {
		n += s.r.IntN(len(s.keys))
	}
	var some []string
	for _, i := range s.r.Perm(len(s.keys))[:n] {
		some = append(some, s.keys[i])
	}
	slices.Sort(some)
	return some
}

func (s *street) step() {
	switch s.r.IntN(8) {
	case 0, 1:
		if len(s.people) < 12 {
			s.n++
			p := &person{name: fmt.Sprint("p", s.n), keys: s.someKeys()}
			if first := p.keys[0]; len(p.keys) > 1 && s.has[first] == "" && s.r.IntN(2) == 0 {
				s.has[first] = p.name // it came from elsewhere, past the line; since it is the first one there is no deadlock of people who wait
			}
			s.join(p)
		}
	case 2:
		if len(s.away) > 0 {
			i := s.r.IntN(len(s.away))
			s.join(s.away[i])
			s.away = slices.Delete(s.away, i, i+1)
		}
	case 3:
		if p := s.pick(func(*person) bool { return true }); p != nil {
			s.leave(p, false)
			s.away = append(s.away, &person{name: p.name, keys: p.keys})
		}
	case 4, 5:
		if p := s.pick(s.mayAsk); p != nil {
			s.ask(p)
		}
	case 6:
		if p := s.pick(func(p *person) bool { return p.asking }); p != nil {
			s.answer(p)
		}
	case 7:
		if k := s.keys[s.r.IntN(len(s.keys))]; s.mayRelease(k) {
			s.release(k)
		}
	}
}

// check looks whether the lines are in order, and whether the first in the line of each key that is free asks.
func (s *street) check() {
	for k, l := range s.q.lines {
		var numbers []uint64
		for w := range l.waiters.all() {
			if w.Key != k || w.line != l {
				s.t.Fatalf("%s stands in the line of %s", *w.Value, k)
			}
			if w == l.head() && !isHead(w) {
				s.t.Fatalf("%s is the head and does not know", *w.Value)
			}
			if w != l.head() || !w.asking {
				numbers = append(numbers, w.number)
			}
		}
		if !slices.IsSorted(numbers) {
			s.t.Fatalf("the line of %s is not in order: %v", k, numbers)
		}
	}
	for _, p := range s.people {
		if l := p.at.line; l.head() == p.at && s.has[p.at.Key] == "" && !p.asking && !s.mayAsk(p) {
			s.t.Fatalf("%s is free, and %s, the first in its line, does not ask", p.at.Key, p.name)
		}
	}
}

// TestMove_NobodyIsStuck: in a crowd that waits for one key and for several, has one already, comes and goes and comes back, the first in the
// line of a free key asks, and in the end all get what they want.
func TestMove_NobodyIsStuck(t *testing.T) {
	served := 0
	for seed := range uint64(300) {
		s := &street{
			t: t, r: rand.New(rand.NewPCG(seed, 1)), q: still(1000), keys: strings.Fields("a b c d"), has: map[string]string{}, people: map[string]*person{},
		}
		s.q.opt.Random = func(time.Duration) time.Duration { return 0 }
		for range 400 {
			s.step()
			s.check()
		}
		for steps := 0; len(s.people) > 0; steps++ {
			if p := s.pick(func(p *person) bool { return p.asking }); p != nil {
				s.answer(p)
			} else if p := s.pick(s.mayAsk); p != nil {
				s.ask(p)
			} else {
				for _, k := range s.keys {
					if s.mayRelease(k) {
						s.release(k)
					}
				}
			}
			s.check()
			if steps > 10_000 {
				t.Fatalf("seed %d: %d are stuck", seed, len(s.people))
			}
		}
		if s.q.Total() != 0 || len(s.q.lines) != 0 || len(s.q.owned) != 0 {
			t.Fatalf("seed %d: %d are left", seed, s.q.Total())
		}
		served += s.served
	}
	if served < 5000 {
		t.Errorf("only %d got what they wanted", served)
	}
}
