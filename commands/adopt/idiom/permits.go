package idiom

import (
	"fmt"
	"slices"
	"sort"
	"time"
)

// A semaphore in a sorted set has a member for each owner of a permit. Its score is when the permit was taken or extended, by the
// clock of its client, and the key ends with the lease of the last one. A script brings the limit, and compares it with the number of
// members. What has ended is removed by the times of clients; here the nodes say what has, so the scores are not known.

// sampleMember names owners of permits of whom only the number is known.
const sampleMember = "\x00another owner "

// sampleLimit is a number of permits that no semaphore reaches.
const sampleLimit = 1000

var errPermitTimes = refusef("the times of those who have permits of a semaphore: they are not known")

// sorted reports whether the key is a sorted set.
func (k Kind) sorted() bool { return k == Sorted || k == Permits }

// permitsOf are the members of Permits.
func permitsOf(s State) (all []member) {
	if s.Value != "" {
		all = append(all, member{name: s.Value, before: true})
	}
	for i := range s.Owners {
		all = append(all, member{name: fmt.Sprint(sampleMember, i), before: true})
	}
	return all
}

// isPermit reports whether the run has made a sorted set of one owner, where there was nothing.
func (w *world) isPermit() bool {
	return w.was.Kind == Absent && w.is.Kind == Sorted && len(w.members) == 1 && w.members[0].name != writer
}

// opPermits is op for a key that was a semaphore, or has become one.
func (w *world) opPermits() (Op, error) {
	is, before := &w.is, membersOf(w.was, w.now)
	added := slices.DeleteFunc(slices.Clone(w.members), func(m member) bool { return m.before })
	removed := slices.DeleteFunc(slices.Clone(before), func(m member) bool {
		return slices.ContainsFunc(w.members, func(o member) bool { return o.name == m.name })
	})
	op := Op{Kind: Permits}
	switch {
	case w.scoreRead:
		return Op{}, errPermitTimes
	case is.Kind == Absent && len(w.members) > 0:
		op.Do = Release
	case is.Kind != Absent && !is.Kind.sorted():
		return Op{}, refusef("another lock in place of a semaphore")
	case len(added)+len(removed) > 1:
		return Op{}, refusef("several permits of a semaphore at once")
	case len(removed) == 1:
		op.Do, op.Value = Release, removed[0].name
	case len(added) == 1 && (!w.timed || is.Left == Forever):
		return Op{}, refusef("a permit without an end")
	case len(added) == 1 && int64(added[0].score)-w.now.UnixMilli() == is.Left.Milliseconds():
		return Op{}, errReadLock // its score is its end
	case len(added) == 1:
		op.Do, op.Value, op.TTL = Take, added[0].name, is.Left
		if slices.ContainsFunc(before, func(m member) bool { return m.name == op.Value }) {
			op.Do = Renew
		}
	case w.timed:
		return Op{}, refusef("another end for whoever has a permit of a semaphore")
	default:
		return Op{}, nil
	}
	return op, nil
}

// permitStates are the states of a semaphore that a call is tried on; mine may be the caller's member.
func permitStates(mine string) []namedState {
	of := func(mine string, others int) State {
		return State{Kind: Permits, Value: mine, Owners: others, Left: sampleLeft}
	}
	return []namedState{
		{"absent", State{}},
		{"mine", of(mine, 0)},
		{"mine and another", of(mine, 1)},
		{"another", of("", 1)},
		{"others have all", of("", sampleLimit)},
	}
}

// permitClass names the class of a call by what it does in each of permitStates. Whether an owner that asks again gets a new end for
// its permit depends on the limit.
func (rows Rows) permitClass(does [5]Do) Class {
	mine := rows[1].State.Value
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Outcome.Op.Value != "" && r.Outcome.Op.Value != mine }) {
		return Unclear
	}
	own := rows[1].Outcome.Op.Value == mine
	upTo := func(d, most Do) bool { return d == Nothing || d == most }
	switch {
	case does == [5]Do{}:
		return ReadOnly
	case does[0] == Take && upTo(does[1], Renew) && upTo(does[2], Renew) && upTo(does[3], Take) && does[4] == Nothing:
		return PermitAcquire
	case own && does == [5]Do{Nothing, Renew, Renew, Nothing, Nothing}:
		return PermitExtend
	case own && does == [5]Do{Nothing, Release, Release, Nothing, Nothing}:
		return PermitRelease
	case does == [5]Do{Nothing, Release, Release, Release, Release}:
		return ForceRelease
	}
	return Unclear
}

// Permit returns the owner for whom a call takes, extends or gives back a permit of a semaphore, and the limit if it takes one. An
// empty owner: it does nothing of that. The limit is the least number of owners beside whom the call takes nothing; a call without
// one, or with one over most, is refused.
func (c *Call) Permit(now time.Time, most int) (owner string, limit int, refused *Refusal) {
	do := func(mine string, others int) (op Op) {
		s := State{Kind: Permits, Value: mine, Owners: others, Left: sampleLeft}
		if mine == "" && others == 0 {
			s = State{}
		}
		out, err := c.Run(s, now)
		if err != nil {
			refused = asRefusal(err)
		}
		return out.Op
	}
	if op := do("", 0); op.Do == Take && op.Kind == Permits {
		high := 1
		for high <= most && do("", high).Do == Take {
			high *= 2
		}
		low := high / 2
		limit = low + sort.Search(min(high, most+1)-low, func(n int) bool { return do("", low+n).Do != Take })
		if limit > most && refused == nil {
			refused = refusef("a semaphore of more than %d, or without a limit", most)
		}
		return op.Value, limit, refused
	}
	for _, mine := range c.tokens(now) {
		switch op := do(mine, 1); {
		case mine == "" || mine == owner || op.Value != mine:
		case owner != "":
			return "", 0, refusef("several permits of a semaphore at once")
		default:
			owner = mine
		}
	}
	return owner, 0, nil
}
