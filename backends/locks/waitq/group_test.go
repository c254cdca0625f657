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

type testGroup = Group[string, *string]

// joinGroup joins the lines of keys like "a b c", with a request of its owner's.
func joinGroup(t *testing.T, q *Queues[string, *string], owner, keys string) *testGroup {
	t.Helper()
	g, err := q.JoinAll(strings.Fields(keys), owner, "1", Alone, &owner)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// joinOne joins the line of one key.
func joinOne(t *testing.T, q *Queues[string, *string], owner, key string) *Waiter[string, *string] {
	t.Helper()
	w, err := q.Join(key, owner, "1", Alone, &owner)
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

// has are what is known when a key is held.
func has(owner string) Known {
	return Known{Asked: true, Holder: owner, Fence: 7, Until: 2 * time.Hour}
}

// refuseGroup has a group ask, in vain.
func refuseGroup(t *testing.T, q *Queues[string, *string], g *testGroup, of string) {
	t.Helper()
	if err := q.AskAll(g); err != nil {
		t.Fatal(err)
	}
	q.RefusedAll(g, of, has("holder"))
}

// asks reports whether a group is to ask now.
func asks(q *Queues[string, *string], g *testGroup) bool { return q.pauseAll(g) <= 0 }

func TestGroup_AsksAsFirstOfAllLines(t *testing.T) {
	q := still(20)
	x := joinOne(t, q, "x", "b")
	g := joinGroup(t, q, "g", "a b c")
	y := joinOne(t, q, "y", "a")
	h := joinGroup(t, q, "h", "b c")
	if g.First || asks(q, g) || isHead(y) || asks(q, h) || lineOf(q, "a") != "gy" || lineOf(q, "b") != "xgh" || lineOf(q, "c") != "gh" {
		t.Fatalf("the lines are %s, %s and %s", lineOf(q, "a"), lineOf(q, "b"), lineOf(q, "c"))
	}
	if err := q.AskAll(g); !errors.Is(err, ErrOvertaken) {
		t.Errorf("it asks behind another: %v", err)
	}
	q.Ask(x)
	q.Asked(x, Known{Asked: true, Fresh: true, Holder: "x", Until: 2 * time.Hour})
	q.Leave(x, true)
	if asks(q, g) {
		t.Error("it asks though b is known to be held")
	}
	q.Wake("b")
	if !asks(q, g) {
		t.Error("b is free, and it does not ask")
	}
	refuseGroup(t, q, g, "c")
	if asks(q, g) || asks(q, h) {
		t.Error("it asks though c is known to be held")
	}
	q.Wake("a")
	if asks(q, g) {
		t.Error("a release of a is no reason to ask")
	}
	q.Wake("c")
	if !asks(q, g) {
		t.Error("c is free, and it does not ask")
	}
	if err := q.AskAll(g); err != nil || g.Trigger() != Woken {
		t.Errorf("%v, trigger %d", err, g.Trigger())
	}
	q.GotAll(g, func(k string) Known { return has("g") })
	q.LeaveAll(g, true)
	if known, _ := q.Known("a"); !isHead(y) || known.Holder != "g" || asks(q, h) {
		t.Errorf("y is the head: %v; of a is known %+v", isHead(y), known)
	}
	q.LeaveAll(h, false)
	q.Leave(y, false)
	if q.Total() != 0 || len(q.lines) != 0 || len(q.owned) != 0 {
		t.Errorf("%d are left", q.Total())
	}
}

// TestGroup_First: where nobody waits it asks at once; meanwhile it is not overtaken, and whoever is behind it is next when it has left.
func TestGroup_First(t *testing.T) {
	q := still(20)
	joined := joinOne(t, q, "z", "b")
	q.Leave(joined, false)
	g := joinGroup(t, q, "g", "a b")
	if !g.First || !asks(q, g) {
		t.Fatal("it does not ask at once")
	}
	if q.AskAll(g); g.Trigger() != AtOnce {
		t.Errorf("trigger %d", g.Trigger())
	}
	z := joinOne(t, q, "z", "b") // back in its place
	if lineOf(q, "b") != "gz" {
		t.Errorf("the line is %s", lineOf(q, "b"))
	}
	if offered, _ := q.HandOver("a", func(*string) bool { return true }); offered {
		t.Error("an offer to one that asks")
	}
	q.RefusedAll(g, "a", has("holder"))
	if lineOf(q, "b") != "zg" || !isHead(z) || asks(q, g) {
		t.Errorf("who came before it is not in front of it: %s", lineOf(q, "b"))
	}
	q.Wake("a")
	if asks(q, g) {
		t.Error("it asks behind another")
	}
	q.Leave(z, true)
	if !asks(q, g) {
		t.Error("it does not ask when that has left")
	}
	next := joinOne(t, q, "n", "a")
	q.LeaveAll(g, false)
	if d, head := q.pause(next); !head || d > 0 {
		t.Errorf("the next one is the head: %v, and sleeps for %v", head, d)
	}
}

// TestGroup_Place: it comes back to one place in all lines.
func TestGroup_Place(t *testing.T) {
	q := still(20)
	first := joinOne(t, q, "f", "c")
	refuse(q, first)
	g := joinGroup(t, q, "g", "a b c")
	joinOne(t, q, "x", "a")
	h := joinGroup(t, q, "h", "b c")
	q.LeaveAll(g, false)
	joinOne(t, q, "y", "b")
	g = joinGroup(t, q, "g", "a b c")
	if lineOf(q, "a") != "gx" || lineOf(q, "b") != "ghy" || lineOf(q, "c") != "fgh" {
		t.Errorf("the lines are %s, %s and %s", lineOf(q, "a"), lineOf(q, "b"), lineOf(q, "c"))
	}
	if ahead, _, ok := q.Place("c", "g", "1"); ahead != 1 || !ok {
		t.Errorf("%d are ahead, %v", ahead, ok)
	}
	q.LeaveAll(g, false)
	one := joinOne(t, q, "g", "b")
	if lineOf(q, "b") != "hyg" {
		t.Errorf("a LOCK of one key has its place: %s", lineOf(q, "b"))
	}
	q.Leave(one, true)
	g = joinGroup(t, q, "g", "a b c")
	q.LeaveAll(g, true)
	joinGroup(t, q, "g", "a b c")
	if lineOf(q, "a") != "xg" {
		t.Errorf("served, it is back: %s", lineOf(q, "a"))
	}
	q.LeaveAll(h, false)
}

func TestGroup_Limit(t *testing.T) {
	q := still(4)
	joinOne(t, q, "x", "a")
	g := joinGroup(t, q, "g", "a b c")
	if _, err := q.JoinAll([]string{"b"}, "h", "1", Alone, nil); !errors.As(err, new(*FullError)) || q.Total() != 4 {
		t.Errorf("over the limit: %v, %d wait", err, q.Total())
	}
	q.LeaveAll(g, false)
	if _, err := q.JoinAll([]string{"a", "b", "c", "d"}, "h", "1", Alone, nil); !errors.As(err, new(*FullError)) || q.Total() != 1 {
		t.Errorf("over the limit: %v, %d wait", err, q.Total())
	}
}

// TestGroup_Own: where its owner has the key it needs no turn, and who has it is no reason to sleep.
func TestGroup_Own(t *testing.T) {
	q := still(20)
	x := joinOne(t, q, "g", "b") // of the same owner
	g := joinGroup(t, q, "g", "a b")
	if asks(q, g) {
		t.Fatal("it asks behind another")
	}
	q.Ask(x)
	q.Asked(x, has("g"))
	if !asks(q, g) {
		t.Fatal("its owner has b, and it does not ask")
	}
	q.Leave(x, true)
	if !asks(q, g) {
		t.Fatal("as the head of the line it does not ask for what its owner has")
	}
	refuseGroup(t, q, g, "a")
	if asks(q, g) {
		t.Fatal("it asks again though a is held")
	}
	q.Wake("a")
	if !asks(q, g) {
		t.Fatal("a is free, and it does not ask")
	}
	refuseGroup(t, q, g, "b") // the owner has lost it
	if asks(q, g) {
		t.Error("it asks again though b is held")
	}
	q.Wake("b")
	if !asks(q, g) {
		t.Error("b is free, and it does not ask")
	}
}

// TestGroup_NoLine: a key in its way for which it has no turn in a line has it ask again soon.
func TestGroup_NoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		q.SetPoll(time.Second, 5*time.Second)
		g := joinGroup(t, q, "g", "a b")
		for i, tt := range []struct {
			of    string
			known Known
			want  time.Duration
		}{
			{"other", Known{Asked: true, Holder: "x", Until: 100 * time.Millisecond}, 102 * time.Millisecond},
			{"other", Known{Asked: true, Holder: "x", Until: time.Hour}, time.Second},
			{"other", Known{Asked: true, Holder: "x", Until: time.Hour}, time.Second},
			{"", Known{Asked: true, Err: errors.New("no quorum")}, 100 * time.Millisecond},
			{"", Known{Asked: true, Err: errors.New("no quorum")}, 200 * time.Millisecond},
			{"", Known{Asked: true}, 0},
			{"b", Known{Asked: true, Holder: "g", Until: time.Hour}, time.Second}, // it wants it not again
		} {
			if err := q.AskAll(g); err != nil {
				t.Fatal(err)
			}
			asked := time.Now()
			tt.known.Until += q.opt.Now()
			q.RefusedAll(g, tt.of, tt.known)
			if err := q.AwaitAll(t.Context(), g); err != nil || time.Since(asked) != tt.want {
				t.Errorf("%d: it slept for %v, %v, want %v", i, time.Since(asked), err, tt.want)
			}
		}
	})
}

// TestGroup_AwaitAll ends with its context, and with the queues.
func TestGroup_AwaitAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		x := joinOne(t, q, "x", "b")
		g, h := joinGroup(t, q, "g", "a b"), joinGroup(t, q, "h", "a b")
		ctx, cancel := context.WithCancel(t.Context())
		var errs [2]error
		var turn [2]time.Duration
		began := time.Now()
		await := func(i int, ctx context.Context, g *testGroup) {
			errs[i] = q.AwaitAll(ctx, g)
			turn[i] = time.Since(began)
		}
		go await(0, t.Context(), g)
		go await(1, ctx, h)
		time.Sleep(time.Second)
		q.Leave(x, false)
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		if errs[0] != nil || !errors.Is(errs[1], context.Canceled) || turn != [2]time.Duration{time.Second, 2 * time.Second} {
			t.Errorf("%v, after %v", errs, turn)
		}
		refuseGroup(t, q, g, "b")
		go await(0, t.Context(), g)
		go await(1, t.Context(), h)
		synctest.Wait()
		q.Close()
		synctest.Wait()
		if errs != [2]error{ErrClosed, ErrClosed} || q.Go(nil) {
			t.Errorf("%v", errs)
		}
	})
}

// TestGroup_Shared: groups that share keys are let in together with those before them, and let others in.
func TestGroup_Shared(t *testing.T) {
	q := still(20)
	reads := func(owner, keys string) *testGroup {
		g, err := q.JoinAll(strings.Fields(keys), owner, "", Sharing, &owner)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g, h := reads("g", "a b"), reads("h", "b c")
	if !asks(q, g) || !asks(q, h) {
		t.Error("they do not ask at once")
	}
	w := joinGroup(t, q, "w", "a c")
	late := reads("l", "b c")
	if asks(q, w) || asks(q, late) {
		t.Error("it asks behind others")
	}
	q.AskAll(g)
	q.GotAll(g, nil)
	q.LeaveAll(g, true)
	if asks(q, w) || asks(q, late) {
		t.Error("it asks behind others")
	}
	q.LeaveAll(h, true)
	q.LeaveAll(w, true)
	if !asks(q, late) {
		t.Error("it does not ask")
	}
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

// A person wants keys.
type person struct {
	name   string
	keys   []string
	one    *Waiter[string, *string] // with one key
	group  *testGroup               // with several
	asking bool
}

func (s *street) join(p *person) {
	var err error
	if len(p.keys) == 1 {
		p.one, err = s.q.Join(p.keys[0], p.name, "1", Alone, &p.name)
		p.asking = err == nil && p.one.First
	} else {
		p.group, err = s.q.JoinAll(p.keys, p.name, "1", Alone, &p.name)
		p.asking = err == nil && p.group.First
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.people[p.name] = p
}

func (s *street) leave(p *person, served bool) {
	if p.group != nil {
		s.q.LeaveAll(p.group, served)
	} else {
		s.q.Leave(p.one, served)
	}
	delete(s.people, p.name)
}

// mayAsk reports whether a person is to ask now.
func (s *street) mayAsk(p *person) bool {
	if p.asking {
		return false
	}
	if p.group != nil {
		return s.q.pauseAll(p.group) <= 0
	}
	d, head := s.q.pause(p.one)
	return head && d <= 0
}

func (s *street) ask(p *person) {
	var err error
	if p.group != nil {
		err = s.q.AskAll(p.group)
	} else {
		_, err = s.q.Ask(p.one)
	}
	if err != nil {
		s.t.Fatalf("%s may ask, but: %v", p.name, err)
	}
	p.asking = true
}

// answer answers a person who asks.
func (s *street) answer(p *person) {
	p.asking = false
	if s.r.IntN(20) == 0 { // too few nodes
		k := Known{Asked: true, Err: errors.New("no quorum")}
		if p.group != nil {
			s.q.RefusedAll(p.group, "", k)
		} else {
			s.q.Asked(p.one, k)
		}
		for _, k := range p.keys { // the pause after an error is over
			s.q.Wake(k)
		}
		return
	}
	for _, k := range p.keys {
		if by := s.has[k]; by != "" {
			known := Known{Asked: true, Holder: by, Fence: 1, Until: 2 * time.Hour}
			if s.r.IntN(3) == 0 { // it is released before they know
				s.release(k)
			}
			if p.group != nil {
				s.q.RefusedAll(p.group, k, known)
			} else {
				s.q.Asked(p.one, known)
			}
			return
		}
	}
	known := Known{Asked: true, Fresh: true, Holder: p.name, Fence: 1, Until: 2 * time.Hour}
	for _, k := range p.keys {
		s.has[k] = p.name
	}
	if p.group != nil {
		s.q.GotAll(p.group, func(string) Known { return known })
	} else {
		s.q.Asked(p.one, known)
	}
	s.leave(p, true)
	s.served++
}

func (s *street) release(k string) {
	delete(s.has, k)
	s.q.Wake(k)
}

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
			s.join(&person{name: fmt.Sprint("p", s.n), keys: s.someKeys()})
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
		if k := s.keys[s.r.IntN(len(s.keys))]; s.has[k] != "" {
			s.release(k)
		}
	}
}

// check looks whether the lines are in order, and whether somebody asks if all keys are free.
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
	if len(s.people) > 0 && len(s.has) == 0 && s.pick(func(p *person) bool { return p.asking || s.mayAsk(p) }) == nil {
		s.t.Fatalf("%d wait, all keys are free, and nobody asks", len(s.people))
	}
}

// TestGroup_NobodyIsStuck: in a crowd that waits for one key and for several, comes and goes and comes back, there is always somebody
// who asks while all keys are free, and in the end all get what they want.
func TestGroup_NobodyIsStuck(t *testing.T) {
	served := 0
	for seed := range uint64(300) {
		s := &street{
			t: t, r: rand.New(rand.NewPCG(seed, 1)), q: still(1000), keys: strings.Fields("a b c d"), has: map[string]string{}, people: map[string]*person{},
		}
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
					if s.has[k] != "" {
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
