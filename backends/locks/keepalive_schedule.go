package locks

import (
	"cmp"
	"slices"
	"time"
)

// renewAt is when a hold is renewed: when a third of its validity has passed.
func (h *sessionHold) renewAt() time.Duration { return h.until - 2*(h.ttl-Drift(h.ttl))/3 }

// giveUpAt is when a hold is given up, so that the client is told before its validity ends.
func (h *sessionHold) giveUpAt() time.Duration {
	return h.until - max(minRenewPause, min(h.ttl/10, time.Second))
}

// first is the earliest of these times of its holds, which may end at different times until a renewal, which is for all.
func (l *lease) first(at func(*sessionHold) time.Duration) time.Duration {
	t := at(l.holds[0])
	for _, h := range l.holds[1:] {
		t = min(t, at(h))
	}
	return t
}

// renewAt is when the lease is renewed.
func (l *lease) renewAt() time.Duration { return l.first((*sessionHold).renewAt) }

// until is when the validity of the hold that ends first ends.
func (l *lease) until() time.Duration {
	return l.first(func(h *sessionHold) time.Duration { return h.until })
}

// longest is the hold whose MaxHold ends last.
func (l *lease) longest() *sessionHold {
	return slices.MaxFunc(l.holds, func(a, b *sessionHold) int { return cmp.Compare(a.end, b.end) })
}

// atMaxHold reports whether the lease runs to the end of its MAXHOLD, so that no renewal can let
// it run longer. A renewal is for whole milliseconds.
func (l *lease) atMaxHold() bool {
	return l.until() >= l.longest().end-Drift(l.ttl)-time.Millisecond
}

// pause is how long a renewal may take, and then the time until the next one.
func (l *lease) pause(now time.Duration) time.Duration { return max(minRenewPause, (l.until()-now)/3) }

// scheduleLocked puts a lease into the schedule, at the time when there is something to do for it next, or takes it
// out if there is nothing.
func (k *Keepalive) scheduleLocked(l *lease) {
	at, any := l.next, !l.busy
	for _, hold := range l.holds {
		if hold.releaseAt != 0 && (!any || hold.releaseAt < at) {
			at, any = hold.releaseAt, true
		}
	}
	l.at = at
	if !any || k.leases[l.Holder] != l {
		k.schedule.remove(l)
		return
	}
	k.schedule.place(l)
	switch {
	case k.stopped || k.closed:
	case !k.running:
		k.running = true
		k.group.Go(k.run)
	case l.index == 0:
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// run is the scheduler: it hands what is due to workers, and ends when nothing is scheduled.
func (k *Keepalive) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		wait, any := k.dispatch()
		if !any {
			return
		}
		t.Reset(min(wait, maxSleep))
		select {
		case <-t.C:
		case <-k.wake:
		}
	}
}

// dispatch hands what is due to workers. wait is how long it is until something will be due; any is false when
// nothing is scheduled.
func (k *Keepalive) dispatch() (wait time.Duration, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for now := k.svc.store.Now(); len(k.schedule) > 0 && !k.stopped; {
		l := k.schedule[0]
		if l.at > now {
			k.startWorkersLocked()
			return l.at - now, true
		}
		k.popEndedLocked(l, now)
		if !l.busy && l.next <= now && len(l.holds) > 0 {
			l.busy = true
			k.due = append(k.due, l)
		}
		k.scheduleLocked(l)
	}
	k.startWorkersLocked()
	k.running = false
	return 0, false
}

// startWorkersLocked starts a worker for each piece of work that no idle worker will take, so that a renewal under
// way, which may take as long as a lease, holds up nothing else.
func (k *Keepalive) startWorkersLocked() {
	for queued := len(k.tasks) + len(k.due); k.workers-k.busy < queued && k.workers < maxKeepWorkers && !k.closed; {
		k.workers++
		k.group.Go(k.work)
	}
}

// work takes tasks and due leases until there are none.
func (k *Keepalive) work() {
	for {
		urgent, l := k.take()
		switch {
		case urgent != nil:
			urgent()
		case l != nil:
			k.renew(l)
		default:
			return
		}
		k.mu.Lock()
		k.busy--
		k.mu.Unlock()
	}
}

func (k *Keepalive) take() (urgent func(), l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case len(k.tasks) > 0:
		urgent, k.tasks = k.tasks[0], k.tasks[1:]
	case len(k.due) > 0:
		l, k.due = k.due[0], k.due[1:]
	default:
		k.workers--
		k.tasks, k.due = nil, nil
		return nil, nil
	}
	k.busy++
	return urgent, l
}

func (l *lease) before(other *lease) bool { return l.at < other.at }
func (l *lease) heapIndex() *int          { return &l.index }
