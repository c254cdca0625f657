package faults

import (
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/integration/redistest"
)

// playSeveral is a turn with two or three names that are locked at once, by an owner of its own.
func (w *worker) playSeveral() {
	all := w.claims()
	if all == nil || !w.lockAll(all) {
		w.sleep(w.upTo(20 * time.Millisecond))
		return
	}
	defer func() {
		for _, c := range all[1:] {
			if c.Session {
				w.begin(&Event{Op: opClose, Name: c.Name, Owner: c.Owner, Shared: c.Shared})
			}
		}
		w.hangUp(all[0])
	}()
	for range w.IntN(5) {
		if !w.holdAll(all) {
			return
		}
	}
	if w.chance(2) {
		w.unlockAll(all)
		return
	}
	for _, c := range all {
		w.unlock(c)
	}
}

// claims makes up a LOCKALL: a claim of each name.
func (w *worker) claims() (all []*claim) {
	first := w.claim()
	if first.Owner != "" {
		first.Owner = w.who + "." + strconv.Itoa(w.turn)
	}
	first.Shared = first.Owner != "" && w.chance(3)
	at := w.Perm(len(w.Names))
	for _, i := range at[:min(len(at), 2+w.IntN(2))] {
		c := *first
		c.Name = w.Names[i]
		all = append(all, &c)
	}
	return all
}

// verbAll is a verb for the names of claims, with what comes after them.
func verbAll(verb string, all []*claim, more ...string) []string {
	args := []string{verb, strconv.Itoa(len(all))}
	for _, c := range all {
		args = append(args, c.Name)
	}
	return append(args, more...)
}

// askAll sends what all events are about in one command, and records the answer of each.
func (l *line) askAll(all []*Event, judge func(redistest.Value), args ...string) bool {
	start := now()
	for _, e := range all {
		e.ID, e.Client, e.Start, e.Proxy = l.w.ids.Add(1), l.w.ID, start, l.proxy
		l.w.journal.write(e)
	}
	l.Timeout = all[0].Wait + answerWithin
	v, err := l.Try(args...)
	for err == nil && v.Kind == '>' { // a push
		v, err = l.Next()
	}
	end := now()
	if err == nil {
		judge(v)
	}
	for _, e := range all {
		switch {
		case err == nil:
			e.End = end
		case timedOut(err):
			e.Text = "a command was not answered in time: " + args[0]
		default:
			continue
		}
		l.w.journal.write(e)
	}
	return err == nil
}

// lockAll asks until there is an answer, if it may ask again.
func (w *worker) lockAll(all []*claim) bool {
	for range 5 {
		l := w.dial()
		if l == nil {
			if w.over() {
				return false
			}
			continue
		}
		var events []*Event
		for _, c := range all {
			e := c.Event
			e.With = len(all)
			c.line = l
			events = append(events, &e)
		}
		answered := l.askAll(events, func(v redistest.Value) { judgeAll(v, events) }, verbAll("LOCKALL", all, all[0].args()[2:]...)...)
		if events[0].Reply == granted {
			for i, c := range all {
				c.Owner, c.fence, c.taken = events[i].Owner, events[i].Granted, 1
			}
			return true
		}
		_ = l.Close()
		if answered || all[0].Req == "" || w.over() {
			return false
		}
	}
	return false
}

// judgeAll reads a reply to LOCKALL.
func judgeAll(v redistest.Value, all []*Event) {
	for i, e := range all {
		switch {
		case v.IsError():
			e.judge(v)
		case len(v.Elems) > 2 && len(v.Elems[2].Elems) == 0:
			e.Reply = held
			if v.Elems[4].Text == e.Name {
				e.Holder = v.Elems[1].Text
			}
		case len(v.Elems) == 0:
			e.Reply = held
		case len(v.Elems) != 2+len(all) || v.Elems[2+i].Elems[0].Text != e.Name:
			e.Reply, e.Text = failed, "no reply to LOCKALL: "+v.String()
		case v.Elems[2+i].Elems[2].Int() == 0: // this request was granted and given back
			e.Reply = over
		default:
			name := v.Elems[2+i].Elems
			e.Reply, e.Granted, e.Owner, e.Holds = granted, name[1].Int(), v.Elems[1].Text, int(name[2].Int())
			e.Validity = time.Duration(v.Elems[0].Int()) * time.Millisecond
		}
	}
}

// holdAll does something with names that were locked together. It reports whether the owner still has all, as far as it knows.
func (w *worker) holdAll(all []*claim) bool {
	c := all[w.IntN(len(all))]
	switch w.IntN(6) {
	case 0, 1:
		return w.renewAll(all, w.lease())
	case 2:
		return w.renew(c, w.lease())
	case 3:
		if c.Session {
			return w.keep(c)
		}
		if w.Copies {
			return w.outlast(c)
		}
		w.sleep(w.upTo(c.TTL / 2))
		return true
	}
	if c.Shared {
		return w.look(c)
	}
	return w.update(c)
}

// renewAll is one RENEWALL. What it says of some is taken to be true of all.
func (w *worker) renewAll(all []*claim, ttl time.Duration) bool {
	l, done := w.other(all[0])
	defer done()
	var events []*Event
	for _, c := range all {
		events = append(events, &Event{Op: opRenew, Name: c.Name, Owner: c.Owner, TTL: ttl, Fence: c.fence, Shared: c.Shared, With: len(all)})
	}
	args := events[0].reads(verbAll("RENEWALL", all, inMillis(ttl), all[0].Owner)...)
	l.askAll(events, func(v redistest.Value) {
		for _, e := range events {
			e.judge(v)
		}
	}, args...)
	return events[0].Reply != lost && events[0].Reply != notOwner
}

// unlockAll is one UNLOCKALL.
func (w *worker) unlockAll(all []*claim) {
	l, done := w.other(all[0])
	defer done()
	var events []*Event
	for _, c := range all {
		events = append(events, &Event{Op: opUnlock, Name: c.Name, Owner: c.Owner, Shared: c.Shared, First: true, With: len(all)})
	}
	args := events[0].reads(verbAll("UNLOCKALL", all, all[0].Owner)...)
	l.askAll(events, func(v redistest.Value) {
		for _, e := range events {
			e.judge(v)
			e.First = e.Freed // else it is not known of which of them holds are left
		}
	}, args...)
}
