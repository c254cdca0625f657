package locks

import (
	"context"
	"errors"
	"time"
)

const (
	maxTurns = 8                     // releases in a row after which the name stays here, while others listen,
	turnTime = 50 * time.Millisecond // and for how long they may go on
	yieldFor = 5 * time.Millisecond  // then nobody here asks for this long, and
	yieldMax = 3 * time.Millisecond  // up to so much longer
)

// An offer is an acquisition that an unlock made for the asker: every node was given it
// right behind the release, so that one round trip does both.
type offer struct {
	a     *acquisition
	round *round
	heard bool // this proxy listens to the name on every node
}

// askInLine is lockOnce, or the rest of the acquisition that was offered.
func (s *Service) askInLine(ctx context.Context, w *waiter, r LockRequest) (Decision, error) {
	o := s.waiting.ask(w)
	if o == nil {
		return s.acquireDecided(ctx, r)
	}
	a, err := s.awaitAcquire(ctx, o.a, o.round)
	if errors.Is(err, errSplit) || errors.Is(err, errNeedsRepair) {
		return s.acquireDecided(ctx, r)
	}
	return a, err
}

// releaseAndHandOver asks all nodes to release a name's last holds, and right behind that for the name
// on behalf of who waits for it here.
func (s *Service) releaseAndHandOver(at Key, release func(how string) scriptCall, enough func([]vote) bool) *round {
	var acquire scriptCall
	o := s.waiting.handOver(at, func(r LockRequest) *offer {
		a, j := s.newAcquisition(r)
		acquire = j
		acquire.round = newRound(len(s.nodes), askAcquire, s.now(), s.acquireDecides)
		return &offer{a: a, round: acquire.round}
	})
	if o == nil {
		round := s.ask(askRelease, release("unlock"), enough)
		s.waiting.stir(at)
		return round
	}
	s.counters.rounds.Add(1)
	how := "handed"
	if o.heard {
		how = "passed"
	}
	round := s.ask(askRelease, release(how), enough, acquire)
	s.waiting.tell(at)
	return round
}

// handOver makes an offer to the asker of a name that is about to be released, if that
// sleeps. It makes none when it is the turn of those who wait at other proxies.
func (ws *waiting) handOver(at Key, offering func(LockRequest) *offer) *offer {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if e := ws.earOf(at); e != nil && e.yields(ws.now(), &ws.chance) {
		return nil
	}
	q := ws.queues[at]
	if q == nil || q.first().asking {
		return nil
	}
	w := q.first()
	w.asking = true
	q.forgetNews()
	w.offer = offering(w.request)
	w.offer.heard = q.ear != nil && countTrue(q.ear.on) == ws.nodes
	return w.offer
}

// yields counts the releases, and reports whether the name should go to another proxy now:
// then nobody here asks for it for a while.
func (e *ear) yields(now time.Duration, c *randSource) bool {
	if e.turns == 0 {
		e.turnsSince = now
	}
	if e.turns++; !e.crowded || (e.turns <= maxTurns && now-e.turnsSince < turnTime) {
		return false
	}
	e.turns, e.quiet = 0, now+yieldFor+c.upTo(yieldMax)
	return true
}

// heardBy notes, by the votes on a release, whether anybody but this proxy was told of it.
func (ws *waiting) heardBy(at Key, votes []vote) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	e := ws.earOf(at)
	if e == nil {
		return
	}
	said, others := false, false
	for i := range votes {
		v := &votes[i]
		own := 0
		if e.on[i] {
			own = 1
		}
		said = said || (v.kind == yes && v.holds == 0)
		others = others || v.listeners > own
	}
	if said {
		e.crowded = others
	}
}
