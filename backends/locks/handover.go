package locks

import (
	"context"
	"errors"
)

// An offer is an acquisition that an UNLOCK made for the head of the line: every node was given it
// right behind the release, so that one round trip does both.
type offer struct {
	a     *acquisition
	round *round
}

// askInLine is acquireDecided, or the rest of the acquisition that was offered.
func (s *Service) askInLine(ctx context.Context, w *waiter, r LockRequest) (Decision, error) {
	if !s.waiting.Ask(w) {
		return s.acquireDecided(ctx, r)
	}
	a, err := s.awaitAcquire(ctx, w.Value.offer.a, w.Value.offer.round)
	if errors.Is(err, errSplit) || errors.Is(err, errNeedsRepair) {
		return s.acquireDecided(ctx, r)
	}
	return a, err
}

// releaseAndHandOver asks all nodes to release a name's last holds, and right behind that for
// the name on behalf of the next waiter here.
func (s *Service) releaseAndHandOver(k Key, release func(how string) scriptCall, enough func([]vote) bool) *round {
	var acquire scriptCall
	offered, alone := s.waiting.HandOver(k, func(w *waitingLock) {
		a, j := s.newAcquisition(w.LockRequest)
		acquire = j
		acquire.round = newRound(len(s.nodes), askAcquire, s.now(), s.acquireDecides)
		w.offer = &offer{a: a, round: acquire.round}
	})
	if !offered {
		round := s.ask(askRelease, release("unlock"), enough)
		s.waiting.Wake(k)
		return round
	}
	s.counters.rounds.Add(1)
	how := "handed"
	if alone {
		how = "passed"
	}
	round := s.ask(askRelease, release(how), enough, acquire)
	s.waiting.Notify(k)
	return round
}

// noteListeners notes, by the votes on a release, whether other proxies were told of it.
func (s *Service) noteListeners(k Key, votes []vote) {
	for i := range votes {
		if votes[i].kind == yes && votes[i].holds == 0 {
			s.waiting.Listeners(k, func(node int) int { return votes[node].listeners })
			return
		}
	}
}
