package locks

import (
	"cmp"
	"context"
	"time"
)

// A Holding is who has a name, as one quorum says it at one moment.
type Holding struct {
	DB        int
	Name      string
	Owner     string
	Fence     int64
	Holds     int           // how often the owner holds it
	Remaining time.Duration // of the lease: the Q-th largest among the nodes that agree
	Held      time.Duration // since the grant
	Info      string        // what the LOCK said of itself
	Votes     int           // how many nodes agree that this owner has it
	Waiters   int           // how many wait for it at this proxy
	Session   bool          // this proxy renews it
	Here      bool          // this proxy granted it, and remembers that
	Waited    time.Duration // if Here: from the call of LOCK to the grant
}

// A NodeView is what one node says of a name.
type NodeView struct {
	Address   string
	State     NodeState     // NodeVoting: it answered, and what follows counts
	Left      time.Duration // of a quarantine
	Err       error         // why it does not vote
	Owner     string        // who has the name there; empty: nobody
	Fence     int64         // of the grant, or the largest of the name
	Remaining time.Duration
	Holds     int
	PutBack   bool // a renewal told it of the grant
}

// An Inspection is what all nodes say of a name.
type Inspection struct {
	Held    bool
	Holding Holding    // if Held; else only DB, Name and Waiters
	Nodes   []NodeView // in the order of Options.Nodes
	Need    int        // how many must agree
}

const calmTries = 5 // reads of a name, until nodes do not differ only because something is under way

// Inspect asks every node who has a name. Fewer than a quorum that vote are a
// *QuorumError, and what those said is in the Inspection all the same.
func (s *Service) Inspect(ctx context.Context, db int, name string) (Inspection, error) {
	if err := s.enter(ctx); err != nil {
		return Inspection{}, err
	}
	defer s.leave()
	votes, err := s.readCalm(ctx, holder{db: db, name: name})
	if err != nil {
		return Inspection{}, err
	}
	in := Inspection{Need: s.quorum}
	for i := range votes {
		in.Nodes = append(in.Nodes, s.view(i, &votes[i]))
	}
	in.Holding, in.Held = s.holding(votes, db, name)
	if ballots(votes, yes) < s.quorum {
		err = s.quorumError("LOCKCTL", name, votes)
	}
	return in, err
}

// readCalm reads a name, again if the nodes do not agree: most often because a grant or a
// release is on its way to some of them.
func (s *Service) readCalm(ctx context.Context, h holder) (votes []vote, err error) {
	for i := range calmTries {
		if err := sleep(ctx, time.Duration(i)*time.Millisecond); err != nil {
			return nil, err
		}
		if votes, err = s.read(ctx, h, s.opts.patience(s.opts.MaxTTL)); err != nil || calm(votes) {
			break
		}
	}
	return votes, err
}

// calm says that all nodes that vote name the same owner, fence and number of holds, or none.
func calm(votes []vote) bool {
	var first *vote
	for i := range votes {
		v := &votes[i]
		switch {
		case v.ballot != yes:
		case first == nil:
			first = v
		case v.owner != first.owner, v.owner != "" && (v.fence != first.fence || countHolds(v.read.holds) != countHolds(first.read.holds)):
			return false
		}
	}
	return true
}

// holding is who has the name if a quorum names one owner, as to a LOCK that is refused.
func (s *Service) holding(votes []vote, db int, name string) (Holding, bool) {
	h := Holding{DB: db, Name: name}
	owner, n := most(votes, func(v *vote) (string, bool) { return v.owner, v.ballot == yes && v.owner != "" })
	h.Waiters = s.waiting.count(place{db, name})
	if n < s.quorum {
		return h, false
	}
	its := func(v *vote) bool { return v.ballot == yes && v.owner == owner }
	h.Owner, h.Votes = owner, n
	h.Fence, _ = most(votes, func(v *vote) (int64, bool) { return v.fence, its(v) })
	h.Session = s.keeper.keeps(holder{db, name, owner}, h.Fence)
	h.Waited, h.Here = s.memory.waited(holder{db, name, owner}, h.Fence)
	h.Remaining = qthRest(votes, s.quorum, its)
	h.Holds = qth(votes, s.quorum, its, func(v *vote) int { return countHolds(v.read.holds) })
	for i := range votes {
		if v := &votes[i]; its(v) && !v.read.told {
			h.Held, h.Info = max(h.Held, v.read.age), cmp.Or(h.Info, v.read.info)
		}
	}
	return h, true
}

// view is what a node's vote in a read says.
func (s *Service) view(i int, v *vote) NodeView {
	st := s.status(i, v)
	n := NodeView{Address: st.Address, State: st.State, Left: st.Left, Err: st.Err}
	if v.ballot == yes {
		n.Owner, n.Fence, n.Remaining = v.owner, v.fence, v.rest
		n.Holds, n.PutBack = countHolds(v.read.holds), v.read.told && v.owner != ""
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
func (s *Service) Waiters(db int, name string) []Waiter {
	return s.waiting.list(place{db, name}, s.now())
}

func (ws *waiting) list(at place, now time.Duration) (all []Waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.queues[at]
	if q == nil {
		return nil
	}
	for e := q.line.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		waiting := now - w.since
		all = append(all, Waiter{
			Owner: w.request.Owner, Info: w.request.Info, Client: w.request.Client, Waiting: waiting, Left: max(0, w.request.Wait-waiting),
		})
	}
	return all
}

// keeps says that a session here has the grant with this fence.
func (k *keeper) keeps(h holder, fence int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.leases[h]
	return l != nil && l.fence == fence
}
