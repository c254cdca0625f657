package locks

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A Holding is who has a name, by one quorum at one moment.
type Holding struct {
	Key
	Owner     string
	Fence     int64
	Holds     int           // how often the owner holds it
	Remaining time.Duration // of the lease: the Q-th largest among the nodes that agree
	Held      time.Duration // since the grant
	Info      string        // of the LOCK
	Votes     int           // nodes that agree that this owner has it
	Waiters   int           // how many wait for it at this proxy
	Session   bool          // this proxy renews it
	Here      bool          // this proxy granted it, and knows that still
	Waited    time.Duration // if Here: from the call of LOCK to the grant
}

// HeldFor is one hold of a name.
type HeldFor struct {
	Taken time.Duration // since the LOCK
	Left  time.Duration // until it ends by itself; the latest end of all nodes
}

// eachHold are the holds in the votes that match.
func eachHold(votes []vote, match func(*vote) bool) []HeldFor {
	seen := map[string]*HeldFor{}
	for i := range votes {
		v := &votes[i]
		if !match(v) {
			continue
		}
		for _, h := range v.read.holds {
			if h.rest <= 0 {
				continue
			}
			held := seen[requestOf(h.id)]
			if held == nil {
				held = &HeldFor{}
				seen[requestOf(h.id)] = held
			}
			held.Taken, held.Left = max(held.Taken, h.age), max(held.Left, h.rest)
		}
	}
	var all []HeldFor
	for _, h := range seen {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b HeldFor) int { return cmp.Or(cmp.Compare(b.Taken, a.Taken), cmp.Compare(a.Left, b.Left)) })
	return all
}

// A NodeView is a name as one node sees it.
type NodeView struct {
	Address    string
	State      NodeState     // NodeVoting: it answered, and what follows counts
	Since      time.Time     // when State was first seen, if it was at the last probe
	Left       time.Duration // of a quarantine
	Err        error         // why it does not vote; the fields below count also for a node that only refuses writes
	Owner      string        // empty: nobody has the name there
	Fence      int64         // of the grant, or the largest of the name
	Remaining  time.Duration
	Holds      int
	Reinstated bool // by a renewal: it did not grant it
}

// An Inspection is a name as all nodes see it.
type Inspection struct {
	Held    bool
	Holding Holding    // if Held; else only DB, Name and Waiters
	Each    []HeldFor  // if Held: the holds that some node has, the oldest first; those that one request took are one
	Nodes   []NodeView // in the order of Options.Nodes
	Need    int        // how many must agree
}

const stableReads = 5 // of a name, until nodes do not differ only because something is under way

// Inspect asks every node who has a name. It never guesses: if the answers do not decide it, because too few
// nodes voted or because the silent ones could tip the count, the error is a *QuorumError, and the Inspection
// holds the answers there are.
func (s *Service) Inspect(ctx context.Context, k Key) (Inspection, error) {
	if err := s.acquireSlot(ctx); err != nil {
		return Inspection{}, err
	}
	defer s.releaseSlot()
	votes, err := s.readStable(ctx, holder{Key: k})
	if err != nil {
		return Inspection{}, err
	}
	in := Inspection{Need: s.quorum}
	for i := range votes {
		in.Nodes = append(in.Nodes, s.view(i, &votes[i]))
	}
	var who ownership
	if in.Holding, who = s.holding(votes, k); who == undecidedHolder || who == unsettledGrant {
		err = s.quorumError("LOCKCTL", k.Name, votes)
	}
	if in.Held = who == oneOwner; in.Held {
		in.Each = eachHold(votes, func(v *vote) bool { return v.kind == yes && v.owner == in.Holding.Owner })
	}
	return in, err
}

// readStable reads a name, again if the nodes do not agree: most often because a grant or a release is on its
// way to some of them.
func (s *Service) readStable(ctx context.Context, h holder) ([]vote, error) {
	votes, _, err := s.readUntil(ctx, h, s.opts.timeouts(s.opts.MaxTTL), "", stableReads, linear, stable)
	return votes, err
}

// stable reports whether all nodes that vote name the same owner, fence and number of holds, or none.
func stable(votes []vote) bool {
	var first *vote
	for i := range votes {
		v := &votes[i]
		switch {
		case v.kind != yes:
		case first == nil:
			first = v
		case v.owner != first.owner, v.owner != "" && (v.fence != first.fence || countHolds(v.read.live()) != countHolds(first.read.live())):
			return false
		}
	}
	return true
}

// An ownership is who has a name, by the votes of a read.
type ownership uint8

const (
	nobody          ownership = iota // no owner can have a quorum
	oneOwner                         // a quorum names one owner, under one fence
	unsettledGrant                   // a quorum names one owner, under several fences: it is being granted the name
	undecidedHolder                  // the nodes that do not vote may have what decides
)

// ownershipOf counts the votes on who has a name. owner is whom most nodes name, n how many do.
func ownershipOf(votes []vote, q int) (owner string, n int, fence int64, who ownership) {
	owner, n = most(votes, func(v *vote) (string, bool) { return v.owner, v.kind == yes && v.owner != "" })
	fence, agreed := most(votes, func(v *vote) (int64, bool) { return v.fence, v.kind == yes && v.owner == owner && owner != "" })
	switch {
	case agreed >= q:
		return owner, n, fence, oneOwner
	case n >= q:
		return owner, n, fence, unsettledGrant
	case n+len(votes)-countKind(votes, yes) >= q:
		return owner, n, fence, undecidedHolder
	}
	return owner, n, fence, nobody
}

// holding is who has the name, if the votes decide it; else the owner whom most nodes name, if any.
func (s *Service) holding(votes []vote, k Key) (Holding, ownership) {
	h := Holding{Key: k, Waiters: s.waiting.Len(k)}
	owner, n, fence, who := ownershipOf(votes, s.quorum)
	if who == nobody || n == 0 {
		return h, who
	}
	its := func(v *vote) bool { return v.kind == yes && v.owner == owner }
	h.Owner, h.Votes, h.Fence = owner, n, fence
	h.Session = s.keepalive.keeps(holder{k, owner}, h.Fence)
	h.Waited, h.Here = s.grants.waited(holder{k, owner}, h.Fence)
	h.Remaining = qthRest(votes, min(n, s.quorum), its)
	h.Holds = qth(votes, min(n, s.quorum), its, func(v *vote) int { return countHolds(v.read.live()) })
	for i := range votes {
		if v := &votes[i]; its(v) && !v.read.reinstated {
			h.Held, h.Info = max(h.Held, v.read.age), cmp.Or(h.Info, v.read.info)
		}
	}
	return h, who
}

// view is a node's vote in a read. A node that refuses writes answers it like any other.
func (s *Service) view(i int, v *vote) NodeView {
	st, seen := s.status(i, v), s.lastStatus(i)
	switch {
	case seen.State == st.State:
		st.Since = seen.Since
	case seen.State == NodeRefusing && v.kind == yes:
		st.State, st.Since, st.Err = seen.State, seen.Since, seen.Err
	case st.State == NodeDown:
		st.State = NodeUnknown // it may only have been slow
	}
	n := NodeView{Address: st.Address, State: st.State, Since: st.Since, Left: st.Left, Err: st.Err}
	if st.State == NodeUnused {
		n.Err = v.err
	}
	if v.kind == yes {
		n.Owner, n.Fence, n.Remaining = v.owner, v.fence, v.rest
		n.Holds, n.Reinstated = countHolds(v.read.live()), v.read.reinstated && v.owner != ""
	}
	return n
}

// A Waiter is a LOCK that waits at this proxy.
type Waiter struct {
	Owner   string
	Info    string
	Client  string
	Waiting time.Duration // since it came
	Left    time.Duration // until it gives up; not negative
}

// Waiters are the LOCKs that wait for a name at this proxy, the next one first.
// What waits at other proxies is not known.
func (s *Service) Waiters(k Key) (all []Waiter) {
	for _, e := range s.waiting.List(k) {
		r := e.Value.LockRequest
		all = append(all, Waiter{Owner: r.Owner, Info: r.Info, Client: r.Client, Waiting: e.Waiting, Left: max(0, r.Wait-e.Waiting)})
	}
	return all
}

// keeps reports whether a session here has the grant with this fence.
func (k *keepalive) keeps(h holder, fence int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[h]
	return l != nil && l.fence == fence
}
