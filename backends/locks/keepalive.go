package locks

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxKeepWorkers = 32                    // rounds of the keeper at once
	minRenewPause  = 20 * time.Millisecond // between two renewals of a lease, also when one failed
	maxSleep       = time.Second           // of the scheduler: its timers stand still while the machine sleeps
)

// A keeper renews the locks that sessions have. One goroutine knows what is due next;
// rounds run in a few others, started when there is something to do. All of them end
// when nothing is kept, and with the Service.
//
// mu may be held when memory.mu is taken, never the other way round: a hold leaves the
// keeper in the step in which UNLOCK takes it out of memory.
type keepalive struct {
	svc *Service

	mu       sync.Mutex
	leases   map[holder]*lease
	schedule indexHeap[*lease] // by lease.at; not those that wait for a worker and nothing else
	due      []*lease          // wait for a worker
	tasks    []func()          // wait for a worker, before those: what was lost is told, what a session had is given back
	workers  int
	busy     int  // workers that have taken something
	running  bool // there is a scheduler
	stopped  bool // nothing is renewed any more
	closed   bool // no goroutine may start any more

	sessions, holds int // sessions that have holds, and how many these are: whoever asks must not make others wait

	wake  chan struct{} // the first of order changed; holds one
	group sync.WaitGroup
}

// A lease is what one holder has, as long as a session keeps some of it. The fields
// are guarded by keeper.mu.
type lease struct {
	holder
	fence    int64
	ttl      time.Duration // for which it is renewed
	until    time.Duration // end of the validity, as far as is known
	next     time.Duration // when it is looked at, if not busy
	holds    []*sessionHold
	busy     bool               // a worker has it, or will
	cancel   context.CancelFunc // of the renewal that is out
	doubtful bool               // it may end earlier than is known, or be lost
	lastErr  error              // why the last renewal failed, nil if it did not

	at    time.Duration // of keeper.order
	index int           // in keeper.order, or -1
}

// A kept is one hold of a session. The fields are guarded by keeper.mu.
type sessionHold struct {
	id        string
	lease     *lease
	session   *Session
	index     int // in session.holds
	maxHold   time.Duration
	onLoss    OnLoss
	end       time.Duration // past which it is not renewed
	releaseAt time.Duration // when it is given back, since the session has ended; 0: it has not
}

func newKeepalive(s *Service) *keepalive {
	return &keepalive{svc: s, leases: map[holder]*lease{}, wake: make(chan struct{}, 1)}
}

// addLocked begins to keep the hold of an acquisition for its session, which lives.
func (k *keepalive) addLocked(a *acquisition, fence int64, until time.Duration) {
	l := k.leases[a.holder]
	if l != nil && l.fence != fence {
		k.loseLocked(l, lossExpired, "it expired")
		l = nil
	}
	if l == nil {
		l = &lease{holder: a.holder, fence: fence, index: -1}
		k.leases[a.holder] = l
	}
	hold := &sessionHold{id: a.id, lease: l, maxHold: a.MaxHold, end: a.began + a.MaxHold, onLoss: a.OnLoss}
	l.holds = append(l.holds, hold)
	a.Session.attachLocked(hold)
	l.ttl = max(l.ttl, a.TTL)
	l.until = max(l.until, until)
	l.next = l.until - l.lead()
	k.scheduleLocked(l)
}

// lead is how long before the end of a validity it is renewed: at a third of the lease.
func (l *lease) lead() time.Duration { return 2 * (l.ttl - drift(l.ttl)) / 3 }

// margin is how long before the end of its validity a lease is given up, so that the
// client hears of it in time.
func (l *lease) margin() time.Duration {
	return max(minRenewPause, min(l.ttl/10, time.Second))
}

// longest is the hold that is renewed longest.
func (l *lease) longest() *sessionHold {
	return slices.MaxFunc(l.holds, func(a, b *sessionHold) int { return cmp.Compare(a.end, b.end) })
}

// atMaxHold reports whether the lease runs to the end of its MAXHOLD, so that no renewal can let
// it run longer. A renewal is for whole milliseconds.
func (l *lease) atMaxHold() bool {
	return l.until >= l.longest().end-drift(l.ttl)-time.Millisecond
}

// drop forgets holds of h and renews them no more.
func (k *keepalive) drop(h holder, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dropLocked(h, ids)
}

func (k *keepalive) dropLocked(h holder, ids []string) {
	l := k.leases[h]
	if l == nil {
		return
	}
	for i := len(l.holds) - 1; i >= 0; i-- {
		if slices.Contains(ids, l.holds[i].id) {
			k.detachLocked(l.holds[i])
		}
	}
}

// detachLocked takes a hold from its session and its lease; with the last one the
// lease ends.
func (k *keepalive) detachLocked(hold *sessionHold) {
	l := hold.lease
	hold.session.detachLocked(hold)
	l.holds = slices.DeleteFunc(l.holds, func(other *sessionHold) bool { return other == hold })
	if len(l.holds) > 0 {
		return
	}
	delete(k.leases, l.holder)
	k.schedule.remove(l)
	if l.cancel != nil {
		l.cancel()
	}
}

func (k *keepalive) dropLeaseLocked(l *lease) {
	for len(l.holds) > 0 {
		k.detachLocked(l.holds[0])
	}
}

// lose tells the sessions of the grant with this fence, or an earlier one, that it is lost,
// whatever its validity. Nothing is released.
func (k *keepalive) lose(h holder, fence int64, why lossReason, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.leases[h]; l != nil && l.fence <= fence {
		k.loseLocked(l, why, reason)
	}
}

// supersede ends what sessions have of the grant with this fence, or an earlier one, which its owner has
// dropped for a new one. All but by, the session that asked for that, are told.
func (k *keepalive) supersede(h holder, fence int64, by *Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[h]
	if l == nil || l.fence > fence {
		return
	}
	for i := len(l.holds) - 1; i >= 0; i-- {
		if l.holds[i].session == by {
			k.detachLocked(l.holds[i])
		}
	}
	if len(l.holds) > 0 {
		k.loseLocked(l, lossTaken, "its owner has taken it afresh")
	}
}

func (k *keepalive) loseLocked(l *lease, why lossReason, reason string) {
	k.svc.counters.losses[why].Add(1)
	var told []*Session
	for _, hold := range l.holds {
		c := hold.session
		if slices.Contains(told, c) {
			continue
		}
		told = append(told, c)
		loss := Loss{Key: l.Key, Owner: l.owner, Fence: l.fence, OnLoss: l.onLoss(c), Reason: reason}
		k.tasks = append(k.tasks, func() { c.notify(loss) })
	}
	k.dropLeaseLocked(l)
	k.startWorkersLocked()
}

// onLoss is what a session wants to be done.
func (l *lease) onLoss(c *Session) OnLoss {
	wish := OnLossPush
	for _, hold := range l.holds {
		if hold.session == c {
			wish = max(wish, hold.onLoss)
		}
	}
	return wish
}

// setTTL notes for how long a grant was renewed by hand; fence 0 means any.
func (k *keepalive) setTTL(h holder, fence int64, ttl time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.leases[h]; l != nil && (fence == 0 || l.fence == fence) {
		l.ttl = ttl
	}
}

// recheck has a lease looked at now: its end was moved, or it is suspected to be lost. One that
// is being renewed is looked at again only if it is suspected.
func (k *keepalive) recheck(h holder, suspect bool) { k.recheckIn(0, h, suspect) }

// recheckIn is look after a pause.
func (k *keepalive) recheckIn(pause time.Duration, h holder, suspect bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[h]
	if l == nil {
		return
	}
	l.doubtful = l.doubtful || suspect
	if at := k.svc.now() + pause; !l.busy && (pause == 0 || at < l.next) {
		l.next = at
		k.scheduleLocked(l)
	}
}

// any reports whether anything is kept.
func (k *keepalive) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.leases) > 0
}

// popEndedLocked takes the holds out that are to be released by now, to be given back.
func (k *keepalive) popEndedLocked(l *lease, now time.Duration) {
	var ids []string
	for i := len(l.holds) - 1; i >= 0; i-- {
		if hold := l.holds[i]; hold.releaseAt != 0 && hold.releaseAt <= now {
			ids = append(ids, hold.id)
			k.detachLocked(hold)
		}
	}
	if len(ids) > 0 {
		h, fence := l.holder, l.fence
		k.tasks = append(k.tasks, func() { k.svc.giveBack(h, fence, ids) })
	}
}

// renew does what is due for a lease: it is renewed, unless it ended or somebody else
// renewed it.
func (k *keepalive) renew(l *lease) {
	k.mu.Lock()
	until, known := k.svc.grants.until(l.holder, l.fence, l.ids())
	if known {
		l.until = until
	}
	within, due := k.dueLocked(l)
	if !due {
		k.mu.Unlock()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	l.cancel = cancel
	l.doubtful = false
	t, ids := term{l.ttl, l.longest().end}, l.ids()
	k.mu.Unlock()
	k.applyResult(l, k.svc.extend(ctx, l.holder, l.fence, t, ids))
}

// dueLocked reports whether a lease is to be renewed now, and within what time. If not,
// it is given up or looked at later.
func (k *keepalive) dueLocked(l *lease) (within time.Duration, due bool) {
	now := k.svc.now()
	last := l.until - l.margin()
	switch {
	case len(l.holds) == 0 || k.stopped:
	case now >= last:
		why, reason := l.reason()
		k.loseLocked(l, why, reason)
	case l.atMaxHold() && !l.doubtful:
		k.doneLocked(l, last)
	case now < l.until-l.lead() && !l.doubtful:
		k.doneLocked(l, l.until-l.lead())
	default:
		return min(last-now, l.pause(now)), true
	}
	return 0, false
}

func (l *lease) ids() []string {
	ids := make([]string, len(l.holds))
	for i, hold := range l.holds {
		ids[i] = hold.id
	}
	return ids
}

// pause is how long a renewal may take, and how long it is then until the next one.
func (l *lease) pause(now time.Duration) time.Duration { return max(minRenewPause, (l.until-now)/3) }

// doneLocked ends a worker's round.
func (k *keepalive) doneLocked(l *lease, next time.Duration) {
	l.busy, l.cancel, l.next = false, nil, next
	k.scheduleLocked(l)
}

// applyResult draws the conclusion from a renewal.
func (k *keepalive) applyResult(l *lease, o keepResult) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(l.holds) == 0 {
		return
	}
	now := k.svc.now()
	switch o.outcome {
	case applied:
		k.svc.counters.sessionRenewals.Add(1)
		l.until, l.lastErr = o.until, nil
		k.dropLocked(l.holder, o.released)
		next := max(l.until-l.lead(), now+minRenewPause)
		if l.doubtful { // since this renewal was sent
			next = now + minRenewPause
		}
		k.doneLocked(l, next)
	case undecided:
		k.svc.counters.sessionMisses.Add(1)
		l.lastErr, l.doubtful = o.err, true
		k.doneLocked(l, max(now, min(now+l.pause(now), l.until-l.margin())))
	case released:
		k.dropLeaseLocked(l)
	case otherOwner:
		k.loseLocked(l, lossTaken, "another owner has it")
	default:
		k.loseLocked(l, lossGone, "it expired or was taken away")
	}
}

// reason says in an operator's words why a lease is given up.
func (l *lease) reason() (why lossReason, text string) {
	switch {
	case l.atMaxHold():
		return lossMaxHold, "MAXHOLD of " + short(l.longest().maxHold) + " is over"
	case l.lastErr != nil:
		return lossQuorum, "it could not be renewed: " + l.lastErr.Error()
	}
	return lossExpired, "it expired"
}

// short is a duration as people write it: 1h, not 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// end ends a session: what it has is given back at that time.
func (k *keepalive) end(c *Session, at time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	for _, hold := range c.holds {
		hold.releaseAt = at
	}
	now := k.svc.now()
	for _, hold := range slices.Clone(c.holds) {
		if hold.session != nil { // else it went with another hold of its lease
			k.popEndedLocked(hold.lease, now)
			k.scheduleLocked(hold.lease)
		}
	}
	k.startWorkersLocked()
}

// abandon ends a session whose holds are neither renewed any more nor given back.
func (k *keepalive) abandon(c *Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	for len(c.holds) > 0 {
		k.detachLocked(c.holds[0])
	}
}

// stop ends renewing. What sessions have had is still given back.
func (k *keepalive) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	for _, l := range k.leases {
		if l.cancel != nil {
			l.cancel()
		}
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// close lets no goroutine start any more. Those that run end by themselves.
func (k *keepalive) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
}

// idle reports whether nothing waits to be given back or told.
func (k *keepalive) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workers == 0 && len(k.tasks) == 0
}
