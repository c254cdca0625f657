package faults

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"
)

const (
	margin  = 2 * time.Millisecond  // of a lease, beside 1 % of it
	lateBy  = 2 * time.Second       // how late a proxy may notice that a client is gone, while it may be stopped itself
	settles = time.Second           // how long after a fault nodes may be late, beside a quarantine
	prompt  = 25 * time.Millisecond // in a calm, a command that does not wait
)

// expected are the errors that anybody may get while things fail.
var expected = regexp.MustCompile("^(NOQUORUM|ERR LOCK was) |cannot reach the upstream")

// A window is a time in which something was made to fail.
type window struct{ from, until instant }

// A judge says what must not be in a history.
type judge struct {
	events  history
	faults  []window
	longest time.Duration // lease
	out     time.Duration // see size
	back    time.Duration // leases may end so much later, as clocks of nodes were stepped back
	unsafe  bool          // a clock was stepped forward: only fences and what is behind them is promised
	beliefs map[string][]*belief

	found    []string
	overlaps int // if unsafe: of beliefs of one lock
}

func (j *judge) accuse(format string, args ...any) {
	j.found = append(j.found, fmt.Sprintf(format, args...))
}

// A belief is a time in which an owner may count on having a lock, by what it was told:
// from the reply to its LOCK on, for the validity it was told counted from before it asked.
type belief struct {
	name, owner string
	client      int
	fence       int64
	from, until instant
	ends        []instant // of its holds: the last of them is until
	closed      bool      // nothing prolongs it

	session bool
	lapse   instant         // when the lease is over on all nodes that voted, at the latest
	unsure  bool            // the owner may have what it was not told of
	least   int             // holds that were taken and not given back
	most    int             // with those that were perhaps taken, or perhaps not given back
	reqs    map[string]bool // LOCKs and UNLOCKs that were counted
	free    instant         // when UNLOCK had said that the lock is free
	first   instant         // when it was asked for
	open    bool            // it has no end, as far as the owner knows
	permit  bool            // its owner asked for a permit
}

// check returns what is wrong.
func (j *judge) check() []string {
	j.events.sort()
	j.splitReaders()
	j.storms()
	j.build()
	for name, all := range j.beliefs {
		j.exclusion(name, all)
		j.order(name)
	}
	j.besides()
	j.permitted()
	if !j.unsafe {
		j.afterForce()
		j.refusals()
		j.fencedHolders()
		j.sessions()
	}
	j.accepted()
	j.swaps()
	j.answers()
	return j.found
}

type ownerOf struct{ name, owner string }

// build derives beliefs, and judges on the way what an owner is told of its own lock.
func (j *judge) build() {
	j.beliefs = map[string][]*belief{}
	newest := map[ownerOf]*belief{}
	var blind history           // what may have been done to another's lock
	own := map[*Event]*belief{} // what was done to the owner's, unless somebody has taken that
	for _, e := range j.events {
		switch e.Op {
		case opKill:
			j.killed(e)
			continue
		case opForce:
			continue
		}
		k := ownerOf{e.Name, e.Owner}
		b := newest[k]
		if b == nil {
			b = &belief{name: e.Name, owner: e.Owner, closed: true, reqs: map[string]bool{}}
		}
		until, unsure := b.until, b.unsure
		switch e.Op {
		case opLock:
			b = j.locked(b, e)
		case opRenew:
			j.renewed(b, e)
		case opUnlock:
			j.unlocked(b, e)
		case opSee:
			j.seen(b, e)
		case opClose:
			b.least = 0
			b.end(e.Start)
		}
		if e.Blind && (unsure || e.Fence != b.fence || !e.answered() || e.End > until) {
			blind = append(blind, e)
		} else if e.Blind {
			own[e] = b
		}
		if e.Owner != "" {
			newest[k] = b
		}
	}
	for _, e := range j.events {
		if e.Op == opForce || e.Takes != "" {
			j.forced(e)
		}
	}
	for again := true; again; { // what they may have done makes others' uncertain, too
		for _, e := range blind {
			j.forced(e)
		}
		blind = nil
		for e, b := range own {
			if b.unsure {
				blind = append(blind, e)
				delete(own, e)
			}
		}
		again = len(blind) > 0
	}
}

func (b *belief) end(at instant) {
	b.until = min(b.until, at)
	b.closed = true
}

func (j *judge) killed(e *Event) {
	for _, all := range j.beliefs {
		for _, b := range all {
			if b.client == e.Client && !b.closed {
				b.end(e.Start)
				b.lapse = max(b.lapse, e.Start)
			}
		}
	}
}

// forced cuts what FORCE, or a LOCK that replaces another, may have taken away.
func (j *judge) forced(e *Event) {
	end := cmp.Or(e.End, e.Start.add(5*time.Second))
	for _, b := range j.inReach(e) {
		if (e.Op == opForce || e.takes(b.owner)) && b.first < end && b.until > e.Start { // also what was granted before and told after
			b.until = e.Start
			b.unsure = true
		}
	}
}

// until is the end of a lease of ttl that was asked for at some time, drift taken off.
func (e *Event) until() instant { return e.Start.add(e.TTL - e.TTL/100 - margin) }

// lapse is when a lease that was answered is over on the nodes that gave it.
func (e *Event) lapse() instant {
	if e.Open {
		return e.End.add(maxHold + e.TTL + lateBy)
	}
	return e.End.add(e.TTL + e.TTL/50 + 5*margin)
}

// locked takes a LOCK of the owner of b and returns its newest belief.
func (j *judge) locked(b *belief, e *Event) *belief {
	id := cmp.Or(e.Req, fmt.Sprint("#", e.ID))
	if e.Reply == held || e.Reply == over {
		return b
	}
	if !b.reqs[id] {
		b.reqs[id] = true
		b.most++
	}
	if e.Reply != granted {
		b.unsure = true
		return b
	}
	if b.fence != e.Granted || b.closed {
		b.end(e.Start)
		n := &belief{name: e.Name, owner: e.Owner, client: e.Client, fence: e.Granted, from: e.End, first: e.Start,
			most: b.most, reqs: b.reqs, unsure: b.unsure || b.most > 1}
		b = n
		j.beliefs[e.Name] = append(j.beliefs[e.Name], b)
	}
	b.least++
	b.ends = append(b.ends, e.Start.add(e.Validity))
	b.until = slices.Max(b.ends)
	b.lapse = max(b.lapse, e.lapse())
	b.session, b.open, b.permit = b.session || e.Session, e.Open, b.permit || e.Permits > 0
	// While nodes are late, or others try, an attempt of the proxy may be there until it is undone.
	if (e.Holds > b.most && e.Wait == 0 || e.Holds < b.least && !b.unsure) && j.calm(b.first, e.End) {
		j.accuse("%s: fence %d of %s has %d holds, it has taken %d to %d", e.Name, e.Granted, e.Owner, e.Holds, b.least, b.most)
	}
	return b
}

func (j *judge) renewed(b *belief, e *Event) {
	if e.Fence != b.fence {
		return
	}
	j.scripts(b, e)
	before := b.until
	b.renew(e.until(), false) // they may be shorter from now on
	if e.Reply != carried {
		if e.Reply == "" || e.Reply == failed {
			b.unsure = true
		}
		return
	}
	late := e.Blind && (b.unsure || e.End > before) // perhaps it was another's lock
	if !late && !b.session && !b.unsure && e.Start > b.lapse.add(j.back) {
		j.accuse("%s: fence %d of %s was renewed %v after its lease was over", e.Name, b.fence, e.Owner, time.Duration(e.Start-b.lapse))
	}
	if b.closed && b.free != 0 && b.free < e.Start {
		j.accuse("%s: fence %d of %s was renewed after UNLOCK said that the lock is free", e.Name, b.fence, e.Owner)
	}
	if b.lapse = max(b.lapse, e.lapse()); b.open && !e.Open && !late && !b.unsure && !b.closed && j.calm(e.Start, e.End.add(2*j.longest)) {
		b.lapse = e.lapse() // it has an end now; a node that fails may forget that, see docs/decisions/0029
	}
	b.open = e.Open
	if b.closed || late {
		return
	}
	b.renew(e.Start.add(e.Validity), true)
}

// seen takes a read of the value. A lock without an end was its owner's till then, and nobody else's.
func (j *judge) seen(b *belief, e *Event) {
	if e.Fence != b.fence {
		return
	}
	j.scripts(b, e)
	if e.Reply == carried && b.open && !b.closed && e.Start > b.until {
		b.renew(e.Start, true)
	}
}

// scripts accuses where a script that compares the value did not find that of who had the lock all the time.
func (j *judge) scripts(b *belief, e *Event) {
	if (isAdopted(e.Owner) || isHash(e.Owner)) && e.Reply == lost && !b.unsure && !b.closed && e.End <= b.until && j.calm(b.first, e.End) && !j.mayLack(b, e) {
		j.accuse("%s: a command to %s fence %d did not find the value of %s: %+v", e.Name, e.Op, b.fence, e.Owner, *e)
	}
}

// renew moves the end of all holds; if it may not have happened, only of those that end later.
func (b *belief) renew(end instant, sure bool) {
	for i := range b.ends {
		if sure || b.ends[i] > end {
			b.ends[i] = end
		}
	}
	if b.until = min(b.until, end); sure {
		b.until = end
	}
}

// giveBack notes that a hold is given back: the owner counts on those that end first.
func (b *belief) giveBack(at instant) {
	if len(b.ends) == 0 {
		return
	}
	slices.Sort(b.ends)
	if b.ends = b.ends[:len(b.ends)-1]; len(b.ends) == 0 {
		b.until = min(b.until, at)
		return
	}
	b.until = min(b.until, b.ends[len(b.ends)-1])
}

func (j *judge) unlocked(b *belief, e *Event) {
	if e.Fence != 0 && e.Fence != b.fence {
		return
	}
	j.scripts(b, e)
	sure := !b.unsure && e.First && !b.closed && e.Reply == carried
	id := "unlock " + cmp.Or(e.Req, fmt.Sprint("#", e.ID))
	repeated := b.reqs[id]
	if !repeated { // else it gives nothing back
		b.reqs[id] = true
		b.least = max(0, b.least-1)
	}
	if e.All {
		b.least = 0
	}
	if e.First && e.Reply == carried {
		b.most--
	}
	if sure && j.calm(b.first, e.End) && e.Freed != (b.least == 0) {
		j.accuse("%s: UNLOCK of fence %d of %s said free: %v, when it had %d holds left", e.Name, b.fence, e.Owner, e.Freed, b.least)
	}
	if e.Reply == carried && !e.Freed && b.least > 0 {
		if !repeated {
			b.giveBack(e.Start)
		}
		return
	}
	if e.Reply == carried && e.Freed && b.free == 0 {
		b.free = e.End
	}
	b.end(e.Start)
}

// storms joins faults that are no calm apart. A machine that is late is a fault too: what
// was not answered promptly shows it.
func (j *judge) storms() {
	for _, e := range j.events {
		verb := e.Op == opLock && e.Wait == 0 || e.Op == opRenew || e.Op == opUnlock
		if verb && e.answered() && (e.Reply == failed || e.End > e.Start.add(prompt)) {
			j.faults = append(j.faults, window{e.Start, e.End})
		}
	}
	slices.SortFunc(j.faults, func(a, b window) int { return cmp.Compare(a.from, b.from) })
	var joined []window
	for _, w := range j.faults {
		w.until = w.until.add(j.out + settles)
		if n := len(joined); n > 0 && w.from <= joined[n-1].until {
			joined[n-1].until = max(joined[n-1].until, w.until)
			continue
		}
		joined = append(joined, w)
	}
	j.faults = joined
}

// calm reports whether nothing failed in a time, nor shortly before.
func (j *judge) calm(from, until instant) bool {
	return !slices.ContainsFunc(j.faults, func(w window) bool { return from < w.until && w.from < until })
}

// exclusion accuses owners that believed at one time to have a lock.
func (j *judge) exclusion(name string, all []*belief) {
	slices.SortFunc(all, func(a, b *belief) int { return cmp.Compare(a.from, b.from) })
	var longest *belief
	for _, b := range all {
		if both := longest != nil && b.owner != longest.owner && b.from < min(longest.until, b.until); both && j.unsafe {
			j.overlaps++
		} else if both {
			j.accuse("%s: %s has fence %d and %s has fence %d, both valid for %v at %d", name,
				longest.owner, longest.fence, b.owner, b.fence, time.Duration(min(longest.until, b.until)-b.from), b.from)
		}
		if longest == nil || b.until > longest.until {
			longest = b
		}
	}
}

// order accuses grants whose fence is not above that of all that were answered before
// they were asked for, and old grants that somebody could still renew.
func (j *judge) order(name string) {
	var answered history
	for _, e := range j.events {
		if e.Name == name && e.Op == opLock && e.Reply == granted {
			answered = append(answered, e)
		}
	}
	slices.SortFunc(answered, func(a, b *Event) int { return cmp.Compare(a.End, b.End) })
	next, top := 0, &Event{}
	for _, e := range j.events { // by Start
		if e.Name != name {
			continue
		}
		for next < len(answered) && answered[next].End < e.Start {
			if answered[next].Granted > top.Granted {
				top = answered[next]
			}
			next++
		}
		switch {
		case e.Op == opLock && e.Reply == granted && e.Granted != 0 && (e.Granted < top.Granted || e.Granted == top.Granted && e.Owner != top.Owner):
			j.accuse("%s: %s was granted fence %d after %s had been told %d", name, e.Owner, e.Granted, top.Owner, top.Granted)
		case e.Op == opRenew && e.Reply == carried && !e.Blind && e.Fence < top.Granted:
			j.accuse("%s: fence %d of %s was renewed after %s had been told %d", name, e.Fence, e.Owner, top.Owner, top.Granted)
		}
	}
}

// refusals accuses of a lock that outlives its holder. Those in line hear what the first of them was told, and so
// does who does not wait where others do, until the message of a release has come: that is to take less than prompt.
func (j *judge) refusals() {
	last := map[ownerOf]*belief{}
	for _, all := range j.beliefs {
		for _, b := range all { // by from
			last[ownerOf{b.name, b.owner}] = b
		}
	}
	for _, e := range j.events {
		name := whole(e.Name)
		b := last[ownerOf{name, e.Holder}]
		reads := last[ownerOf{name + readBar + e.Holder, e.Holder}] != nil // perhaps it is in the way as a reader
		if e.Op != opLock || e.Reply != held || e.Wait > 0 || b == nil || reads || b.unsure || e.Start < b.from {
			continue
		}
		lapse := b.lapse.add(j.back)
		if b.session {
			if !b.closed {
				continue
			}
			lapse = max(lapse, b.until.add(j.back)).add(j.longest + lateBy)
		}
		switch {
		case e.Start > lapse:
			j.accuse("%s: held by %s, %v after its lease was over", e.Name, b.owner, time.Duration(e.Start-lapse))
		case b.free != 0 && e.Start > b.free.add(prompt) && j.calm(b.first, e.End):
			j.accuse("%s: held by %s, %v after UNLOCK said that it is free", e.Name, b.owner, time.Duration(e.Start-b.free))
		}
	}
}

// within is the belief of an owner that covers a whole command, or nil.
func (j *judge) within(e *Event) *belief {
	for _, b := range j.beliefs[e.Name] {
		if b.owner == e.Owner && b.fence == e.Fence && b.from <= e.Start && e.answered() && e.End <= b.until {
			return b
		}
	}
	return nil
}

// fencedHolders accuses where a set refuses an owner that has the lock.
func (j *judge) fencedHolders() {
	for _, e := range j.events {
		if e.Reply == stale && j.within(e) != nil {
			j.accuse("%s: %s has fence %d, but the set has seen a larger one", e.Name, e.Owner, e.Fence)
		}
	}
}

// sessions accuses where somebody listened for the loss of a lock, and heard nothing though
// another was granted it well before.
func (j *judge) sessions() {
	for _, e := range j.events {
		if e.Op != opKeep || e.Reply != carried {
			continue
		}
		for _, b := range j.beliefs[e.Name] {
			if b.owner != e.Owner && b.fence > e.Fence && b.from.add(lateBy) < e.End {
				j.accuse("%s: the session of %s was not told that it lost fence %d, though %s had %d since %v", e.Name,
					e.Owner, e.Fence, b.owner, b.fence, time.Duration(e.End-b.from))
				break
			}
		}
	}
}

// accepted accuses a fenced set that went backwards.
func (j *judge) accepted() {
	var all history
	for _, e := range j.events {
		if e.Op == opWrite && e.Reply == carried && isFenced(e.Name) {
			all = append(all, e)
		}
	}
	for i, e := range all {
		for _, f := range all[i+1:] {
			if f.Key == e.Key && f.Start > e.End && f.Fence < e.Fence {
				j.accuse("%s: a write under fence %d was taken after one under %d", e.Key, f.Fence, e.Fence)
			}
			if f.Start > e.End.add(answerWithin) {
				break
			}
		}
	}
}

// answers accuses of errors that nobody should see, and of none at all.
func (j *judge) answers() {
	for _, e := range j.events {
		if !e.answered() && e.Text != "" || e.Reply == failed && !expected.MatchString(e.Text) {
			j.accuse("%s %s of %s: %s", e.Op, e.Name, e.Owner, e.Text)
		}
	}
}
