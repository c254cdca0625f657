package waitq

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// joinAs joins a line with a request of its owner's, and the owner as value.
func joinAs(t *testing.T, q *Queues[string, *string], owner, req string) *Waiter[string, *string] {
	t.Helper()
	w, err := q.Join([]string{"job"}, owner, req, Alone, &owner)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// standing are the owners in line.
func standing(q *Queues[string, *string]) (all string) {
	for _, e := range q.List("job") {
		all += *e.Value
	}
	return all
}

func TestPlace_IsKept(t *testing.T) {
	tests := []struct {
		name        string
		req         string // of the one who leaves
		served      bool
		away        time.Duration
		owner, back string // who comes back, and the request
		want        string
	}{
		{"at once", "1", false, 0, "b", "1", "abcd"},
		{"after two seconds", "1", false, placeFor, "b", "1", "abcd"},
		{"later", "1", false, placeFor + 1, "b", "1", "acdb"},
		{"served", "1", true, 0, "b", "1", "acdb"},
		{"another request", "1", false, 0, "b", "2", "acdb"},
		{"another owner", "1", false, 0, "e", "1", "acde"},
		{"no request", "", false, 0, "b", "", "acdb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := running(t)
				refuse(q, joinAs(t, q, "a", "1"))
				b := joinAs(t, q, "b", tt.req)
				joinAs(t, q, "c", "1")
				q.Leave(b, tt.served)
				joinAs(t, q, "d", "1")
				time.Sleep(tt.away)
				joinAs(t, q, tt.owner, tt.back)
				if got := standing(q); got != tt.want {
					t.Errorf("%s is back: the line is %s, want %s", tt.owner, got, tt.want)
				}
			})
		})
	}
}

// TestPlace_OnceForEach: the first waiter that comes back gets the place; a second with the same owner and request does
// not.
func TestPlace_OnceForEach(t *testing.T) {
	q := still(10)
	joinAs(t, q, "a", "1")
	q.Leave(joinAs(t, q, "b", "1"), false)
	joinAs(t, q, "c", "1")
	joinAs(t, q, "b", "1")
	joinAs(t, q, "b", "1")
	if got := standing(q); got != "abcb" {
		t.Errorf("the line is %s", got)
	}
}

// TestPlace_EachLineHasItsOwn: a place in one line gives no place in another.
func TestPlace_EachLineHasItsOwn(t *testing.T) {
	q := still(10)
	other, err := q.Join([]string{"other"}, "b", "1", Alone, new(string))
	if err != nil {
		t.Fatal(err)
	}
	joinAs(t, q, "a", "1")
	q.Leave(other, false)
	joinAs(t, q, "c", "1")
	joinAs(t, q, "b", "1")
	if got := standing(q); got != "acb" {
		t.Errorf("the line is %s", got)
	}
}

// TestPlace_InFrontOfASleepingHead: a waiter that comes back overtakes a head that sleeps; that is woken, and waits for
// its turn again.
func TestPlace_InFrontOfASleepingHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		a := joinAs(t, q, "a", "1")
		refuse(q, a)
		b := joinAs(t, q, "b", "1")
		q.Leave(a, false)
		slept := make(chan error, 1)
		go func() { slept <- q.Sleep(t.Context(), b) }()
		synctest.Wait()
		a = joinAs(t, q, "a", "1")
		if !isHead(a) || isHead(b) || standing(q) != "ab" {
			t.Fatalf("a is the head: %v; b is: %v; the line is %s", isHead(a), isHead(b), standing(q))
		}
		if err := <-slept; !errors.Is(err, ErrOvertaken) {
			t.Errorf("who was the head sleeps until %v", err)
		}
		if _, err := q.Ask(b); !errors.Is(err, ErrOvertaken) {
			t.Errorf("who was the head asks: %v", err)
		}
		if d, head := q.pause(a); d <= 0 || !head {
			t.Errorf("a has nothing to ask, since b was told who has the key; it sleeps for %v", d)
		}
		turn := make(chan error, 1)
		go func() {
			_, err := q.AwaitTurn(t.Context(), b)
			turn <- err
		}()
		synctest.Wait()
		select {
		case err := <-turn:
			t.Errorf("it is b's turn before a's: %v", err)
		default:
		}
		q.Leave(a, true)
		if err := <-turn; err != nil || !isHead(b) {
			t.Errorf("b's turn: %v", err)
		}
	})
}

// TestPlace_BehindAHeadThatAsks: a head that is asking is not overtaken before it is refused.
func TestPlace_BehindAHeadThatAsks(t *testing.T) {
	for name, begin := range map[string]func(q *Queues[string, *string], b *Waiter[string, *string]){
		"asking": func(q *Queues[string, *string], b *Waiter[string, *string]) { q.Ask(b) },
		"offered": func(q *Queues[string, *string], b *Waiter[string, *string]) {
			q.HandOver("job", func(*string) bool { return true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := still(10)
			a := joinAs(t, q, "a", "1")
			refuse(q, a)
			b := joinAs(t, q, "b", "1")
			joinAs(t, q, "c", "1")
			q.Leave(a, false)
			begin(q, b)
			a = joinAs(t, q, "a", "1")
			if got := standing(q); got != "bac" || !isHead(b) || isHead(a) {
				t.Errorf("the line is %s; b is the head: %v; a is: %v", got, isHead(b), isHead(a))
			}
			if name == "asking" {
				q.Asked(b, Known{Asked: true, Holder: "alice", Until: 2 * at})
				if got := standing(q); got != "abc" || !isHead(a) || isHead(b) {
					t.Errorf("b was refused; the line is %s; a is the head: %v; b is: %v", got, isHead(a), isHead(b))
				}
			}
			q.Leave(b, true)
			if !isHead(a) {
				t.Error("a is not next")
			}
		})
	}
}

// TestPlace_MemoryIsBounded: no more places are kept than may wait, and none for long.
func TestPlace_MemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		q.opt.Limit = 3
		for i := range 10 {
			q.Leave(joinAs(t, q, fmt.Sprint(i), "1"), false)
		}
		if len(q.places) != 3 || q.placesByAge.Len() != 3 {
			t.Errorf("%d places, %d by age", len(q.places), q.placesByAge.Len())
		}
		time.Sleep(placeFor + 1)
		q.Sweep()
		if len(q.places) != 0 || q.placesByAge.Len() != 0 {
			t.Errorf("later %d places, %d by age", len(q.places), q.placesByAge.Len())
		}
	})
}
