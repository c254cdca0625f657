package locks

import "time"

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
