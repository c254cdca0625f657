package quorum

import (
	"context"
	"sync"

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
	r.late.takeBy(to)
}

// lateVotes are votes that come after their round was closed. They wait until it is known what to do with them.
type lateVotes struct {
	mu    sync.Mutex
	take  func(int, vote.Vote) // nil: not known
	votes map[int]vote.Vote    // those that have come until then, by node
}

func (l *lateVotes) add(i int, v vote.Vote) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.take != nil {
		l.take(i, v)
		return
	}
	if l.votes == nil {
		l.votes = map[int]vote.Vote{}
	}
	l.votes[i] = v
}

// takeBy has take called with each, those that are still to come as well.
func (l *lateVotes) takeBy(take func(int, vote.Vote)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take = take
	for i, v := range l.votes {
		take(i, v)
	}
}
