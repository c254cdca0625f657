package quorum

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/nodekeys"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/locks/voters"
	"github.com/lockproxy/lockproxy/scripts"
)

// openMark begins the epochs of a lease without an end; the script open knows it too. No other id begins with it.
const openMark = "~"

func isOpen(v vote.Version) bool { return strings.HasPrefix(v.Epoch, openMark) }

// newEpoch is an id for a new epoch of a lease.
func (s *Store) newEpoch(open bool) string {
	if open {
		return openMark + s.set.Opts.Random.ID()
	}
	return s.set.Opts.Random.ID()
}

// An openness is whether a lease has an end, by the votes of a read.
type openness uint8

const (
	maybeOpen    openness = iota // no quorum agrees: a renewal that changes it is under way, or failed
	isWithoutEnd                 // a quorum has a version without an end
	isWithEnd                    // a quorum has a version with one
)

// openness is whether the owner's grant has an end.
func (s *Store) openness(votes []vote.Vote, owner string, fence int64) openness {
	count := func(open bool) (n int) {
		for i := range votes {
			if v := &votes[i]; v.Kind == vote.Yes && v.Owner == owner && v.Fence == fence && isOpen(v.Version) == open {
				n++
			}
		}
		return n
	}
	switch {
	case count(true) >= s.set.Quorum:
		return isWithoutEnd
	case count(false) >= s.set.Quorum:
		return isWithEnd
	}
	return maybeOpen
}

const (
	endlessPage    = 200 // keys that a node looks at in one step
	endlessWorkers = 16  // renewals at once
)

// An endlessOutcome is what one pass of RenewEndless did with one lock without an end.
type endlessOutcome uint8

const (
	leftAlone  endlessOutcome = iota // nothing: it is not due, or has an end now, or its owner has it no more
	renewedOwn                       // renewed it; this proxy had granted it
	renewedOther
	givenEnd
	missed
)

// RenewEndless implements locks.EndlessRenewer. The nodes that are scanned are a quorum, so at least one of them has each lease
// that a quorum has, and sees that little of it is left if a quorum does.
func (s *Store) RenewEndless(ctx context.Context, maxHold time.Duration) (f locks.EndlessRenewals, err error) {
	due, err := s.scanOpen(ctx, &f)
	var mu sync.Mutex
	var workers sync.WaitGroup
	slots := make(chan struct{}, endlessWorkers)
	for _, l := range due {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			did, left := s.renewEndlessOne(ctx, l, maxHold)
			mu.Lock()
			defer mu.Unlock()
			switch did {
			case renewedOwn:
				f.Renewed++
			case renewedOther:
				f.Adopted++
			case missed:
				f.Missed++
			case givenEnd:
				f.Lapsing = append(f.Lapsing, locks.Lapsing{Key: l.Key, Fence: l.Fence, Left: left})
			}
		})
	}
	workers.Wait()
	return f, err
}

// scanOpen scans a quorum of nodes for leases without an end of which a third is over. Leases of one owner under several
// fences are kept apart: only a quorum can decide which of them is the grant.
func (s *Store) scanOpen(ctx context.Context, f *locks.EndlessRenewals) (due []vote.OpenLease, err error) {
	type numbered struct {
		locks.Holder
		fence int64
	}
	at := map[numbered]int{}
	failed, looked := make([]vote.Vote, len(s.set.Members)), cursor{node: -1}
	for n := 0; n < s.set.Quorum; {
		i, ok := s.scannable(looked, failed)
		if !ok {
			return due, s.scanError(looked, failed)
		}
		leases, open, v, err := s.scanOpenOn(ctx, i)
		switch {
		case err != nil:
			return due, err
		case v.Kind != vote.Yes:
			failed[i] = v
			continue
		}
		f.Open = max(f.Open, open)
		for _, l := range leases {
			k := numbered{l.Holder, l.Fence}
			if j, seen := at[k]; seen {
				due[j].Rest = min(due[j].Rest, l.Rest)
				continue
			}
			at[k] = len(due)
			due = append(due, l)
		}
		looked.done |= 1 << i
		n++
	}
	return due, nil
}

// scanOpenOn scans one node. If v is not Yes, its Err says why.
func (s *Store) scanOpenOn(ctx context.Context, node int) (leases []vote.OpenLease, open int, v vote.Vote, err error) {
	pattern := nodekeys.Literal(nodekeys.Prefix(s.set.Opts.Prefix)) + "*"
	for next := "0"; ; next = v.Page.Next {
		if err := s.set.AcquireSlotToList(ctx); err != nil {
			return nil, 0, v, err
		}
		call := voters.ScriptCall{
			Args:  s.set.Command(scripts.Open, s.set.RedisKeys(locks.Key{}), next, pattern, strconv.Itoa(endlessPage), voters.MS(2*s.set.Opts.MaxTTL/3)),
			Parse: vote.ParseOpen(s.set.Opts.Prefix), Expires: s.Now() + listTimeout,
		}
		v, err = s.askOne(ctx, node, &call)
		s.set.ReleaseSlot()
		if err != nil || v.Kind != vote.Yes {
			return nil, 0, v, err
		}
		open += v.Page.Open
		leases = append(leases, v.Page.Due...)
		if v.Page.Next == "0" {
			return leases, open, v, nil
		}
	}
}

// renewEndlessOne renews a lease without an end, if it is due.
func (s *Store) renewEndlessOne(ctx context.Context, l vote.OpenLease, maxHold time.Duration) (did endlessOutcome, left time.Duration) {
	if s.set.AcquireSlot(ctx) != nil {
		return missed, 0
	}
	defer s.set.ReleaseSlot()
	maxTTL := s.set.Opts.MaxTTL
	did = renewedOther
	if _, here := s.grants.waited(l.Holder, l.Fence); here {
		did = renewedOwn
	}
	ids := s.grants.liveHolds(l.Holder, l.Fence, s.Now())
	g, own := s.grants.beginExtension(l.Holder, l.Fence, ids, s.Now())
	own = own && len(ids) > 0 && isOpen(g.version) && g.since != 0 && s.holdLeft(g, maxHold) > maxTTL
	if own {
		switch e, decided := s.extendKnown(ctx, l.Holder, locks.Term{TTL: maxTTL, End: s.Now() + maxTTL}, g); {
		case decided && e.Result == locks.Extended:
			return did, 0
		case decided:
			return missed, 0
		}
	}
	if l.Rest >= maxTTL/2 && !own {
		return leftAlone, 0
	}
	return s.renewEndlessAfterRead(ctx, l, did, maxHold)
}

// holdLeft is how long maxHold lets the grant be renewed from now. g.since, its beginning, comes from this proxy or from
// nodes that granted it: a node that lost the grant, and got it back from a renewal, does not know it.
func (s *Store) holdLeft(g grant, maxHold time.Duration) time.Duration {
	return maxHold - (s.Now() - g.since)
}

// renewEndlessAfterRead renews a lease without an end that another proxy may have changed. Only versions without an end are
// replaced, and only if a quorum has one: else a renewal that gives it an end, and that is under way or has been answered,
// could be undone.
func (s *Store) renewEndlessAfterRead(ctx context.Context, l vote.OpenLease, did endlessOutcome, maxHold time.Duration) (endlessOutcome, time.Duration) {
	h, maxTTL := l.Holder, s.set.Opts.MaxTTL
	before := s.grants.lookup(h)
	votes, began, err := s.readAgreed(ctx, question{holder: h})
	if err != nil {
		return missed, 0
	}
	g, result := s.readGrant(votes, h, l.Fence, began)
	if result == tally.Undecided {
		return missed, 0
	}
	switch is := s.openness(votes, h.Owner, g.fence); {
	case result != tally.Applied || is == isWithEnd:
		return leftAlone, 0
	case is == maybeOpen:
		return missed, 0
	}
	rest := tally.QthRest(votes, s.set.Quorum, func(v *vote.Vote) bool { return v.Kind == vote.Yes && v.Owner == h.Owner && v.Fence == g.fence })
	if rest >= maxTTL/2 { // another proxy has renewed it
		return leftAlone, 0
	}
	votes = slices.Clone(votes)
	for i := range votes {
		if !isOpen(votes[i].Version) {
			votes[i] = vote.Vote{}
		}
	}
	ttl, left := maxTTL, s.holdLeft(g, maxHold)
	open := left > maxTTL
	if !open {
		did, ttl = givenEnd, max(left, rest).Truncate(time.Millisecond)
	}
	g, result, _, err = s.renewUnderNewEpoch(ctx, &leaseRenewal{holder: h, ttl: ttl, grant: g, change: grows}, votes, open)
	switch {
	case err != nil || result == tally.Undecided:
		return missed, 0
	case result != tally.Applied: // another proxy was first, or the lock has been given back
		return leftAlone, 0
	}
	s.grants.replace(h, before, g) // so that the next renewal reinstates it where a node has lost it
	return did, ttl
}
