package waitq

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// at is when the tests with a clock that stands still take place.
const at = time.Second

// still are queues for three sources, of which two are needed, and a clock that stands still.
func still(limit int) *Queues[string, *string] {
	return New[string, *string](Options{
		Limit: limit, Sources: 3, Need: 2, Poll: time.Hour, LongPoll: time.Hour,
		Now:    func() time.Duration { return at },
		Random: func(below time.Duration) time.Duration { return rand.N(below) },
	})
}

// running are queues by the clock of the test.
func running(t *testing.T) *Queues[string, *string] {
	began := time.Now()
	q := still(100)
	q.opt.Now = func() time.Duration { return time.Since(began) }
	q.opt.Random = func(time.Duration) time.Duration { return 0 }
	t.Cleanup(q.Close)
	return q
}

func join(t *testing.T, q *Queues[string, *string], owner string) *Waiter[string, *string] {
	t.Helper()
	w, err := q.Join([]string{"job"}, owner, "", Alone, new(string))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// refuse has the head ask, in vain.
func refuse(q *Queues[string, *string], w *Waiter[string, *string]) {
	q.Ask(w)
	q.Asked(w, Known{Asked: true, Holder: "alice", Fence: 7, Until: 2 * time.Hour})
}

func isHead(w *Waiter[string, *string]) bool {
	select {
	case <-w.head:
		return true
	default:
		return false
	}
}

func TestQueues_FirstComeFirstServed(t *testing.T) {
	q := still(4)
	var line []*Waiter[string, *string]
	for range 4 {
		line = append(line, join(t, q, ""))
	}
	full := new(FullError)
	if _, err := q.Join([]string{"other"}, "", "", Alone, nil); !errors.As(err, &full) || full.Max != 4 || q.Total() != 4 {
		t.Errorf("%d wait, and over the limit: %v", q.Total(), err)
	}
	for _, leaves := range []int{2, 0, 1, 3} { // the third leaves from within the line
		first := slices.IndexFunc(line, func(w *Waiter[string, *string]) bool { return w != nil })
		for i, w := range line {
			if w != nil && isHead(w) != (i == first) {
				t.Errorf("waiter %d is the head: %v", i, isHead(w))
			}
		}
		q.Leave(line[leaves], false)
		line[leaves] = nil
	}
	if q.Total() != 0 || q.Len("job") != 0 || len(q.lines) != 0 {
		t.Errorf("%d are left", q.Total())
	}
}

// TestQueues_HeadLeaves: the next head goes by what the one before was told. It asks at once if that one
// left without an answer, or after a release.
func TestQueues_HeadLeaves(t *testing.T) {
	tests := []struct {
		name  string
		last  func(q *Queues[string, *string], w *Waiter[string, *string])
		sleep bool
	}{
		{"asleep", func(*Queues[string, *string], *Waiter[string, *string]) {}, true},
		{"asking", func(q *Queues[string, *string], w *Waiter[string, *string]) { q.Ask(w) }, false},
		{"after a release here", func(q *Queues[string, *string], _ *Waiter[string, *string]) { q.Wake("job") }, false},
		{"after the hints needed", func(q *Queues[string, *string], _ *Waiter[string, *string]) {
			q.sources[0].Released("job", 7, Freed)
			q.sources[1].Released("job", 7, Freed)
		}, false},
		{"with an offer", func(q *Queues[string, *string], _ *Waiter[string, *string]) {
			q.HandOver("job", func(v *string) bool { *v = "offer"; return true })
		}, false},
	}
	for _, tt := range tests {
		q := still(2)
		q.Listen()
		first, second := join(t, q, ""), join(t, q, "")
		refuse(q, first)
		q.pause(first)
		tt.last(q, first)
		if _, unused := q.Leave(first, false); unused != (*first.Value == "offer") {
			t.Errorf("%s: an unused offer: %v", tt.name, unused)
		}
		if !isHead(second) {
			t.Fatalf("%s: the next one is not the head", tt.name)
		}
		if d, _ := q.pause(second); (d > 0) != tt.sleep {
			t.Errorf("%s: the next one pauses for %v", tt.name, d)
		}
	}
}

// TestSource_Confirm: a key freed between the refusal and the subscription is asked for again.
func TestSource_Confirm(t *testing.T) {
	q := still(1)
	src := q.Listen()
	w := join(t, q, "")
	pauses := func(when string, want bool) {
		t.Helper()
		if d, _ := q.pause(w); (d > 0) != want {
			t.Errorf("%s: a pause of %v", when, d)
		}
	}
	src[0].Confirm("other") // which nobody listens for any more
	pauses("nothing is known", false)
	refuse(q, w)
	pauses("refused", true)
	src[1].Confirm("job")
	pauses("one source will tell", true)
	src[2].Confirm("job")
	pauses("as many as are needed will tell", false)
	refuse(q, w)
	pauses("refused again", true)
	src[0].Confirm("job")
	pauses("the last source will tell", true)
	src[0].Lost()
	src[0].Confirm("job")
	pauses("there were enough all the time", true)
	src[0].Lost()
	src[1].Lost()
	src[1].Confirm("job")
	pauses("there were too few for a while", false)
}

// TestSource_Released: as many hints as are needed wake the head at once, fewer after a moment; hints of earlier
// grants, and too few undos, do not wake it.
func TestSource_Released(t *testing.T) {
	type hint struct {
		source int
		fence  int64
		kind   Kind
	}
	tests := []struct {
		name     string
		hints    []hint
		want     time.Duration
		outdated bool // whether alice still has it
	}{
		{"nothing", nil, time.Hour, false},
		{"as many as are needed", []hint{{0, 7, Freed}, {2, 7, Freed}}, 0, true},
		{"one source", []hint{{1, 7, Freed}}, othersLag, true},
		{"one source twice", []hint{{1, 7, Freed}, {1, 7, Freed}}, othersLag, true},
		{"an earlier grant", []hint{{0, 6, Freed}, {1, 6, Freed}, {2, 6, Freed}}, time.Hour, false},
		{"an earlier grant, handed to this one", []hint{{0, 6, Passed}, {2, 6, Passed}}, time.Hour, false},
		{"handed on", []hint{{1, 7, Passed}}, time.Hour, true},
		{"one undo", []hint{{0, 9, Undone}}, time.Hour, true},
		{"as many undos as are needed", []hint{{0, 9, Undone}, {1, 9, Undone}}, 0, true},
		{"a release, and it was handed on", []hint{{0, 7, Freed}, {1, 8, Freed}}, 0, true},
	}
	for _, tt := range tests {
		q := still(1)
		src := q.Listen()
		w := join(t, q, "")
		refuse(q, w)
		q.pause(w)
		for _, h := range tt.hints {
			src[h.source].Released("job", h.fence, h.kind)
		}
		if d, _ := q.pause(w); d != tt.want {
			t.Errorf("%s: a pause of %v, not %v", tt.name, d, tt.want)
		}
		if k, _ := q.Known("job"); k.Answers(at) == tt.outdated {
			t.Errorf("%s: alice has it: %v", tt.name, !tt.outdated)
		}
	}
}

// TestQueues_Timers: without hints the head asks when the holder's lease is over, and before that
// less and less often; after an error, soon.
func TestQueues_Timers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		q.SetPoll(time.Second, 3*time.Second)
		w := join(t, q, "")
		for _, tt := range []struct {
			known Known
			want  time.Duration
		}{
			{Known{Asked: true, Holder: "alice", Until: 300 * time.Millisecond}, 302 * time.Millisecond},
			{Known{Asked: true, Holder: "alice", Until: time.Hour}, 2 * time.Second},
			{Known{Asked: true, Holder: "alice", Until: time.Hour}, 3001 * time.Millisecond},
			{Known{Asked: true, Err: errors.New("no quorum")}, 100 * time.Millisecond},
			{Known{Asked: true, Err: errors.New("no quorum")}, 200 * time.Millisecond},
			{Known{Asked: true}, 0}, // at random, within some milliseconds
		} {
			q.Ask(w)
			q.Asked(w, tt.known)
			began := time.Now()
			if err := q.Sleep(t.Context(), w); err != nil || time.Since(began) != tt.want {
				t.Errorf("%+v: slept for %v, %v, want %v", tt.known, time.Since(began), err, tt.want)
			}
		}
		q.Ask(w)
		if w.Trigger() != Timer {
			t.Errorf("trigger %d", w.Trigger())
		}
	})
}

// TestSource_Passed: a head that is to ask late is woken to ask soon, since the waiter elsewhere may not take the key.
func TestSource_Passed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		q.SetPoll(time.Second, time.Hour)
		src := q.Listen()
		w := join(t, q, "")
		for range 8 {
			refuse(q, w)
		}
		go func() {
			synctest.Wait()
			src[0].Released("job", 7, Passed)
		}()
		began := time.Now()
		if err := q.Sleep(t.Context(), w); err != nil || time.Since(began) != time.Second {
			t.Errorf("slept for %v, %v", time.Since(began), err)
		}
	})
}

// TestQueues_AwaitTurn: waiters of the owner that has got the key are woken, and nobody else.
func TestQueues_AwaitTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		first := join(t, q, "bob")
		woken := map[string]bool{}
		for _, owner := range []string{"alice", "", "bob"} {
			w := join(t, q, owner)
			go func() {
				reenter, err := q.AwaitTurn(t.Context(), w)
				if err == nil {
					woken[owner] = reenter
				}
			}()
		}
		q.Ask(first)
		q.Asked(first, Known{Asked: true, Holder: "bob", Until: time.Hour})
		synctest.Wait()
		if len(woken) != 1 || !woken["bob"] {
			t.Errorf("woken: %v", woken)
		}
		q.Leave(first, false)
		synctest.Wait()
		if reenter, ok := woken["alice"]; !ok || reenter {
			t.Errorf("woken when the first leaves: %v", woken)
		}
		q.Close()
	})
}

// TestQueues_Park: a parked waiter is resumed once, by what comes first.
func TestQueues_Park(t *testing.T) {
	tests := map[string]func(q *Queues[string, *string], head *Waiter[string, *string], cancel func()){
		"its turn": func(q *Queues[string, *string], head *Waiter[string, *string], _ func()) { q.Leave(head, false) },
		"its owner": func(q *Queues[string, *string], head *Waiter[string, *string], _ func()) {
			q.Asked(head, Known{Asked: true, Holder: "alice"})
		},
		"its end":   func(_ *Queues[string, *string], _ *Waiter[string, *string], cancel func()) { cancel() },
		"its time":  func(*Queues[string, *string], *Waiter[string, *string], func()) { time.Sleep(time.Minute) },
		"the close": func(q *Queues[string, *string], _ *Waiter[string, *string], _ func()) { q.Close() },
	}
	for name, wake := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := running(t)
				head, w := join(t, q, ""), join(t, q, "alice")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var resumed atomic.Int64
				if !q.Park(ctx, w, time.Minute, func() { resumed.Add(1) }) {
					t.Fatal("not parked")
				}
				synctest.Wait()
				if resumed.Load() != 0 {
					t.Fatal("resumed at once")
				}
				wake(q, head, cancel)
				synctest.Wait()
				if resumed.Load() != 1 {
					t.Errorf("resumed %d times", resumed.Load())
				}
				q.Close()
				time.Sleep(time.Hour)
				q.Wait()
				if resumed.Load() != 1 {
					t.Errorf("resumed %d times in the end", resumed.Load())
				}
				if q.Park(ctx, w, time.Minute, nil) {
					t.Error("parked after Close")
				}
			})
		})
	}
}

// TestQueues_Close: Close wakes all waiters that sleep, and resumes those that are parked in any line.
func TestQueues_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		head, second := join(t, q, ""), join(t, q, "")
		refuse(q, head)
		var errs [2]error
		go func() { errs[0] = q.Sleep(t.Context(), head) }()
		go func() { _, errs[1] = q.AwaitTurn(t.Context(), second) }()
		var resumed atomic.Int64
		for _, key := range []string{"job", "other", "other"} {
			w, err := q.Join([]string{key}, "", "", Alone, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Park(t.Context(), w, time.Hour, func() { resumed.Add(1) })
		}
		synctest.Wait()
		q.Close()
		synctest.Wait()
		if errs != [2]error{ErrClosed, ErrClosed} || resumed.Load() != 2 {
			t.Errorf("%v, %d resumed", errs, resumed.Load())
		}
	})
}

// TestQueues_HandOver: releases are offered to a head that sleeps, until it is the turn of others that
// listen.
func TestQueues_HandOver(t *testing.T) {
	q := still(2)
	src := q.Listen()
	offer := func() (offered, alone bool) {
		return q.HandOver("job", func(v *string) bool { *v = "offer"; return true })
	}
	if offered, _ := offer(); offered {
		t.Error("offered to nobody")
	}
	w := join(t, q, "")
	if offered, _ := offer(); offered {
		t.Error("offered to a head that asks")
	}
	refuse(q, w)
	q.pause(w)
	for i, want := range []bool{false, false, true} {
		src[i].Confirm("job")
		refuse(q, w)
		offered, alone := offer()
		if !offered || alone != want {
			t.Errorf("%d sources confirmed: offered %v, alone %v", i+1, offered, alone)
		}
		d, _ := q.pause(w)
		offered, err := q.Ask(w)
		if d > 0 || !offered || err != nil || w.Trigger() != Handed || *w.Value != "offer" {
			t.Error("the offer is not there")
		}
		q.Asked(w, Known{Asked: true, Holder: "alice", Fence: 7, Until: 2 * time.Hour})
	}
	q.Listeners("job", func(source int) int { return 1 + source/2 }) // another one at the last source
	n := 0
	for refuse(q, w); ; n++ {
		if offered, _ := offer(); !offered {
			break
		}
		q.Ask(w)
		q.Asked(w, Known{Asked: true, Holder: "alice", Fence: 7, Until: 2 * time.Hour})
	}
	if n != maxReleases-3 {
		t.Errorf("%d more releases until others get the key", n)
	}
	if d, _ := q.pause(w); d < yieldFor || d > yieldFor+yieldMax {
		t.Errorf("a pause of %v for others", d)
	}
	q.Listeners("job", func(int) int { return 1 }) // they have left
	for i := range 2 * maxReleases {
		refuse(q, w)
		if offered, _ := offer(); !offered {
			t.Fatalf("after %d releases it is the turn of others, and there are none", i)
		}
	}
}

// TestQueues_Sweep: a subscription outlasts its line for a while, and serves the next one.
func TestQueues_Sweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := running(t)
		sources := q.Listen()
		src := sources[0]
		w := join(t, q, "")
		refuse(q, w)
		q.pause(w)
		q.Watch("other", true)
		for i, s := range sources {
			if len(s.Changed()) == 0 {
				t.Errorf("source %d has nothing to listen for", i)
			}
		}
		wanted, unwanted := src.Changes()
		if slices.Sort(wanted); strings.Join(wanted, " ") != "job other" || len(unwanted) != 0 || !src.Needed() {
			t.Errorf("wanted %v, unwanted %v", wanted, unwanted)
		}
		q.Leave(w, false)
		time.Sleep(idleFor - 1)
		q.Sweep()
		if _, unwanted := src.Changes(); len(unwanted) != 0 {
			t.Errorf("%v left after %v", unwanted, idleFor-1)
		}
		q.Leave(join(t, q, ""), false)
		for _, key := range []string{"other", "other", "never watched"} {
			q.Watch(key, false)
		}
		time.Sleep(idleFor)
		q.Sweep()
		if _, unwanted := src.Changes(); len(unwanted) != 2 || src.Needed() {
			t.Errorf("%v left in the end", unwanted)
		}
	})
}

// TestQueues_Line: what others see of a line.
func TestQueues_Line(t *testing.T) {
	q := still(2)
	now := at
	q.opt.Now = func() time.Duration { return now }
	src := q.Listen()
	w := join(t, q, "")
	wants := func(when string, asleep bool, confirmed int, sure bool) {
		t.Helper()
		_, s := q.Known("job")
		if l := q.Line("job"); l.Len != 1 || l.Asleep != asleep || l.Confirmed != confirmed || s != sure {
			t.Errorf("%s: %+v, sure %v", when, l, s)
		}
	}
	wants("it has just joined", false, 0, false)
	refuse(q, w)
	q.pause(w)
	wants("refused", true, 0, false)
	src[0].Confirm("job")
	src[2].Confirm("job")
	wants("it is to ask again, since a release may have been missed", false, 2, false)
	refuse(q, w)
	wants("refused again", true, 2, true)
	q.Ask(w)
	wants("asking", false, 2, true)
	q.Asked(w, Known{Asked: true, Until: time.Hour})
	wants("nobody has it", true, 2, false)
	now += 3 * time.Second
	if l, all := q.Line("job"), q.List("job"); l.Head.Waiting != 3*time.Second || len(all) != 1 || all[0] != l.Head {
		t.Errorf("%+v, %+v", l, all)
	}
}

func TestQueues_Longest(t *testing.T) {
	q := still(10)
	for _, k := range []string{"a", "b", "b", "c"} {
		if _, err := q.Join([]string{k}, "", "", Alone, &k); err != nil {
			t.Fatal(err)
		}
	}
	lines, total := q.Longest(2, strings.Compare)
	if total != 3 || len(lines) != 2 || lines[0].Key != "b" || lines[0].Len != 2 || lines[1].Key != "a" {
		t.Errorf("%+v of %d", lines, total)
	}
	if all := q.List("b"); len(all) != 2 || *all[0].Value != "b" {
		t.Errorf("%+v", all)
	}
}
