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
	maxQueuedBytes = 1 << 20 // bytes of commands and replies
	maxQueued      = 4096
)

// A waiting is a LOCK that waits, and what the client has sent behind it.
//
// Whoever has the answer writes answer, err and at, and then closes done. The rest belongs to the session's goroutine.
type pendingLock struct {
	lockArgs
	quiet      bool // the client has asked for no reply
	began      time.Time
	done       chan struct{}
	onDone     atomic.Pointer[func()] // called when done is closed; may be nil
	answer     locks.Decision
	err        error
	answeredAt time.Time // when the answer came; zero: just now

	queue    []queuedCommand
	size     int    // bytes in the queue
	releases int    // UNLOCKs and RENEWs in the queue: they concern what a LOCK before them wants
	claims   claims // of this LOCK and those in the queue
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
type queuedCommand struct {
	raw     []byte
	args    [][]byte
	reply   verbReply
	claim   claim // of a LOCK; else zero
	release bool  // it is an UNLOCK or RENEW
}

func (p *queuedCommand) size() int { return len(p.raw) + len(p.reply.reply) }

// add puts a command at the end of the queue.
func (w *pendingLock) add(p queuedCommand) {
	w.queue = append(w.queue, p)
	w.size += p.size()
	if p.release {
		w.releases++
	}
	if p.claim != (claim{}) {
		w.claims[p.claim]++
	}
}

// next takes the first command out of the queue, which is not empty.
func (w *pendingLock) next() queuedCommand {
	p := w.queue[0]
	w.queue[0] = queuedCommand{}
	w.queue = w.queue[1:]
	w.size -= p.size()
	if p.release {
		w.releases--
	}
	if p.claim != (claim{}) {
		w.claims.remove(p.claim)
	}
	return p
}

// ask asks for a lock that is not waited for. It ends when present does.
func (w *pendingLock) ask(present context.Context, l Locker) {
	l.LockAsync(present, w.LockRequest, func(a locks.Decision, err error) { w.answer, w.err = a, err })
}

// askAsync asks for the lock, and returns while it is waited for, or when the answer is
// there. It is given up when present or draining ends.
func (w *pendingLock) askAsync(present, draining context.Context, l Locker) {
	ctx, cancel := context.WithCancel(present)
	stop := context.AfterFunc(draining, cancel)
	l.LockAsync(ctx, w.LockRequest, func(a locks.Decision, err error) {
		stop()
		cancel()
		w.answer, w.err, w.answeredAt = a, err, time.Now()
		close(w.done)
		if told := w.onDone.Swap(nil); told != nil {
			(*told)()
		}
	})
}

// NotifyAnswer has f called when Pending is closed, in place of what an earlier call has asked
// for: once, on any goroutine, and it must not wait. It is false if Pending is closed
// already, and f then not called.
func (s *Session) NotifyAnswer(f func()) bool {
	w := s.pendingLock
	w.onDone.Store(&f)
	select {
	case <-w.done:
		return w.onDone.Swap(nil) == nil // else it has just been called
	default:
		return true
	}
}

// Pending is not nil while a LOCK waits, and closed when its answer is there: then Resume
// must be called. Until then commands are for Behind, and not for Try, TryPart and Run.
// Once the client has left it is closed soon.
func (s *Session) Pending() <-chan struct{} {
	if s.pendingLock == nil {
		return nil
	}
	return s.pendingLock.done
}

// QueueBehind takes a command that the client has sent behind a LOCK that waits. UNLOCK, RENEW
// and LOCKCTL take effect at once, or a connection that many share could wait for itself;
// others wait. The replies come in order. It is false where nothing more can be taken: then
// nothing has happened, and the command must be kept until Pending is nil.
func (s *Session) QueueBehind(ctx context.Context, raw []byte, args [][]byte) bool {
	w := s.pendingLock
	if w.size+len(raw) > maxQueuedBytes || len(w.queue) >= maxQueued || s.changesVerbs(args) {
		return false
	}
	p := queuedCommand{raw: raw, args: args}
	if resp.Is(args[0], "LOCK") {
		if a, err := s.d.parseLock(args); err == nil {
			p.claim = claim{a.Name, a.Owner}
		}
	}
	if s.runOrQueue(ctx, &p); p.raw != nil {
		p.raw, p.args = bytes.Clone(raw), cloneArgs(args)
	}
	w.add(p)
	return true
}

// changesVerbs says that a command changes what the verbs behind it mean, or whether they may
// be said.
func (s *Session) changesVerbs(args [][]byte) bool {
	c := s.d.rows.lookup(args)
	return c != nil && (c.has(changesVerbs) || c.has(messages) && s.id.Proto == 2)
}

// runOrQueue runs a command that need not wait for the LOCKs before it.
func (s *Session) runOrQueue(ctx context.Context, p *queuedCommand) {
	switch {
	case p.raw == nil:
	case s.runsAhead(p.args):
		s.meter.of(s.d.rows.lookup(p.args)) // what waits is counted when its turn comes
		s.meter.came()
		*p = queuedCommand{reply: s.runVerb(ctx, p.args)}
		p.reply.at = time.Now()
	default:
		p.release = s.isVerb(p.args) && p.claim == (claim{}) && !resp.Is(p.args[0], "LOCK")
	}
}

// takeOverQueue gives a LOCK that waits now what has come behind the one before it. UNLOCKs and
// RENEWs that were for that one need not wait any more.
func (s *Session) takeOverQueue(ctx context.Context, before *pendingLock) {
	w := s.pendingLock
	if before.releases == 0 { // of thousands in a queue none has to be looked at
		for own, n := range w.claims {
			before.claims[own] += n
		}
		w.queue, w.size, w.claims = before.queue, before.size, before.claims
		return
	}
	for _, p := range before.queue {
		s.runOrQueue(ctx, &p)
		w.add(p)
	}
}

// isVerb reports whether a command is a lock verb.
func (s *Session) isVerb(args [][]byte) bool {
	c := s.d.rows.lookup(args)
	return c != nil && c.has(lockVerb)
}

// runsAhead reports that a command need not wait for the LOCKs before it: it is about a lock,
// and not one that only they can bring.
func (s *Session) runsAhead(args [][]byte) bool {
	if !s.isVerb(args) || resp.Is(args[0], "LOCK") {
		return false
	}
	var o releaseArgs
	var err error
	switch {
	case resp.Is(args[0], "RENEW"):
		o, err = s.d.parseRelease(args, renewUsage)
	case resp.Is(args[0], "UNLOCK"):
		o, err = s.d.parseRelease(args, unlockUsage)
	default:
		return true
	}
	if err != nil || o.fence != 0 { // the fence of a LOCK that waits is not known
		return true
	}
	return s.pendingLock.claims[claim{o.name, o.owner}] == 0 || o.owner == "" && s.implicit.holds(s.id.DB, o.name)
}

// Resume gives the client the answer to the LOCK that has waited, and runs what came
// behind it, up to the next that has to wait.
func (s *Session) Resume(ctx context.Context) {
	w := s.pendingLock
	s.pendingLock = nil
	w.claims.remove(claim{w.Name, w.Owner})
	s.replies.Mute(w.quiet)
	s.endLock(ctx, w)
	s.replies.Mute(false)
	for len(w.queue) > 0 && s.pendingLock == nil {
		if s.Closing() {
			return
		}
		switch p := w.next(); {
		case p.raw == nil:
			s.Flush()
			if !s.awaitReplies(ctx) {
				return
			}
			if !s.pass.replyMode.off {
				s.replies.Local(p.reply.now())
			}
		case !s.Try(p.raw, p.args):
			s.Run(ctx, p.raw, p.args)
		}
	}
	if s.pendingLock != nil {
		s.takeOverQueue(ctx, w)
	}
	s.Flush()
}

// A verdict is the reply to a verb.
type verbReply struct {
	reply    []byte        // nil: validity
	validity time.Duration // of a RENEW
	at       time.Time     // when it was given; zero: just now
}

// now is the reply, if it is sent now.
func (v verbReply) now() []byte {
	if v.reply != nil {
		return v.reply
	}
	return appendRemaining(nil, v.validity, v.at)
}

// remaining is what is left of a validity that was counted then; zero: just now.
func remaining(validity time.Duration, then time.Time) time.Duration {
	if then.IsZero() {
		return validity
	}
	return max(0, validity-time.Since(then))
}

func appendRemaining(b []byte, validity time.Duration, then time.Time) []byte {
	return resp.AppendInt(b, remaining(validity, then).Milliseconds())
}
