package quorum

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/seats"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

const (
	giveBackTries = 3                     // before a lease that another proxy took over is left to run out
	giveBackPause = 20 * time.Millisecond // between them, doubling
)

// A holdRelease removes holds of a grant on the nodes, whoever asked for it.
type holdRelease struct {
	holder  locks.Holder
	grant   grant         // its fence and its id
	lease   time.Duration // for how long it may still run at most: so long the nodes are told again
	how     string        // as in release.lua
	request string        // TAG in release.lua
	ids     []string      // of the holds
	left    []hold        // holds of the grant that stay
}

// releaseCall is the call of a release, which is retried until the lease has ended.
func (s *Store) releaseCall(r holdRelease) voters.ScriptCall {
	args := append([]string{r.holder.Owner, strconv.FormatInt(r.grant.fence, 10), r.how, r.request, r.grant.id, s.set.Opts.Random.ID(), voters.MS(r.lease), strconv.Itoa(len(r.ids))}, r.ids...)
	call := voters.ScriptCall{
		Args: s.set.Command(scripts.Release, s.set.RedisKeys(r.holder.Key), args...), Parse: vote.ParseRelease,
		Expires: s.Now() + max(r.lease, min(leastRetry, s.set.Opts.MaxTTL)), RetryUntilAcked: true,
	}
	if len(r.left) > 0 {
		call.RetryArgs = call.Args
		call.Args = s.appendHolds(slices.Clone(call.Args), r.left)
	}
	return call
}

// askRelease asks all nodes for a release, and wakes the waiters: what these ask the nodes for from now on runs behind it.
func (s *Store) askRelease(r holdRelease, call voters.ScriptCall, enough func([]vote.Vote) bool) *voters.Round {
	round := s.set.Ask(voters.AskRelease, call, enough)
	if len(r.left) == 0 {
		s.seats.Freed(r.holder.Key, seats.Of(r.grant.id))
	}
	s.host.Lines.Wake(r.holder.Whole())
	return round
}

// leaseOf is how long the lease of a grant may run at most, as far as this proxy knows: max-ttl if it knows none of the holds.
func (s *Store) leaseOf(g grant) time.Duration {
	if len(g.holds) == 0 {
		return s.set.Opts.MaxTTL
	}
	left := max(lastEnd(g.holds)-s.Now(), 0)
	return min(left+2*locks.Drift(left), s.set.Opts.MaxTTL)
}

// leastRetry is for how long a release is retried, if a lease may be as long. A node that stands still may run what it was sent
// before when it goes on.
const leastRetry = time.Minute

// popHolds takes the holds that an UNLOCK gives back out of the cache and out of the keepalive, see grantCache.pop.
func (s *Store) popHolds(u *unlockRequest) (g grant, ids []string, left []hold, ok bool) {
	s.host.Keepalive.Lock()
	defer s.host.Keepalive.Unlock()
	g, ids, left, ok = s.grants.pop(u.holder, &u.UnlockRequest, s.Now())
	if ok {
		s.host.Keepalive.DropLocked(u.holder, ids)
	}
	return g, ids, left, ok
}

// dropHolds takes holds out of the cache and out of the keepalive.
func (s *Store) dropHolds(h locks.Holder, ids ...string) {
	s.host.Keepalive.Lock()
	defer s.host.Keepalive.Unlock()
	s.host.Keepalive.DropLocked(h, ids)
	s.grants.drop(h, ids...)
}

// GiveBack implements locks.Store. Nodes that cannot be reached are told until no lease can run any more.
//
// The owner did not ask for it. Another proxy that has renewed the lease may know that its validity runs, so that
// an UNLOCK there succeeds even where nodes name a rival, taking the rival's grant for an unfinished try. So if
// another proxy took the lease over, or if it ends earlier without these holds, a quorum notes that first, as for
// Force. The take-over was stored by a quorum, whose nodes do not release the holds without the note: no rival
// can have been granted the name before it.
func (s *Store) GiveBack(h locks.Holder, fence int64, ids []string) {
	g := s.grants.lookup(h)
	if g.fence != fence {
		g = grant{fence: fence}
	}
	s.dropHolds(h, ids...)
	left := liveHolds(without(g.holds, ids), s.Now())
	if g.ownEpoch != "" && (len(left) == 0 || lastEnd(left) >= g.untilOf(ids)) {
		votes := s.releaseEnded(h, g, g.ownEpoch, ids, left)
		if !slices.ContainsFunc(votes, func(v vote.Vote) bool { return v.Kind == vote.VersionConflict }) {
			return
		}
	}
	for i := range giveBackTries {
		if i > 0 {
			_ = locks.Sleep(context.Background(), giveBackPause<<i)
		}
		noted, err := s.noteShortening(context.Background(), h, fence, s.set.Opts.Timeouts(s.set.Opts.MaxTTL))
		if err == nil && s.set.Agree(noted) {
			s.releaseEnded(h, g, "", ids, left)
			return
		}
	}
}

// releaseEnded releases holds on the nodes whose lease is of this epoch, or on all if it is empty. It returns
// the votes when a majority has answered.
func (s *Store) releaseEnded(h locks.Holder, g grant, epoch string, ids []string, left []hold) []vote.Vote {
	r := holdRelease{holder: h, grant: g, lease: s.leaseOf(g), how: "end", request: epoch, ids: ids, left: left}
	round := s.askRelease(r, s.releaseCall(r), func(v []vote.Vote) bool { return 2*(len(v)-vote.CountKind(v, vote.Silent)) > len(v) })
	_ = round.Wait(context.Background(), s.set.Opts.Timeouts(s.set.Opts.MaxTTL)) // so that not all of a session's locks queue up at the nodes
	return s.set.CloseAnswered(round, false, nil)
}
