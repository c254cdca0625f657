package chores

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// newList is a List in the time of a synctest bubble.
func newList() *List {
	began := time.Now()
	return New(func() time.Duration { return time.Since(began) })
}

// TestList_Order: chores are done when they are due, in whatever order they were added, and each once.
func TestList_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList()
		defer l.Close()
		var done []time.Duration
		for _, at := range []time.Duration{5 * time.Second, time.Minute, time.Second, 20 * time.Millisecond} {
			l.Add(&Chore{At: at, Do: func(context.Context) error {
				done = append(done, l.now())
				return nil
			}})
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{20 * time.Millisecond, time.Second, 5 * time.Second, time.Minute}; !slices.Equal(done, want) {
			t.Errorf("done at %v, want %v", done, want)
		}
		if n := l.Len(); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

// TestList_Again: a chore that fails is tried again until it is given up, and Idle waits for it if it is urgent.
func TestList_Again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList()
		defer l.Close()
		var tries atomic.Int64
		l.Add(&Chore{Until: 10 * time.Second, Urgent: true, Do: func(context.Context) error {
			tries.Add(1)
			return errors.New("no")
		}})
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := tries.Load(); l.Idle() || n < 10 {
			t.Errorf("idle %t after %d tries", l.Idle(), n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := tries.Load(); !l.Idle() || n > 30 {
			t.Errorf("idle %t after %d tries", l.Idle(), n)
		}
	})
}

// TestList_Drop: a chore that is dropped is neither run nor tried again; the others are.
func TestList_Drop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList()
		defer l.Close()
		var done [10]int
		all := make([]*Chore, len(done))
		for i := range all {
			all[i] = &Chore{At: time.Duration(i) * time.Second, Until: time.Hour, Do: func(context.Context) error {
				done[i]++
				if i == 1 {
					time.Sleep(2 * time.Second)
					return errors.New("no")
				}
				return nil
			}}
			l.Add(all[i])
		}
		time.Sleep(2500 * time.Millisecond)
		for _, i := range []int{1, 5, 3, 9, 0} { // under way, and later, and done
			l.Drop(all[i])
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := [10]int{1, 1, 1, 0, 1, 0, 1, 1, 1, 0}; done != want {
			t.Errorf("done %v, want %v", done, want)
		}
	})
}

// TestList_Close: Close ends the chore that runs, and no other is run after it.
func TestList_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newList()
		ended, late := false, false
		l.Add(&Chore{Until: time.Hour, Do: func(ctx context.Context) error {
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}})
		l.Add(&Chore{At: time.Second, Do: func(context.Context) error {
			late = true
			return nil
		}})
		synctest.Wait()
		l.Close()
		l.Add(&Chore{Do: func(context.Context) error {
			late = true
			return nil
		}})
		time.Sleep(time.Hour)
		synctest.Wait()
		if !ended || late {
			t.Errorf("ended %t, one done after Close %t", ended, late)
		}
	})
}
