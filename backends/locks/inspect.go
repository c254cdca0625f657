package locks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Holding is who has a name, by one quorum at one moment.
type Holding struct {
	Key
	Owner     string // empty: it is only read
	Readers   int    // how many owners read it
	Fence     int64
	Holds     int           // how often the owner holds it
	Remaining time.Duration // of the lease: the Q-th largest among the nodes that agree
	Held      time.Duration // since the grant
	Info      string        // of the LOCK
	Votes     int           // nodes that agree that this owner has it
	Waiters   int           // how many wait for it at this proxy
	Session   bool          // this proxy renews it
	Client    string        // if Session: LockRequest.Client of whose connection it is
	Open      bool          // the lease has no end: proxies renew it before Remaining is over
	Here      bool          // this proxy granted it, and knows that still
	Waited    time.Duration // if Here: from the call of LOCK to the grant
}

// MaxReaders is how many readers of a name are shown.
const MaxReaders = 1000

// ReadBy is one reader of a name.
type ReadBy struct {
	Owner     string
	Remaining time.Duration // of its lease
}

// HeldFor is one hold of a name.
type HeldFor struct {
	Taken time.Duration // since the LOCK
	Left  time.Duration // until it ends by itself; the latest end of all nodes
}

// A NodeView is a name as one node sees it.
type NodeView struct {
	Address    string
	State      NodeState     // NodeVoting: it answered, and the fields below count
	Since      time.Time     // when State was first seen, if the last probe saw it too
	Left       time.Duration // of a quarantine, if no copy ends it
	Copies     bool          // as in NodeStatus
	Doubt      time.Duration // for how long at most it abstains for this name
	Err        error         // why it does not vote; the fields below count also for a node that only refuses writes
	Owner      string        // empty: nobody has the name there
	Fence      int64         // of the grant, or the largest of the name
	Remaining  time.Duration
	Holds      int
	Reinstated bool // by a renewal: it did not grant it
	Readers    int  // how many owners read it there
}

// An Inspection is a name as all nodes see it.
type Inspection struct {
	Held    bool
	Holding Holding    // if Held; else only DB, Name and Waiters
	Each    []HeldFor  // if Held: the holds that some node has, the oldest first; those that one request took are one
	Nodes   []NodeView // in the order of Options.Nodes
	Need    int        // how many must agree

	Readers []ReadBy // who reads it, the ones whose leases end last, at most MaxReaders; also if it is not Held
}

// A Waiter is a LOCK that waits at this proxy.
type Waiter struct {
	Owner   string
	Info    string
	Client  string
	Waiting time.Duration // since it came
	Left    time.Duration // until it gives up; not negative
	Shared  bool          // it waits to read, or for a permit
	Permits int           // not 0: for one of so many permits
}

// Waiters are the LOCKs that wait for a name at this proxy, the next one first.
// Those at other proxies are not known.
func (s *Service) Waiters(k Key) (all []Waiter) {
	for _, e := range s.waiting.List(k) {
		r := e.Value
		all = append(all, Waiter{Owner: r.Owner, Info: r.Info, Client: r.Client, Waiting: e.Waiting, Left: max(0, r.Wait-e.Waiting), Shared: r.Shared, Permits: r.Permits})
	}
	return all
}

// A CursorError reports that a List cannot go on from there.
type CursorError struct{ Cursor string }

func (e *CursorError) Error() string { return fmt.Sprintf("%.40q is not a cursor", e.Cursor) }

// A ListRequest asks for a part of the names that are held.
type ListRequest struct {
	DB     int    // or AllDBs
	Match  string // a glob on the name, as SCAN's MATCH; empty: every name
	Count  int    // how many keys of a node to look at, as SCAN's COUNT; 0: 100, at most 1000
	Cursor string // where to go on: empty or "0" begins
}

// AllDBs stands for every database at once.
const AllDBs = -1

// A Listing is a part of the names that are held.
type Listing struct {
	Held   []Holding
	Cursor string // where to go on; "0": there is no more
}

// A NamesRequest asks for names that may be held.
type NamesRequest struct {
	DB    int    // or AllDBs
	Match string // as in ListRequest
	Looks int    // how many times a node is asked for at most 1000 keys, all nodes together; 0: 100
}

var errNoInspector = errors.New("this lock store cannot be inspected")

// Inspect asks every node who has a name. It never guesses: if the answers do not decide it, because too few
// nodes voted or because the silent ones could tip the count, the error is a *QuorumError, and the Inspection
// holds the answers there are.
func (s *Service) Inspect(ctx context.Context, k Key) (Inspection, error) {
	if s.inspector == nil {
		return Inspection{}, errNoInspector
	}
	return s.inspector.Inspect(ctx, k)
}

// List returns the names that are held, a part at a time, like SCAN. A name that is held from the first call to
// the last is reported; one that is held for a part of that time may be; one may be reported twice if a node
// fails meanwhile. A cursor works at every proxy that names the nodes in the same order. A lock that a quorum
// has is on at least one of any N-Q+1 nodes, so List scans that many, one after the other, whichever of them
// answer. An error is a *CursorError, a *QuorumError, or that of ctx.
func (s *Service) List(ctx context.Context, r ListRequest) (Listing, error) {
	if s.inspector == nil {
		return Listing{}, errNoInspector
	}
	return s.inspector.List(ctx, r)
}

// Names goes through the names as List does, without asking who has them: that costs a
// quorum read of each, see Holdings. A name is one that some node has a record of: it is held, or
// was a moment ago, or somebody tries to get it. complete is false if r.Looks did not suffice to see
// all names. They come in no order, each once. Errors are those of List.
func (s *Service) Names(ctx context.Context, r NamesRequest) (names []Key, complete bool, err error) {
	if s.inspector == nil {
		return nil, false, errNoInspector
	}
	return s.inspector.Names(ctx, r)
}

// Holdings asks a quorum who has each of these names. Those that nobody has are left out.
// The error is a *QuorumError or that of ctx.
func (s *Service) Holdings(ctx context.Context, names []Key) (held []Holding, err error) {
	if s.inspector == nil {
		return nil, errNoInspector
	}
	return s.inspector.Holdings(ctx, names)
}

// Force takes a name away from its holder, and returns what it had; held is false when nobody had it. Where there is no
// holder, it is taken from all who read it, and what one of them had is returned, with its Reader and their number. The
// owner is not asked: whatever it believes to protect is unprotected from now on, though its validity may
// still run. Its RENEW and UNLOCK get ErrLost, no renewal under way brings the lock back, and the next grant
// has a larger fence. The call is repeated to silent nodes until no lease can run any more. Errors are a
// *QuorumError or that of ctx; then the lock may be gone, or not yet: force it again.
func (s *Service) Force(ctx context.Context, k Key) (was Holding, held bool, err error) {
	if s.inspector == nil {
		return Holding{}, false, errNoInspector
	}
	was, held, err = s.inspector.Force(ctx, k, 0)
	return s.emitForced(k, was, held, err)
}

// ForceGrant is Force for the grant with this fence only. If a later or an earlier one has the name, the error
// is an *OtherGrantError and nothing is taken away.
func (s *Service) ForceGrant(ctx context.Context, k Key, fence int64) (was Holding, held bool, err error) {
	if fence <= 0 {
		return Holding{}, false, fmt.Errorf("%d is not a fence", fence)
	}
	if s.inspector == nil {
		return Holding{}, false, errNoInspector
	}
	was, held, err = s.inspector.Force(ctx, k, fence)
	return s.emitForced(k, was, held, err)
}

// OfReaders is, in place of a fence, that of every reader, and of nobody who has the name for itself.
const OfReaders = -1

// ForceReaders is Force for those who read the name only. If somebody has it for itself, the error is an
// *OtherGrantError and nothing is taken away.
func (s *Service) ForceReaders(ctx context.Context, k Key) (was Holding, held bool, err error) {
	if s.inspector == nil {
		return Holding{}, false, errNoInspector
	}
	was, held, err = s.inspector.Force(ctx, k, OfReaders)
	return s.emitForced(k, was, held, err)
}

// ForceEach has force take the name away from each of those who read it. It returns what the last one had from whom it was taken, from how many it
// was, and the *OtherGrantError of one that reads under another fence; any other error ends it.
func ForceEach(k Key, readers []ReadBy, force func(reading Key) (was Holding, held bool, err error)) (was Holding, taken int, later, err error) {
	for _, r := range readers {
		reading, held, err := force(Holder{k, r.Owner}.Reading().Key)
		switch other := (*OtherGrantError)(nil); {
		case errors.As(err, &other):
			later = err
		case err != nil:
			return was, taken, later, err
		case held:
			was, taken = reading, taken+1
		}
	}
	return was, taken, later, nil
}

// Nodes is what the last probe told of every node, in the order of the Store's options.
func (s *Service) Nodes() []NodeStatus {
	if s.inspector == nil {
		return nil
	}
	return s.inspector.Nodes()
}

// Check contacts every node and reports those that can never be what they are configured as: the same server
// twice, or a Redis Cluster. Nodes that do not answer are not reported; see Nodes.
func (s *Service) Check(ctx context.Context) error {
	if s.inspector == nil {
		return nil
	}
	return s.inspector.Check(ctx)
}

// Init declares all nodes new, so that they vote at once. The operator vouches that no lease and no fence matters
// which they may have forgotten. If a node does not answer, or some vote already, Init fails and changes nothing;
// if all vote already, there is nothing to do.
func (s *Service) Init(ctx context.Context) error {
	if s.inspector == nil {
		return errNoInspector
	}
	return s.inspector.Init(ctx)
}

// An OtherGrantError reports that the name is held under another fence.
type OtherGrantError struct{ Now Holding }

func (e *OtherGrantError) Error() string {
	return fmt.Sprintf("the lock has moved on: it is held under fence %d", e.Now.Fence)
}
