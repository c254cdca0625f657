package commands

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/resp"
)

// How much may be kept of what a client sends behind a LOCK that waits.
const (
	maxPostponed      = 1 << 20 // bytes of commands and replies
	maxPostponedCount = 4096
)

// A waiting is a LOCK that waits, and what the client has sent behind it.
//
// Whoever has the answer writes answer, err and at, and then closes done. The rest belongs to the session's goroutine.
type waiting struct {
	acquisition
	quiet  bool // the client has asked for no reply
	began  time.Time
	done   chan struct{}
	told   atomic.Pointer[func()] // called when done is closed; may be nil
	answer locks.Answer
	err    error
	at     time.Time // when the answer came; zero: just now

	queue  []postponed
	size   int    // bytes in the queue
	held   int    // UNLOCKs and RENEWs in the queue: they concern what a LOCK before them wants
	claims claims // of this LOCK and those in the queue
}

// A claim is what an UNLOCK or RENEW may concern. An empty owner is one that the proxy
// generates.
type claim struct{ name, owner string }

// claims are how many LOCKs want the same.
type claims map[claim]int

func (c claims) remove(k claim) {
	if c[k]--; c[k] <= 0 {
		delete(c, k)
	}
}

// A postponed command comes behind a LOCK that waits. It has run already if raw is nil.
type postponed struct {
	raw     []byte
	args    [][]byte
	verdict verdict
	claim   claim // of a LOCK; else zero
	held    bool  // it is an UNLOCK or RENEW
}

func (p *postponed) size() int { return len(p.raw) + len(p.verdict.reply) }

// add puts a command at the end of the queue.
func (w *waiting) add(p postponed) {
	w.queue = append(w.queue, p)
	w.size += p.size()
	if p.held {
		w.held++
	}
	if p.claim != (claim{}) {
		w.claims[p.claim]++
	}
}

// next takes the first command out of the queue, which is not empty.
func (w *waiting) next() postponed {
	p := w.queue[0]
	w.queue[0] = postponed{}
	w.queue = w.queue[1:]
	w.size -= p.size()
	if p.held {
		w.held--
	}
	if p.claim != (claim{}) {
		w.claims.remove(p.claim)
	}
	return p
}

// ask asks for a lock that is not waited for. It ends when present does.
func (w *waiting) ask(present context.Context, l Locker) {
	l.LockAside(present, w.LockRequest, func(a locks.Answer, err error) { w.answer, w.err = a, err })
}

// askAside asks for the lock, and returns while it is waited for, or when the answer is
// there. It is given up when present or draining ends.
func (w *waiting) askAside(present, draining context.Context, l Locker) {
	ctx, cancel := context.WithCancel(present)
	stop := context.AfterFunc(draining, cancel)
	l.LockAside(ctx, w.LockRequest, func(a locks.Answer, err error) {
		stop()
		cancel()
		w.answer, w.err, w.at = a, err, time.Now()
		close(w.done)
		if told := w.told.Swap(nil); told != nil {
			(*told)()
		}
	})
}

// Tell has f called when Pending is closed, in place of what an earlier call has asked
// for: once, on any goroutine, and it must not wait. It is false if Pending is closed
// already, and f then not called.
func (s *Session) Tell(f func()) bool {
	w := s.waiting
	w.told.Store(&f)
	select {
	case <-w.done:
		return w.told.Swap(nil) == nil // else it has just been called
	default:
		return true
	}
}

// Pending is not nil while a LOCK waits, and closed when its answer is there: then Resume
// must be called. Until then commands are for Behind, and not for Try, TryPart and Run.
// Once the client has left it is closed soon.
func (s *Session) Pending() <-chan struct{} {
	if s.waiting == nil {
		return nil
	}
	return s.waiting.done
}

// Behind takes a command that the client has sent behind a LOCK that waits. UNLOCK, RENEW
// and LOCKCTL take effect at once, or a connection that many share could wait for itself;
// others wait. The replies come in order. It is false where nothing more can be taken: then
// nothing has happened, and the command must be kept until Pending is nil.
func (s *Session) Behind(ctx context.Context, raw []byte, args [][]byte) bool {
	w := s.waiting
	if w.size+len(raw) > maxPostponed || len(w.queue) >= maxPostponedCount || s.turns(args) {
		return false
	}
	p := postponed{raw: raw, args: args}
	if is(args[0], "LOCK") {
		if a, err := s.d.parseLock(args); err == nil {
			p.claim = claim{a.Name, a.Owner}
		}
	}
	if s.postpone(ctx, &p); p.raw != nil {
		p.raw, p.args = bytes.Clone(raw), cloneArgs(args)
	}
	w.add(p)
	return true
}

// turns says that a command changes what the verbs behind it mean, or whether they may
// be said.
func (s *Session) turns(args [][]byte) bool {
	switch kindOf(args[0]) {
	case auth, hello, selectDB, reset, quit, multi, execTx:
		return true
	case subscribe:
		return s.id.Proto == 2
	case client:
		return len(args) > 1 && is(args[1], "REPLY")
	}
	return false
}

// postpone runs a command that need not wait for the LOCKs before it.
func (s *Session) postpone(ctx context.Context, p *postponed) {
	switch {
	case p.raw == nil:
	case s.urgent(p.args):
		s.meter.family = lookUp(p.args[0]).family // what waits is counted when its turn comes
		s.meter.came()
		*p = postponed{verdict: s.verdict(ctx, p.args)}
		p.verdict.at = time.Now()
	default:
		p.held = kindOf(p.args[0]) == verb && p.claim == (claim{}) && !is(p.args[0], "LOCK")
	}
}

// inherit gives a LOCK that waits now what has come behind the one before it. UNLOCKs and
// RENEWs that were for that one need not wait any more.
func (s *Session) inherit(ctx context.Context, before *waiting) {
	w := s.waiting
	if before.held == 0 { // of thousands in a queue none has to be looked at
		for own, n := range w.claims {
			before.claims[own] += n
		}
		w.queue, w.size, w.claims = before.queue, before.size, before.claims
		return
	}
	for _, p := range before.queue {
		s.postpone(ctx, &p)
		w.add(p)
	}
}

// urgent says that a command need not wait for the LOCKs before it: it is about a lock,
// and not one that only they can bring.
func (s *Session) urgent(args [][]byte) bool {
	if kindOf(args[0]) != verb || is(args[0], "LOCK") {
		return false
	}
	var o release
	var err error
	switch {
	case is(args[0], "RENEW"):
		o, err = s.d.parseRelease(args, renewUsage)
	case is(args[0], "UNLOCK"):
		o, err = s.d.parseRelease(args, unlockUsage)
	default:
		return true
	}
	if err != nil || o.fence != 0 { // the fence of a LOCK that waits is not known
		return true
	}
	return s.waiting.claims[claim{o.name, o.owner}] == 0 || o.owner == "" && s.taken.holds(s.id.DB, o.name)
}

// Resume gives the client the answer to the LOCK that has waited, and runs what came
// behind it, up to the next that has to wait.
func (s *Session) Resume(ctx context.Context) {
	w := s.waiting
	s.waiting = nil
	w.claims.remove(claim{w.Name, w.Owner})
	s.replies.Mute(w.quiet)
	s.endLock(ctx, w)
	s.replies.Mute(false)
	for len(w.queue) > 0 && s.waiting == nil {
		if s.Closing() {
			return
		}
		switch p := w.next(); {
		case p.raw == nil:
			s.Flush()
			if !s.awaitReplies(ctx) {
				return
			}
			if !s.hush.off {
				s.replies.Local(p.verdict.now())
			}
		case !s.Try(p.raw, p.args):
			s.Run(ctx, p.raw, p.args)
		}
	}
	if s.waiting != nil {
		s.inherit(ctx, w)
	}
	s.Flush()
}

// A verdict is the reply to a verb.
type verdict struct {
	reply    []byte        // nil: validity
	validity time.Duration // of a RENEW
	at       time.Time     // when it was given; zero: just now
}

// now is the reply, if it is sent now.
func (v verdict) now() []byte {
	if v.reply != nil {
		return v.reply
	}
	return appendLeft(nil, v.validity, v.at)
}

// left is what is left of a validity that was counted then; zero: just now.
func left(validity time.Duration, then time.Time) time.Duration {
	if then.IsZero() {
		return validity
	}
	return max(0, validity-time.Since(then))
}

func appendLeft(b []byte, validity time.Duration, then time.Time) []byte {
	return resp.AppendInt(b, left(validity, then).Milliseconds())
}
