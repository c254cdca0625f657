package locks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"
)

// A replyKind is what one node answered in one round.
type replyKind uint8

const (
	silent          replyKind = iota // nothing yet, an error, or no entitlement to vote: neither yes nor no
	yes                              // done as asked
	duplicate                        // release: this very grant was released before, or this very UNLOCK done
	no                               // not done: free, another owner's, or another grant
	versionConflict                  // renew: another version of the lease is here; release: this UNLOCK gave back another hold, or another UNLOCK this one
	missingHold                      // renew: the holds were given back here
	alreadyReleased                  // acquire: this request was granted and given back before
	tooMany                          // acquire: the owner has as many holds as it may
)

// A vote is one node's reply. Each field is set for the kinds, or the questions, that its comment names.
type vote struct {
	kind         replyKind
	owner        string        // no, read: who has the name; empty when it is free
	rest         time.Duration // yes, no, read: what is left of the lease, when the script ran
	fence        int64         // yes: granted or proposed; alreadyReleased: granted then; no: the holder's, or the name's largest; state: the node's largest
	reentered    int64         // acquire: 0, or the fence of the grant that the owner had, or reinstatedFence
	holds        int           // acquire: the owner's holds, this one included; release: the holds left
	noted        bool          // release, renew: some renewal may have shortened the lease
	reinstated   bool          // renew, release: the grant is, or was, here because a renewal had reinstated it
	givenBack    bool          // renew: some of the holds were given back here
	otherRelease string        // release: the id of another one that gave the hold back here; else empty
	listeners    int           // release: subscribers that were told of it
	hold         string        // release: the one that this UNLOCK has given back before, if it has

	// Of acquire, read and list.
	version version // acquire, read, versionConflict: of the lease
	grant   string  // acquire, read: the hold whose LOCK numbered the grant, as far as this node knows
	read    *reading
	page    *page

	// Of probes.
	refuses error // state: what a write is answered, if not that it is done

	// Of nodes that did not vote.
	err         error      // silent: why; nil while nothing came
	code        abstention // silent: what the node lacks to vote
	wait        int64      // silent: the number that comes with code, ms
	replid      string     // unregistered: of the node's replication
	quarantine  string     // floorless: the name of the one that is over
	maxTTL      int64      // state, quarantined, floorless: how long leases may be that run there, ms
	set         *nodeSet   // state: that the node is in; otherSet: its epoch
	olderFormat bool       // unregistered: it has a record of an older format
	unsent      bool       // silent: the node was never asked, so there is nothing to undo
}

// reinstatedFence stands for the fence of a grant that is here because of a renewal: the node cannot vouch for
// it.
const reinstatedFence = -1

// An abstention is why a node that answered may not vote.
type abstention int8

const (
	unregistered abstention = -1 // no node record
	quarantined  abstention = -2 // it may have forgotten leases that still run
	floorless    abstention = -3 // it may have forgotten fences
	otherSet     abstention = -4 // it is in another set of lock nodes
	damaged      abstention = 1  // not the node's answer: it did what it was asked, and its answer holds a number that is no fence
)

// A version orders the renewals of one lease. Sequences compare within an epoch.
type version struct {
	epoch    string
	sequence int64
}

// expected is the form in which a renewal names the version that it replaces.
func (v version) expected() string { return fmt.Sprintf("%s:%d", v.epoch, v.sequence) }

// A reading is what only the question read is answered.
type reading struct {
	lastOwner  string // of the last release, or empty
	lastFence  int64
	since      bool // that owner had a grant since
	info       string
	age        time.Duration // since the grant
	reinstated bool          // by a renewal: this node did not grant it
	holds      []nodeHold    // the most recent first, also those that have ended
	unlock     unlocked      // the UNLOCK whose request id the read named
}

// A nodeHold is one hold on one node.
type nodeHold struct {
	id   string
	age  time.Duration // since it was taken
	rest time.Duration // until it ends; 0: it has
}

// An unlocked is what a node knows of an UNLOCK with a request id; zero if nothing.
type unlocked struct {
	left  int    // holds
	fence int64  // of the grant
	hold  string // that was given back
}

// live are the ids of the holds that have not ended.
func (r *reading) live() (ids []string) {
	for _, h := range r.holds {
		if h.rest > 0 {
			ids = append(ids, h.id)
		}
	}
	return ids
}

// has reports whether the node has this hold, ended or not.
func (r *reading) has(id string) bool {
	return slices.ContainsFunc(r.holds, func(h nodeHold) bool { return h.id == id })
}

// A parse reads a reply's vote. Each script has its own, see the header of its file.
type parse func(m []rueidis.RedisMessage) (vote, error)

func readInts(m []rueidis.RedisMessage, dst ...*int64) error {
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

// readVote reads a reply's vote with p, or an abstention, which is the same for every script.
func readVote(res rueidis.RedisResult, p parse) vote {
	reply, err := res.ToMessage()
	if err != nil {
		return vote{err: err}
	}
	m := []rueidis.RedisMessage{reply}
	if !reply.IsInt64() {
		if m, err = reply.ToArray(); err != nil {
			return vote{err: err}
		}
	}
	var code int64
	if err := readInts(m, &code); err != nil {
		return vote{err: fmt.Errorf("not a reply of this script: %w", err)}
	}
	var v vote
	if code < 0 {
		v, err = parseAbstention(abstention(code), m[1:])
	} else {
		v, err = p(m)
	}
	if bad := (*fenceError)(nil); errors.As(err, &bad) {
		return vote{code: damaged, err: err}
	}
	if err != nil {
		return vote{err: fmt.Errorf("not a reply of this script: %w", err)}
	}
	return v
}

func parseAbstention(code abstention, m []rueidis.RedisMessage) (vote, error) {
	v := vote{code: code}
	if err := readInts(m, &v.wait); err != nil {
		return v, err
	}
	wait := millis(v.wait)
	switch code {
	case unregistered:
		if len(m) < 3 {
			return v, errors.New("no replication id")
		}
		var older int64
		v.err = errNoRecord
		err := firstError(readText(m[1], &v.replid), readInts(m[2:], &older))
		v.olderFormat = older == 1
		return v, err
	case quarantined:
		v.err = fmt.Errorf("quarantine for %v", wait)
		return v, readInts(m[1:], &v.maxTTL)
	case floorless:
		v.err = fmt.Errorf("waits for its fence floor since %v", wait)
		if len(m) < 3 {
			return v, errors.New("no name of the quarantine")
		}
		return v, firstError(readText(m[1], &v.quarantine), readInts(m[2:], &v.maxTTL))
	case otherSet:
		e := &otherSetError{}
		v.err, v.set = e, &nodeSet{epoch: v.wait}
		if len(m) < 2 {
			return v, errors.New("no list")
		}
		return v, readText(m[1], &e.theirs)
	}
	return v, fmt.Errorf("unknown refusal %d", code)
}

// A fenceError is an answer with a number that cannot be a fence. If it were counted as one, all nodes would
// take it over, and could not count any further.
type fenceError struct{ fence int64 }

func (e *fenceError) Error() string {
	return fmt.Sprintf("its fence counter is damaged (%d is not within 1 and 2^53); empty that node with FLUSHALL, and it comes back as one that forgot", e.fence)
}

// checkFence refuses what cannot be a fence. Numbers from 2^53 are not exact in a script.
func checkFence(n int64) error {
	if n <= 0 || n >= 1<<53 {
		return &fenceError{n}
	}
	return nil
}

// checkFenceOrNone is checkFence where 0 stands for none.
func checkFenceOrNone(n int64) error {
	if n == 0 {
		return nil
	}
	return checkFence(n)
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func parseAcquire(m []rueidis.RedisMessage) (vote, error) {
	var code, rest, holds int64
	v := vote{kind: yes}
	if err := readInts(m, &code); err != nil || code == 0 {
		return parseNo(m, err)
	}
	if code == 2 {
		v.kind = alreadyReleased
		if err := readInts(m, &code, &v.fence); err != nil {
			return v, err
		}
		return v, checkFence(v.fence)
	}
	if code == 3 {
		v.kind = tooMany
		return v, nil
	}
	if err := readInts(m, &code, &v.fence, &v.reentered, &rest, &holds); err != nil {
		return v, err
	}
	if len(m) < 8 {
		return v, fmt.Errorf("%d values where 8 were expected", len(m))
	}
	if err := checkFence(v.fence); err != nil {
		return v, err
	}
	if v.reentered != reinstatedFence {
		if err := checkFenceOrNone(v.reentered); err != nil {
			return v, err
		}
	}
	v.rest, v.holds = millis(rest), int(holds)
	return v, firstError(parseVersion(m[5:], &v.version), readText(m[7], &v.grant))
}

func parseVersion(m []rueidis.RedisMessage, dst *version) (err error) {
	if len(m) < 2 {
		return errors.New("no version")
	}
	if dst.epoch, err = m[0].ToString(); err != nil {
		return err
	}
	dst.sequence, err = m[1].AsInt64()
	return err
}

// parseNo reads {0, owner, ms left, fence}.
func parseNo(m []rueidis.RedisMessage, err error) (vote, error) {
	v := vote{kind: no}
	if err != nil || len(m) == 1 {
		return v, err
	}
	if v.owner, err = m[1].ToString(); err != nil {
		return v, err
	}
	var rest int64
	if err = readInts(m[2:], &rest, &v.fence); err == nil {
		err = checkFenceOrNone(v.fence)
	}
	v.rest = millis(rest)
	return v, err
}

// parseDone reads the scripts that answer {1} or {0}.
func parseDone(m []rueidis.RedisMessage) (vote, error) {
	var code int64
	if err := readInts(m, &code); err != nil || code == 0 {
		return vote{kind: no}, err
	}
	return vote{kind: yes}, nil
}

func parseRenew(m []rueidis.RedisMessage) (vote, error) {
	var code int64
	err := readInts(m, &code)
	switch {
	case err != nil || code == 0:
		return parseNo(m, err)
	case code == 3:
		v := vote{kind: versionConflict}
		return v, parseVersion(m[1:], &v.version)
	case code == 4:
		return vote{kind: missingHold}, nil
	}
	var noted, told, given int64
	err = readInts(m[1:], &noted, &told, &given)
	return vote{kind: yes, noted: noted == 1, reinstated: told == 1, givenBack: given > 0}, err
}

func parseRelease(m []rueidis.RedisMessage) (vote, error) {
	var code, noted, left, told, listeners int64
	if err := readInts(m, &code, &noted); err != nil {
		return vote{}, err
	}
	v := vote{kind: duplicate}
	var err error
	switch code {
	case 0:
		v, err = parseNo(m[1:], nil)
	case 1:
		err = readInts(m[2:], &left, &told, &listeners)
		v = vote{kind: yes, holds: int(left), reinstated: told == 1, listeners: int(listeners)}
	case 3:
		if err = readInts(m[2:], &left); err == nil && len(m) > 3 {
			v.holds = int(left)
			err = readText(m[3], &v.hold)
		}
	case 4:
		v.kind = versionConflict
	case 5:
		v.kind = versionConflict
		err = readText(m[2], &v.otherRelease)
	}
	v.noted = noted == 1
	return v, err
}

func parseRead(m []rueidis.RedisMessage) (vote, error) {
	v := vote{kind: yes, read: &reading{}}
	if len(m) < 14 {
		return v, fmt.Errorf("%d values where 14 were expected", len(m))
	}
	var rest, age, told, since int64
	err := firstError(
		readText(m[1], &v.owner), readInts(m[2:], &rest, &v.fence), parseVersion(m[4:], &v.version),
		readText(m[6], &v.read.lastOwner), readInts(m[7:], &v.read.lastFence), readText(m[8], &v.read.info), readInts(m[9:], &age, &told, &since), parseUnlocked(m[12], &v.read.unlock), readText(m[13], &v.grant))
	if err != nil {
		return v, err
	}
	if err = firstError(checkFenceOrNone(v.fence), checkFenceOrNone(v.read.lastFence), checkFenceOrNone(v.read.unlock.fence)); err != nil {
		return v, err
	}
	v.rest, v.read.age, v.read.reinstated = millis(rest), millis(age), told == 1
	v.read.since = since == 1
	err = parseHolds(m[14:], v.read)
	return v, err
}

// parseUnlocked reads "left fence hold", or nothing.
func parseUnlocked(m rueidis.RedisMessage, dst *unlocked) error {
	s, err := m.ToString()
	if err != nil || s == "" {
		return err
	}
	_, err = fmt.Sscanf(s, "%d %d %s", &dst.left, &dst.fence, &dst.hold)
	return err
}

func readText(m rueidis.RedisMessage, dst *string) (err error) {
	*dst, err = m.ToString()
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

var errNoRecord = errors.New("has no node record yet")

// parseRecord reads how many fields a node record has.
func parseRecord(m []rueidis.RedisMessage) (vote, error) {
	var fields int64
	if err := readInts(m, &fields); err != nil || fields > 0 {
		return vote{kind: yes}, err
	}
	return vote{code: unregistered, err: errNoRecord}, nil
}

// parseRepair reads what register and restore answer, {1, largest fence, max-ttl} or {0}.
func parseRepair(m []rueidis.RedisMessage) (vote, error) {
	var code int64
	v := vote{kind: yes}
	if err := readInts(m, &code); err != nil || code == 0 {
		return vote{kind: no}, err
	}
	if err := readInts(m, &code, &v.fence, &v.maxTTL); err != nil {
		return v, err
	}
	return v, checkFence(v.fence)
}

// parseState reads what state answers.
func parseState(m []rueidis.RedisMessage) (vote, error) {
	v, err := parseRepair(m)
	if err == nil {
		v.set, err = parseSet(m[min(3, len(m)):])
	}
	var why string
	if err == nil && len(m) > 8 {
		err = readText(m[8], &why)
		v.refuses = refusalReason(why)
	}
	return v, err
}

// parseHolds reads holds, their ages and what is left of them, the youngest first.
func parseHolds(m []rueidis.RedisMessage, dst *reading) error {
	for ; len(m) >= 3; m = m[3:] {
		var h nodeHold
		var age, rest int64
		if err := firstError(readText(m[0], &h.id), readInts(m[1:], &age, &rest)); err != nil {
			return err
		}
		h.age, h.rest = millis(age), millis(rest)
		dst.holds = append(dst.holds, h)
	}
	slices.SortFunc(dst.holds, func(a, b nodeHold) int { return cmp.Or(cmp.Compare(a.age, b.age), cmp.Compare(a.id, b.id)) })
	return nil
}
