package quorum

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// acquireAll is acquire for an Attempt with Others: an acquisition of each name, which all nodes are asked for in one call. A node
// grants all of them or none, so each is decided by its own votes as if it were alone: see tally.AcquireAll.
func (s *Store) acquireAll(ctx context.Context, r locks.Attempt) (locks.Decision, error) {
	all, call, err := s.newAcquisitions(ctx, r)
	if err != nil {
		return locks.Decision{}, err
	}
	defer s.endInFlight(all)
	round := s.set.Ask(voters.AskAcquire, call, func(votes []vote.Vote) bool {
		return tally.AcquireAll(votes, len(all), s.set.Quorum, tally.Running).Verdict != tally.Open
	})
	if err := round.Wait(ctx, s.set.Opts.Timeouts(r.TTL)); err != nil {
		s.set.Ended(round, s.abandon(round, all...), vote.EndCanceled)
		return locks.Decision{}, err
	}
	return s.decideAll(ctx, all, round)
}

// newAcquisitions begins a try for each name: see newAcquisition. The call is for all of them.
func (s *Store) newAcquisitions(ctx context.Context, r locks.Attempt) (all []*acquisition, call voters.ScriptCall, err error) {
	names := r.Names()
	attempts, dropped, errs := make([]locks.Attempt, len(names)), make([]int64, len(names)), make([]error, len(names))
	for i, k := range names {
		attempts[i] = *r.For(k)
		attempts[i].Intent = r.Intent
	}
	if r.Fresh { // else there is nothing to ask before
		inParallel(len(names), func(i int) { dropped[i], errs[i] = s.prepareFresh(ctx, &attempts[i]) })
	}
	if err := cmp.Or(errs...); err != nil {
		return nil, call, err
	}
	var calls []voters.ScriptCall
	proposal := s.proposal() // the same for all, so that a node's largest fence rises once
	for i := range attempts {
		a, one := s.newAcquisition(attempts[i], dropped[i], seats.None, proposal)
		all, calls = append(all, a), append(calls, one)
	}
	since := ""
	if !r.Since.IsZero() { // that would be older than all
		since = strconv.FormatInt(r.Since.UnixMicro(), 10)
	}
	return all, voters.AcquireAll(calls, voters.MS(r.Intent), since), nil
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

// decideAll is the answer to a try by the votes that have come.
func (s *Store) decideAll(ctx context.Context, all []*acquisition, round *voters.Round) (locks.Decision, error) {
	var t tally.AllResult
	round.Look(func(votes []vote.Vote) { t = tally.AcquireAll(votes, len(all), s.set.Quorum, tally.Over) })
	if t.Verdict == tally.Granted {
		return s.grantAll(ctx, all, round, t.Names)
	}
	votes := s.abandon(round, all...)
	s.set.Ended(round, votes, t.Verdict.End())
	switch t.Verdict {
	case tally.Held:
		in := t.Names[t.InTheWay]
		return locks.Decision{Holder: in.Holder, Remaining: in.Rest, Fence: in.Fence, Why: in.Why, Of: all[t.InTheWay].Key}, nil
	case tally.Full:
		return locks.Decision{}, &locks.HoldsError{Max: locks.MaxHolds}
	case tally.Ended:
		return s.repeated(all, t.Names)
	case tally.Split:
		s.counters.splits.Add(1)
		return locks.Decision{}, errSplit
	}
	return locks.Decision{}, s.lockError(all[0].Name, votes)
}

// repeated is the answer to a request that was granted and given back before, as a quorum says of some of its names at least.
func (s *Store) repeated(all []*acquisition, names []tally.Result) (locks.Decision, error) {
	d := locks.Decision{Granted: true}
	for i, a := range all {
		if names[i].Verdict != tally.Ended {
			return locks.Decision{}, fmt.Errorf("%w: this request was granted before, and some of its names were given back since", locks.ErrLost)
		}
		d.Add(locks.Grant{Key: a.Key, Owner: a.Owner, Fence: names[i].Fence, Hold: a.id})
	}
	s.counters.repeats.Add(1)
	return d, nil
}

// grantAll is grant for all names: if one of them cannot be told to the client, none is.
func (s *Store) grantAll(ctx context.Context, all []*acquisition, round *voters.Round, names []tally.Result) (locks.Decision, error) {
	votes := round.Close(false, func(i int, v vote.Vote) {
		for k, a := range all {
			if !names[k].Reentered {
				s.complete(a, i, tally.OfName(&v, k), names[k].Fence)
			}
		}
	})
	grants, at := make([]locks.Grant, len(all)), make([]time.Duration, len(all))
	ends, errs := make([]vote.End, len(all)), make([]error, len(all))
	inParallel(len(all), func(k int) {
		its := make([]vote.Vote, len(votes))
		for i := range votes {
			its[i] = *tally.OfName(&votes[i], k)
		}
		grants[k], ends[k], errs[k] = s.conclude(ctx, all[k], its, names[k])
		at[k] = s.Now()
	})
	now := s.Now()
	for k := range grants { // the others have taken as long
		if grants[k].Validity -= now - at[k]; errs[k] == nil && grants[k].Validity <= 0 {
			ends[k], errs[k] = vote.EndLate, s.lateError(all[k], votes)
		}
	}
	if failed := slices.IndexFunc(errs, func(err error) bool { return err != nil }); failed >= 0 {
		s.set.Ended(round, votes, ends[failed])
		for _, g := range grants {
			if g.Hold != "" { // else conclude has undone it
				s.Undo(g)
			}
		}
		return locks.Decision{}, errs[failed]
	}
	s.set.Ended(round, votes, vote.EndGranted)
	d := locks.Decision{Granted: true}
	for _, g := range grants {
		d.Add(g)
	}
	return d, nil
}
