package quorum

import (
	"sync"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// abandon ends the round of an acquisition, or of those that were asked for in one call, and undoes them on every node that has
// granted them, may have or still may. It returns the votes.
func (s *Store) abandon(round *voters.Round, all ...*acquisition) []vote.Vote {
	s.endInFlight(all)
	var once sync.Once
	return round.CloseEach(true, func(i int, v vote.Vote) {
		if mayHaveGranted(&v) {
			once.Do(func() { s.counters.undos.Add(1) })
			for _, a := range all {
				s.set.Members[i].Push(s.undoCall(a))
			}
		}
	})
}

// endInFlight notes that these are not under way any more.
func (s *Store) endInFlight(all []*acquisition) {
	for _, a := range all {
		s.inflight.End(a.holder, a.id)
	}
}

// mayHaveGranted reports whether a node has granted an acquisition, or may have.
func mayHaveGranted(v *vote.Vote) bool {
	return v.Kind == vote.Yes || v.Kind == vote.Silent && (v.Code == 0 || v.Code == vote.Damaged) && !v.Unsent
}

// undoAll undoes a hold everywhere.
func (s *Store) undoAll(a *acquisition) {
	s.counters.undos.Add(1)
	s.set.Push(s.undoCall(a))
}

// undoCall removes the hold of an acquisition.
func (s *Store) undoCall(a *acquisition) voters.ScriptCall {
	return s.releaseCall(holdRelease{holder: a.holder, lease: a.TTL, how: "undo", ids: []string{a.id}})
}

// Undo implements locks.Store. Unlike the undo of an acquisition, it takes back a grant that may have been renewed:
// with its fence it keeps a renewal under way from reinstating the hold.
func (s *Store) Undo(g locks.Grant) {
	s.counters.undos.Add(1)
	h := locks.Holder{Key: g.Key, Owner: g.Owner}
	s.dropHolds(h, g.Hold)
	s.set.Push(s.releaseCall(holdRelease{holder: h, grant: grant{fence: g.Fence}, lease: s.set.Opts.MaxTTL, how: "end", ids: []string{g.Hold}}))
	s.host.Lines.Wake(g.Whole())
}
