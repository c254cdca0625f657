package quorum

import (
	"cmp"
	"context"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/holdid"
	"github.com/lockproxy/lockproxy/backends/locks/tally"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
)

// Inspect implements locks.Inspector.
func (s *Store) Inspect(ctx context.Context, k locks.Key) (locks.Inspection, error) {
	if err := s.set.AcquireSlot(ctx); err != nil {
		return locks.Inspection{}, err
	}
	defer s.set.ReleaseSlot()
	votes, err := s.readStable(ctx, locks.Holder{Key: k})
	if err != nil {
		return locks.Inspection{}, err
	}
	in := locks.Inspection{Need: s.set.Quorum}
	for i := range votes {
		in.Nodes = append(in.Nodes, s.view(i, &votes[i]))
	}
	var who tally.Ownership
	if in.Holding, who = s.holding(votes, k); who == tally.MaybeHeld || who == tally.BeingGranted {
		err = s.set.QuorumError("LOCKCTL", k.Name, votes)
	}
	in.Held = who == tally.HeldByOne
	if err == nil && (in.Holding.Readers > 0 || tally.MaybeRead(votes, s.set.Quorum)) {
		var doubt error
		if in.Readers, doubt, err = s.readersOf(ctx, k); err == nil && !in.Held {
			err = doubt
		}
		in.Holding.Readers = max(in.Holding.Readers, len(in.Readers))
	}
	if in.Held {
		in.Each = tally.EachHold(votes, func(v *vote.Vote) bool { return v.Kind == vote.Yes && v.Owner == in.Holding.Owner })
	}
	return in, err
}

// holding is who has the name, if the votes decide it; else the owner whom most nodes name, if any.
func (s *Store) holding(votes []vote.Vote, k locks.Key) (locks.Holding, tally.Ownership) {
	h := locks.Holding{Key: k, Waiters: s.host.Lines.Len(k.Whole())}
	h.Readers, h.Remaining = tally.ReadBy(votes, s.set.Quorum)
	owner, n, fence, who := tally.OwnerBy(votes, s.set.Quorum)
	if who == tally.HeldByNobody || n == 0 {
		return h, who
	}
	its := func(v *vote.Vote) bool { return v.Kind == vote.Yes && v.Owner == owner }
	h.Owner, h.Votes, h.Fence = owner, n, fence
	h.Open = s.openness(votes, owner, fence) == isWithoutEnd
	h.Client, h.Session = s.host.Keepalive.KeptFor(locks.Holder{Key: k, Owner: owner}, h.Fence)
	h.Waited, h.Here = s.grants.waited(locks.Holder{Key: k, Owner: owner}, h.Fence)
	h.Remaining = tally.QthRest(votes, min(n, s.set.Quorum), its)
	h.Holds = tally.Qth(votes, min(n, s.set.Quorum), its, func(v *vote.Vote) int { return holdid.Count(v.Read.Live()) })
	for i := range votes {
		if v := &votes[i]; its(v) && !v.Read.Reinstated {
			h.Held, h.Info = max(h.Held, v.Read.Age), cmp.Or(h.Info, v.Read.Info)
		}
	}
	return h, who
}

// view is a node's vote in a read. A node that refuses writes answers it like any other.
func (s *Store) view(i int, v *vote.Vote) locks.NodeView {
	st, seen := s.set.Status(i, v), s.set.LastStatus(i)
	switch {
	case seen.State == st.State:
		st.Since = seen.Since
	case seen.State == locks.NodeRefusing && (v.Kind == vote.Yes || v.Forgot()):
		st.State, st.Since, st.Err = seen.State, seen.Since, seen.Err
	case st.State == locks.NodeDown:
		st.State = locks.NodeUnknown // it may only have been slow
	}
	n := locks.NodeView{Address: st.Address, State: st.State, Since: st.Since, Left: st.Left, Copies: st.Copies, Doubt: st.Doubt, Err: st.Err}
	if st.State == locks.NodeUnused {
		n.Err = v.Err
	}
	if v.Kind == vote.Yes {
		n.Owner, n.Fence, n.Remaining, n.Readers = v.Owner, v.Fence, v.Rest, v.Read.Readers
		n.Holds, n.Reinstated = holdid.Count(v.Read.Live()), v.Read.Reinstated && v.Owner != ""
	}
	return n
}
