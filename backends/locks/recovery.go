package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
)

const (
	leastSurveyPatience = 300 * time.Millisecond
	// A node without a record next to nodes that have one has forgotten, unless
	// another proxy is enlisting it at this moment.
	missingPatience = time.Second
	// Where no node that answers has a record, some may still be starting.
	startPatience = 10 * time.Second
)

// A NodeState is what a lock node may do.
type NodeState string

// The states of a lock node.
const (
	NodeUnknown    NodeState = "unknown"          // it does not answer, or not what it should
	NodeVoting     NodeState = "voting"           // it takes part
	NodeNew        NodeState = "unregistered"     // it has no node record yet
	NodeQuarantine NodeState = "quarantine"       // it may have forgotten leases; Left says for how long still
	NodeFloorless  NodeState = "fence floor lost" // it may have forgotten fences, and waits for them
	NodeMismatch   NodeState = "other max-ttl"    // it was recorded under another max-ttl
	NodeBarred     NodeState = "refused"          // a Cluster, or the same server as another node
)

// A NodeStatus is what was last seen of one lock node.
type NodeStatus struct {
	Address string
	Chosen  bool // sentinels say which server it is
	Up      bool // it answered
	State   NodeState
	Left    time.Duration // of a quarantine
	Err     error         // why it does not vote; nil if it does
	RunID   string        // empty while unknown
	Largest int64         // largest fence it stored, if it votes
	Took    time.Duration // how long its last answer took; 0: there was none
	Queued  int           // scripts that wait to be sent to it
}

// recovery is what a Service knows about nodes that are new or forgot.
type recovery struct {
	looks atomic.Int64  // how many looks at the nodes were completed
	one   chan struct{} // holds one during a look, so that who waits for its end can leave

	missing []time.Duration // since when each node is seen without a record; 0: it is not; guarded by one

	mu     sync.Mutex
	status []NodeStatus
}

func (r *recovery) init(nodes int) {
	r.one = make(chan struct{}, 1)
	r.missing = make([]time.Duration, nodes)
	r.status = make([]NodeStatus, nodes)
}

// begin waits until nobody else looks at the nodes. Only without an error must end follow.
func (r *recovery) begin(ctx context.Context) error {
	select {
	case r.one <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *recovery) end() { <-r.one }

// Nodes says what was last seen of every node, in the order of Options.Nodes.
func (s *Service) Nodes() []NodeStatus {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	out := append([]NodeStatus(nil), s.recovery.status...)
	for i, n := range s.nodes {
		n.mu.Lock()
		out[i].Address, out[i].RunID = n.addressLocked(), n.id.runID
		out[i].Chosen = n.follow != nil
		out[i].Took, out[i].Queued = n.took, len(n.queue)+len(n.later)
		n.mu.Unlock()
		if out[i].State == "" {
			out[i].State = NodeUnknown
		}
	}
	return out
}

// Check contacts every node and reports those that can never be what they are
// configured as: the same server twice, or a Redis Cluster. A node that does not
// answer is not reported; Nodes says so.
func (s *Service) Check(ctx context.Context) error {
	if err := s.meet(ctx); err != nil {
		return err
	}
	var errs []error
	for _, n := range s.nodes {
		n.mu.Lock()
		errs = append(errs, n.barred)
		n.mu.Unlock()
	}
	return errors.Join(errs...)
}

// Init is the operator's word that all nodes are new: no lease and no fence they
// may have forgotten matters. They vote at once. It changes nothing, and says why,
// unless every node answers and none votes already; when all vote it has been done.
func (s *Service) Init(ctx context.Context) error {
	if err := s.recovery.begin(ctx); err != nil {
		return err
	}
	defer s.recovery.end()
	votes, err := s.survey(ctx, meetFor)
	if err != nil {
		return err
	}
	var errs []error
	voting := 0
	for i, v := range votes {
		switch {
		case v.ballot == yes:
			voting++
			errs = append(errs, s.nodes[i].name(errors.New("takes part already")))
		case v.code == 0 || v.code == otherMaxTTL:
			errs = append(errs, s.nodes[i].name(orTimeout(v.err)))
		}
	}
	if voting == len(s.nodes) {
		return nil
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	var orders []order
	for i := range s.nodes {
		orders = append(orders, order{node: i, script: scripts.Register, args: []string{"force"}})
	}
	for i, v := range s.carryOut(ctx, orders) {
		if v.ballot != yes {
			errs = append(errs, s.nodes[i].name(orTimeout(v.err)))
		}
	}
	return errors.Join(errs...)
}

func orTimeout(err error) error {
	if err == nil {
		return errTimeout
	}
	return err
}

// meet waits for first contact with every node, for a second at most, and enlists
// nodes that are new. Only the first callers wait.
func (s *Service) meet(ctx context.Context) error {
	if s.recovery.looks.Load() > 0 {
		return nil
	}
	s.recover(ctx)
	return ctx.Err()
}

// recover looks at the nodes and does what those in need need. A caller that
// waited for another's look does not look again. It reports whether anything was
// done meanwhile, so that asking again may help.
func (s *Service) recover(ctx context.Context) (acted bool) {
	seen := s.recovery.looks.Load()
	if s.recovery.begin(ctx) != nil {
		return false
	}
	defer s.recovery.end()
	if s.recovery.looks.Load() != seen {
		return true
	}
	patience := s.surveyPatience()
	if seen == 0 {
		patience = max(patience, meetFor)
	}
	votes, err := s.survey(ctx, patience)
	if err != nil {
		return false
	}
	orders := plan(votes, s.missingFor(votes), s.quorum, s.opts)
	if needsFloor(orders) {
		// Fences are read after the quarantine was seen to be over, never before.
		if votes, err = s.survey(ctx, patience); err != nil {
			return false
		}
		orders = plan(votes, s.missingFor(votes), s.quorum, s.opts)
	}
	if len(orders) > 0 {
		s.carryOut(ctx, orders)
		if votes, err = s.survey(ctx, patience); err != nil {
			return false
		}
	}
	s.note(votes)
	s.recovery.looks.Add(1)
	return len(orders) > 0
}

func (s *Service) surveyPatience() time.Duration { return max(leastSurveyPatience, s.opts.NodeTimeout) }

// survey asks every node for its state.
func (s *Service) survey(ctx context.Context, patience time.Duration) ([]vote, error) {
	s.beginFollowing()
	node := s.opts.Prefix + "node"
	r := s.ask(askState, job{
		args: s.command(scripts.State, key{node, node, node}), parse: parseState,
		expires: s.now() + patience, survey: true,
	}, all)
	err := r.waitFor(ctx, patience)
	return s.closed(r, r.close(true, nil), err), err
}

// all waits for every vote.
func all([]vote) bool { return false }

// missingFor keeps count of how long nodes are seen without a record.
func (s *Service) missingFor(votes []vote) []time.Duration {
	now := s.now()
	out := make([]time.Duration, len(votes))
	for i, v := range votes {
		m := &s.recovery.missing[i]
		switch {
		case v.code != unregistered:
			*m = 0
		case *m == 0:
			*m = now
		default:
			out[i] = now - *m
		}
	}
	return out
}

// An order is one script that one node needs.
type order struct {
	node   int
	script *scripts.Script
	args   []string
}

// plan says what nodes in need of something need, from one look at all of them and
// for how long each has been seen without a record.
func plan(votes []vote, missing []time.Duration, q int, o Options) []order {
	var absent, answered, voting int
	var floor int64
	for _, v := range votes {
		switch {
		case v.code == unregistered:
			absent++
		case v.ballot == yes:
			voting++
			floor = max(floor, v.fence)
		}
		if v.ballot != silent || v.code != 0 {
			answered++
		}
	}
	isNew := absent == len(votes) && o.Bootstrap == BootstrapAuto
	patience := missingPatience
	if absent == answered {
		patience = startPatience
	}
	var orders []order
	for i, v := range votes {
		switch {
		case v.code == unregistered && isNew:
			orders = append(orders, order{i, scripts.Register, []string{"new", fmt.Sprint(v.wait), v.replid}})
		case v.code == unregistered && missing[i] >= patience:
			orders = append(orders, order{i, scripts.Register, []string{"forgot"}})
		case v.code == floorless && voting >= q:
			orders = append(orders, order{i, scripts.Restore, []string{fmt.Sprint(floor)}})
		case v.code == floorless && v.wait >= o.MaxTTL.Milliseconds():
			orders = append(orders, order{i, scripts.Restore, []string{"0"}})
		}
	}
	return orders
}

func needsFloor(orders []order) bool {
	for _, o := range orders {
		if o.script == scripts.Restore {
			return true
		}
	}
	return false
}

// carryOut gives every node its order and returns the votes, nodes without one silent.
func (s *Service) carryOut(ctx context.Context, orders []order) []vote {
	node := s.opts.Prefix + "node"
	r := s.askEach(askOrder, all, func(i int) *job {
		for _, o := range orders {
			if o.node == i {
				return &job{
					args: s.command(o.script, key{node, node, node}, o.args...), parse: parseState,
					expires: s.now() + s.surveyPatience(),
				}
			}
		}
		return nil
	})
	_ = r.waitFor(ctx, s.surveyPatience()) // an order that was not carried out is given again at the next look
	votes := r.close(true, nil)
	s.ended(r, votes, endOf(nil, ballots(votes, yes) == len(orders)))
	return votes
}

// note stores what was seen and logs what changed.
func (s *Service) note(votes []vote) {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	for i := range votes {
		was, is := s.recovery.status[i], s.status(i, &votes[i])
		s.recovery.status[i] = is
		s.nodes[i].meter.quarantine(&is)
		if was.State == is.State && was.Up == is.Up {
			continue
		}
		level, attrs := slog.LevelInfo, []slog.Attr{
			slog.String("node", s.nodes[i].server.String()), slog.String("state", string(is.State)),
		}
		if is.Err != nil {
			level = slog.LevelWarn
			attrs = append(attrs, slog.String("reason", is.Err.Error()))
		}
		s.opts.Log.LogAttrs(context.Background(), level, "lock node", attrs...)
	}
}

func (s *Service) status(i int, v *vote) NodeStatus {
	n := s.nodes[i]
	n.mu.Lock()
	barred := n.barred
	n.mu.Unlock()
	st := NodeStatus{Address: n.server.String(), Up: v.ballot != silent || v.code != 0, State: NodeUnknown, Err: v.err, Largest: v.fence}
	switch {
	case barred != nil:
		st.State, st.Err = NodeBarred, barred
	case v.ballot == yes:
		st.State = NodeVoting
	case v.code == unregistered:
		st.State = NodeNew
	case v.code == quarantined:
		st.State, st.Left = NodeQuarantine, millis(v.wait)
	case v.code == floorless:
		st.State = NodeFloorless
	case v.code == otherMaxTTL:
		st.State = NodeMismatch
	default:
		st.Err = n.name(orTimeout(v.err))
	}
	return st
}

// wanting reports whether a node abstains for something that recover may give it.
func wanting(votes []vote) bool {
	for _, v := range votes {
		if v.code == unregistered || v.code == floorless {
			return true
		}
	}
	return false
}

// look asks Run to look at the nodes now.
func (s *Service) look() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}
