package vote

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/backends/locks"
)

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

// OfResult reads a reply's vote with p, or an abstention, which is the same for every script.
func OfResult(res rueidis.RedisResult, p Parse) Vote {
	reply, err := res.ToMessage()
	if err != nil {
		return Vote{Err: err}
	}
	return Of(reply, p)
}

func Of(reply rueidis.RedisMessage, p Parse) Vote {
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
var abstentionValues = map[Abstention]int{NoRecord: 3, Quarantined: 4, Floorless: 3, OtherSet: 2, InDoubt: 2}

func parseAbstention(code Abstention, m []rueidis.RedisMessage) (Vote, error) {
	v := Vote{Code: code}
	least, known := abstentionValues[code]
	if !known || len(m) < least {
		return v, fmt.Errorf("%d values of refusal %d where %d were expected", len(m), code, least)
	}
	if err := ReadInts(m, &v.Wait); err != nil {
		return v, err
	}
	wait := ceilSeconds(v.Wait)
	switch code {
	case NoRecord:
		var older int64
		v.Err = ErrNoRecord
		err := cmp.Or(ReadText(m[1], &v.Replid), ReadInts(m[2:], &older))
		v.OlderFormat = older == 1
		return v, err
	case Quarantined:
		v.Err = fmt.Errorf("may have forgotten its locks: quarantine for %v at most", wait)
		return v, cmp.Or(ReadInts(m[1:], &v.MaxTTL), ReadText(m[2], &v.Gen), ReadInts(m[3:], &v.CopyIn), v.readRefusal(m[4:]))
	case InDoubt:
		v.Err = fmt.Errorf("forgot its locks, and abstains for this name for %v, or until it is unlocked", wait)
		err := ReadText(m[1], &v.Gen)
		if len(m) == 4 && err == nil {
			v.Doubts, err = m[3].AsStrMap()
			err = cmp.Or(err, ReadInts(m[2:], &v.Fence), checkFenceOrNone(v.Fence))
		}
		return v, err
	case Floorless:
		err := cmp.Or(ReadText(m[1], &v.Quarantine), ReadInts(m[2:], &v.MaxTTL), v.readRefusal(m[3:]))
		v.Err = fmt.Errorf("waits for its fence floor until a majority votes, for %v at most", ceilSeconds(max(0, FloorLimit(v.MaxTTL)-v.Wait)))
		return v, err
	}
	e := &OtherSetError{}
	v.Err, v.Set = e, &NodeSet{Epoch: v.Wait}
	return v, ReadText(m[1], &e.Theirs)
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

// Millis is a time that a script told, in ms.
func Millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// ceilSeconds is a time in ms for people, in whole seconds.
func ceilSeconds(n int64) time.Duration { return (Millis(n) + time.Second - 1).Truncate(time.Second) }

// floorPatience is how long a node waits behind its quarantine for a quorum that knows the fences. Then its clock has to do.
const floorPatience = time.Minute

// FloorLimit is that in ms, where leases last for up to maxTTL ms: no longer, since its own are over then.
func FloorLimit(maxTTL int64) int64 { return min(maxTTL, floorPatience.Milliseconds()) }

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
	v.Rest, v.Holds = Millis(rest), int(holds)
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
	v.Rest = Millis(rest)
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

// obstacles are by the words in which a node says what is in the way.
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
		v.Release.TooLate = before == 1
		for i := 6; i < len(m) && err == nil; i++ {
			v.Release.Strays = append(v.Release.Strays, "")
			err = ReadText(m[i], &v.Release.Strays[i-6])
		}
	case 1:
		err = ReadInts(m[2:], &left, &reinstated, &listeners)
		v = Vote{Kind: Yes, Holds: int(left), Reinstated: reinstated == 1, Release: Release{Listeners: int(listeners)}}
	case 2:
		var since int64
		err = ReadInts(m[2:], &since)
		v.Release.Since = since == 1
	case 3:
		if err = ReadInts(m[2:], &left); err == nil && len(m) > 3 {
			v.Holds = int(left)
			err = ReadText(m[3], &v.Release.Hold)
		}
	case 4, 6:
		v.Kind, v.Release.TooLate = VersionConflict, code == 6
	case 5:
		v.Kind = VersionConflict
		err = ReadText(m[2], &v.Release.Other)
	}
	v.Noted = noted == 1
	return v, err
}

// ReadText reads a text.
func ReadText(m rueidis.RedisMessage, dst *string) (err error) {
	*dst, err = m.ToString()
	return err
}

// ErrNoRecord is why a node without a node record does not vote.
var ErrNoRecord = errors.New("has no node record yet")

// ParseRepair reads what register and restore answer, {1, largest fence, max-ttl} or {0}.
func ParseRepair(m []rueidis.RedisMessage) (Vote, error) {
	var code int64
	v := Vote{Kind: Yes}
	if err := ReadInts(m, &code); err != nil || code == 0 {
		return Vote{Kind: No}, err
	}
	if err := ReadInts(m, &code, &v.Fence, &v.MaxTTL); err != nil {
		return v, err
	}
	return v, CheckFence(v.Fence)
}

// ParseState reads what state answers.
func ParseState(m []rueidis.RedisMessage) (Vote, error) {
	v, err := ParseRepair(m)
	if err == nil {
		v.Set, err = parseSet(m[min(3, len(m)):])
	}
	if err == nil && len(m) > 9 {
		err = cmp.Or(ReadInts(m[8:], &v.Doubt), ReadText(m[9], &v.Gen))
	}
	if err == nil {
		err = v.readRefusal(m[min(10, len(m)):])
	}
	return v, err
}

// readRefusal reads the error with which the node answers writes, if there is one.
func (v *Vote) readRefusal(m []rueidis.RedisMessage) error {
	if len(m) == 0 {
		return nil
	}
	var why string
	err := ReadText(m[0], &why)
	v.Refuses = Refusal(why)
	return err
}

// ParseAcquireAll reads what acquireall answers about so many names.
func ParseAcquireAll(names int) Parse {
	return func(m []rueidis.RedisMessage) (Vote, error) {
		if len(m) != names+1 {
			return Vote{}, fmt.Errorf("%d replies where %d were expected", len(m)-1, names)
		}
		v := Vote{Kind: Yes, Names: make([]Vote, names)}
		for i := range v.Names {
			reply, err := m[i+1].ToArray()
			if err == nil {
				v.Names[i], err = ParseAcquire(reply)
			}
			if err != nil {
				return v, err
			}
			if kind := v.Names[i].Kind; v.Kind == Yes || v.Kind == Withheld {
				v.Kind = kind
			}
		}
		return v, nil
	}
}

// DeniesAccess reports whether a node refuses the user, the password or a command: it will until somebody sets that right.
func DeniesAccess(err error) bool {
	var r *locks.RefusalError
	return errors.As(err, &r) && slices.Contains([]string{"NOAUTH", "NOPERM", "WRONGPASS"}, r.Text)
}

// Refusal is the error code of a Redis error. Redis before 7 wraps an error inside a script in one of
// its own, with the code behind a dash; the script itself gets the line before it.
func Refusal(msg string) error {
	code, _, _ := strings.Cut(msg, " ")
	if i := strings.LastIndex(msg, ": -"); i >= 0 && (strings.HasPrefix(msg, "ERR ") || strings.HasPrefix(msg, "@")) {
		code, _, _ = strings.Cut(msg[i+3:], " ")
	}
	if code != "ERR" && code != "" && strings.ToUpper(code) == code {
		return &locks.RefusalError{Text: code}
	}
	if strings.Contains(msg, "The user executing the script can't ") { // Redis before 7.2
		return &locks.RefusalError{Text: "NOPERM"}
	}
	if strings.Contains(msg, " command called from ") { // behind it the script's SHA, and not the command
		return &locks.RefusalError{Text: "unknown command in a script"}
	}
	if head, _, ok := strings.Cut(msg, ", with args beginning with: "); ok {
		msg = strings.TrimPrefix(head, "ERR ")
	}
	return &locks.RefusalError{Text: msg[:min(len(msg), 120)]}
}
