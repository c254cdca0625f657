package faults

import (
	"strings"
	"testing"
	"time"
)

// A script builds a history, with instants in milliseconds.
type script struct {
	history
	at instant
}

const tick = instant(time.Millisecond)

// say adds an event that takes a millisecond, after a pause.
func (s *script) say(e Event) *Event {
	s.at += tick
	e.ID, e.Start = int64(len(s.history)+1), s.at
	if e.Op != opClose && e.Op != opKill {
		s.at += tick
		e.End = s.at
	}
	if e.Name == "" {
		e.Name = "n"
	}
	s.history = append(s.history, &e)
	return &e
}

func (s *script) lock(owner string, fence int64, ttl time.Duration, holds int) *Event {
	return s.say(Event{Op: opLock, Owner: owner, TTL: ttl, Reply: granted, Granted: fence, Validity: ttl - ttl/100 - margin, Holds: holds})
}

func (s *script) renew(owner string, fence int64, ttl time.Duration) *Event {
	return s.say(Event{Op: opRenew, Owner: owner, TTL: ttl, Fence: fence, Reply: carried, Validity: ttl - ttl/100 - margin})
}

func (s *script) unlock(owner string, freed bool) *Event {
	return s.say(Event{Op: opUnlock, Owner: owner, First: true, Reply: carried, Freed: freed})
}

// swap adds what happens to a value of a name that is replaced; old is the one that it replaces.
func (s *script) swap(op, value, old, reply string) *Event {
	return s.say(Event{Op: op, Name: swapNames, Owner: value, Holder: old, TTL: time.Second, Reply: reply})
}

// open is a lock without an end, of which a second is sure.
func (s *script) open(owner string, fence int64) *Event {
	e := s.lock(owner, fence, time.Second, 1)
	e.Open = true
	return e
}

// blindly is what is done to whoever has the lock.
func (s *script) blindly(op, owner string, fence int64, ttl time.Duration) *Event {
	return s.say(Event{Op: op, Owner: owner, Fence: fence, TTL: ttl, Validity: believed(ttl), Reply: carried, First: true, Freed: op == opUnlock, Blind: true})
}

func (s *script) see(owner string, fence int64, reply string) *Event {
	return s.say(Event{Op: opSee, Owner: owner, Fence: fence, Reply: reply})
}

func (s *script) refused(owner, holder string) *Event {
	return s.say(Event{Op: opLock, Owner: owner, TTL: time.Second, Reply: held, Holder: holder})
}

// TestJudge: what must not be is noticed, and nothing else.
func TestJudge(t *testing.T) {
	const lease, back = time.Second, time.Second / 4
	tests := []struct {
		what  string
		say   func(s *script)
		wrong string // empty: nothing
	}{
		{"one after the other", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.unlock("a", true)
			s.lock("b", 2, lease, 1)
		}, ""},
		{"one after the lease of the other", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.at += instant(lease)
			s.lock("b", 2, lease, 1)
		}, ""},
		{"two at once", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.lock("b", 2, lease, 1)
		}, "both valid"},
		{"one that replaces the other", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			s.lock("b.adopted.1", 2, lease, 1).Takes = "a.adopted.1"
			s.renew("b.adopted.1", 2, lease)
			s.say(Event{Op: opRenew, Owner: "a.adopted.1", Fence: 1, Reply: lost, TTL: lease})
		}, ""},
		{"one that replaces another than it says", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			s.lock("b.adopted.1", 2, lease, 1).Takes = "c.adopted.1"
		}, "both valid"},
		{"one that may have replaced another", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			e := s.lock("b.adopted.1", 0, lease, 0)
			e.Takes, e.Reply, e.End = anybody, "", 0
			s.say(Event{Op: opRenew, Owner: "a.adopted.1", Fence: 1, Reply: lost, TTL: lease})
			s.lock("c.adopted.1", 2, lease, 1)
		}, ""},
		{"one that may have replaced another, but not LOCK's", func(s *script) {
			s.lock("a", 1, lease, 1)
			e := s.lock("b.adopted.1", 0, lease, 0)
			e.Takes, e.Reply, e.End = anybody, "", 0
			s.lock("c", 2, lease, 1)
		}, "both valid"},
		{"after a renewal", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.renew("a", 1, 3*lease)
			s.at += instant(2 * lease)
			s.lock("b", 2, lease, 1)
		}, "both valid"},
		{"after a renewal that may have shortened it", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.renew("a", 1, lease/10).End = 0
			s.history[1].Reply = ""
			s.at += instant(lease / 10)
			s.lock("b", 2, lease, 1)
		}, ""},
		{"after an unlock that nobody answered", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.unlock("a", true).End = 0
			s.history[1].Reply = ""
			s.lock("b", 2, lease, 1)
		}, ""},
		{"after an unlock that left a hold", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.lock("a", 1, lease, 2)
			s.unlock("a", false)
			s.lock("b", 2, lease, 1)
		}, "both valid"},
		{"after an unlock that left a hold and was repeated", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.lock("a", 1, lease, 2)
			s.unlock("a", false).Req = "u"
			again := s.unlock("a", false)
			again.Req, again.First = "u", false
			s.lock("b", 2, lease, 1)
		}, "both valid"},
		{"after an unlock that left the hold that ends first", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.lock("a", 1, 3*lease, 2)
			s.unlock("a", false)
			s.at += instant(lease)
			s.lock("b", 2, lease, 1)
		}, ""},
		{"after an unlock that left a hold, and a renewal", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.lock("a", 1, lease, 2)
			s.unlock("a", false)
			s.renew("a", 1, 3*lease)
			s.at += instant(lease)
			s.lock("b", 2, lease, 1)
		}, "both valid"},
		{"after the end of a session", func(s *script) {
			s.lock("a", 1, lease, 1).Session = true
			s.say(Event{Op: opClose, Owner: "a"})
			s.lock("b", 2, lease, 1)
		}, ""},
		{"after the end of a client", func(s *script) {
			s.lock("a", 1, lease, 1).Session = true
			s.say(Event{Op: opKill})
			s.lock("b", 2, lease, 1)
		}, ""},
		{"taken away", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.say(Event{Op: opForce})
			s.lock("b", 2, lease, 1)
		}, ""},
		{"a smaller fence", func(s *script) {
			s.lock("a", 2, lease, 1)
			s.unlock("a", true)
			s.lock("b", 1, lease, 1)
		}, "after a had been told 2"},
		{"the same fence", func(s *script) {
			s.lock("a", 2, lease, 1)
			s.unlock("a", true)
			s.lock("b", 2, lease, 1)
		}, "after a had been told 2"},
		{"renewed when another has had it", func(s *script) {
			s.lock("a", 1, lease/10, 1)
			s.at += instant(lease)
			s.lock("b", 2, lease/10, 1)
			s.at += instant(lease)
			s.renew("a", 1, lease)
		}, "was renewed after b had been told 2"},
		{"renewed when it was over", func(s *script) {
			s.lock("a", 1, lease/10, 1)
			s.at += instant(lease)
			s.renew("a", 1, lease)
		}, "after its lease was over"},
		{"renewed after it was given back", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.unlock("a", true)
			s.renew("a", 1, lease)
		}, "after UNLOCK said"},
		{"too many holds", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.lock("a", 1, lease, 3)
		}, "has 3 holds"},
		{"too few holds", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.lock("a", 1, lease, 1)
		}, "has 1 holds"},
		{"free too early", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.lock("a", 1, lease, 2)
			s.unlock("a", true)
		}, "said free: true"},
		{"held by who gave it back", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.unlock("a", true)
			s.refused("b", "a") // the message of the release is on its way
		}, ""},
		{"held by who gave it back well before", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.unlock("a", true)
			s.at += instant(prompt)
			s.refused("b", "a")
		}, "after UNLOCK said"},
		{"held for longer than its lease", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.refused("b", "a")
			s.at += instant(2 * lease)
			s.refused("b", "a")
		}, "after its lease was over"},
		{"held for as long as a clock that was stepped back may have it", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.at += instant(lease + back/2)
			s.refused("b", "a")
		}, ""},
		{"held for longer than a clock that was stepped back may have it", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.at += instant(lease + back + back/2)
			s.refused("b", "a")
		}, "after its lease was over"},
		{"a session that was not told", func(s *script) {
			s.lock("a", 1, lease, 1).Session = true
			e := s.say(Event{Op: opKeep, Owner: "a", Fence: 1, Reply: carried})
			s.at += instant(lease)
			s.lock("b", 2, lease, 1)
			e.End = s.at.add(2 * lateBy)
		}, "was not told"},
		{"an error of no kind", func(s *script) {
			s.say(Event{Op: opLock, Owner: "a", Reply: failed, Text: "ERR unknown command"})
		}, "unknown command"},
		{"no quorum", func(s *script) {
			s.say(Event{Op: opLock, Owner: "a", Reply: failed, Text: "NOQUORUM 1 of 3 answered"})
		}, ""},
		{"a set that went backwards", func(s *script) {
			s.say(Event{Op: opWrite, Name: fencedNames, Key: "k", Fence: 2, Reply: carried})
			s.say(Event{Op: opWrite, Name: fencedNames, Key: "k", Fence: 1, Reply: carried})
		}, "was taken after"},
		{"a holder that a set refuses", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.say(Event{Op: opRead, Owner: "a", Fence: 1, Reply: stale})
		}, "has seen a larger one"},
		{"a script that misses a value", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			s.renew("a.adopted.1", 1, lease).Reply = lost
		}, "did not find the value"},
		{"a release that misses a value", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			e := s.unlock("a.adopted.1", false)
			e.Fence, e.Reply = 1, lost
		}, "did not find the value"},
		{"a script that comes late", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			s.at += instant(lease)
			e := s.unlock("a.adopted.1", false)
			e.Fence, e.Reply = 1, lost
		}, ""},
		{"values that are replaced in turn", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opSwap, "b", "a", carried)
			s.swap(opLook, "b", "", carried).Granted = 2
			s.swap(opSwap, "c", "b", carried)
			s.swap(opLook, "c", "", carried).Granted = 3
			s.swap(opGive, "c", "", carried)
			s.swap(opTake, "d", "", carried)
		}, ""},
		{"a value that is replaced twice", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opSwap, "b", "a", carried)
			s.swap(opSwap, "c", "a", carried)
		}, "was given up to b by swap, and to c"},
		{"a value that is replaced and given back", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opGive, "a", "", carried)
			s.swap(opSwap, "b", "a", carried)
		}, "was given up to a by give, and to b"},
		{"a value in place of one with a larger fence", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opLook, "a", "", carried).Granted = 2
			s.swap(opSwap, "b", "a", carried)
			s.swap(opLook, "b", "", carried).Granted = 1
		}, "took the place of a with fence 2"},
		{"a value that is moved after it was replaced", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opSwap, "b", "a", carried)
			s.swap(opMove, "a", "", carried)
		}, "was moved after it was given up"},
		{"a value beside another", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opTake, "b", "", carried)
		}, "was there all the time"},
		{"a value beside one that was perhaps replaced", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opSwap, "b", "", failed).Text = "NOQUORUM 1 of 3 answered"
			s.swap(opTake, "c", "", carried)
		}, ""},
		{"a value beside one that a swap may have dropped on some nodes", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opSwap, "b", "", lost)
			s.swap(opTake, "c", "", carried)
		}, ""},
		{"a value beside one that was perhaps given back", func(s *script) {
			s.swap(opTake, "a", "", carried)
			s.swap(opGive, "a", "", failed).Text = "NOQUORUM 1 of 3 answered"
			s.swap(opTake, "b", "", carried)
		}, ""},
		{"a value after one whose end was perhaps moved", func(s *script) {
			s.swap(opTake, "a", "", carried)
			e := s.swap(opMove, "a", "", failed)
			e.TTL, e.Text = lease/4, "NOQUORUM 1 of 3 answered"
			s.at += instant(lease / 2)
			s.swap(opTake, "b", "", carried)
		}, ""},
		{"a lock without an end that is read, and another's in between", func(s *script) {
			s.open("a.adopted.1", 1)
			s.at += instant(lease)
			s.lock("b", 2, lease, 1)
			s.see("a.adopted.1", 1, carried)
		}, "both valid"},
		{"a lock without an end that nobody read again", func(s *script) {
			s.open("a.adopted.1", 1)
			s.see("a.adopted.1", 1, carried)
			s.at += instant(lease)
			s.lock("b", 2, lease, 1)
			s.see("a.adopted.1", 1, lost)
		}, ""},
		{"a lock with an end that is read late", func(s *script) { // as a node's slow clock may have it
			s.lock("a.adopted.1", 1, lease, 1)
			s.at += instant(lease)
			s.see("a.adopted.1", 1, carried)
			s.lock("b", 2, lease, 1)
		}, ""},
		{"a read that misses a value", func(s *script) {
			s.open("a.adopted.1", 1)
			s.see("a.adopted.1", 1, lost)
		}, "did not find the value"},
		{"a lock without an end, till max-hold", func(s *script) {
			s.open("a.adopted.1", 1)
			s.at += instant(maxHold)
			s.refused("b", "a.adopted.1")
		}, ""},
		{"a lock without an end, after max-hold", func(s *script) {
			s.open("a.adopted.1", 1)
			s.at += instant(maxHold + lateBy + lease + 2*back)
			s.refused("b", "a.adopted.1")
		}, "after its lease was over"},
		{"a lock that has an end now", func(s *script) {
			s.open("a.adopted.1", 1)
			s.blindly(opRenew, "a.adopted.1", 1, lease/4)
			s.at += instant(lease/2 + back)
			s.refused("b", "a.adopted.1")
		}, "after its lease was over"},
		{"a lock that perhaps has an end now", func(s *script) {
			s.open("a.adopted.1", 1)
			s.blindly(opRenew, "a.adopted.1", 1, lease/4).Reply = failed
			s.history[1].Text = "NOQUORUM 1 of 3 answered"
			s.at += instant(lease/2 + back)
			s.refused("b", "a.adopted.1")
			s.lock("b", 2, lease, 1)
		}, ""},
		{"a lock that has no end any more", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			s.blindly(opRenew, "a.adopted.1", 1, lease).Open = true
			s.at += instant(2 * lease)
			s.refused("b", "a.adopted.1")
			s.see("a.adopted.1", 1, carried)
			s.lock("b", 2, lease, 1)
		}, ""},
		{"DEL that came late, and may have been of another's", func(s *script) {
			s.lock("a.adopted.1", 1, lease/10, 1)
			s.at += instant(lease)
			s.lock("b.adopted.1", 2, lease, 1)
			s.blindly(opUnlock, "a.adopted.1", 1, 0)
			s.renew("b.adopted.1", 2, lease).Reply = lost
			s.lock("c", 3, lease, 1)
		}, ""},
		{"DEL that came late, but does nothing to one of LOCK", func(s *script) {
			s.lock("a.adopted.1", 1, lease/10, 1)
			s.at += instant(lease)
			s.lock("b", 2, lease, 1)
			s.blindly(opUnlock, "a.adopted.1", 1, 0)
			s.lock("c", 3, lease, 1)
		}, "both valid"},
		{"DEL in time, of the owner's alone", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			del := s.blindly(opUnlock, "a.adopted.1", 1, 0)
			s.lock("b.adopted.1", 2, lease, 1)
			del.End = s.at
			s.lock("c", 3, lease, 1)
		}, "both valid"},
		{"DEL in time, of a lock that FORCE took away", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			s.say(Event{Op: opForce})
			s.lock("b.adopted.1", 2, lease, 1)
			s.blindly(opUnlock, "a.adopted.1", 1, 0)
			s.lock("c", 3, lease, 1)
		}, ""},
		{"EXPIRE in time, of a lock that a late DEL took away", func(s *script) {
			s.lock("a.adopted.1", 1, lease/10, 1)
			s.at += instant(lease)
			s.lock("b.adopted.1", 2, 2*lease, 1)
			s.blindly(opUnlock, "a.adopted.1", 1, 0)
			s.lock("c.adopted.1", 3, lease, 1)
			s.blindly(opRenew, "b.adopted.1", 2, lease/10)
			s.at += instant(lease / 5)
			s.lock("d", 4, lease, 1)
		}, ""},
		{"EXPIRE that came late, and was of another's", func(s *script) {
			s.lock("a.adopted.1", 1, lease/10, 1)
			s.at += instant(lease)
			s.lock("b.hash.1", 2, 2*lease, 1)
			s.blindly(opRenew, "a.adopted.1", 1, lease)
			s.at += instant(lease / 2)
			s.refused("c", "b.hash.1")
		}, ""},
		{"EXPIRE that brings the end nearer, after one that nobody knows of", func(s *script) {
			s.open("a.adopted.1", 1)
			s.blindly(opRenew, "a.adopted.1", 1, 2*lease).Reply = failed
			s.history[1].Text = "NOQUORUM 1 of 3 answered"
			s.blindly(opRenew, "a.adopted.1", 1, lease/4)
			s.at += instant(lease / 2)
			s.lock("b", 2, lease, 1)
		}, ""},
		{"EXPIRE in time, of the owner's alone", func(s *script) {
			s.lock("a.adopted.1", 1, lease, 1)
			s.blindly(opRenew, "a.adopted.1", 1, 2*lease)
			s.at += instant(lease)
			s.lock("b", 2, lease, 1)
		}, "both valid"},
		{"renewed after FORCE", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.say(Event{Op: opForce})
			s.renew("a", 1, lease)
		}, "after FORCE"},
		{"renewed while FORCE was under way", func(s *script) {
			s.lock("a", 1, lease, 1)
			force := s.say(Event{Op: opForce})
			s.renew("a", 1, lease)
			force.End = s.at
		}, ""},
		{"renewed after FORCE, and a LOCK that came perhaps later", func(s *script) {
			s.lock("a", 1, lease, 1)
			again := s.lock("a", 1, lease, 2)
			s.say(Event{Op: opForce})
			s.renew("a", 1, lease)
			again.End = s.at
		}, ""},
		{"a late holder that a set refuses", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.at += instant(lease)
			s.say(Event{Op: opRead, Owner: "a", Fence: 1, Reply: stale})
		}, ""},
	}
	for _, tt := range tests {
		var s script
		tt.say(&s)
		j := &judge{events: s.history, back: back}
		j.check()
		if found := strings.Join(j.found, "\n"); tt.wrong == "" && found != "" || !strings.Contains(found, tt.wrong) {
			t.Errorf("%s: %q, want %q", tt.what, j.found, tt.wrong)
		}
		j.found = nil
		j.linear(time.Minute)
		illegal := strings.Contains(tt.wrong, "both valid") || strings.Contains(tt.wrong, "had been told")
		if illegal != (len(j.found) > 0) {
			t.Errorf("%s: porcupine says %q", tt.what, j.found)
		}
	}
}

// TestJudge_UnknownFence: a grant of which nobody knows the fence excludes others, and has no place in the order of fences.
func TestJudge_UnknownFence(t *testing.T) {
	for _, tt := range []struct {
		pause time.Duration
		wrong string
	}{{0, "both valid"}, {time.Second, ""}} {
		var s script
		s.lock("a", 3, time.Second, 1)
		s.unlock("a", true)
		s.lock("b.adopted.1", 0, time.Second, 1)
		s.at += instant(tt.pause)
		s.lock("c.adopted.2", 0, time.Second, 1)
		s.at += instant(time.Second)
		s.lock("d", 4, time.Second, 1)
		j := &judge{events: s.history}
		j.check()
		if found := strings.Join(j.found, "\n"); tt.wrong == "" && found != "" || !strings.Contains(found, tt.wrong) {
			t.Errorf("%v: %q", tt.pause, j.found)
		}
		if j.found = nil; len(j.linear(time.Minute)) > 0 || len(j.found) > 0 {
			t.Errorf("porcupine says %q", j.found)
		}
	}
}

// TestUntil: what was answered later was not answered then.
func TestUntil(t *testing.T) {
	var s script
	s.lock("a", 1, time.Second, 1)
	at := s.unlock("a", true).Start
	s.lock("b", 2, time.Second, 1)
	past := s.history.until(at)
	if len(past) != 2 || past[0] != s.history[0] || past[1].answered() || past[1].Reply != "" || past[1].Owner != "a" {
		t.Errorf("%+v of %+v", past, s.history)
	}
	if len(s.history.until(s.at)) != 3 || !s.history[1].answered() {
		t.Error("the history itself has changed")
	}
}

// TestSets: what is lost behind a fence is wrong, what is lost behind none only if nobody
// was late.
func TestSets(t *testing.T) {
	add := func(s *script, name, owner, value string, late time.Duration) {
		s.say(Event{Op: opRead, Name: name, Owner: owner, Fence: 1, Key: name, Value: value, Reply: carried})
		s.at += instant(late)
		s.say(Event{Op: opWrite, Name: name, Owner: owner, Fence: 1, Key: name, Value: value, Reply: carried})
	}
	tests := []struct {
		what  string
		name  string
		late  time.Duration
		there string
		wrong bool
		lost  int
	}{
		{"all there", fencedNames, 0, "x", false, 0},
		{"lost behind a fence", fencedNames, 0, "", true, 0},
		{"lost behind a fence, late", fencedNames, time.Minute, "", true, 0},
		{"lost behind none", updateNames, 0, "", true, 0},
		{"lost behind none, late", updateNames, time.Minute, "", false, 1},
		{"there twice", fencedNames, 0, "x x", true, 0},
	}
	for _, tt := range tests {
		var s script
		s.lock("a", 1, time.Second, 1).Name = tt.name
		add(&s, tt.name, "a", "x", tt.late)
		j := &judge{events: s.history}
		j.check()
		r := j.sets(map[string][]string{tt.name: strings.Fields(tt.there)})
		if wrong := len(j.found) > 0; wrong != tt.wrong || r.lost != tt.lost {
			t.Errorf("%s: %q and %+v", tt.what, j.found, r)
		}
	}
}

// TestPlan: the same seed makes the same plan, and no plan has all nodes forget at once.
func TestPlan(t *testing.T) {
	s := size{nodes: 3, proxies: 3, clients: 6, out: 2 * time.Second}
	for seed := range uint64(50) {
		a, b := plan(seed, time.Minute, s, kinds, 0), plan(seed, time.Minute, s, kinds, 0)
		if len(a) < 50 {
			t.Errorf("seed %d: only %d faults", seed, len(a))
		}
		forgot := time.Duration(-time.Hour)
		for i, f := range a {
			if f != b[i] {
				t.Fatalf("seed %d: %v, then %v", seed, f, b[i])
			}
			if f.kind == "node-kill" || f.kind == "node-flush" {
				if f.at < forgot+s.out {
					t.Errorf("seed %d: %v follows too soon on one at %v", seed, f, forgot)
				}
				forgot = f.at + f.lasts
			}
		}
	}
	if _, err := parseKinds("delay,none"); err == nil {
		t.Error("there is a fault none")
	}
}

// TestUndecided: a history that is too hard for porcupine in the time given is not taken for
// a right one.
func TestUndecided(t *testing.T) {
	const at = instant(time.Hour)
	j := &judge{beliefs: map[string][]*belief{}}
	for i := range int64(60) { // all at once, and the last two under one fence
		j.beliefs["n"] = append(j.beliefs["n"], &belief{name: "n", owner: string(rune('A' + i)), fence: min(i, 58) + 1, from: at})
	}
	if got := j.linear(50 * time.Millisecond); len(got) != 1 || len(j.found) > 0 {
		t.Errorf("undecided is %q, and accused are %q", got, j.found)
	}
}

// TestVoid: a run without any of what it is about shows nothing, and one without faults only
// if there were to be some.
func TestVoid(t *testing.T) {
	for what := range least {
		counts := map[string]int{}
		for k, n := range least {
			counts[k] = n
		}
		delete(counts, what)
		few := Run{Length: time.Minute, Kinds: kinds}.few(counts)
		if len(few) != 1 || !strings.Contains(few[0], what) {
			t.Errorf("without %s: %q", what, few)
		}
		if few := (Run{Length: time.Minute, Kinds: []string{"drift", "skew"}}).few(counts); (len(few) == 0) != (what == "faults") {
			t.Errorf("with clocks that are wrong, without %s: %q", what, few)
		}
	}
}

// TestJudge_ForgottenEnd: a node that fails may forget that a lock has an end now. Then it ends at max-hold.
func TestJudge_ForgottenEnd(t *testing.T) {
	const lease = time.Second
	for _, tt := range []struct {
		fault, asked time.Duration // after EXPIRE
		wrong        string
	}{
		{lease, lease, ""},
		{lease, maxHold + 2*lateBy, "after its lease was over"},
		{5 * lease, lease, "after its lease was over"},
	} {
		var s script
		s.open("a.adopted.1", 1)
		at := s.blindly(opRenew, "a.adopted.1", 1, lease/4).End
		s.at += instant(tt.asked)
		s.refused("b", "a.adopted.1")
		j := &judge{events: s.history, longest: lease, out: lease, faults: []window{{at.add(tt.fault), at.add(tt.fault)}}}
		j.check()
		if found := strings.Join(j.found, "\n"); tt.wrong == "" && found != "" || !strings.Contains(found, tt.wrong) {
			t.Errorf("a fault after %v, asked after %v: %q", tt.fault, tt.asked, j.found)
		}
	}
}
