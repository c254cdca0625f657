package locks

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

// A Store decides, atomically, who holds which names. It neither queues nor renews by itself: the Service does.
// All methods are safe for concurrent use; Attach is called before all others.
//
// A Store tells its Service of releases and losses through the Host.
type Store interface {
	Attach(*Host)
	Run(context.Context) // looks after the Store until the context ends; called once at most
	Idle() bool          // no undo or release is under way for which no caller waits
	Close() error        // ends everything; an error if something does not end

	Now() time.Duration    // the clock of all times here; it goes on while the machine sleeps
	MaxTTL() time.Duration // the longest lease
	Stats() Stats          // what the Store counts

	// Acquire decides on an attempt. It does not wait until the name is free. If it grants nothing, what some
	// nodes granted is undone, perhaps after it has returned. Errors are those of Service.Lock.
	Acquire(context.Context, Attempt) (Decision, error)
	Holder(context.Context, Key) (Decision, error) // who has the name, or that it is read, as a refusal; none if neither
	Read(context.Context, Key) (Reading, error)    // that of Service.Read

	// Renew and Release do what Service.Renew and Service.Unlock say. The Service has one Release of a Req under
	// way at a time.
	Renew(context.Context, RenewRequest) (validity time.Duration, err error)
	Release(context.Context, UnlockRequest) (holdsLeft int, err error)
	Undo(Grant) // as if it had not been granted; it does not wait
	// DropIntent ends the Attempt.Intent of an owner that waits no longer. It does not wait either.
	DropIntent(Holder)

	Sessions
	Hints
}

// Sessions are the methods of a Store for the leases of sessions.
type Sessions interface {
	// Extend renews holds of the grant with this fence. It never makes them end earlier, but finds out whether a
	// RENEW did. It sends nothing once the context has ended.
	Extend(ctx context.Context, h Holder, fence int64, t Term, holds []string) Extension
	// Until is the end of the validity of these holds, as far as known without asking. It is called with the
	// Keepalive locked.
	Until(h Holder, fence int64, holds []string) (until time.Duration, known bool)
	// GiveBack releases exactly these holds, without a request of their owner. It retries by itself.
	GiveBack(h Holder, fence int64, holds []string)
}

// Hints are what a Store knows without asking anybody. They may be wrong.
type Hints interface {
	Holds(Holder) bool                  // the owner has the name
	Repeated(h Holder, req string) bool // the request with this id was granted, and its hold is not given back
}

// A Notifier is a Store that tells of releases: its Run calls Listen of the Host's Lines.
type Notifier interface {
	Sources() (all, need int) // of hints; while need of them tell of a name, none of its releases is missed
}

// An Inspector is a Store that shows who holds what, and takes it away. The methods are those of Service.
type Inspector interface {
	Inspect(context.Context, Key) (Inspection, error)
	List(context.Context, ListRequest) (Listing, error)
	Names(context.Context, NamesRequest) (names []Key, complete bool, err error)
	Holdings(context.Context, []Key) ([]Holding, error)
	Force(ctx context.Context, k Key, fence int64) (was Holding, held bool, err error) // fence 0: any grant; or OfReaders

	Nodes() []NodeStatus
	Check(context.Context) error
	Init(context.Context) error
}

// A Host is the Service as its Store sees it.
//
// A Store that changes its record of a grant changes what sessions keep of it in the same step: it locks the
// Keepalive, changes its record, calls methods of the Keepalive whose names end in Locked, and unlocks. So
// UNLOCK takes a hold out of the Store's cache and out of the Keepalive at once. The Store takes its own mutexes
// while the Keepalive is locked, never the other way round.
//
// A Store tells Lines of a release as soon as an acquisition that begins from now on runs behind it: by Wake, or
// by HandOver and Notify if it begins the acquisition for the next waiter itself, see Offer.
type Host struct {
	Keepalive *Keepalive
	Lines     *Lines
}

// Lines are the waiters of a Service, by name.
type Lines = waitq.Queues[Key, *Waiting]

// A Source is where hints on releases come from.
type Source = waitq.Source[Key, *Waiting]

// How a grant was released, as a Source is told.
const (
	Freed     = waitq.Freed     // by its owner, or for it
	Undone    = waitq.Undone    // it was undone: too few nodes had granted it
	Passed    = waitq.Passed    // it was handed over to a waiter elsewhere, who may have left
	Shortened = waitq.Shortened // it was not released, but ends earlier than was known
)

// An Attempt is a LOCK that a Store is to decide on.
type Attempt struct {
	LockRequest
	Generated bool          // Owner was generated for this LOCK, so it has no hold yet
	Asked     time.Duration // when Lock was called
	Intent    time.Duration // for so long the name is kept for this owner if it is refused: no new reader gets it if only readers are in the way; with Others, nobody new does
	Since     time.Time     // with Others: when the request began to wait, if it does; the oldest is kept out by no other
}

// use is with whom the owner may have the name.
func (a *Attempt) use() waitq.Use {
	switch {
	case a.Reader == "":
		return waitq.Alone
	case a.Permits > 0:
		return waitq.Limited
	}
	return waitq.Sharing
}

// MaxIntent is the longest Attempt.Intent. A writer that waits asks at least so often, so that it is renewed; if its proxy ends,
// readers are let in after it.
const MaxIntent = 2 * time.Second

// Waiting is a LOCK in line.
type Waiting struct {
	Attempt
	Offer Offer // not nil: the Store has begun to acquire the name for it
}

// An Offer is an acquisition that a Store began for the head of a line, right behind a release, so that one
// round trip does both. Exactly one of its methods is called.
type Offer interface {
	Await(context.Context) (Decision, error) // returns what Acquire would
	Withdraw()                               // undoes the acquisition, since the waiter has left
}

// A Holder is one owner of one name.
type Holder struct {
	Key
	Owner string
}

// Reading is the lock by which the owner reads the name.
func (h Holder) Reading() Holder {
	h.Reader = h.Owner
	return h
}

// ForcedReason is the reason of a Loss when Force has taken the grant away.
const ForcedReason = "it was taken away by an operator"

// ReplacedReason is the reason of a Loss when a LOCK with Replaces has taken the place of the grant.
const ReplacedReason = "another grant has taken its place"

// A Term is for how long a lease is renewed: for TTL, but not past End.
type Term struct{ TTL, End time.Duration }

// From is what is left of the term, in whole milliseconds.
func (t Term) From(now time.Duration) time.Duration {
	return min(t.TTL, t.End-now).Truncate(time.Millisecond)
}

// An Extension is a renewal's result for a session.
type Extension struct {
	Result   ExtensionResult
	Until    time.Duration // Extended: end of the validity
	Released []string      // Extended: holds that were given back elsewhere
	Err      error         // Undecided: why
}

// An ExtensionResult is the outcome of a renewal for a session.
type ExtensionResult uint8

// The outcomes.
const (
	Gone      ExtensionResult = iota // it expired or was taken away
	Extended                         // it is renewed
	Undecided                        // the votes did not decide
	GivenBack                        // its owner gave it back elsewhere
	Taken                            // another owner has the name
)
