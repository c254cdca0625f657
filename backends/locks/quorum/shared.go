package quorum

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

// orReads is err, the answer to a RENEW or UNLOCK by the votes of a read. If it says that the owner has lost the name, but the
// owner reads it, that is said as well.
func (s *Store) orReads(ctx context.Context, h locks.Holder, votes []vote.Vote, err error) error {
	reads := func(v vote.Vote) bool { return v.Read != nil && v.Read.Readers > 0 }
	if h.Reader != "" || !errors.Is(err, locks.ErrLost) || !slices.ContainsFunc(votes, reads) {
		return err
	}
	its, failed := s.readStable(ctx, h.Reading())
	if _, _, _, who := tally.OwnerBy(its, s.set.Quorum); failed == nil && who == tally.HeldByOne {
		return locks.ErrOnlyReads
	}
	return err
}

// DropIntent implements locks.Store.
func (s *Store) DropIntent(h locks.Holder) {
	s.set.Push(voters.ScriptCall{
		Args: s.set.Command(scripts.DropIntent, s.set.RedisKeys(h.Whole()), h.Owner), Parse: vote.ParseDone,
		Expires: s.Now() + locks.MaxIntent,
	})
}

// readersOf are the owners that a quorum says read a name. doubt is not nil if there may be others: fewer nodes name them, and those
// that do not vote may as well.
func (s *Store) readersOf(ctx context.Context, k locks.Key) (all []locks.ReadBy, doubt, err error) {
	limits := s.set.Opts.Timeouts(s.set.Opts.MaxTTL)
	round := s.set.Ask(voters.AskRead, voters.ScriptCall{
		Args:  s.set.Command(scripts.Readers, s.set.RedisKeys(k), strconv.Itoa(locks.MaxReaders)),
		Parse: vote.ParseReaders, Expires: s.Now() + limits.Quorum,
	}, voters.WaitForAll)
	err = round.Wait(ctx, limits)
	votes := s.set.CloseAnswered(round, true, err)
	if err != nil {
		return nil, nil, err
	}
	if !s.set.Agree(votes) {
		return nil, nil, s.set.QuorumError("LOCKCTL", k.Name, votes)
	}
	rests, whole := map[string][]time.Duration{}, true
	for _, v := range votes {
		whole = whole && len(v.ReadBy) < locks.MaxReaders // else those that it leaves out may be named by others
		for owner, rest := range v.ReadBy {
			rests[owner] = append(rests[owner], rest)
		}
	}
	silent := len(votes) - vote.CountKind(votes, vote.Yes)
	for owner, each := range rests {
		switch {
		case len(each) >= s.set.Quorum:
			slices.Sort(each)
			all = append(all, locks.ReadBy{Owner: owner, Remaining: each[len(each)-s.set.Quorum]})
		case whole && len(each)+silent >= s.set.Quorum:
			doubt = s.set.QuorumError("LOCKCTL", k.Name, votes)
		}
	}
	slices.SortFunc(all, func(a, b locks.ReadBy) int {
		return cmp.Or(cmp.Compare(b.Remaining, a.Remaining), cmp.Compare(a.Owner, b.Owner))
	})
	return all, doubt, nil
}
