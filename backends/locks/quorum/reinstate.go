package quorum

import (
	"context"

	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// restoreKept has all locks that sessions keep renewed when a node votes again, until ctx ends, so that it gets them back, see reinstateInDoubt.
func (s *Store) restoreKept(ctx context.Context) {
	for {
		select {
		case <-s.set.Back():
			s.host.Keepalive.RecheckAll()
		case <-ctx.Done():
			return
		}
	}
}

// reinstateInDoubt reinstates a grant on nodes in doubt about the name, after a quorum of the others has renewed it: such a node may have
// forgotten that the grant was given back, and the others would know. A renewal that began before the node voted again proves nothing,
// since what ended the grant may have been decided meanwhile with what the node has forgotten.
// Source: integration/model/recover.
func (s *Store) reinstateInDoubt(r *leaseRenewal, votes []vote.Vote) {
	if tally.Noted(votes) || tally.GivenBack(votes) {
		return
	}
	to := func(i int, v vote.Vote) {
		if v.Code == vote.InDoubt && s.set.Members[i].VotedBefore(r.began, v.Gen) {
			s.set.Members[i].Push(*s.renewCall(r, "", v.Gen))
		}
	}
	for i := range votes {
		to(i, votes[i])
	}
	r.late.TakeBy(to)
}
