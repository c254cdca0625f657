// Package locks answers LOCK, RENEW and UNLOCK. Who holds a name is decided by a [Store].
//
// A [Service] adds what surrounds that decision: it recognizes repeats of a request that is under way, lets
// callers wait in line, first come, first served, and renews the locks of sessions. It knows nothing of nodes
// and votes. Package quorum is the Store that proxies use; package memstore keeps locks in one process, for tests.
//
//	LOCK ──▶ one per Req at a time ──▶ in line (waitq) ──head──▶ Store.Acquire ──▶ granted ──▶ renewed for its session
//	                                      ▲ a wake-up, a hint, a timer │ refused
//	                                      └────────────────────────────┘
//
// Waiters for a name stand in line at their proxy (package waitq). Only the head of the line asks the Store:
// when the Store tells of a release, right behind a release through this proxy, and now and then in any case.
// One [Keepalive] renews the locks that are bound to a session, which is a connection.
//
// [Service.Run] owns every goroutine: the Store's, the Keepalive's and those of resumed waiters.
//
// Readers of a name each have a lock of their own ([Key.Reader]), which no other owner can have. What is true of any lock
// is so true of theirs. The Store grants them beside each other, but not beside a writer, which is who has the name itself.
// All of them wait in the line of the name.
//
// Some steps change a Store and its Service at once, see [Host]. Where a mutex is taken while another is held,
// the order is: Keepalive, waitq, the mutexes of the Store.
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

	// Reader is empty, or an owner: then the lock is the one by which this owner reads the name, see Service.
	Reader string
}

// Whole is the name that a reader reads.
func (k Key) Whole() Key {
	k.Reader = ""
	return k
}

// Compare orders keys: by their databases, then by their names.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.DB, other.DB), cmp.Compare(k.Name, other.Name), cmp.Compare(k.Reader, other.Reader))
}

// A LockRequest asks for one acquisition.
type LockRequest struct {
	Key
	Owner string        // up to 1 KB, any bytes; empty: one is generated for this LOCK, which so never re-enters
	TTL   time.Duration // the lease, whole milliseconds, within the limits of the Service; not used with Open
	Open  bool          // the lease has no end: see EndlessRenewer. Not with Session, Req or Shared
	Info  string        // up to 256 bytes, shown with the holder

	Shared  bool // the owner reads: others may read at the same time, and nobody has the name for itself
	Permits int  // not 0: the same, but at most so many owners that asked with Permits may read at the same time; up to MaxPermits

	// What an owner gets that has the name already. By default it re-enters: it gets another hold of its grant.
	// At most one of these may be set; each needs an Owner.
	Fresh     bool // a new grant, with a new fence; the earlier holds are dropped
	NoReenter bool // a refusal, as if another owner had the name

	// Replaces names a grant whose place the new one takes; nil: none. Each node drops exactly that grant in the step
	// in which it grants the new one. Where the named grant is gone, the LOCK is refused, even if the name is free.
	// It tries once: not with Wait, Fresh or NoReenter. After an error the named grant may be lost, so that nobody
	// has the name.
	Replaces *GrantRef

	// Others are further names, of the same database: all of them and Key are granted, or none is. They differ from each other and
	// from Key, and with Key they are MaxNames at most. Not with Permits, Open or Replaces.
	Others []Key

	Wait    time.Duration // how long to wait for the name, first come, first served; 0 tries once
	Queue   QueueListener // with Wait and Req: is told when the request begins to wait; may be nil
	Barge   bool          // without Wait: ask the Store even while others wait at this proxy; else that is a refusal
	Session *Session      // not nil: the lease is renewed while the session lives, see Session
	Asker   *Session      // with Fresh: the session of the client that asks, which is not told that this LOCK drops what it had; Session, if that is set; may be nil
	MaxHold time.Duration // with Session: the lease ends this long after the grant at the latest; at least MinTTL; 0: Options.MaxHold
	OnLoss  OnLoss        // with Session: is passed on in its Loss
	Client  string        // for Waiters and Events; the nodes do not get it
	Req     string        // the request id, up to 1 KB; if not empty, the same (DB, Name, Owner, Req) is granted once, however often it is sent;
	// after its release the answer is that Grant, with no Validity and no Holds
}

// A QueueListener is told that a request has begun to wait. Queued is called at most once, with the holder, as far as
// known, and as Waiters the number of waiters before it. It must not block.
type QueueListener interface{ Queued(Decision) }

// A GrantRef names one grant: all holds that the owner has under this fence.
type GrantRef struct {
	Owner string
	Fence int64
}

// OnLoss is what a client wants to happen when its session loses a lock. The Service only passes it on.
type OnLoss int8

// Of several holds of one owner the largest counts.
const (
	OnLossPush    OnLoss = -1 // a push message tells the client
	OnLossDefault OnLoss = 0  // the client has no preference
	OnLossClose   OnLoss = 1  // the client's connection is closed
)

// A Grant is one acquisition that a majority agreed to.
type Grant struct {
	Key
	Owner    string
	Fence    int64         // larger than that of every earlier holder of the name
	Validity time.Duration // what is left of the lease when Lock returns, less the clock drift allowed for
	Holds    int           // how often the owner holds the name now, this hold included
	Hold     string        // the Store's id of this hold; only the Store reads it
}

// A Decision is what Lock decided: a grant, or who has the lock instead. Being
// refused is a decision, not an error.
type Decision struct {
	Granted   bool
	Grant     Grant         // if Granted
	Holder    string        // if not: the owner that has the name, empty when nobody was found to have a majority
	Remaining time.Duration // if not: what is left of the holder's lease, the Q-th largest among the masters
	Fence     int64         // if not: of the holder's grant, or a smaller one
	Waiters   int           // if not: how many wait for the name at this proxy
	Why       Obstacle      // if not: what was in the way
	Others    []Grant       // if Granted: those of LockRequest.Others, in their order
	Of        Key           // if not, and there are Others: the name that Holder has
	trigger   waitq.Trigger // if Granted: what made the waiter ask
}

// Add adds the grant of one name to a Decision that grants several: Grant is the first, the others are Others.
func (d *Decision) Add(g Grant) {
	if d.Grant.Name == "" {
		d.Grant = g
	} else {
		d.Others = append(d.Others, g)
	}
}

// All are the grants of all names.
func (d *Decision) All() []Grant { return append([]Grant{d.Grant}, d.Others...) }

// An Obstacle is what keeps an owner from getting a name.
type Obstacle uint8

const (
	Held    Obstacle = iota // another owner has it, or nobody was found to
	Readers                 // others read it
	Upgrade                 // the same, and this owner reads it as well: waiting for them would be a deadlock with one that does so too. Or it reads without a permit, and wants one
	Intent                  // a writer waits for the readers, so that no new ones are let in
	Permits                 // as many others have a permit as may
)

// A Reading says who has a name, and how many read it. The zero Reading says that nobody does either.
type Reading struct {
	Held      bool
	Owner     string
	Info      string        // of the LOCK
	Fence     int64         // of the grant
	Remaining time.Duration // of the lease, the Q-th largest among the masters; with Open, in which a proxy must renew it
	Holds     int           // of the owner
	Open      bool          // the lease has no end

	// Of a name, not of a reader's lock.
	Readers int           // how many owners read it, as many as a quorum says
	Reads   time.Duration // what is left of the longest of their leases
}

// A RenewRequest moves the end of a lease that the owner still has.
type RenewRequest struct {
	Key
	Owner string
	TTL   time.Duration // the lease ends this long from now; not used with Open
	Open  bool          // the lease has no end from now on; false gives it one, also if it had none
	Fence int64         // if not 0, act only on the grant with this fence

	Shared bool // the lease by which the owner reads
}

// An UnlockRequest gives back one hold, or all of an owner's holds.
type UnlockRequest struct {
	Key
	Owner string
	Fence int64  // if not 0, act only on the grant with this fence
	All   bool   // give back every hold of the owner
	Req   string // up to 1 KB; not empty: the same (DB, Name, Owner, Req) is done once, however often it is asked
	Once  bool   // if another request has, or may have, released the grant before, the answer is ErrLost

	Shared bool // as in RenewRequest
}

// ErrLost reports that the owner no longer has the lock: it expired, or an operator took it away, or the owner's
// grant is another one than the request named. What the lock protected may be compromised.
var ErrLost = errors.New("the lock is no longer held by this owner")

// ErrOnlyReads is ErrLost of an owner that reads the name, or has a permit: a RENEW or UNLOCK of that is to say so.
var ErrOnlyReads = fmt.Errorf("%w, which reads it", ErrLost)

// A NotOwnerError reports that another owner holds the lock.
type NotOwnerError struct {
	Remaining time.Duration // what is left of the holder's lease
}

func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("another owner holds the lock for %dms", e.Remaining.Milliseconds())
}

// A QuorumError reports a round that too few masters answered to decide.
// What some masters granted is undone on all that can be reached.
type QuorumError struct {
	Op, Name  string
	Nodes     int // how many masters there are
	Need, Got int
	Failed    []error // one per silent master; each names it
}
