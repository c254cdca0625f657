package voters

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
)

// A ReplyKind is what one node answered in one round.
type ReplyKind uint8

const (
	Silent          ReplyKind = iota // nothing yet, an error, or no entitlement to vote: neither yes nor no
	Yes                              // done as asked
	Duplicate                        // release: this very grant was released before, or this very UNLOCK done
	No                               // not done: free, another owner's, or another grant
	VersionConflict                  // renew: another version of the lease is here; release: this UNLOCK gave back another hold, or another UNLOCK this one
	MissingHold                      // renew: the holds were given back here
	AlreadyReleased                  // acquire: this request was granted and given back before
	TooMany                          // acquire: the owner has as many holds as it may
	Withheld                         // acquire of several names: this one was free, and another was not
)

// A Vote is one node's reply. Each field is set for the kinds, or the questions, that its comment names.
type Vote struct {
	Kind         ReplyKind
	Owner        string         // No, read: who has the name; empty when it is free
	Rest         time.Duration  // Yes, No, read: what is left of the lease, when the script ran
	Fence        int64          // Yes: granted or proposed; AlreadyReleased: granted then; No: the holder's, or the name's largest; state: the node's largest
	Reentered    int64          // acquire: 0, or the fence of the grant that the owner had, or reinstatedFence
	Holds        int            // acquire: the owner's holds, this one included; release: the holds left, or UnknownHolds
	Noted        bool           // release, renew: some renewal may have shortened the lease
	Reinstated   bool           // renew, release: the grant is, or was, here because a renewal had reinstated it
	GivenBack    bool           // renew: some of the holds were given back here
	OtherRelease string         // release: the id of another one that gave the hold back here; else empty
	TooLate      bool           // release: not done, since another release gave back this hold or the one of the UNLOCK's request here, or a later grant
	Since        bool           // Duplicate of release: another one gave the hold back here, and the owner has had a grant since
	Listeners    int            // release: subscribers that got its message
	Hold         string         // release: the one that this UNLOCK has given back before, if it has
	Why          locks.Obstacle // No of acquire: what was in the way
	Free         []int          // No of acquire because of Permits: the seats that are free
	Names        []Vote         // acquire of several names: the vote on each; Kind is Yes if all are

	// Of acquire, read, list and announce.
	Version Version // acquire, read, VersionConflict: of the lease
	Grant   string  // acquire, read: the hold whose LOCK numbered the grant, as far as this node knows
	Read    *Reading
	ReadBy  map[string]time.Duration // readers: what is left of the lease of each owner
	Doubts  map[string]string        // read: those of a node InDoubt, with r or w and the owner by hold; no grant of theirs has a larger Fence
	Page    *Page
	Notices []locks.Notice

	// Of probes.
	refuses error // state: the error with which the node answers writes; nil if it does them

	// Of nodes that did not vote.
	Err         error      // Silent: why; nil while nothing came
	Code        Abstention // Silent: what the node lacks to vote
	wait        int64      // Silent: the number that comes with code, ms
	replid      string     // unregistered: of the node's replication
	quarantine  string     // Floorless: the name of the one that is over
	copyIn      int64      // Quarantined: in how many ms a copy may begin; negative: none may
	Gen         string     // state, Quarantined, InDoubt: names the node's last loss of memory; empty: none
	doubt       int64      // state: for how many ms it is in doubt about some name
	maxTTL      int64      // state, Quarantined, Floorless: the longest that a lease may be which runs there, ms
	set         *NodeSet   // state: that the node is in; otherSet: its epoch
	olderFormat bool       // unregistered: it has a record of an older format
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
	unregistered Abstention = -1 // no node record
	Quarantined  Abstention = -2 // it may have forgotten leases that still run
	Floorless    Abstention = -3 // it may have forgotten fences
	otherSet     Abstention = -4 // it is in another set of lock nodes
	InDoubt      Abstention = -5 // about this name: it may have forgotten a lease of it that still runs
	Damaged      Abstention = 1  // not the node's answer: it did what it was asked, and its answer holds a number that is no fence
)

// Unregistered reports whether the node has no record at all.
func (v *Vote) Unregistered() bool { return v.Code == unregistered && !v.olderFormat }

// A Version orders the renewals of one lease. Sequences compare within an epoch.
type Version struct {
	Epoch    string
	Sequence int64
}

// Expected is the form in which a renewal names the version that it replaces.
func (v Version) Expected() string { return fmt.Sprintf("%s:%d", v.Epoch, v.Sequence) }

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

// A Parse reads a reply's vote. Each script has its own, see the header of its file.
type Parse func(m []rueidis.RedisMessage) (Vote, error)

// ReadInts reads integers.
func ReadInts(m []rueidis.RedisMessage, dst ...*int64) error {
	if len(m) < len(dst) {
		return fmt.Errorf("%d values where %d were expected", len(m), len(dst))
	}
	for i, d := range dst {
		n, err := m[i].AsInt64()
		if err != nil {
			return err
		}
		*d = n
	}
	return nil
}

// ReadVote reads a reply's vote with p, or an abstention, which is the same for every script.
func ReadVote(res rueidis.RedisResult, p Parse) Vote {
	reply, err := res.ToMessage()
	if err != nil {
		return Vote{Err: err}
	}
	return readVote(reply, p)
}

func readVote(reply rueidis.RedisMessage, p Parse) Vote {
	m, err := []rueidis.RedisMessage{reply}, error(nil)
	if !reply.IsInt64() {
		if m, err = reply.ToArray(); err != nil {
			return Vote{Err: err}
		}
	}
	var code int64
	if err := ReadInts(m, &code); err != nil {
		return Vote{Err: fmt.Errorf("not a reply of this script: %w", err)}
	}
	var v Vote
	if code < 0 {
		v, err = parseAbstention(Abstention(code), m[1:])
	} else {
		v, err = p(m)
	}
	if bad := (*fenceError)(nil); errors.As(err, &bad) {
		return Vote{Code: Damaged, Err: err}
	}
	if err != nil {
		return Vote{Err: fmt.Errorf("not a reply of this script: %w", err)}
	}
	return v
}

// abstentionValues are how many values come with each code, at least.
var abstentionValues = map[Abstention]int{unregistered: 3, Quarantined: 4, Floorless: 3, otherSet: 2, InDoubt: 2}

func parseAbstention(code Abstention, m []rueidis.RedisMessage) (Vote, error) {
	v := Vote{Code: code}
	least, known := abstentionValues[code]
	if !known || len(m) < least {
		return v, fmt.Errorf("%d values of refusal %d where %d were expected", len(m), code, least)
	}
	if err := ReadInts(m, &v.wait); err != nil {
		return v, err
	}
	wait := (millis(v.wait) + time.Second - 1).Truncate(time.Second)
	switch code {
	case unregistered:
		var older int64
		v.Err = errNoRecord
		err := cmp.Or(ReadText(m[1], &v.replid), ReadInts(m[2:], &older))
		v.olderFormat = older == 1
		return v, err
	case Quarantined:
		v.Err = fmt.Errorf("quarantine for %v at most", wait)
		return v, cmp.Or(ReadInts(m[1:], &v.maxTTL), ReadText(m[2], &v.Gen), ReadInts(m[3:], &v.copyIn))
	case InDoubt:
		v.Err = fmt.Errorf("forgot its locks, and abstains for this name for %v, or until it is unlocked", wait)
		err := ReadText(m[1], &v.Gen)
		if len(m) == 4 && err == nil {
			v.Doubts, err = m[3].AsStrMap()
			err = cmp.Or(err, ReadInts(m[2:], &v.Fence), checkFenceOrNone(v.Fence))
		}
		return v, err
	case Floorless:
		v.Err = fmt.Errorf("waits for its fence floor since %v", wait)
		return v, cmp.Or(ReadText(m[1], &v.quarantine), ReadInts(m[2:], &v.maxTTL))
	}
	e := &otherSetError{}
	v.Err, v.set = e, &NodeSet{Epoch: v.wait}
	return v, ReadText(m[1], &e.theirs)
}

// A fenceError is an answer with a number that cannot be a fence. If it were counted as one, all nodes would
// take it over, and could not count any further.
type fenceError struct{ fence int64 }

func (e *fenceError) Error() string {
	return fmt.Sprintf("its fence counter is damaged (%d is not within 1 and 2^53); empty that node with FLUSHALL, and it comes back as one that forgot", e.fence)
}

// CheckFence refuses what cannot be a fence. Numbers from 2^53 are not exact in a script.
func CheckFence(n int64) error {
	if n <= 0 || n >= 1<<53 {
		return &fenceError{n}
	}
	return nil
}

// checkFenceOrNone is CheckFence where 0 stands for none.
func checkFenceOrNone(n int64) error {
	if n == 0 {
		return nil
	}
	return CheckFence(n)
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// ParseAnnounce reads what announce answers.
func ParseAnnounce(m []rueidis.RedisMessage) (Vote, error) {
	v := Vote{Kind: Yes}
	for pair := m[1:]; len(pair) > 0; pair = pair[2:] {
		if len(pair) == 1 {
			return v, errors.New("an id without a record")
		}
		var n locks.Notice
		if err := cmp.Or(ReadText(pair[0], &n.ID), ReadText(pair[1], &n.Text)); err != nil {
			return v, err
		}
		v.Notices = append(v.Notices, n)
	}
	return v, nil
}

// ParseAcquire reads what acquire answers.
func ParseAcquire(m []rueidis.RedisMessage) (Vote, error) {
	var code, rest, holds int64
	v := Vote{Kind: Yes}
	if err := ReadInts(m, &code); err != nil || code == 0 {
		return parseNo(m, err)
	}
	if code == 2 {
		v.Kind = AlreadyReleased
		if err := ReadInts(m, &code, &v.Fence); err != nil {
			return v, err
		}
		return v, CheckFence(v.Fence)
	}
	if code == 3 {
		v.Kind = TooMany
		return v, nil
	}
	if code == 4 {
		v.Kind = Withheld
		return v, nil
	}
	if err := ReadInts(m, &code, &v.Fence, &v.Reentered, &rest, &holds); err != nil {
		return v, err
	}
	if len(m) < 8 {
		return v, fmt.Errorf("%d values where 8 were expected", len(m))
	}
	if err := CheckFence(v.Fence); err != nil {
		return v, err
	}
	if v.Reentered != reinstatedFence {
		if err := checkFenceOrNone(v.Reentered); err != nil {
			return v, err
		}
	}
	v.Rest, v.Holds = millis(rest), int(holds)
	return v, cmp.Or(parseVersion(m[5:], &v.Version), ReadText(m[7], &v.Grant))
}

func parseVersion(m []rueidis.RedisMessage, dst *Version) (err error) {
	if len(m) < 2 {
		return errors.New("no version")
	}
	if dst.Epoch, err = m[0].ToString(); err != nil {
		return err
	}
	dst.Sequence, err = m[1].AsInt64()
	return err
}

// parseNo reads {0, owner, ms left, fence}, and why and free seats if that is there.
func parseNo(m []rueidis.RedisMessage, err error) (Vote, error) {
	v := Vote{Kind: No}
	if err != nil || len(m) == 1 {
		return v, err
	}
	if v.Owner, err = m[1].ToString(); err != nil {
		return v, err
	}
	var rest int64
	if err = ReadInts(m[2:], &rest, &v.Fence); err == nil {
		err = checkFenceOrNone(v.Fence)
	}
	v.Rest = millis(rest)
	if err == nil && len(m) > 4 && m[4].IsString() {
		var why string
		err = ReadText(m[4], &why)
		v.Why = obstacles[why]
		for _, free := range m[5:] {
			seat, e := free.AsInt64()
			v.Free, err = append(v.Free, int(seat)), cmp.Or(err, e)
		}
	}
	return v, err
}

// obstacles are what a node calls what is in the way.
var obstacles = map[string]locks.Obstacle{"readers": locks.Readers, "upgrade": locks.Upgrade, "intent": locks.Intent, "seat": locks.Permits}

// ParseDone reads the scripts that answer {1} or {0}.
func ParseDone(m []rueidis.RedisMessage) (Vote, error) {
	var code int64
	if err := ReadInts(m, &code); err != nil || code == 0 {
		return Vote{Kind: No}, err
	}
	return Vote{Kind: Yes}, nil
}

// ParseRenew reads what renew answers.
func ParseRenew(m []rueidis.RedisMessage) (Vote, error) {
	var code int64
	err := ReadInts(m, &code)
	switch {
	case err != nil || code == 0:
		return parseNo(m, err)
	case code == 3:
		v := Vote{Kind: VersionConflict}
		return v, parseVersion(m[1:], &v.Version)
	case code == 4:
		return Vote{Kind: MissingHold}, nil
	}
	var noted, reinstated, given int64
	err = ReadInts(m[1:], &noted, &reinstated, &given)
	return Vote{Kind: Yes, Noted: noted == 1, Reinstated: reinstated == 1, GivenBack: given > 0}, err
}

// ParseRelease reads what release answers.
func ParseRelease(m []rueidis.RedisMessage) (Vote, error) {
	var code, noted, left, reinstated, listeners int64
	if err := ReadInts(m, &code, &noted); err != nil {
		return Vote{}, err
	}
	v := Vote{Kind: Duplicate}
	var err error
	switch code {
	case 0:
		var before int64
		if v, err = parseNo(m[1:], nil); err == nil {
			err = ReadInts(m[5:], &before)
		}
		v.TooLate = before == 1
	case 1:
		err = ReadInts(m[2:], &left, &reinstated, &listeners)
		v = Vote{Kind: Yes, Holds: int(left), Reinstated: reinstated == 1, Listeners: int(listeners)}
	case 2:
		var since int64
		err = ReadInts(m[2:], &since)
		v.Since = since == 1
	case 3:
		if err = ReadInts(m[2:], &left); err == nil && len(m) > 3 {
			v.Holds = int(left)
			err = ReadText(m[3], &v.Hold)
		}
	case 4, 6:
		v.Kind, v.TooLate = VersionConflict, code == 6
	case 5:
		v.Kind = VersionConflict
		err = ReadText(m[2], &v.OtherRelease)
	}
	v.Noted = noted == 1
	return v, err
}

// ReadText reads a text.
func ReadText(m rueidis.RedisMessage, dst *string) (err error) {
	*dst, err = m.ToString()
	return err
}

var errNoRecord = errors.New("has no node record yet")

// ParseRepair reads what register and restore answer, {1, largest fence, max-ttl} or {0}.
func ParseRepair(m []rueidis.RedisMessage) (Vote, error) {
	var code int64
	v := Vote{Kind: Yes}
	if err := ReadInts(m, &code); err != nil || code == 0 {
		return Vote{Kind: No}, err
	}
	if err := ReadInts(m, &code, &v.Fence, &v.maxTTL); err != nil {
		return v, err
	}
	return v, CheckFence(v.Fence)
}

// ParseState reads what state answers.
func ParseState(m []rueidis.RedisMessage) (Vote, error) {
	v, err := ParseRepair(m)
	if err == nil {
		v.set, err = parseSet(m[min(3, len(m)):])
	}
	if err == nil && len(m) > 9 {
		err = cmp.Or(ReadInts(m[8:], &v.doubt), ReadText(m[9], &v.Gen))
	}
	var why string
	if err == nil && len(m) > 10 {
		err = ReadText(m[10], &why)
		v.refuses = refusalReason(why)
	}
	return v, err
}

// Agree reports whether a quorum voted yes.
func (s *Set) Agree(votes []Vote) bool { return CountKind(votes, Yes) >= s.Quorum }

// CountKind counts the votes of a kind.
func CountKind(votes []Vote, b ReplyKind) (n int) {
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
