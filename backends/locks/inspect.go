package locks

import (
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
