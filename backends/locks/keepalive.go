package locks

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxKeepWorkers = 32
	minRenewPause  = 20 * time.Millisecond // between two renewals of a lease, also when one failed
	maxSleep       = time.Second           // of the scheduler: its timers stand still while the machine sleeps
)

// A Keepalive renews the locks of sessions. One goroutine, the scheduler, knows what is due next; renewals run
// on up to maxKeepWorkers others, started when there is something to do. All of them end when there are no
// leases, and with the Service.
//
//	scheduled ──due──▶ renewing ──applied──▶ scheduled: at a third of the lease
//	    ▲                 │  │ undecided──▶ scheduled: soon, while the validity runs
//	    └──not due yet────┘  └──lost, or the validity about to end──▶ the sessions are told, the lease is dropped
//
// A Store takes part in some of its steps, and locks the Keepalive for them: see Host.
type Keepalive struct {
	svc *Service

	mu       sync.Mutex
	leases   map[Holder]*lease
	schedule indexHeap[*lease] // by lease.at; without those that only wait for a worker
	due      []*lease          // waiting for a worker
	tasks    []func()          // waiting for a worker, and taken before due: to tell a session of a loss, or to give back its holds
	workers  int
	busy     int  // workers that have taken something
	running  bool // the scheduler runs
	stopped  bool // renewing has ended
	closed   bool // no goroutine may start any more

	sessions, holds int // sessions that have holds, and how many these are; counted as they come and go

	wake  chan struct{} // tells the scheduler that the first of schedule has changed; holds one
	group sync.WaitGroup
}

// A lease is a holder's lease of which sessions have holds. It is guarded by Keepalive.mu.
type lease struct {
	Holder
	fence    int64
	ttl      time.Duration      // for which it is renewed
	next     time.Duration      // when it is due, if not busy
	holds    []*sessionHold     // those of sessions
	busy     bool               // a worker has it, or is to take it
	cancel   context.CancelFunc // of the renewal under way
	doubtful bool               // it may be lost, or end earlier than is known
	forced   bool               // a lock node told that FORCE, through another proxy, took it away
	gaveBack bool               // or that its owner gave it back through another proxy; until a renewal says otherwise
	lastErr  error              // of the last renewal, nil if it succeeded

	at    time.Duration // key of Keepalive.schedule
	index int           // in Keepalive.schedule, or -1
}

// A sessionHold is one hold of a session. It is guarded by Keepalive.mu.
type sessionHold struct {
	id        string
	lease     *lease
	session   *Session
	client    string
	index     int // in session.holds
	maxHold   time.Duration
	onLoss    OnLoss
	ttl       time.Duration // for which it was granted or renewed last
	until     time.Duration // end of its validity, as far as known
	end       time.Duration // of MaxHold: it is not renewed past that
	releaseAt time.Duration // when it is given back, since the session has ended; 0: it has not
}

func newKeepalive(s *Service) *Keepalive {
	return &Keepalive{svc: s, leases: map[Holder]*lease{}, wake: make(chan struct{}, 1)}
}

// Lock is for a Store, see Host; Unlock must follow.
func (k *Keepalive) Lock() { k.mu.Lock() }

// Unlock ends what Lock began.
func (k *Keepalive) Unlock() { k.mu.Unlock() }

// AddLocked begins to renew a hold for the session of its attempt, which has not ended. The try that was
// granted began at the given time.
func (k *Keepalive) AddLocked(a *Attempt, id string, fence int64, began, until time.Duration) {
	h := Holder{a.Key, a.Owner}
	l := k.leases[h]
	if l != nil && l.fence != fence {
		k.supersedeLocked(l, a.Session, lossExpired, "it expired")
		l = nil
	}
	if l == nil {
		l = &lease{Holder: h, fence: fence, index: -1}
		k.leases[h] = l
	}
	hold := &sessionHold{id: id, lease: l, client: a.Client, maxHold: a.MaxHold, onLoss: a.OnLoss, ttl: a.TTL, until: until, end: began + a.MaxHold}
	l.holds = append(l.holds, hold)
	a.Session.attachLocked(hold)
	l.ttl = max(l.ttl, a.TTL)
	if at := l.renewAt(); len(l.holds) == 1 || at < l.next {
		l.next = at
	}
	k.scheduleLocked(l)
	k.svc.watchCuts(true)
}

// Drop stops renewing holds of h.
func (k *Keepalive) Drop(h Holder, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.DropLocked(h, ids)
}

// DropLocked is Drop for a Store that has the Keepalive locked.
func (k *Keepalive) DropLocked(h Holder, ids []string) {
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

// detachLocked takes a hold from its session and its lease; with the last one the lease ends.
func (k *Keepalive) detachLocked(hold *sessionHold) {
	l := hold.lease
	hold.session.detachLocked(hold)
	l.holds = slices.DeleteFunc(l.holds, func(other *sessionHold) bool { return other == hold })
	if len(l.holds) > 0 {
		return
	}
	delete(k.leases, l.Holder)
	k.schedule.remove(l)
	if l.cancel != nil {
		l.cancel()
	}
}

func (k *Keepalive) dropLeaseLocked(l *lease) {
	for len(l.holds) > 0 {
		k.detachLocked(l.holds[0])
	}
}

// Lose tells the sessions of the grant with this fence, or an earlier one, that it is lost, whatever its
// validity. Nothing is released.
func (k *Keepalive) Lose(h Holder, fence int64, why lossReason, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.LoseLocked(h, fence, why, reason)
}

// LoseLocked is Lose for a Store that has the Keepalive locked.
func (k *Keepalive) LoseLocked(h Holder, fence int64, why lossReason, reason string) {
	if l := k.leases[h]; l != nil && l.fence <= fence {
		k.loseLocked(l, why, reason)
	}
}

func (k *Keepalive) loseLocked(l *lease, why lossReason, reason string) {
	k.loseHoldsLocked(l, slices.Clone(l.holds), why, reason)
}

// loseHoldsLocked is loseLocked for some of the holds of a lease.
func (k *Keepalive) loseHoldsLocked(l *lease, lost []*sessionHold, why lossReason, reason string) {
	k.svc.counters.losses[why].Add(1)
	k.svc.emit(Event{Kind: EventLost, Key: l.Key, At: time.Now(), Owner: l.Owner, Fence: l.fence, Why: reason})
	var told []*Session
	for _, hold := range lost {
		c := hold.session
		if slices.Contains(told, c) {
			continue
		}
		told = append(told, c)
		loss := Loss{Key: l.Key, Owner: l.Owner, Fence: l.fence, OnLoss: l.onLoss(c), Reason: reason}
		k.tasks = append(k.tasks, func() { c.notify(loss) })
	}
	for _, hold := range lost {
		k.detachLocked(hold)
	}
	k.startWorkersLocked()
}

// onLoss is what a session wants to happen: the largest OnLoss of its holds.
func (l *lease) onLoss(c *Session) OnLoss {
	wish := OnLossPush
	for _, hold := range l.holds {
		if hold.session == c {
			wish = max(wish, hold.onLoss)
		}
	}
	return wish
}

// setTTL notes the TTL of a RENEW of a grant, for further renewals; fence 0 means any.
func (k *Keepalive) setTTL(h Holder, fence int64, ttl time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.leases[h]; l != nil && (fence == 0 || l.fence == fence) {
		l.ttl = ttl
		for _, hold := range l.holds {
			hold.ttl = ttl
		}
	}
}

// recheck makes a lease due now, since its end was moved or, if it is doubtful, since it may be lost. A lease that
// is being renewed becomes due again only if it is doubtful.
func (k *Keepalive) recheck(h Holder, doubtful bool) { k.RecheckIn(0, h, doubtful) }

// RecheckIn is recheck after a pause.
func (k *Keepalive) RecheckIn(pause time.Duration, h Holder, doubtful bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.leases[h]; l != nil {
		k.recheckLocked(pause, l, doubtful)
	}
}

func (k *Keepalive) recheckLocked(pause time.Duration, l *lease, doubtful bool) {
	l.doubtful = l.doubtful || doubtful
	if at := k.svc.store.Now() + pause; !l.busy && (pause == 0 || at < l.next) {
		l.next = at
		k.scheduleLocked(l)
	}
}

// RecheckAll rechecks all leases as doubtful, a millisecond apart.
func (k *Keepalive) RecheckAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	pause := time.Duration(0)
	for _, l := range k.leases {
		k.recheckLocked(pause, l, true)
		pause += time.Millisecond
	}
}

// Keeps reports whether a session here has the grant with this fence.
func (k *Keepalive) Keeps(h Holder, fence int64) bool {
	_, ok := k.KeptFor(h, fence)
	return ok
}

// KeptFor reports whether a session here has the grant with this fence, and which client's: that of the LOCK that came last.
func (k *Keepalive) KeptFor(h Holder, fence int64) (client string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.KeepsLocked(h, fence) {
		return "", false
	}
	holds := k.leases[h].holds
	return holds[len(holds)-1].client, true
}

// KeepsLocked reports whether a session here has the grant with this fence. The caller has the Keepalive locked.
func (k *Keepalive) KeepsLocked(h Holder, fence int64) bool {
	l := k.leases[h]
	return l != nil && l.fence == fence
}

// any reports whether there are leases.
func (k *Keepalive) any() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.leases) > 0
}

// popEndedLocked takes out the holds whose time of release has come, and has them given back.
func (k *Keepalive) popEndedLocked(l *lease, now time.Duration) {
	var ids []string
	for i := len(l.holds) - 1; i >= 0; i-- {
		if hold := l.holds[i]; hold.releaseAt != 0 && hold.releaseAt <= now {
			ids = append(ids, hold.id)
			k.detachLocked(hold)
		}
	}
	if len(ids) > 0 {
		h, fence := l.Holder, l.fence
		k.svc.emit(Event{Kind: EventLeft, Key: h.Key, At: time.Now(), Owner: h.Owner, Fence: fence})
		k.tasks = append(k.tasks, func() { k.svc.store.GiveBack(h, fence, ids) })
	}
}

// renew renews a lease that is due, unless it has ended or the owner's own RENEW came first.
func (k *Keepalive) renew(l *lease) {
	k.mu.Lock()
	k.refreshLocked(l)
	within, due := k.dueLocked(l)
	if !due {
		k.mu.Unlock()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	l.cancel = cancel
	l.doubtful = false
	t, ids := Term{l.ttl, l.longest().end}, l.ids()
	k.mu.Unlock()
	k.applyResult(l, k.svc.store.Extend(ctx, l.Holder, l.fence, t, ids), t.TTL, ids)
}

// refreshLocked takes over what the Store knows of the ends of a lease's holds.
func (k *Keepalive) refreshLocked(l *lease) {
	for _, hold := range l.holds {
		if until, known := k.svc.store.Until(l.Holder, l.fence, []string{hold.id}); known {
			hold.until = until
		}
	}
}

// dueLocked reports whether a lease is to be renewed now, and how long that may take. If not, it has given the
// lease up or scheduled it.
func (k *Keepalive) dueLocked(l *lease) (within time.Duration, due bool) {
	if len(l.holds) == 0 || k.stopped {
		return 0, false
	}
	now, last := k.svc.store.Now(), l.first((*sessionHold).giveUpAt)
	switch {
	case now >= last:
		why, reason := l.reason()
		over := slices.DeleteFunc(slices.Clone(l.holds), func(h *sessionHold) bool { return h.giveUpAt() > now })
		k.loseHoldsLocked(l, over, why, reason)
		k.doneLocked(l, now) // the holds that stay may be due for a renewal
	case l.atMaxHold() && !l.doubtful:
		k.doneLocked(l, last)
	case now < l.renewAt() && !l.doubtful:
		k.doneLocked(l, l.renewAt())
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

// doneLocked schedules a lease that a worker is done with.
func (k *Keepalive) doneLocked(l *lease, next time.Duration) {
	l.busy, l.cancel, l.next = false, nil, next
	k.scheduleLocked(l)
}

// applyResult applies the result of a renewal, of these holds for ttl, to its lease.
func (k *Keepalive) applyResult(l *lease, o Extension, ttl time.Duration, ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(l.holds) == 0 {
		return
	}
	now := k.svc.store.Now()
	switch o.Result {
	case Extended:
		k.svc.counters.sessionRenewals.Add(1)
		l.lastErr, l.gaveBack = nil, l.gaveBack && l.doubtful
		if k.DropLocked(l.Holder, o.Released); len(l.holds) == 0 {
			return
		}
		for _, hold := range l.holds {
			if slices.Contains(ids, hold.id) {
				hold.until, hold.ttl = o.Until, min(ttl, l.ttl) // less if a RENEW has come meanwhile
			}
		}
		k.refreshLocked(l)
		next := max(l.renewAt(), now+minRenewPause)
		if l.doubtful { // it became so after this renewal was sent
			next = now + minRenewPause
		}
		k.doneLocked(l, next)
	case Undecided:
		k.svc.counters.sessionMisses.Add(1)
		l.lastErr, l.doubtful = o.Err, true
		k.doneLocked(l, max(now, min(now+l.pause(now), l.first((*sessionHold).giveUpAt))))
	case GivenBack:
		k.dropLeaseLocked(l)
	default:
		why, text := l.lossBy(o.Result)
		k.endLocked(l, why, text)
	}
}

// reason is why the keepalive gives a lease up.
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

// end ends a session; its holds are given back at the given time.
func (k *Keepalive) end(c *Session, at time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	for _, hold := range c.holds {
		hold.releaseAt = at
	}
	now := k.svc.store.Now()
	for _, hold := range slices.Clone(c.holds) {
		if hold.session != nil { // else popEndedLocked has taken it out with another hold of its lease
			k.popEndedLocked(hold.lease, now)
			k.scheduleLocked(hold.lease)
		}
	}
	k.startWorkersLocked()
}

// abandon ends a session whose holds are neither renewed any more nor given back.
func (k *Keepalive) abandon(c *Session) {
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

// stop ends renewing. Holds of sessions that ended are still given back.
func (k *Keepalive) stop() {
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
func (k *Keepalive) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
}

// idle reports whether no task waits or is under way.
func (k *Keepalive) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workers == 0 && len(k.tasks) == 0
}
