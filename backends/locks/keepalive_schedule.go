package locks

import (
	"container/heap"
	"time"
)

// scheduleLocked puts a lease at its place in the order of what is next.
func (k *keepalive) scheduleLocked(l *lease) {
	at, any := l.next, !l.busy
	for _, hold := range l.holds {
		if hold.releaseAt != 0 && (!any || hold.releaseAt < at) {
			at, any = hold.releaseAt, true
		}
	}
	switch l.at = at; {
	case !any || k.leases[l.holder] != l:
		if l.index >= 0 {
			heap.Remove(&k.schedule, l.index)
		}
		return
	case l.index < 0:
		heap.Push(&k.schedule, l)
	default:
		heap.Fix(&k.schedule, l.index)
	}
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

// run hands what is due to workers until nothing will be.
func (k *keepalive) run() {
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

// dispatch gives workers what is due and reports how long it is until something will
// be; any is false when nothing will.
func (k *keepalive) dispatch() (wait time.Duration, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for now := k.svc.now(); len(k.schedule) > 0 && !k.stopped; {
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

// startWorkersLocked starts a worker for each piece of work that none is about to take: what is under
// way, which may take as long as a lease, holds up nothing else.
func (k *keepalive) startWorkersLocked() {
	for queued := len(k.tasks) + len(k.due); k.workers-k.busy < queued && k.workers < maxKeepWorkers && !k.closed; {
		k.workers++
		k.group.Go(k.work)
	}
}

// work does what waits until nothing does.
func (k *keepalive) work() {
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

func (k *keepalive) take() (urgent func(), l *lease) {
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

// A leaseHeap is a heap.Interface, the next first.
type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push appends a *lease.
func (h *leaseHeap) Push(x any) {
	l := x.(*lease)
	l.index = len(*h)
	*h = append(*h, l)
}

// Pop removes the last.
func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h, l.index = (*h)[:last], -1
	return l
}
