package quorum

import (
	"context"
	"errors"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// An offer is an acquisition that an UNLOCK made for the head of the line: every node was given it
// with the release, so that one script call does both.
type offer struct {
	store *Store
	a     *acquisition
	round *voters.Round
}

// Await implements locks.Offer.
func (o *offer) Await(ctx context.Context) (locks.Decision, error) {
	d, err := o.store.awaitAcquire(ctx, o.a, o.round)
	if next := (*undecidedError)(nil); errors.As(err, &next) {
		return o.store.Acquire(ctx, o.a.Attempt)
	}
	return d, err
}

// Withdraw implements locks.Offer.
func (o *offer) Withdraw() {
	o.store.set.Ended(o.round, o.store.abandon(o.round, o.a), vote.EndCanceled)
}

// releaseAndHandOver asks all nodes to release a name's last holds, and right behind that for
// the name on behalf of the next waiter here.
func (s *Store) releaseAndHandOver(r holdRelease, enough func([]vote.Vote) bool) *voters.Round {
	k := r.holder.Key
	var acquire voters.ScriptCall
	offered, alone := s.host.Lines.HandOver(k, func(w *locks.Waiting) bool {
		if w.Reader != "" || len(w.Others) > 0 { // its call has other keys, and there may be other readers behind it
			return false
		}
		var a *acquisition
		a, acquire = s.newAcquisition(w.Attempt, 0, seats.None, s.proposal())
		acquire.Round = s.set.Begin(voters.AskAcquire, s.acquireDecides)
		w.Offer = &offer{store: s, a: a, round: acquire.Round}
		return true
	})
	if !offered {
		return s.askRelease(r, s.unlockCall(r), enough)
	}
	r.how = "handed"
	if alone {
		r.how = "passed"
	}
	round := s.set.HandOver(s.unlockCall(r), acquire, enough)
	s.host.Lines.Notify(k)
	return round
}

// noteListeners notes, by the votes on a release, whether other proxies were told of it.
func (s *Store) noteListeners(k locks.Key, votes []vote.Vote) {
	for i := range votes {
		if votes[i].Kind == vote.Yes && votes[i].Holds == 0 {
			s.host.Lines.Listeners(k, func(node int) int { return votes[node].Release.Listeners })
			return
		}
	}
}
