package locks

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks/waitq"
)

// A Store decides, atomically, who holds which names. It neither queues nor renews by itself: that is the
// Service's. All methods are safe for concurrent use; Attach comes before all others.
//
// What the Service must hear of at once it gets through the Host, see there.
type Store interface {
	Attach(*Host)
	Run(context.Context) // looks after the Store until the context ends; called once at most
	Idle() bool          // nothing is under way that nobody waits for
	Close() error        // ends everything; an error if something does not end

	Now() time.Duration    // the clock of all times here; it goes on while the machine sleeps
	MaxTTL() time.Duration // the longest lease
	Stats() Stats          // what the Store counts

	// Acquire decides on an attempt. It does not wait for the name, but may take as long as finding out does.
	// What is not granted has been or will be undone, also after it returned. Errors are those of Service.Lock.
	Acquire(context.Context, Attempt) (Decision, error)
	Holder(context.Context, Key) (Decision, error) // who has the name, as a refusal; none if nobody has
	Read(context.Context, Key) (Reading, error)    // that of Service.Read

	// Renew and Release are those of Service.Renew and Service.Unlock; of a Req only one Release is under way.
	Renew(context.Context, RenewRequest) (validity time.Duration, err error)
	Release(context.Context, UnlockRequest) (holdsLeft int, err error)
	Undo(Grant) // as if it had not been granted; it does not wait

	Sessions
	Hints
}

// Sessions are what a Store does for the leases of sessions.
type Sessions interface {
	// Extend renews holds of the grant with this fence. It never brings their end forward, but finds out if a
	// RENEW did, and begins nothing once the context has ended.
	Extend(ctx context.Context, h Holder, fence int64, t Term, holds []string) Extension
	// Until is the end of the validity of these holds, as far as known without asking. It is called with the
	// Keepalive locked.
	Until(h Holder, fence int64, holds []string) (until time.Duration, known bool)
	// GiveBack releases exactly these holds, for which their owner did not ask. It retries by itself.
	GiveBack(h Holder, fence int64, holds []string)
}

// Hints are what a Store knows without asking anybody. They may be wrong.
type Hints interface {
	Holds(Holder) bool                  // the owner has the name
	Repeated(h Holder, req string) bool // the request with this id was granted, and its hold is not given back
}

// A Notifier is a Store that tells of releases: its Run calls Listen of the Host's Lines.
type Notifier interface {
	Sources() (all, need int) // of hints; a release that need of them tell of cannot be missed
}

// An Inspector is a Store that shows who holds what, and takes it away. The methods are those of Service.
type Inspector interface {
	Inspect(context.Context, Key) (Inspection, error)
	List(context.Context, ListRequest) (Listing, error)
	Names(context.Context, NamesRequest) (names []Key, complete bool, err error)
	Holdings(context.Context, []Key) ([]Holding, error)
	Force(ctx context.Context, k Key, fence int64) (was Holding, held bool, err error) // fence 0: any grant

	Nodes() []NodeStatus
	Check(context.Context) error
	Init(context.Context) error
}

// A Host is the Service as its Store sees it.
//
// Where a Store changes what it knows of a grant, and that decides what a session keeps, both happen in one
// step: it locks the Keepalive, changes its own, calls methods of the Keepalive that end in Locked, and
// unlocks. So a hold leaves the Keepalive in the step in which UNLOCK takes it out of the Store's cache. The
// Store's own mutexes are taken inside, never the other way round.
//
// Lines are told of a release as soon as an acquisition that begins cannot overtake it: by Wake, or by
// HandOver and Notify, with which the Store begins the acquisition of the next in line itself. See Offer.
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
	Freed  = waitq.Freed  // by its owner, or for it
	Undone = waitq.Undone // it had not been granted by all that are needed
	Passed = waitq.Passed // it was handed over to a waiter elsewhere, who may have left
)

// An Attempt is a LOCK that a Store is to decide on.
type Attempt struct {
	LockRequest
	Generated bool          // Owner was, so that it can have no hold yet
	Asked     time.Duration // when Lock was called
}

// Waiting is a LOCK in line.
type Waiting struct {
	Attempt
	Offer Offer // not nil: the Store has begun to ask on its behalf
}

// An Offer is an acquisition that a Store began for the head of a line, right behind a release, so that one
// round trip does both. Exactly one of its methods is called.
type Offer interface {
	Await(context.Context) (Decision, error) // goes on as Acquire
	Withdraw()                               // undoes what was done: the waiter has left
}

// A Holder is one owner of one name.
type Holder struct {
	Key
	Owner string
}

// ReplacedReason is what sessions are told of a grant that a LOCK with Replaces has taken the place of.
const ReplacedReason = "another grant has taken its place"

// A Term is for how long a lease is renewed: for TTL, but not past End.
type Term struct{ TTL, End time.Duration }

// From is what is left of the term, in whole milliseconds.
func (t Term) From(now time.Duration) time.Duration {
	return min(t.TTL, t.End-now).Truncate(time.Millisecond)
}

// An Extension is what became of a renewal for a session.
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
	Undecided                        // that could not be found out
	GivenBack                        // its owner gave it back elsewhere
	Taken                            // another owner has the name
)
