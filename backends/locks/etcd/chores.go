package etcd

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

const (
	choreWorkers = 16
	chorePause   = 500 * time.Millisecond // before one that failed is tried again
	choreSleep   = time.Second            // the longest, since timers stand still while the machine sleeps
)

// A chore is a task for later, for which no caller waits.
type chore struct {
	at     time.Duration
	until  time.Duration // it is given up
	urgent bool          // Idle waits for it
	do     func(context.Context) error
}

// chores are tasks with a time at which they are due. Their goroutines run while there are some.
type chores struct {
	mu      sync.Mutex
	due     choreHeap
	urgent  int // in due, or under way
	running bool
	closed  bool
	wake    chan struct{} // holds one; made when the first chore comes
}

type choreHeap []*chore

func (h choreHeap) Len() int           { return len(h) }
func (h choreHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h choreHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *choreHeap) Push(x any)        { *h = append(*h, x.(*chore)) }
func (h *choreHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}

func (c *chores) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.urgent == 0
}

func (c *chores) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// later has a chore done.
func (s *Store) later(x *chore) {
	c := &s.chores
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if c.wake == nil {
		c.wake = make(chan struct{}, 1)
	}
	if x.urgent {
		c.urgent++
	}
	heap.Push(&c.due, x)
	switch {
	case !c.running:
		c.running = true
		s.group.Go(s.runChores)
	case c.due[0] == x:
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// runChores has chores done until there are none.
func (s *Store) runChores() {
	c := &s.chores
	slots := make(chan struct{}, choreWorkers)
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		x, wait := c.next(s.Now())
		if x == nil && wait < 0 {
			return
		}
		if x == nil {
			t.Reset(min(wait, choreSleep))
			select {
			case <-t.C:
			case <-c.wake:
			case <-s.ctx.Done():
				return
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		s.group.Go(func() {
			defer func() { <-slots }()
			s.doChore(x)
		})
	}
}

// next is a chore that is due, or how long it is until one will be; -1: there is none.
func (c *chores) next(now time.Duration) (x *chore, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.due) == 0 {
		c.running = false
		return nil, -1
	}
	if wait = c.due[0].at - now; wait > 0 {
		return nil, wait
	}
	return heap.Pop(&c.due).(*chore), 0
}

func (s *Store) doChore(x *chore) {
	err := x.do(s.ctx)
	if now := s.Now(); err != nil && s.ctx.Err() == nil && now < x.until {
		again := *x
		again.at = now + chorePause
		s.later(&again)
	}
	if x.urgent {
		s.chores.mu.Lock()
		s.chores.urgent--
		s.chores.mu.Unlock()
	}
}

// undoLater takes holds back.
func (s *Store) undoLater(k locks.Key, ids ...string) { s.undoUnanswered(nil, undoing{k, ids}) }

// An undoing is of holds of one name.
type undoing struct {
	key locks.Key
	ids []string
}

// undoUnanswered takes the holds of a LOCK back whose last write was not answered. It may still be on its way: one on a free name is marked as
// done, and the others are looked for once more.
func (s *Store) undoUnanswered(w *write, all ...undoing) {
	s.stats.undos.Add(1)
	undo := func(ctx context.Context) error {
		if err := s.mark(ctx, w); err != nil {
			return err
		}
		var failed error
		for _, u := range all {
			freed, err := s.take(ctx, u.key, u.ids)
			if freed {
				s.host.Lines.Wake(u.key.Whole())
			}
			failed = errors.Join(failed, err)
		}
		return failed
	}
	now := s.Now()
	s.later(&chore{at: now, until: now + s.opts.MaxTTL, urgent: true, do: undo})
	s.later(&chore{at: now + 2*mostLimit, until: now + s.opts.MaxTTL, do: undo})
}

// mark has a write on a free name never done from now on. The mark stays for longer than the lease which that write needs.
func (s *Store) mark(ctx context.Context, w *write) error {
	if w == nil || w.once == nil {
		return nil
	}
	limit := s.limit(s.opts.MaxTTL)
	lease, err := s.lease(ctx, limit, 2*w.need+memoryExtra)
	if err != nil {
		return err
	}
	put := requestOp{Put: &putRequest{Key: w.once, Value: []byte{}, Lease: lease}}
	return s.client.call(ctx, limit, "kv/txn", txnRequest{Success: []requestOp{put}}, &txnResponse{})
}

// expireAt removes a hold when it has ended, unless it is renewed until then.
func (s *Store) expireAt(k locks.Key, h liveHold) {
	s.later(&chore{at: h.end, until: h.end + 2*mostLimit, do: func(ctx context.Context) error {
		if !s.memory.hasEnded(k, h.ID, h.N) {
			return nil
		}
		free := false
		d, err := s.change(ctx, question{op: "LOCK", key: k, ttl: s.opts.MaxTTL}, func(v *view) (*write, error) {
			if v.rec == nil || !slices.ContainsFunc(v.rec.Holds, func(x hold) bool { return !x.Over && !v.isLive(x.ID) }) {
				return nil, nil
			}
			w := removal(v, nil)
			free = w.rec == nil
			return w, nil
		})
		if d != nil && free {
			s.host.Lines.Wake(k.Whole())
		}
		return err
	}})
}
