package faults

import (
	"strings"
	"testing"
	"time"
)

// read is a LOCK SHARED that was granted.
func (s *script) read(owner string, fence int64, ttl time.Duration) *Event {
	e := s.lock(owner, fence, ttl, 1)
	e.Shared = true
	return e
}

// sit is a LOCK PERMITS that was granted.
func (s *script) sit(owner string, fence int64, ttl time.Duration) *Event {
	e := s.read(owner, fence, ttl)
	e.Permits = permits
	return e
}

// TestJudge_Readers: what must not be told of readers and writers of one name is noticed, and nothing else.
func TestJudge_Readers(t *testing.T) {
	const lease = time.Second
	for _, tt := range []struct {
		name string
		tell func(*script)
		want string // in what is found; empty: nothing is
	}{
		{"together", func(s *script) {
			s.read("a", 1, lease)
			s.read("b", 1, lease)
			s.read("c", 2, lease)
			s.read("d", 1, lease)
		}, ""},
		{"a writer beside a reader", func(s *script) {
			s.read("a", 1, lease)
			s.lock("b", 2, lease, 1)
		}, "both valid"},
		{"a reader beside a writer", func(s *script) {
			s.lock("b", 2, lease, 1)
			s.read("a", 2, lease)
		}, "both valid"},
		{"of another name", func(s *script) {
			s.read("a", 3, lease)
			s.lock("b", 2, lease, 1).Name = "m"
		}, ""},
		{"beside its own writing", func(s *script) {
			s.lock("a", 2, lease, 1)
			s.read("a", 2, lease)
			s.unlock("a", true)
			s.read("b", 2, lease)
		}, ""},
		{"beside its own writing, below it", func(s *script) {
			s.lock("a", 2, lease, 1)
			s.read("a", 1, lease)
		}, "reads under fence 1, after"},
		{"a writer under the fence of a reader", func(s *script) {
			s.read("a", 2, lease)
			s.unlock("a", true).Shared = true
			s.lock("b", 2, lease, 1)
		}, "b writes under fence 2, after a"},
		{"a reader below a writer", func(s *script) {
			s.lock("b", 2, lease, 1)
			s.unlock("b", true)
			s.read("a", 1, lease)
		}, "a reads under fence 1, after b"},
		{"a reader under the fence of a writer", func(s *script) {
			s.lock("b", 2, lease, 1)
			s.unlock("b", true)
			s.read("a", 2, lease)
		}, ""},
		{"a writer that was asked for before", func(s *script) {
			e := s.lock("b", 2, lease, 1)
			s.unlock("b", true)
			s.read("a", 2, lease).Start = e.Start
		}, ""},
		{"an owner that reads under one fence twice", func(s *script) {
			s.read("a", 2, 10*time.Millisecond)
			s.at += 20 * tick
			s.read("a", 1, lease)
		}, "granted fence 1 after"},
		{"an UNLOCK of what it writes", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.read("a", 1, lease)
			s.unlock("a", true)
			s.lock("b", 2, lease, 1)
		}, "both valid"},
		{"taken away", func(s *script) {
			s.read("a", 1, lease)
			s.read("b", 1, lease)
			s.say(Event{Op: opForce})
			s.lock("c", 2, lease, 1)
		}, ""},
		{"a session that reads and is not told", func(s *script) {
			s.read("a", 1, lease).Session = true
			s.say(Event{Op: opForce})
			s.lock("b", 2, lease, 1)
			s.at += instant(2 * lateBy)
			s.say(Event{Op: opKeep, Owner: "a", Fence: 1, Shared: true, Reply: carried})
		}, "was not told that it lost fence 1"},
		{"a session that writes and is not told", func(s *script) {
			s.lock("a", 1, lease, 1).Session = true
			s.say(Event{Op: opForce})
			s.read("b", 2, lease)
			s.at += instant(2 * lateBy)
			s.say(Event{Op: opKeep, Owner: "a", Fence: 1, Reply: carried})
		}, "was not told that it lost fence 1"},
		{"held by who may only read", func(s *script) {
			s.lock("a", 1, 10*time.Millisecond, 1)
			s.read("a", 1, lease)
			s.at += 100 * tick
			s.say(Event{Op: opLock, Owner: "b", TTL: lease, Reply: held, Holder: "a"})
		}, ""},
		{"two permits, and readers", func(s *script) {
			s.sit("a", 1, lease)
			s.read("c", 1, lease)
			s.sit("b", 2, lease)
			s.read("d", 2, lease)
		}, ""},
		{"three permits", func(s *script) {
			s.sit("a", 1, lease)
			s.sit("b", 2, lease)
			s.sit("c", 3, lease)
		}, "c has a permit under fence 3, and 2 others have one"},
		{"a permit of one who reads", func(s *script) {
			s.sit("a", 1, lease)
			s.sit("b", 2, lease)
			s.read("c", 2, lease)
			s.sit("c", 2, lease)
		}, "c has a permit under fence 2"},
		{"three permits, one after another", func(s *script) {
			s.sit("a", 1, lease)
			s.sit("b", 2, 10*time.Millisecond)
			s.at += 20 * tick
			s.sit("c", 3, lease)
			s.unlock("a", true).Shared = true
			s.sit("d", 4, lease)
		}, ""},
		{"a permit below another", func(s *script) {
			s.sit("a", 2, lease)
			s.sit("b", 1, lease)
		}, "b has a permit under fence 1, after a"},
		{"a permit under the fence of another", func(s *script) {
			s.sit("a", 2, lease)
			s.sit("b", 2, lease)
		}, "b has a permit under fence 2, after a"},
		{"a permit beside a writer", func(s *script) {
			s.lock("a", 1, lease, 1)
			s.sit("b", 2, lease)
		}, "both valid"},
		{"a reader kept out by a writer that has gone", func(s *script) {
			s.lock("a", 1, 10*time.Millisecond, 1)
			s.at += 100 * tick
			s.say(Event{Op: opLock, Owner: "b", TTL: lease, Reply: held, Holder: "a", Shared: true})
		}, "after its lease was over"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &script{}
			tt.tell(s)
			j := &judge{events: s.history, longest: time.Minute, out: time.Minute}
			found := strings.Join(j.check(), "; ")
			if (tt.want == "") != (found == "") || !strings.Contains(found, tt.want) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
}
