package quorum

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// An acquisitionOfAll is one try to get several names: an acquisition of each, which all nodes are asked for in one call. A node
// grants all of them or none, so each is decided by its own votes as if it were alone: see tally.AcquireAll.
type acquisitionOfAll struct {
	locks.Attempt
	each []*acquisition
}

// acquireAll is acquire for an Attempt with Others.
func (s *Store) acquireAll(ctx context.Context, r locks.Attempt) (locks.Decision, error) {
	a, j, err := s.newAcquisitionOfAll(ctx, r)
	if err != nil {
		return locks.Decision{}, err
	}
	defer a.endIn(s)
	round := s.set.Ask(voters.AskAcquire, j, func(votes []voters.Vote) bool {
		return tally.AcquireAll(tally.ByName(votes, len(a.each)), s.set.Quorum, false).Verdict != tally.Open
	})
	if err := round.Wait(ctx, s.set.Opts.Timeouts(r.TTL)); err != nil {
		s.set.Ended(round, s.abandonAll(a, round), voters.EndCanceled)
		return locks.Decision{}, err
	}
	return s.decideAll(ctx, a, round)
}

// newAcquisitionOfAll begins a try: see newAcquisition.
func (s *Store) newAcquisitionOfAll(ctx context.Context, r locks.Attempt) (*acquisitionOfAll, voters.ScriptCall, error) {
	a := &acquisitionOfAll{Attempt: r}
	attempts := []locks.Attempt{r}
	for _, k := range r.Others {
		attempts = append(attempts, r)
		attempts[len(attempts)-1].Key = k
	}
	dropped, errs := make([]int64, len(attempts)), make([]error, len(attempts))
	inParallel(len(attempts), func(i int) {
		attempts[i].Others = nil
		dropped[i], errs[i] = s.prepare(ctx, &attempts[i])
	})
	if failed := firstError(errs); failed >= 0 {
		return nil, voters.ScriptCall{}, errs[failed]
	}
	var call voters.ScriptCall
	var keys []nodekeys.Keys
	var each [][]string
	proposal := s.proposal() // the same for all, so that a node's largest fence rises once
	for i := range attempts {
		one, j := s.newAcquisition(attempts[i], dropped[i], seats.None, proposal)
		if i == 0 {
			call = j
		}
		a.each, keys, each = append(a.each, one), append(keys, one.keys), append(each, j.Args)
	}
	since := ""
	if !r.Since.IsZero() { // that would be older than all
		since = strconv.FormatInt(r.Since.UnixMicro(), 10)
	}
	call.Args = s.set.AcquireAll(keys, each, voters.MS(r.KeepOut), since)
	call.Parse = voters.ParseAcquireAll(len(attempts))
	return a, call, nil
}

// inParallel calls do for 0 to n-1, and returns when all calls have.
func inParallel(n int, do func(int)) {
	var group sync.WaitGroup
	for i := 1; i < n; i++ {
		group.Go(func() { do(i) })
	}
	do(0)
	group.Wait()
}

// firstError is which of them is the first that is not nil; -1: none is.
func firstError(errs []error) int {
	return slices.IndexFunc(errs, func(err error) bool { return err != nil })
}

// endIn notes that nothing of the try is under way any more.
func (a *acquisitionOfAll) endIn(s *Store) {
	for _, one := range a.each {
		s.inflight.End(one.holder, one.id)
	}
}

// decideAll is the answer to a try by the votes that have come.
func (s *Store) decideAll(ctx context.Context, a *acquisitionOfAll, round *voters.Round) (locks.Decision, error) {
	var t tally.AllResult
	round.Look(func(votes []voters.Vote) { t = tally.AcquireAll(tally.ByName(votes, len(a.each)), s.set.Quorum, true) })
	if t.Verdict == tally.Granted {
		return s.grantAll(ctx, a, round, t.Names)
	}
	votes := s.abandonAll(a, round)
	switch t.Verdict {
	case tally.Held:
		s.set.Ended(round, votes, voters.EndHeld)
		in := t.Names[t.InTheWay]
		return locks.Decision{Holder: in.Holder, Remaining: in.Rest, Fence: in.Fence, Why: in.Why, Of: a.each[t.InTheWay].Key}, nil
	case tally.Full:
		s.set.Ended(round, votes, voters.EndHeld)
		return locks.Decision{}, &locks.HoldsError{Max: locks.MaxHolds}
	case tally.Ended:
		s.set.Ended(round, votes, voters.EndRepeat)
		return s.repeated(a, t.Names)
	case tally.Split:
		s.counters.splits.Add(1)
		s.set.Ended(round, votes, voters.EndSplit)
		return locks.Decision{}, errSplit
	}
	s.set.Ended(round, votes, voters.EndNoQuorum)
	return locks.Decision{}, s.lockError(a.Name, votes)
}

// repeated is the answer to a request that was granted and given back before, as a quorum says of some of its names at least.
func (s *Store) repeated(a *acquisitionOfAll, names []tally.Result) (locks.Decision, error) {
	d := locks.Decision{Granted: true}
	for i, one := range a.each {
		if names[i].Verdict != tally.Ended {
			return locks.Decision{}, fmt.Errorf("%w: this request was granted before, and some of its names were given back since", locks.ErrLost)
		}
		d.Add(locks.Grant{Key: one.Key, Owner: one.Owner, Fence: names[i].Fence, Hold: one.id})
	}
	s.counters.repeats.Add(1)
	return d, nil
}

// grantAll is grant for all names: if one of them cannot be told to the client, none is.
func (s *Store) grantAll(ctx context.Context, a *acquisitionOfAll, round *voters.Round, names []tally.Result) (locks.Decision, error) {
	votes := round.Close(false, func(i int, v voters.Vote) {
		byName := tally.ByName([]voters.Vote{v}, len(a.each))
		for k, one := range a.each {
			if !names[k].Reentered {
				s.complete(one, i, &byName[k][0], names[k].Fence)
			}
		}
	})
	byName := tally.ByName(votes, len(a.each))
	grants, at := make([]locks.Grant, len(a.each)), make([]time.Duration, len(a.each))
	ends, errs := make([]voters.End, len(a.each)), make([]error, len(a.each))
	conclude := func(k int) {
		grants[k], ends[k], errs[k] = s.conclude(ctx, a.each[k], byName[k], names[k])
		at[k] = s.Now()
	}
	inParallel(len(a.each), conclude)
	if failed := firstError(errs); failed >= 0 {
		s.set.Ended(round, votes, ends[failed])
		for k := range a.each {
			if errs[k] == nil {
				s.Undo(grants[k])
			}
		}
		return locks.Decision{}, errs[failed]
	}
	s.set.Ended(round, votes, voters.EndGranted)
	d, now := locks.Decision{Granted: true}, s.Now()
	for k, g := range grants {
		g.Validity -= now - at[k] // the others have taken this long
		d.Add(g)
	}
	return d, nil
}

// abandonAll is abandon for all names.
func (s *Store) abandonAll(a *acquisitionOfAll, round *voters.Round) []voters.Vote {
	a.endIn(s)
	var once sync.Once
	undo := func(i int, v voters.Vote) {
		if !mayHaveGranted(&v) {
			return
		}
		once.Do(func() { s.counters.undos.Add(1) })
		for _, one := range a.each {
			s.set.Members[i].Push(s.undoCall(one.keys, one.Owner, one.id))
		}
	}
	votes := round.Close(true, undo)
	for i, v := range votes {
		if !voters.Due(&v) {
			undo(i, v)
		}
	}
	return votes
}
