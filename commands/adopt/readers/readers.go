// Package readers decides calls on locks that several may have: read/write locks in hashes, as those of Redisson are, and
// semaphores in sorted sets, as those of redis-semaphore are.
//
// Of a read/write lock, a thread that writes has the name for itself, a thread that reads has the lock by which it reads the name,
// see [locks.Key]; it is the same owner for both, so that the thread that writes may read as well. A permit of a semaphore is one of
// [locks.LockRequest.Permits], and the member of the set its owner.
//
// As in package adopt a call is first run on what the lock probably is, the nodes are asked for what it would do, and then it
// is run on what they have shown the lock to have been. If they refuse, it is run on what they say the lock is.
//
// What Redis has of others is not read: whether there are any is all that a script of a read/write lock makes a difference of, and
// how many there are is all that one of a semaphore does.
package readers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/commands/adopt/idiom"
)

// An Engine decides about locks; *locks.Service is one.
type Engine interface {
	Renew(context.Context, locks.RenewRequest) (time.Duration, error)
	Unlock(context.Context, locks.UnlockRequest) (holdsLeft int, err error)
	Read(context.Context, locks.Key) (locks.Reading, error)
	Undo(locks.Grant)
}

// A Question is a call on a lock that several may have.
type Question struct {
	Call   *idiom.Call
	Key    locks.Key
	Class  idiom.Class
	MaxTTL time.Duration
	// Lock asks for the lock: Key is filled in. held is not 0 if somebody has it for so long at the upstream; then it is not granted.
	Lock func(context.Context, locks.LockRequest) (d locks.Decision, held time.Duration, err error)
	// Lease is for how long the lock is taken if a call asks for ttl; an error says why it is not.
	Lease func(ttl time.Duration) (time.Duration, error)
	// ForceReaders takes the lock from those who read it.
	ForceReaders func(context.Context, locks.Key) error
	// Readers are those who read the lock.
	Readers func(context.Context, locks.Key) ([]locks.ReadBy, error)
	// Other is the state of a lock that only one may have.
	Other func(locks.Reading) idiom.State
}

// An Answer is what a call has done.
type Answer struct {
	idiom.Outcome
	Taken locks.Grant // Fence 0: none
	Full  bool        // it rests on nothing but a refusal by Question.Lock: all permits are taken
}

// ErrChanging answers a call that found the lock changed at every try.
var ErrChanging = errors.New("NOQUORUM the lock changes hands faster than it can be decided")

// ErrOther reports that the lock is no read/write lock, and that the call would change it.
var ErrOther = errors.New("the lock is no read/write lock")

// tries is how often a call is tried.
const tries = 5

// The threads that are not known: of a lock that somebody has at the upstream, and of one on which the nodes do not agree yet.
const upstreams, somebody = "\x00upstream", "\x00somebody"

// A call is a Question while it is decided.
type call struct {
	Question
	engine Engine
	thread string // empty: it names none
	owner  string
}

// Decide decides a call. The error may be an *idiom.Refusal.
func Decide(ctx context.Context, e Engine, q Question) (Answer, error) {
	if q.Class.Permits() {
		return (&call{Question: q, engine: e}).decidePermit(ctx)
	}
	thread, refused := q.Call.Thread(time.Now())
	if refused != nil {
		return Answer{}, refused
	}
	c := &call{q, e, thread, locks.NewAdoptedThread(thread)}
	state, sure := c.guess()
	for range tries {
		out, err := c.Call.Run(state, time.Now())
		switch {
		case err != nil && sure:
			return Answer{}, err
		case err == nil && out.Op.Do == idiom.Nothing && sure:
			return c.repeated(ctx, out)
		case err == nil && out.Op.Do != idiom.Nothing && (out.Op.Kind == idiom.ReadWrite || out.Op.Kind == idiom.Permits):
			answer, found, err := c.do(ctx, out.Op, state)
			switch {
			case err != nil:
				return Answer{}, err
			case answer != nil:
				return *answer, nil
			case found != nil:
				state, sure = *found, true
				continue
			}
		case sure:
			return Answer{}, ErrOther
		}
		if state, err = c.state(ctx); err != nil {
			return Answer{}, err
		}
		sure = true
	}
	return Answer{}, ErrChanging
}

// guess returns a state in which the call does something for its thread; none: the lock must be read first.
func (c *call) guess() (s idiom.State, sure bool) {
	const left = 5 * time.Second
	for _, s := range []idiom.State{
		{},
		{Kind: idiom.ReadWrite, Reader: c.thread, Reads: 1, Others: true, Left: left},
		{Kind: idiom.ReadWrite, Value: c.thread, Count: 1, Left: left},
	} {
		if out, err := c.Call.Run(s, time.Now()); err == nil && out.Op.Do != idiom.Nothing && out.Op.Kind == idiom.ReadWrite && out.Op.Value != "" {
			return s, false
		}
	}
	return idiom.State{}, false
}

// reading is the lock by which the thread reads.
func (c *call) reading() locks.Key { return locks.Holder{Key: c.Key, Owner: c.owner}.Reading().Key }

// state asks the nodes what the lock is.
func (c *call) state(ctx context.Context) (idiom.State, error) {
	r, err := c.engine.Read(ctx, c.Key)
	if err != nil || !r.Held && r.Readers == 0 {
		return idiom.State{}, err
	}
	writer, kind := locks.ShownOwner(r.Owner)
	if r.Held && kind != locks.AdoptedThread {
		return c.Other(r), nil
	}
	s := idiom.State{Kind: idiom.ReadWrite, Left: max(time.Millisecond, max(r.Remaining, r.Reads).Truncate(time.Millisecond))}
	if r.Held {
		s.Value, s.Count = writer, r.Holds
	}
	if !r.Held && c.thread == "" {
		if all, err := c.Readers(ctx, c.Key); err == nil && slices.ContainsFunc(all, hasPermit) {
			return idiom.State{Kind: idiom.Permits, Owners: r.Readers, Left: s.Left}, nil
		}
	}
	others := r.Readers
	if c.thread != "" && r.Readers > 0 {
		own, err := c.engine.Read(ctx, c.reading())
		if err != nil {
			return s, err
		}
		if own.Held {
			s.Reader, s.Reads = c.thread, own.Holds
			others--
		}
	}
	s.Others = others > 0
	return s, nil
}

// do does what the call would do to the lock. A nil answer means that nothing was done: the lock is another one than guessed,
// and found says which, if that is known.
func (c *call) do(ctx context.Context, op idiom.Op, state idiom.State) (a *Answer, found *idiom.State, err error) {
	switch op.Do {
	case idiom.Enter:
		return c.enter(ctx, op)
	case idiom.Renew:
		a, err = c.renew(ctx, op, state)
	case idiom.Leave, idiom.Release:
		if op.Value == "" {
			a, err = c.force(ctx, state)
		} else {
			a, err = c.leave(ctx, op)
		}
	default:
		err = ErrOther
	}
	return a, nil, err
}

// splitLeft is what is left of the lease of a lock that several clients are just asking for: the nodes soon agree on one.
const splitLeft = 20 * time.Millisecond

// refusal is the state of a lock that is refused; nil: it must be read.
func refusal(d locks.Decision, held time.Duration) *idiom.State {
	s := idiom.State{Kind: idiom.ReadWrite, Left: max(splitLeft, d.Remaining.Truncate(time.Millisecond))}
	holder, kind := locks.ShownOwner(d.Holder)
	switch {
	case held > 0:
		s.Value, s.Count, s.Left = upstreams, 1, max(time.Millisecond, held.Truncate(time.Millisecond))
	case d.Why == locks.Readers || d.Why == locks.Upgrade:
		s.Others = true
	case d.Holder == "":
		s.Value, s.Count = somebody, 1
	case kind == locks.AdoptedThread:
		s.Value, s.Count = holder, 1
	default:
		return nil
	}
	return &s
}

// enter takes a hold, to read or to write. A thread that reads is not granted the lock to write, even if nobody else reads:
// Redisson does not.
func (c *call) enter(ctx context.Context, op idiom.Op) (*Answer, *idiom.State, error) {
	ttl, err := c.Lease(op.TTL)
	if err != nil {
		return nil, nil, err
	}
	d, held, err := c.Lock(ctx, locks.LockRequest{Owner: c.owner, Shared: op.Shared, TTL: ttl})
	if err != nil {
		return nil, nil, err
	}
	if !d.Granted {
		return nil, refusal(d, held), nil
	}
	before := idiom.State{}
	switch n := d.Grant.Holds - 1; {
	case op.Shared && n > 0:
		before = idiom.State{Kind: idiom.ReadWrite, Reader: c.thread, Reads: n, Left: ttl}
	case n > 0:
		before = idiom.State{Kind: idiom.ReadWrite, Value: c.thread, Count: n, Left: ttl}
	case !op.Shared:
		if own, err := c.engine.Read(ctx, c.reading()); err != nil || own.Held {
			c.engine.Undo(d.Grant)
			return nil, nil, err
		}
	}
	out, err := c.Call.Run(before, time.Now())
	if err == nil && !op.Shared && before.Count > 0 {
		err = c.prolong(ctx, d.Grant)
	}
	if err != nil || out.Op.Do != idiom.Enter {
		c.engine.Undo(d.Grant)
		return nil, nil, err
	}
	return &Answer{Outcome: out, Taken: d.Grant}, nil, nil
}

// prolong gives all holds of a writer that has entered again the latest of their ends: in Redis the lock has one end.
func (c *call) prolong(ctx context.Context, g locks.Grant) error {
	r, err := c.engine.Read(ctx, c.Key)
	if err != nil {
		return err
	}
	if r.Owner != c.owner || r.Fence != g.Fence {
		return ErrChanging
	}
	ttl := min((r.Remaining + time.Millisecond - 1).Truncate(time.Millisecond), c.MaxTTL)
	_, err = c.engine.Renew(ctx, locks.RenewRequest{Key: c.Key, Owner: c.owner, Fence: g.Fence, TTL: ttl})
	if locks.NotHeld(err) {
		return ErrChanging
	}
	return err
}

func (c *call) renew(ctx context.Context, op idiom.Op, state idiom.State) (*Answer, error) {
	ttl, err := c.Lease(op.TTL)
	if err != nil {
		return nil, err
	}
	_, err = c.engine.Renew(ctx, locks.RenewRequest{Key: c.Key, Owner: c.owner, TTL: ttl, Shared: op.Shared})
	if err != nil {
		return nil, unlessGone(err)
	}
	if op.Theirs {
		c.renewTheirs(ctx, ttl)
	}
	out, err := c.Call.Run(state, time.Now())
	return &Answer{Outcome: out}, err
}

// renewTheirs extends the locks by which other threads of the same client read. The script that extends one thread's does so
// for all who read: Redisson 3 sends it only for the first of a client's threads. Other clients send it for theirs, so that
// those of one that is gone end. What fails is tried again when the script comes again, long before they end.
func (c *call) renewTheirs(ctx context.Context, ttl time.Duration) {
	client := clientOf(c.thread)
	all, err := c.Readers(ctx, c.Key)
	if err != nil || client == "" {
		return
	}
	for _, r := range all {
		thread, kind := locks.ShownOwner(r.Owner)
		if kind != locks.AdoptedThread || thread == c.thread || clientOf(thread) != client {
			continue
		}
		_, _ = c.engine.Renew(ctx, locks.RenewRequest{Key: c.Key, Owner: r.Owner, TTL: max(ttl, min(r.Remaining, c.MaxTTL)), Shared: true})
	}
}

// clientOf is the client of a thread: the name of that is CLIENT:NUMBER.
func clientOf(thread string) string {
	client, _, _ := strings.Cut(thread, ":")
	return client
}

// leave gives back one hold of the thread.
func (c *call) leave(ctx context.Context, op idiom.Op) (*Answer, error) {
	left, err := c.engine.Unlock(ctx, locks.UnlockRequest{Key: c.Key, Owner: c.owner, Once: true, Req: op.Latch, Shared: op.Shared})
	if err != nil {
		return nil, unlessGone(err)
	}
	return c.gaveBack(ctx, op.Shared, left)
}

// gaveBack runs the call on what the lock was before it gave a hold back. left are the holds of the thread that are left.
func (c *call) gaveBack(ctx context.Context, shared bool, left int) (*Answer, error) {
	before := idiom.State{Kind: idiom.ReadWrite, Left: time.Second}
	if shared {
		before.Reader, before.Reads = c.thread, left+1
	} else {
		before.Value, before.Count = c.thread, left+1
	}
	if left == 0 {
		if err := c.beside(ctx, shared, &before); err != nil { // it is given back: waiters had better be woken
			before.Others = false
		}
	}
	out, err := c.Call.Run(before, time.Now())
	if err != nil {
		return nil, err
	}
	if left > 0 && out.Op.TTL > 0 {
		ttl, err := c.Lease(out.Op.TTL)
		if err == nil {
			_, err = c.engine.Renew(ctx, locks.RenewRequest{Key: c.Key, Owner: c.owner, TTL: ttl})
		}
		if unlessGone(err) != nil {
			return nil, err
		}
	}
	return &Answer{Outcome: out}, nil
}

// beside adds to the state of a lock, of which the thread has just given back all that it had in one way, who has it still.
// The lock is read behind the release: of readers that leave at the same moment the last one sees that there is nobody left,
// and wakes those who wait.
func (c *call) beside(ctx context.Context, shared bool, s *idiom.State) error {
	if !shared {
		own, err := c.engine.Read(ctx, c.reading())
		if own.Held {
			s.Reader, s.Reads = c.thread, own.Holds
		}
		return err
	}
	r, err := c.engine.Read(ctx, c.Key)
	if r.Held && r.Owner == c.owner {
		s.Value, s.Count = c.thread, r.Holds
	}
	s.Others = r.Readers > 0
	return err
}

// force takes the lock from all who have it, unless some of them read it with LOCK.
func (c *call) force(ctx context.Context, state idiom.State) (*Answer, error) {
	if state.Count > 0 {
		r, err := c.engine.Read(ctx, c.Key)
		if err != nil || !r.Held {
			return nil, err
		}
		_, err = c.engine.Unlock(ctx, locks.UnlockRequest{Key: c.Key, Owner: r.Owner, Fence: r.Fence, All: true, Once: true})
		if err != nil {
			return nil, unlessGone(err)
		}
	}
	if state.Reads > 0 || state.Others || state.Owners > 0 {
		all, err := c.Readers(ctx, c.Key)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if _, kind := locks.ShownOwner(r.Owner); kind == "" {
				return nil, &idiom.Refusal{Why: "a change of a lock that was taken with LOCK"}
			}
		}
		if err := c.ForceReaders(ctx, c.Key); err != nil {
			return nil, err
		}
	}
	out, err := c.Call.Run(state, time.Now())
	return &Answer{Outcome: out}, err
}

// noFence is a fence that no grant has: a release with it succeeds only if one with the same latch was done before.
const noFence = -1

// repeated returns what a release does that found nothing to release: if it has a latch and was done before, what it did then.
func (c *call) repeated(ctx context.Context, out idiom.Outcome) (Answer, error) {
	op := out.Op
	if op.Latch == "" || op.Kind != idiom.ReadWrite {
		return Answer{Outcome: out}, nil
	}
	left, err := c.engine.Unlock(ctx, locks.UnlockRequest{Key: c.Key, Owner: c.owner, Fence: noFence, Req: op.Latch, Once: true, Shared: op.Shared})
	switch {
	case locks.NotHeld(err):
		return Answer{Outcome: out}, nil
	case err != nil:
		return Answer{}, err
	}
	again, err := c.gaveBack(ctx, op.Shared, left)
	if err != nil {
		return Answer{}, err
	}
	again.Op = idiom.Op{}
	return *again, nil
}

// unlessGone is err, but nil if it says that the lock is not the thread's.
func unlessGone(err error) error {
	if locks.NotHeld(err) {
		return nil
	}
	return err
}
