// Package locks lets clients take locks: it answers LOCK, RENEW and UNLOCK, by what a [Store] decides.
//
// A [Service] knows which requests are repeats of one that is under way, lets callers wait in line, first come,
// first served, and renews the locks of sessions. It knows neither nodes nor votes: who holds a name is the
// Store's question. Package quorum is the Store that proxies use; package memstore, in one process, is for tests.
//
//	LOCK ──▶ one of a Req at a time ──▶ in line (waitq) ──head──▶ Store.Acquire ──▶ granted ──▶ kept for its session
//	                                       ▲ a wake-up, a hint, a timer │ refused
//	                                       └────────────────────────────┘
//
// Waiters for a name stand in line at their proxy (package waitq), and only the head of the line asks the
// Store: when that tells of a release, right behind a release through this proxy, and now and then in any case.
// Locks that are bound to a connection (session) are renewed by one [Keepalive].
//
// [Service.Run] owns every goroutine: the Store's, the Keepalive's and those of resumed waiters.
//
// A Store and its Service share single steps, see [Host]. Where a mutex is taken while another is held, the
// order is: Keepalive, waitq, what the Store has of its own.
package locks

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

// A Key names a lock.
type Key struct {
	DB   int    // the database the client selected; locks of different databases are different locks
	Name string // 1 byte to 64 KB, any bytes
}

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.DB, other.DB), cmp.Compare(k.Name, other.Name))
}

// A LockRequest asks for one acquisition.
type LockRequest struct {
	Key
	Owner string        // up to 1 KB, any bytes; empty: an owner is generated, which never re-enters
	TTL   time.Duration // the lease, whole milliseconds, within the limits of the Service; not used with Open
	Open  bool          // the lease has no end: see Fosterer. Not with Session or Req
	Info  string        // up to 256 bytes, shown with the holder

	// What a holder that asks again gets, instead of another hold of its grant. Not both; each needs an Owner.
	Fresh     bool // a new grant, with a new fence; its earlier holds are dropped
	NoReenter bool // the answer of another owner: it is held

	// The grant to take the place of; nil replaces none. Exactly that grant is given up by each node in the step that
	// grants the new one; where it is not there any more, the answer is a refusal, also if the name is free. It is
	// asked for once: not with Wait, Fresh or NoReenter. After an error the named grant may be lost, and nobody have
	// the name.
	Replaces *GrantRef

	Wait    time.Duration // how long to wait for the name, first come, first served; 0 tries once
	Queue   QueueListener // with Wait and Req: is told when the request is refused for now and waits; may be nil
	Barge   bool          // without Wait: ask also while others wait at this proxy, rather than be refused for their sake
	Session *Session      // not nil: the lease is renewed while the session lives, see Session
	MaxHold time.Duration // with Session: the lease ends so long after the grant, however long TTL is; MinTTL at least; 0 means Options.MaxHold
	OnLoss  OnLoss        // with Session: what its Loss says
	Client  string        // of Waiters; the nodes do not get it
	Req     string        // up to 1 KB; not empty: the same (DB, Name, Owner, Req) is granted once, however often it is asked;
	// once it is given back the answer is its Grant with no Validity and no Holds
}

// A QueueListener is told once, if at all, that a request has begun to wait: who has the lock, as far as that is known, and as
// Waiters how many stand before it. It must not block.
type QueueListener interface{ Queued(Decision) }

// A GrantRef names one grant of a name, whose holds are those of one owner.
type GrantRef struct {
	Owner string
	Fence int64
}

// OnLoss is what a client wants to be done when its session loses a lock. The Service passes it on.
type OnLoss int8

// Of several holds of one owner the largest counts.
const (
	OnLossPush    OnLoss = -1 // it is told by a push message
	OnLossDefault OnLoss = 0  // it has no wish
	OnLossClose   OnLoss = 1  // its connection ends
)

// A Grant is one acquisition that a majority agreed to.
type Grant struct {
	Key
	Owner    string
	Fence    int64         // larger than that of every earlier holder of the name
	Validity time.Duration // what is left of the lease when Lock returned, drift taken off
	Holds    int           // how often the owner holds the name now, this grant included
	Hold     string        // its id in the Store, for that alone
}

// A Decision is what Lock decided: a grant, or who has the lock instead. Being
// refused is a decision, not an error.
type Decision struct {
	Granted   bool
	Grant     Grant         // if Granted
	Holder    string        // if not: the owner that has the name, empty when nobody was found to have a majority
	Remaining time.Duration // if not: what is left of the holder's lease, the Q-th largest among the masters
	Fence     int64         // if not: of the holder's grant, or less
	Waiters   int           // if not: how many wait for the name at this proxy
	trigger   waitq.Trigger // if Granted: what made the waiter ask
}

// A Reading is who has a name. The zero Reading is that nobody has.
type Reading struct {
	Held      bool
	Owner     string
	Info      string        // that the LOCK came with
	Fence     int64         // of the grant
	Remaining time.Duration // of the lease, the Q-th largest among the masters; with Open, until proxies must have renewed it
	Holds     int           // of the owner
	Open      bool          // the lease has no end
}

// A RenewRequest moves the end of a lease that the owner still has.
type RenewRequest struct {
	Key
	Owner string
	TTL   time.Duration // the lease ends this long from now; not used with Open
	Open  bool          // the lease has no end from now on; false gives it one, also if it had none
	Fence int64         // if not 0, act only on the grant with this fence
}

// An UnlockRequest gives back one hold, or all of an owner's holds.
type UnlockRequest struct {
	Key
	Owner string
	Fence int64  // if not 0, act only on the grant with this fence
	All   bool   // give back every hold of the owner
	Req   string // up to 1 KB; not empty: the same (DB, Name, Owner, Req) is done once, however often it is asked
	Once  bool   // a release that was done before, or may have been, is ErrLost, unless it was for the same Req
}

// ErrLost reports that the owner no longer has the lock: it expired, was forced, or its grant was another one.
// What it protected may be compromised.
var ErrLost = errors.New("the lock is no longer held by this owner")

// A NotOwnerError reports that another owner holds the lock.
type NotOwnerError struct {
	Remaining time.Duration // what is left of the holder's lease
}

func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("another owner holds the lock for %dms", e.Remaining.Milliseconds())
}

// A QuorumError reports a round that too few masters answered to decide.
// Whatever was granted has been undone again, as far as could be reached.
type QuorumError struct {
	Op, Name  string
	Nodes     int // how many masters there are
	Need, Got int
	Failed    []error // one per silent master; each names it
}
