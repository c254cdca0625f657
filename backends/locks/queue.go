package locks

import (
	"container/list"
	"sync"
	"time"
)

const (
	firstPoll   = time.Second            // an asker that hears nothing asks again after, doubling
	longPoll    = 5 * time.Second        // until; nothing is published when a key is deleted by hand
	pollShare   = time.Millisecond       // and longer by this for every name that is waited for
	lapseMargin = 2 * time.Millisecond   // after the end of the holder's lease, and
	lapseSpread = 8 * time.Millisecond   // up to so much more: askers at other proxies wait for the same end
	firstRetry  = 100 * time.Millisecond // after too few nodes voted, doubling
	longRetry   = 500 * time.Millisecond // until
)

// waiting is who waits at this proxy. A name that nobody waits for has no entry. All
// methods are safe for concurrent use.
type waiting struct {
	nodes  int // how many there are
	quorum int
	prefix string // of their keys
	cuts   string // the channel on which they tell that a lease was cut
	now    func() time.Duration
	chance randSource

	poll, longPoll time.Duration // the first pause of an asker that hears nothing, and the longest

	mu        sync.Mutex
	queues    map[Key]*queue
	n         int             // of all queues
	ears      map[string]*ear // by channel
	closed    bool
	idle      list.List   // of those that nobody needs, the longest idle first
	listeners []*listener // by node; none while Run does not run
}

// A queue is who waits for one name, first come, first served. The first in line is
// the asker, who alone asks the nodes; the others sleep until they are. It is guarded
// by waiting.mu.
type queue struct {
	at      Key
	channel string
	line    list.List // of *waiter
	known   known     // by who asked last
	named   int       // how many in line may have the name already
	ear     *ear      // nil: it is not listened for

	// since the asker last asked
	stirred bool          // something happened that may have freed the name
	heard   []int64       // by node: the largest fence that was released
	soon    time.Duration // when to ask, a release having been heard of; 0: none was
}

// A waiter is one Lock in line.
type waiter struct {
	queue   *queue
	el      *list.Element
	request LockRequest
	since   time.Duration // when it came
	alone   bool          // it was first in line from the beginning, and may ask
	turn    chan struct{} // closed when it has become the asker
	in      chan struct{} // tells it that its owner has the name already; holds one
	news    chan struct{} // tells the asker to look at its queue; holds one
	parked  *parked       // not nil: it has no goroutine; guarded by waiting.mu

	// of the asker
	ground   trigger       // what makes it ask
	asking   bool          // it asks the nodes, or does so next: its request is not offered to them
	offer    *offer        // asks for it
	again    time.Duration // when it asks again, if it hears nothing; 0: nothing is planned
	polls    int           // planned
	failures int           // in a row
}

// known is what a queue knows of its name. The zero value knows nothing.
type known struct {
	asked     bool          // something is
	fresh     bool          // it was granted just now, by a first hold
	elsewhere bool          // it was granted through another proxy
	holder    string        // empty when nobody was found to have a majority
	fence     int64         // of the holder's grant, or less
	until     time.Duration // end of the holder's lease, by the Service's clock
	err       error         // too few nodes voted

	doubtful bool // some release was heard of since
}

// learn is what an answer tells about the name.
func (s *Service) learn(a Decision, err error) known {
	if a.Granted {
		lease := a.Grant.Validity + drift(a.Grant.Validity)
		return known{asked: true, fresh: a.Grant.Holds == 1, holder: a.Grant.Owner, fence: a.Grant.Fence, until: s.now() + lease}
	}
	return known{asked: true, holder: a.Holder, fence: a.fence, until: s.now() + a.Remaining, err: err}
}

// says reports whether what is known is still good for an answer.
func (k known) says(now time.Duration) bool {
	return k.asked && !k.doubtful && (k.err != nil || k.until > now)
}

// answer is the refusal.
func (k known) answer(now time.Duration) (Decision, error) {
	if k.err != nil {
		return Decision{}, k.err
	}
	if k.holder == "" || k.until <= now {
		return Decision{}, nil
	}
	return Decision{Holder: k.holder, Remaining: k.until - now}, nil
}

// count is how many wait for a name.
func (ws *waiting) count(at Key) int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.queues[at]; q != nil {
		return q.line.Len()
	}
	return 0
}

// total is how many stand in all lines.
func (ws *waiting) total() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.n
}

// known is what is known of a name that is waited for. It is sure if a change would have
// been heard of.
func (ws *waiting) known(at Key) (k known, sure bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.queues[at]
	if q == nil {
		return known{}, false
	}
	k = q.known
	return k, k.err == nil && k.holder != "" && !q.stirred && q.ear != nil && q.ear.hears(ws.quorum)
}

// join puts a waiter at the end of the line, if fewer than limit wait. It must leave.
func (ws *waiting) join(at Key, limit int, r LockRequest, now time.Duration) (*waiter, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.n >= limit {
		return nil, &QueueFullError{Max: limit}
	}
	q := ws.queues[at]
	if q == nil {
		q = &queue{at: at, channel: ws.channel(at), heard: make([]int64, ws.nodes)}
		ws.queues[at] = q
		ws.attach(q)
	}
	w := &waiter{queue: q, request: r, since: now, turn: make(chan struct{}), in: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	w.el = q.line.PushBack(w)
	ws.n++
	if !r.generated {
		q.named++
	}
	if q.line.Len() == 1 {
		w.alone = q.ear.silent(now) <= 0
		w.asking = w.alone
		close(w.turn)
	}
	return w, nil
}

// leave takes a waiter out of the line. It returns how many are left in it, and the offer
// that w did not take, if any.
func (ws *waiting) leave(w *waiter) (left int, unused *offer) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := w.queue
	first := q.first() == w
	q.line.Remove(w.el)
	ws.n--
	if !w.request.generated {
		q.named--
	}
	switch next := q.first(); {
	case next == nil:
		delete(ws.queues, q.at)
		ws.detach(q)
	case first:
		if w.asking { // and left without an answer, which leaves its successor without
			q.known = known{}
		}
		close(next.turn)
		next.wakeLocked()
	}
	return q.line.Len(), w.offer
}

// first is the asker, nil if nobody is in line.
func (q *queue) first() *waiter {
	if e := q.line.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// stir has the asker ask now, or again if it is asking.
func (ws *waiting) stir(at Key) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.queues[at]; q != nil {
		q.stirred = true
		q.tell()
	}
}

// tell has the asker of a name look at its queue.
func (ws *waiting) tell(at Key) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.queues[at]; q != nil {
		q.tell()
	}
}

// forgetNews begins to listen anew, before the nodes are asked.
func (q *queue) forgetNews() {
	q.stirred, q.soon = false, 0
	clear(q.heard)
}

// tell has the asker look at its queue.
func (q *queue) tell() {
	select {
	case q.first().news <- struct{}{}:
	default:
	}
}

// ask notes that w, the asker, asks now, and returns the offer that has asked for it, if
// there is one.
func (ws *waiting) ask(w *waiter) (o *offer) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.ground = ws.ground(w)
	if o, w.offer = w.offer, nil; o == nil {
		w.asking = true
		w.queue.forgetNews()
	}
	return o
}

// ground is what makes w, the asker, ask now.
func (ws *waiting) ground(w *waiter) trigger {
	q := w.queue
	switch {
	case w.offer != nil:
		return triggerHanded
	case w.asking: // it was the first in line when it came
		return triggerAtOnce
	case q.stirred, q.soon != 0, q.freed(ws.quorum):
		return triggerWoken
	}
	return triggerTimer
}

// asked notes what w, the asker, was told now, and plans when it asks again.
func (ws *waiting) asked(w *waiter, k known, now time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.asking = false
	w.queue.known = k
	w.queue.stirred = w.queue.stirred && !k.fresh
	if e := w.queue.ear; e != nil && k.elsewhere {
		e.turns = 0
	}
	w.again = ws.again(w, now)
	w.queue.letIn(k.holder)
}

// letIn tells those in line whose owner has the name.
func (q *queue) letIn(owner string) {
	if q.named == 0 || owner == "" {
		return
	}
	for e := q.line.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.request.Owner == owner {
			select {
			case w.in <- struct{}{}:
				w.wakeLocked()
			default:
			}
		}
	}
}

// pause is for how long w, the asker, has nothing to ask for. Negative or 0: it has.
func (ws *waiting) pause(w *waiter, now time.Duration) time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := w.queue
	switch {
	case w.offer != nil:
		return 0
	case q.ear.silent(now) > 0:
		return q.ear.silent(now)
	case q.stirred, !q.known.asked, q.freed(ws.quorum):
		return 0
	}
	ws.listen(q)
	if w.again == 0 { // it was told by the one before it
		w.again = ws.again(w, now)
	}
	if q.soon != 0 {
		return min(q.soon, w.again) - now
	}
	return w.again - now
}

// again is when an asker asks again that hears nothing until then: when the holder's lease
// is over, and now and then before, since a name may be freed without a word.
func (ws *waiting) again(w *waiter, now time.Duration) time.Duration {
	k := &w.queue.known
	if k.err != nil {
		w.failures++
		return now + min(firstRetry<<min(w.failures-1, 10), longRetry)
	}
	w.failures = 0
	if k.holder == "" {
		return now + ws.chance.upTo(maxSplitWindow)
	}
	poll := min(ws.poll<<min(w.polls, 10), ws.longPoll+time.Duration(len(ws.queues))*pollShare)
	w.polls++
	return min(now+poll, k.until+lapseMargin+ws.chance.upTo(lapseSpread))
}
