package quorum

import (
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
)

// carry reinstates a grant on nodes in doubt about the name, after a quorum of the others has renewed it: such a node may have forgotten
// that the grant was given back, and the others would know. A renewal that began before the node voted again proves nothing, since
// what ended the grant may have been decided meanwhile with what the node has forgotten. Source: integration/model/recover.
func (s *Store) carry(h locks.Holder, ttl time.Duration, g grant, how leaseChange, began time.Duration, votes []voters.Vote) {
	if tally.Noted(votes) || slices.ContainsFunc(votes, func(v voters.Vote) bool { return v.GivenBack }) {
		return
	}
	for i := range votes {
		if v := &votes[i]; v.Code == voters.InDoubt && s.set.Members[i].VotedBefore(began, v.Gen) {
			s.set.Members[i].Push(*s.renewCall(h, ttl, g, "", v.Gen, how, began))
		}
	}
}
