package idiom

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// A Class is what a call is for, by what it does in every state.
type Class string

// The classes.
const (
	Acquire          Class = "ACQ"
	AcquireOrExtend  Class = "ACQ-OR-EXTEND"
	AcquireFixTTL    Class = "ACQ-FIX-TTL"
	ReleaseOwn       Class = "RELEASE"
	ExtendOwn        Class = "EXTEND"
	ReadOnly         Class = "READ"
	ReentrantAcquire Class = "REENTRANT-ACQ"
	ReentrantRelease Class = "REENTRANT-RELEASE"
	ReentrantExtend  Class = "HASH-EXTEND"
	ReaderAcquire    Class = "READ-ACQ"
	ReaderRelease    Class = "READ-RELEASE"
	ReaderExtend     Class = "READ-EXTEND"
	WriterAcquire    Class = "WRITE-ACQ"
	WriterRelease    Class = "WRITE-RELEASE"
	PermitAcquire    Class = "PERMIT-ACQ"
	PermitRelease    Class = "PERMIT-RELEASE"
	PermitExtend     Class = "PERMIT-EXTEND"
	ForceRelease     Class = "FORCE-RELEASE"
	ForceExtend      Class = "FORCE-EXTEND"
	Overwrite        Class = "OVERWRITE"
	Unclear          Class = "unclear"
)

// Acquires reports whether calls of the class are to take the lock.
func (c Class) Acquires() bool {
	switch c {
	case Acquire, AcquireOrExtend, AcquireFixTTL, ReentrantAcquire, ReaderAcquire, WriterAcquire, PermitAcquire, Overwrite:
		return true
	}
	return false
}

// Strictness is which classes a pattern allows.
type Strictness uint8

// Strict allows only calls that compare the value, Full also those that replace another's lock.
const (
	Strict Strictness = iota
	Usual
	Full
)

func (s Strictness) String() string { return [...]string{"strict", "usual", "full"}[s] }

// Allows reports whether calls of a class are run.
func (s Strictness) Allows(c Class) bool {
	switch c {
	case Unclear:
		return false
	case ForceRelease, ForceExtend, AcquireFixTTL:
		return s >= Usual
	case Overwrite:
		return s >= Full
	}
	return true
}

// A Row is what a call does in one state. Refused is why it cannot be run there, or nil.
type Row struct {
	Name    string // "absent", "mine", "mine without end", "other", "other without end", "mine twice", "mine, soon over"
	State   State
	Outcome Outcome
	Refused *Refusal
}

// Rows are what a call does in all states that it may meet.
type Rows []Row

// Why returns why the call cannot be run in some state; empty: it can be run in each, or the reason is a text of the
// script itself, which may hold values.
func (rows Rows) Why() string {
	for _, r := range rows {
		if r.Refused != nil && !r.Refused.Raised {
			return r.Refused.Why
		}
	}
	return ""
}

// Kind returns what the lock is in the states where somebody has it.
func (rows Rows) Kind() Kind { return rows[1].State.Kind }

// OnHash reports whether the states are those of a Hash, or of a ReadWrite.
func (rows Rows) OnHash() bool {
	return len(rows) > 1 && (rows[1].State.Kind == Hash || rows[1].State.Kind == ReadWrite)
}

// sampleLeft is what is left of the leases that a call is tried on.
const sampleLeft = 7 * time.Second

// sampleSoon is what is left of a lease that is about to end.
const sampleSoon = 50 * time.Millisecond

// sampleOther is the value of somebody else's lock that a call is tried on.
const sampleOther = "\x00another owner"

// Accept runs a call over all states it may meet, and names what it is for. A call that cannot be run in one of
// them is Unclear, and so is what no class describes; the rows say why.
func (c *Call) Accept(now time.Time) (Rows, Class) {
	rows, tokens := c.rows(String, "", now, nil), append(c.tokens(now), "no argument")
	switch op := rows[0].Outcome.Op; {
	case op.Kind == Sorted, op.Kind == ReadWrite, op.Kind == Permits:
		return c.accept(op.Kind, tokens, now)
	case op.Do == Enter:
		return c.accept(Hash, tokens, now)
	case rows.allWrongType():
		rows, class := c.accept(Hash, tokens, now)
		if rows.allWrongType() {
			return c.acceptSorted(tokens, now)
		}
		if class == ReadOnly {
			if shares, its := c.accept(ReadWrite, tokens, now); shares.change() || its == Unclear && c.asksForMode(now) {
				return shares, its
			}
		}
		return rows, class
	}
	rows, class := c.accept(String, tokens, now)
	if class != ReadOnly {
		return rows, class
	}
	for _, kind := range []Kind{Hash, Sorted} { // it may ask for the kind of the key, and do nothing to a string
		others, class := c.accept(kind, tokens, now)
		if others.change() || class == ReadOnly && others.differ() && !rows.differ() {
			return others, class
		}
	}
	return rows, class
}

// acceptSorted is accept for a lock in a sorted set, or else for a semaphore.
func (c *Call) acceptSorted(tokens []string, now time.Time) (Rows, Class) {
	rows, class := c.accept(Sorted, tokens, now)
	if class == Unclear {
		if permits, its := c.accept(Permits, tokens, now); its != Unclear && its != ReadOnly {
			return permits, its
		}
	}
	return rows, class
}

// change reports whether something is done in one of the states.
func (rows Rows) change() bool {
	return slices.ContainsFunc(rows, func(r Row) bool { return r.Outcome.Op.Do != Nothing })
}

// accept tries each of tokens as the lock's own value, and takes the first that makes a difference.
func (c *Call) accept(kind Kind, tokens []string, now time.Time) (Rows, Class) {
	if kind == ReadWrite || kind == Permits {
		return c.acceptShares(kind, tokens, now)
	}
	var first, best Rows
	for i, mine := range tokens {
		if slices.Contains(tokens[:i], mine) {
			continue
		}
		rows := c.rows(kind, mine, now, first)
		if first == nil {
			if first, best = rows, rows; rows.neverRun() {
				break
			}
		}
		if rows.differ() {
			best = rows
			if class := rows.class(); class != Unclear {
				return rows, class
			}
		}
	}
	return best, best.class()
}

// rows runs a call over all states of a kind. Those that are not "mine" are taken from before, if it is not nil.
func (c *Call) rows(kind Kind, mine string, now time.Time, before Rows) (rows Rows) {
	for i, s := range statesOf(kind, mine) {
		if before != nil && i != 1 && i != 2 {
			rows = append(rows, before[i])
			continue
		}
		row := Row{Name: s.name, State: s.State}
		var err error
		if row.Outcome, err = c.Run(s.State, now); err != nil {
			row.Refused = asRefusal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// A namedState is a state that a call is tried on.
type namedState struct {
	name string
	State
}

// statesOf are the states of a kind of lock that a call is tried on; mine is the value, field or token that may be the caller's.
func statesOf(kind Kind, mine string) []namedState {
	of := func(value string, count int, left time.Duration) State {
		return State{Kind: kind, Value: value, Count: count, Left: left}
	}
	switch kind {
	case ReadWrite:
		return shareStates(mine)
	case Permits:
		return permitStates(mine)
	case Hash:
		return []namedState{
			{"absent", State{}},
			{"mine", of(mine, 1, sampleLeft)},
			{"mine twice", of(mine, 2, sampleLeft)},
			{"other", of(sampleOther, 1, sampleLeft)},
		}
	case Sorted:
		return []namedState{
			{"absent", State{}},
			{"mine", of(mine, 0, sampleLeft)},
			{"mine, soon over", of(mine, 0, sampleSoon)},
			{"other", of(sampleOther, 0, sampleLeft)},
		}
	}
	return []namedState{
		{"absent", State{}},
		{"mine", of(mine, 0, sampleLeft)},
		{"mine without end", of(mine, 0, Forever)},
		{"other", of(sampleOther, 0, sampleLeft)},
		{"other without end", of(sampleOther, 0, Forever)},
	}
}

// allWrongType reports whether the call fails on every string: it may be for a hash.
func (rows Rows) allWrongType() bool {
	return !slices.ContainsFunc(rows[1:], func(r Row) bool {
		return !bytes.HasPrefix(r.Outcome.Reply, []byte("-WRONGTYPE")) && (r.Refused == nil || !r.Refused.wrongType())
	})
}

// neverRun reports whether the call is refused in a state that does not depend on the caller's value.
func (rows Rows) neverRun() bool {
	return rows[0].Refused != nil || slices.ContainsFunc(rows[3:], func(r Row) bool { return r.Refused != nil })
}

// differ reports whether the call treats the caller's lock and another's differently.
func (rows Rows) differ() bool {
	mine, other := rows[1], rows[3]
	return mine.Outcome.Op != other.Outcome.Op || !bytes.Equal(mine.Outcome.Reply, other.Outcome.Reply)
}

// class names what a call is for by what it does in each of statesOf.
func (rows Rows) class() Class {
	var does []Do
	for _, r := range rows {
		if r.Refused != nil {
			return Unclear
		}
		does = append(does, r.Outcome.Op.Do)
	}
	switch rows.Kind() {
	case Hash:
		return cmp.Or(hashClasses[[4]Do(does)], Unclear)
	case Sorted:
		return cmp.Or(sortedClasses[[4]Do(does)], Unclear)
	case ReadWrite:
		return rows.shareClass()
	case Permits:
		return rows.permitClass([5]Do(does))
	}
	return stringClass([5]Do(does))
}

// hashClasses are by what a call does to a hash that is absent, mine, mine twice, another's.
var hashClasses = map[[4]Do]Class{
	{Enter, Enter, Enter, Nothing}:       ReentrantAcquire,
	{Nothing, Release, Leave, Nothing}:   ReentrantRelease,
	{Nothing, Renew, Renew, Nothing}:     ReentrantExtend,
	{Nothing, Release, Release, Release}: ForceRelease,
	{Nothing, Release, Release, Nothing}: ReleaseOwn,
	{}:                                   ReadOnly,
}

// sortedClasses are by what a call does to a sorted set that is absent, mine, mine and soon over, another's.
var sortedClasses = map[[4]Do]Class{
	{Take, Nothing, Nothing, Nothing}:    Acquire,
	{Take, Renew, Renew, Nothing}:        AcquireOrExtend,
	{Nothing, Release, Release, Nothing}: ReleaseOwn,
	{Nothing, Release, Release, Release}: ForceRelease,
	{Nothing, Renew, Renew, Nothing}:     ExtendOwn,
	{Nothing, Renew, Renew, Renew}:       ForceExtend,
	{}:                                   ReadOnly,
}

func stringClass(does [5]Do) Class {
	absent, mine, mineEndless, other, otherEndless := does[0], does[1], does[2], does[3], does[4]
	renews := func(d Do) bool { return d == Renew || d == Replace }
	same := mine == mineEndless && other == otherEndless
	switch {
	case absent == Take && same && mine == Nothing && other == Nothing:
		return Acquire
	case absent == Take && same && renews(mine) && other == Nothing:
		return AcquireOrExtend
	case absent == Take && other == Nothing && otherEndless == Renew:
		return AcquireFixTTL
	case (absent == Take || absent == Nothing) && other == Replace && otherEndless == Replace:
		return Overwrite
	case absent != Nothing:
		return Unclear
	case same && mine == Release && other == Nothing:
		return ReleaseOwn
	case same && mine == Release && other == Release:
		return ForceRelease
	case other == Nothing && otherEndless == Nothing && (renews(mine) || renews(mineEndless)) && mine != Release && mineEndless != Release:
		return ExtendOwn
	case (other == Renew || otherEndless == Renew) && mine == other && mineEndless == otherEndless:
		return ForceExtend
	case does == [5]Do{}:
		return ReadOnly
	}
	return Unclear
}
