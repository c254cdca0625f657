// Package vote has what one lock node may answer, and reads it: a Vote is the reply of one script, or why there is none.
//
// Each script has a Parse, see the header of its file. This package asks no node (see voters), and counts no votes (see tally).
package vote

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A Kind is what one node answered.
type Kind uint8

const (
	Silent          Kind = iota // nothing yet, an error, or no entitlement to vote: neither yes nor no
	Yes                         // done as asked
	Duplicate                   // release: this very grant was released before, or this very UNLOCK done
	No                          // not done: free, another owner's, or another grant
	VersionConflict             // renew: another version of the lease is here; release: this UNLOCK gave back another hold, or another UNLOCK this one
	MissingHold                 // renew: the holds were given back here
	AlreadyReleased             // acquire: this request was granted and given back before
	TooMany                     // acquire: the owner has as many holds as it may
	Withheld                    // acquire of several names: this one was free, and another was not
)

// A Vote is one node's reply. Each field is set for the kinds, or the questions, that its comment names.
type Vote struct {
	Kind       Kind
	Owner      string         // No, read: who has the name; empty when it is free
	Rest       time.Duration  // Yes, No, read: what is left of the lease, when the script ran
	Fence      int64          // Yes: granted or proposed; AlreadyReleased: granted then; No: the holder's, or the name's largest; state: the node's largest
	Reentered  int64          // acquire: 0, or the fence of the grant that the owner had, or reinstatedFence
	Holds      int            // acquire: the owner's holds, this one included; release: the holds left, or UnknownHolds
	Noted      bool           // release, renew: some renewal may have shortened the lease
	Reinstated bool           // renew, release: the grant is, or was, here because a renewal had reinstated it
	GivenBack  bool           // renew: some of the holds were given back here
	Why        locks.Obstacle // No of acquire: what was in the way
	Free       []int          // No of acquire because of Permits: the seats that are free
	Names      []Vote         // acquire of several names: the vote on each; Kind is Yes if all are

	// Of acquire, read, release, list and announce.
	Version Version // acquire, read, VersionConflict: of the lease
	Grant   string  // acquire, read: the hold whose LOCK numbered the grant, as far as this node knows
	Read    *Reading
	Release Release
	ReadBy  map[string]time.Duration // readers: what is left of the lease of each owner
	Doubts  map[string]string        // read: those of a node InDoubt, with r or w and the owner by hold; no grant of theirs has a larger Fence
	Page    *Page
	Notices []locks.Notice

	// Of probes.
	Refuses error // state: the error with which the node answers writes; nil if it does them

	// Of nodes that did not vote.
	Err         error      // Silent: why; nil while nothing came
	Code        Abstention // Silent: what the node lacks to vote
	Wait        int64      // Silent: the number that comes with Code, ms
	Replid      string     // NoRecord: of the node's replication
	Quarantine  string     // Floorless: the name of the one that is over
	CopyIn      int64      // Quarantined: in how many ms a copy may begin; negative: none may
	Gen         string     // state, Quarantined, InDoubt: names the node's last loss of memory; empty: none
	Doubt       int64      // state: for how many ms it is in doubt about some name
	MaxTTL      int64      // state, Quarantined, Floorless: the longest that a lease may be which runs there, ms
	Set         *NodeSet   // state: that the node is in; OtherSet: its epoch
	OlderFormat bool       // NoRecord: it has a record of an older format
	Unsent      bool       // Silent: the node was never asked, so there is nothing to undo
}

// reinstatedFence stands for the fence of a grant that is here because of a renewal: the node cannot vouch for
// it.
const reinstatedFence = -1

// UnknownHolds stands for the number of holds left on a node that has them under another fence than their grant's: it
// may lack some.
const UnknownHolds = -1

// An Abstention is why a node that answered may not vote.
type Abstention int8

const (
	NoRecord    Abstention = -1 // no node record
	Quarantined Abstention = -2 // it may have forgotten leases that still run
	Floorless   Abstention = -3 // it may have forgotten fences
	OtherSet    Abstention = -4 // it is in another set of lock nodes
	InDoubt     Abstention = -5 // about this name: it may have forgotten a lease of it that still runs
	Damaged     Abstention = 1  // not the node's answer: it did what it was asked, and its answer holds a number that is no fence
)

// Unregistered reports whether the node has no record at all.
func (v *Vote) Unregistered() bool { return v.Code == NoRecord && !v.OlderFormat }

// Forgot reports whether the node answered that it has forgotten, or is new, and gives no vote for that reason.
func (v *Vote) Forgot() bool {
	return v.Code == NoRecord || v.Code == Quarantined || v.Code == Floorless
}

// A Version orders the renewals of one lease. Sequences compare within an epoch.
type Version struct {
	Epoch    string
	Sequence int64
}

// Expected is the form in which a renewal names the version that it replaces.
func (v Version) Expected() string { return fmt.Sprintf("%s:%d", v.Epoch, v.Sequence) }

// A Release is the part of a vote that only the question release is answered with.
type Release struct {
	Other     string   // VersionConflict: the id of another one that gave the hold back here; else empty
	TooLate   bool     // not done, since another release gave back this hold or the one of the UNLOCK's request here, or a later grant
	Since     bool     // Duplicate: another one gave the hold back here, and the owner has had a grant since
	Listeners int      // subscribers that got its message
	Hold      string   // the one that this UNLOCK has given back before, if it has
	Strays    []string // No: the holds of the UNLOCK's request that are here under a larger fence
}

// A Reading is the part of a vote that only the question read is answered with.
type Reading struct {
	LastOwner  string // of the last release, or empty
	LastFence  int64
	Since      bool // that owner had a grant since
	Info       string
	Age        time.Duration // since the grant
	Reinstated bool          // by a renewal: this node did not grant it
	Holds      []NodeHold    // the most recent first, also those that have ended
	Readers    int           // owners that read the name
	ReaderRest time.Duration // what is left of the longest lease of theirs
	Unlock     unlocked      // the UNLOCK whose request id the read named
}

// DidUnlock reports whether a node that was read has done the UNLOCK that the read named before.
func (v *Vote) DidUnlock() bool { return v.Read != nil && v.Read.Unlock.Hold != "" }

// A NodeHold is one hold on one node.
type NodeHold struct {
	ID   string
	Age  time.Duration // since it was taken
	Rest time.Duration // until it ends; 0: it has
}

// An unlocked is what a node knows of an UNLOCK with a request id; zero if nothing.
type unlocked struct {
	Left  int    // holds, or UnknownHolds
	Fence int64  // of the grant
	Hold  string // that was given back
}

// Live are the ids of the holds that have not ended.
func (r *Reading) Live() (ids []string) {
	for _, h := range r.Holds {
		if h.Rest > 0 {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// Has reports whether the node has this hold, ended or not.
func (r *Reading) Has(id string) bool {
	return slices.ContainsFunc(r.Holds, func(h NodeHold) bool { return h.ID == id })
}

// CountKind counts the votes of a kind.
func CountKind(votes []Vote, b Kind) (n int) {
	for i := range votes {
		if votes[i].Kind == b {
			n++
		}
	}
	return n
}

// A Page is a part of a node's keys, as SCAN or the script open answers it.
type Page struct {
	Next string      // cursor; "0" at the end
	Keys []locks.Key // of locks
	Sets []locks.Key // of sets of readers

	// Of open.
	Open int         // leases without an end among these keys
	Due  []OpenLease // those of them that have little left
}
