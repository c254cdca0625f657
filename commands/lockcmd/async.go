package lockcmd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// GrantedChannel is the prefix of the channel on which the grant of a LOCK with ASYNC is published; the owner
// follows.
const GrantedChannel = "lockproxy:granted:"

// A waitKey identifies a LOCK with ASYNC: it is the same if that is sent again.
type waitKey struct {
	locks.Key
	owner, req string
}

// waits are the LOCKs with ASYNC that wait at this proxy. The zero value has none. It is safe for concurrent use.
type waits struct {
	mu  sync.Mutex
	all map[waitKey]*asyncWait
}

// An asyncWait is a LOCK with ASYNC.
type asyncWait struct {
	*Pending
	cancel context.CancelFunc
	queued chan struct{}  // closed when the lock is not granted at once
	place  locks.Decision // the place in line, once queued is closed

	mu      sync.Mutex
	replied bool // the client knows that it waits
	granted bool // it was granted, and the client has not been told yet
}

// begin adds a wait, and ends an earlier one of the same request: the client of that may have lost its
// connection, unnoticed.
func (w *waits) begin(k waitKey, a *asyncWait) {
	w.mu.Lock()
	before := w.all[k]
	if w.all == nil {
		w.all = map[waitKey]*asyncWait{}
	}
	w.all[k] = a
	w.mu.Unlock()
	before.end()
}

func (w *waits) remove(k waitKey, a *asyncWait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all[k] == a {
		delete(w.all, k)
	}
}

// giveUp ends the waits of an owner for a lock: the one with that req or, if req is empty, all. It returns when
// each has its answer.
func (w *waits) giveUp(k locks.Key, owner, req string) {
	var ended []*asyncWait
	w.mu.Lock()
	if req != "" {
		ended = append(ended, w.all[waitKey{k, owner, req}])
	} else if len(w.all) > 0 {
		for other, a := range w.all {
			if other.Key == k && other.owner == owner {
				ended = append(ended, a)
			}
		}
	}
	w.mu.Unlock()
	for _, a := range ended {
		a.end()
	}
}

// Queued implements locks.QueueListener.
func (a *asyncWait) Queued(place locks.Decision) {
	a.place = place
	close(a.queued)
}

// waited reports whether the lock was not granted at once.
func (a *asyncWait) waited() bool {
	select {
	case <-a.queued:
		return true
	default:
		return false
	}
}

// end ends a wait, and returns when it has its answer. A nil wait has ended.
func (a *asyncWait) end() {
	if a != nil {
		a.cancel()
		<-a.Done
	}
}

// lockAsync runs a LOCK with ASYNC: it replies with what is decided at once, or with the client's place in line.
func (c *Client) lockAsync(ctx context.Context, a Lock, muted bool) {
	waiting, cancel := context.WithCancel(c.conn.Present())
	w := &asyncWait{Pending: newPending(a, muted), cancel: cancel, queued: make(chan struct{})}
	w.Done = make(chan struct{})
	w.Queue = w
	k := waitKey{a.Key, a.Owner, a.Req}
	c.waits.Add(1)
	if a.BindsToSession {
		c.sessionWaits.Add(1)
	}
	c.verbs.waits.begin(k, w)
	stop := context.AfterFunc(c.verbs.draining, cancel)
	c.verbs.asking.Go(func() {
		c.verbs.opt.Locker.LockAsync(waiting, w.LockRequest, func(d locks.Decision, err error) {
			stop()
			cancel()
			w.Answer, w.Err, w.AnsweredAt = d, err, time.Now()
			c.waits.Add(-1)
			if a.BindsToSession {
				c.sessionWaits.Add(-1)
			}
			c.granted(w)
			c.verbs.waits.remove(k, w) // not before: giveUp waits until the client has been told
			close(w.Done)
		})
	})
	select {
	case <-w.queued:
	case <-w.Done:
	}
	if w.waited() {
		c.conn.Reply(appendRefusal(nil, w.place, shownOwner(c.visible(ctx, w.place.Holder))), nil)
		c.replied(w)
	} else {
		w.RetryAfter = true
		c.Finish(ctx, w.Pending)
	}
	c.watchHost()
}

// granted handles the answer to a LOCK with ASYNC. It is safe for concurrent use.
func (c *Client) granted(w *asyncWait) {
	if !w.waited() { // the reply has not been sent yet, and will be the answer
		return
	}
	w.mu.Lock()
	w.granted = w.Err == nil && w.Answer.Granted && w.Answer.Grant.Validity > 0 // else it was given back before it was granted
	replied := w.replied
	w.mu.Unlock()
	if replied {
		c.tell(w)
	}
}

// replied notes that the client knows that it waits.
func (c *Client) replied(w *asyncWait) {
	w.mu.Lock()
	w.replied = true
	granted := w.granted
	w.mu.Unlock()
	if granted {
		c.tell(w)
	}
}

// tell tells the client of a grant, once: by a push and on the owner's channel. It is safe for concurrent use.
func (c *Client) tell(w *asyncWait) {
	w.mu.Lock()
	told := !w.granted
	w.granted = false
	w.mu.Unlock()
	g := w.Answer.Grant
	switch {
	case told:
	case c.conn.Present().Err() != nil:
		c.verbs.opt.Locker.Undo(g)
	default:
		c.logLock(w.Pending, nil)
		left := remaining(g.Validity, w.AnsweredAt).Milliseconds()
		c.conn.Push(appendGranted(nil, g, left))
		if c.verbs.opt.Publish != nil {
			c.verbs.opt.Publish(GrantedChannel+g.Owner, fmt.Sprintf("%d %d %s", g.Fence, left, g.Name))
		}
	}
}

// appendGranted appends the push that tells a client of RESP3 that it has a lock for which it has waited.
func appendGranted(b []byte, g locks.Grant, validity int64) []byte {
	b = append(b, ">5\r\n"...)
	b = resp.AppendBulkString(b, "lock-granted")
	b = resp.AppendBulkString(b, g.Name)
	b = resp.AppendInt(b, g.Fence)
	b = resp.AppendBulkString(b, g.Owner)
	return resp.AppendInt(b, validity)
}
