// Package chores runs tasks at a later time, for which no caller waits, and tries them again until they succeed or are given up.
//
// A List owns its goroutines: one waits for the next task that is due, while there is one, and others run those that are.
package chores

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

const (
	atOnce   = 16                     // chores under way
	pause    = 500 * time.Millisecond // before one that failed is tried again
	mostWait = time.Second            // the longest wait of a timer, since timers stand still while the machine sleeps
)

// A Chore is a task for later. It belongs to the List that it was added to.
type Chore struct {
	At     time.Duration // when it is due
	Until  time.Duration // when it is given up, if it failed
	Urgent bool          // Idle waits for it
	Do     func(context.Context) error

	index   int // in due; -1: it is under way, or over
	dropped bool
}

// A List is chores in the order in which they are due. It is safe for concurrent use.
type List struct {
	now    func() time.Duration
	ctx    context.Context // of what chores do
	cancel context.CancelFunc
	group  sync.WaitGroup
	wake   chan struct{} // holds one

	mu      sync.Mutex
	due     dueHeap
	urgent  int // in due, or under way
	running bool
	closed  bool
}

// New makes a List that goes by this clock.
func New(now func() time.Duration) *List {
	l := &List{now: now, wake: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Close gives up all chores. It returns when none is under way.
func (l *List) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.group.Wait()
}

// Idle reports whether no urgent chore is due, now or later.
func (l *List) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.urgent == 0
}

// Len is how many chores wait until they are due.
func (l *List) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.due)
}

// Add has a chore done. After Close it does nothing.
func (l *List) Add(x *Chore) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || x.dropped {
		return
	}
	if x.Urgent {
		l.urgent++
	}
	heap.Push(&l.due, x)
	switch {
	case !l.running:
		l.running = true
		l.group.Go(l.run)
	case l.due[0] == x:
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Drop takes a chore out that is not urgent. If it is under way, it is not tried again.
func (l *List) Drop(x *Chore) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x.dropped = true
	if x.index >= 0 {
		heap.Remove(&l.due, x.index)
	}
}

// run has chores done until there are none.
func (l *List) run() {
	slots := make(chan struct{}, atOnce)
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		x, wait := l.next()
		if x == nil && wait < 0 {
			return
		}
		if x == nil {
			t.Reset(min(wait, mostWait))
			select {
			case <-t.C:
			case <-l.wake:
			case <-l.ctx.Done():
				return
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		l.group.Go(func() {
			defer func() { <-slots }()
			l.do(x)
		})
	}
}

// next is a chore that is due, or how long it is until one will be; -1: there is none.
func (l *List) next() (x *Chore, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.due) == 0 {
		l.running = false
		return nil, -1
	}
	if wait = l.due[0].At - l.now(); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&l.due).(*Chore), 0
}

func (l *List) do(x *Chore) {
	err := x.Do(l.ctx)
	if now := l.now(); err != nil && l.ctx.Err() == nil && now < x.Until {
		x.At = now + pause
		l.Add(x)
	}
	if x.Urgent {
		l.mu.Lock()
		l.urgent--
		l.mu.Unlock()
	}
}

// A dueHeap is a heap of chores by the time at which they are due.
type dueHeap []*Chore

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].At < h[j].At }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push appends a *Chore.
func (h *dueHeap) Push(x any) {
	c := x.(*Chore)
	c.index = len(*h)
	*h = append(*h, c)
}

// Pop removes the last.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h, c.index = (*h)[:last], -1
	return c
}
