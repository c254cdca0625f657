package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/scripts"
)

const (
	minProbeTimeout = 300 * time.Millisecond
	// A node without a record next to nodes that have one has forgotten, unless
	// another proxy is enlisting it at this moment.
	missingTimeout = time.Second
	// Where no node that answers has a record, some may still be starting.
	startTimeout = 10 * time.Second
)

// A NodeState is what a lock node may do.
type NodeState string

// The states of a lock node.
const (
	NodeUnknown    NodeState = "unknown"          // it was not looked at yet; in a NodeView, it did not answer this time
	NodeDown       NodeState = "down"             // it does not answer, or not as a lock node would
	NodeRefusing   NodeState = "refuses"          // it answers, but not with a vote: it is full, a replica, or forbids what scripts do
	NodeVoting     NodeState = "voting"           // it takes part
	NodeNew        NodeState = "unregistered"     // it has no node record yet
	NodeUnused     NodeState = "unused"           // the same with Options.OnDemand: nothing is written to it before a lock is asked for
	NodeQuarantine NodeState = "quarantine"       // it may have forgotten leases; Left says for how long still
	NodeFloorless  NodeState = "fence floor lost" // it may have forgotten fences, and waits for them
	NodeMismatch   NodeState = "other list"       // it is in another set of lock nodes
	NodeBarred     NodeState = "refused"          // a Cluster, the same server as another node, or its fences are damaged
)

// A NodeStatus is what was last seen of one lock node.
type NodeStatus struct {
	Address string
	Chosen  bool // sentinels say which server it is
	Up      bool // it answered
	State   NodeState
	Left    time.Duration // of a quarantine
	Since   time.Time     // when State was first seen; zero before the first look
	Err     error         // why it does not vote; nil if it is Ready
	RunID   string        // empty while unknown
	Largest int64         // largest fence it stored, if it votes
	Took    time.Duration // how long its last answer took; 0: there was none
	Queued  int           // scripts that wait to be sent to it
}

// Ready reports whether the node votes, or will as far as is known when it is asked to:
// the other states are faults.
func (n *NodeStatus) Ready() bool { return n.State == NodeVoting || n.State == NodeUnused }

// recovery is what a Service knows about nodes that are new or forgot.
type recovery struct {
	probes atomic.Int64  // how many looks at the nodes were completed
	unused atomic.Bool   // some node was seen to be
	turn   chan struct{} // holds one during a look, so that a waiter for its end can leave

	missing  []time.Duration // since when each node is seen without a record; 0: it is not; guarded by one
	recorded bool            // when nodes last answered some had a record; guarded by one

	mu     sync.Mutex
	status []NodeStatus
	lost   time.Duration // since when fewer than a quorum vote; 0: a quorum does
}

func (r *recovery) init(nodes int) {
	r.turn = make(chan struct{}, 1)
	r.missing = make([]time.Duration, nodes)
	r.status = make([]NodeStatus, nodes)
}

// begin waits until nobody else looks at the nodes. Only without an error must end follow.
func (r *recovery) begin(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *recovery) end() { <-r.turn }

// Nodes is what was last seen of every node, in the order of Options.Nodes.
func (s *Service) Nodes() []NodeStatus {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	out := append([]NodeStatus(nil), s.recovery.status...)
	for i, n := range s.nodes {
		n.mu.Lock()
		out[i].Address, out[i].RunID = n.addressLocked(), n.id.runID
		out[i].Chosen = n.tracker != nil
		out[i].Took, out[i].Queued = n.took, len(n.queue)+len(n.retries)
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
	if err := s.waitInitialProbe(ctx); err != nil {
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
	votes, err := s.probe(ctx, initialProbeTimeout)
	if err != nil {
		return err
	}
	var errs []error
	voting := 0
	for i, v := range votes {
		switch {
		case v.kind == yes:
			voting++
			errs = append(errs, s.nodes[i].name(errors.New("takes part already")))
		case v.code == 0 || v.code == damaged || v.code == otherSet:
			errs = append(errs, s.nodes[i].name(orTimeout(v.err)))
		}
	}
	if voting == len(s.nodes) {
		return nil
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	var orders []repairAction
	for i := range s.nodes {
		orders = append(orders, repairAction{i, scripts.Register, registerArgs(&vote{}, "force", &nodeSet{now: s.nodeList})})
	}
	for i, v := range s.runRepairs(ctx, orders) {
		if v.kind != yes {
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

// waitInitialProbe waits for first contact with every node, for a second at most, and enlists
// nodes that are new unless that is to be asked for. Only the first callers wait.
func (s *Service) waitInitialProbe(ctx context.Context) error {
	if s.recovery.probes.Load() > 0 {
		return nil
	}
	s.repairNodes(ctx, !s.opts.OnDemand)
	return ctx.Err()
}

// repairNodes looks at the nodes and does what those in need need. Those without a record are
// enlisted if enlist says so. A caller that waited for another's look does not look again.
// It reports whether anything was done meanwhile, so that asking again may help.
func (s *Service) repairNodes(ctx context.Context, enlist bool) (acted bool) {
	seen := s.recovery.probes.Load()
	if s.recovery.begin(ctx) != nil {
		return false
	}
	defer s.recovery.end()
	if s.recovery.probes.Load() != seen {
		return true
	}
	timeout := s.probeTimeout()
	if seen == 0 {
		timeout = max(timeout, initialProbeTimeout)
	}
	votes, err := s.probeRecords(ctx, timeout, enlist)
	if err != nil {
		return false
	}
	orders := s.planRepairs(votes, enlist)
	if needsFloor(orders) {
		// Fences are read after the quarantine was seen to be over, never before.
		before := votes
		if votes, err = s.probe(ctx, timeout); err != nil {
			return false
		}
		orders = slices.DeleteFunc(s.planRepairs(votes, enlist), func(o repairAction) bool {
			return o.script == scripts.Restore && votes[o.node].quarantine != before[o.node].quarantine
		})
	}
	if len(orders) > 0 {
		ordered := s.runRepairs(ctx, orders)
		if votes, err = s.probe(ctx, timeout); err != nil {
			return false
		}
		addRefusals(votes, ordered)
	}
	s.recovery.recorded = recorded(votes, s.recovery.recorded)
	s.recordStatus(votes)
	s.recovery.probes.Add(1)
	return len(orders) > 0
}

func (s *Service) probeTimeout() time.Duration { return max(minProbeTimeout, s.opts.NodeTimeout) }

// probeRecords is probe. Nodes that nobody has used, and nobody is about to, are only asked
// whether they have a record: where it is the clients' data that the scripts would be
// among, clients are to see none of them.
func (s *Service) probeRecords(ctx context.Context, timeout time.Duration, enlist bool) ([]vote, error) {
	if !enlist && !s.recovery.recorded {
		command := []string{"HLEN", s.opts.Prefix + "node"}
		votes, err := s.askAllNodes(ctx, func(int) []string { return command }, parseRecord, timeout)
		if err != nil || countKind(votes, yes) == 0 {
			return votes, err
		}
	}
	return s.probe(ctx, timeout)
}

// recorded reports whether some node has a record, or, where none answers, what was known before.
func recorded(votes []vote, before bool) bool {
	used := before
	for i := range votes {
		switch v := &votes[i]; {
		case v.code == unregistered:
			used = false
		case v.kind == yes || v.code != 0:
			return true
		}
	}
	return used
}

// probe asks every node for its state, and one that refused something whether it would
// again.
func (s *Service) probe(ctx context.Context, timeout time.Duration) ([]vote, error) {
	node := s.opts.Prefix + "node"
	doubts := make([]int64, len(s.nodes))
	votes, err := s.askAllNodes(ctx, func(i int) []string {
		var what []string
		if doubts[i] = s.nodes[i].refusals.Load(); doubts[i] > 0 {
			what = []string{"all"}
		}
		return s.command(scripts.State, redisKeys{node, node, node}, what...)
	}, parseState, timeout)
	for i := range votes {
		s.nodes[i].clearRefusals(doubts[i], &votes[i])
	}
	return votes, err
}

func (s *Service) askAllNodes(ctx context.Context, command func(node int) []string, p parse, timeout time.Duration) ([]vote, error) {
	s.startTracking()
	r := s.askEach(askState, all, func(i int) *scriptCall {
		return &scriptCall{args: command(i), parse: p, expires: s.now() + timeout, probe: true}
	})
	err := r.waitFor(ctx, timeout)
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
type repairAction struct {
	node   int
	script *scripts.Script
	args   []string
}

// planRepairs is what to do after a look at all nodes.
func (s *Service) planRepairs(votes []vote, enlist bool) []repairAction {
	orders := planRepairs(votes, s.missingFor(votes), s.quorum, s.opts, s.nodeList)
	return slices.DeleteFunc(orders, func(o repairAction) bool { return o.script == scripts.Register && !enlist })
}

// planRepairs is what nodes need, from one probe of all of them and for how long each has been seen
// without a record. ours is this proxy's list. Where any node is in another set and no quorum in
// this one, this proxy is the one that is wrong, or the only one that is right; it enlists and
// restores nobody.
func planRepairs(votes []vote, missing []time.Duration, q int, o Options, ours nodeList) []repairAction {
	c := conditionOf(votes, o.MaxTTL, ours)
	if c.others > 0 && c.voting < q {
		return nil
	}
	c.hasQuorum = c.voting >= q
	c.isNew = c.absent == len(votes) && o.Bootstrap == BootstrapAuto
	timeout := missingTimeout
	if c.absent == c.answered {
		timeout = startTimeout
	}
	var actions []repairAction
	for i := range votes {
		if script, args := c.repair(&votes[i], missing[i] >= timeout); script != nil {
			actions = append(actions, repairAction{i, script, args})
		}
	}
	return actions
}

// A condition is what a probe tells of the nodes together.
type condition struct {
	absent, answered, voting, others int // nodes without a record, that answer, that vote, and of other sets

	set           nodeSet // the latest that a voting node is in, or this proxy's
	floor, maxTTL int64   // largest fence and longest max-ttl of the voting nodes
	longest       int64   // max-ttl that any node or this proxy has, ms

	hasQuorum bool
	isNew     bool // the set is
}

func conditionOf(votes []vote, maxTTL time.Duration, ours nodeList) *condition {
	c := &condition{set: nodeSet{now: ours}, longest: maxTTL.Milliseconds()}
	for _, v := range votes {
		switch {
		case v.code == unregistered && !v.olderFormat:
			c.absent++
		case v.code == otherSet:
			c.others++
		case v.kind == yes:
			c.voting++
			if v.set != nil && v.set.epoch >= c.set.epoch {
				c.set = *v.set
			}
			c.floor, c.maxTTL = max(c.floor, v.fence), max(c.maxTTL, v.maxTTL)
		}
		c.longest = max(c.longest, v.maxTTL)
		if v.kind != silent || v.code != 0 {
			c.answered++
		}
	}
	return c
}

// repair is the script that a node needs which answered v, nil if it needs none. forgot reports
// whether it has been without a record for so long that it must have forgotten it.
func (c *condition) repair(v *vote, forgot bool) (script *scripts.Script, args []string) {
	switch {
	case v.code == unregistered && c.isNew:
		return scripts.Register, registerArgs(v, "new", &c.set)
	case v.code == unregistered && (v.olderFormat || forgot):
		return scripts.Register, registerArgs(v, "forgot", &c.set)
	case v.set != nil && v.set.epoch < c.set.epoch: // it was out of reach when the operator changed it
		return scripts.Change, append([]string{"set"}, c.set.args()...)
	case v.code == floorless && c.hasQuorum:
		return scripts.Restore, []string{fmt.Sprint(c.floor), v.quarantine, fmt.Sprint(c.maxTTL)}
	case v.code == floorless && v.wait >= c.longest:
		return scripts.Restore, []string{"0", v.quarantine, fmt.Sprint(c.longest)}
	}
	return nil, nil
}

// registerArgs are the arguments of register.lua for a node that answered v.
func registerArgs(v *vote, how string, set *nodeSet) []string {
	return append([]string{how, fmt.Sprint(v.wait), v.replid}, set.args()...)
}

func needsFloor(orders []repairAction) bool {
	return slices.ContainsFunc(orders, func(o repairAction) bool { return o.script == scripts.Restore })
}

// runRepairs gives every node its order and returns the votes, nodes without one silent.
func (s *Service) runRepairs(ctx context.Context, orders []repairAction) []vote {
	node := s.opts.Prefix + "node"
	r := s.askEach(askRepair, all, func(i int) *scriptCall {
		for _, o := range orders {
			if o.node == i {
				return &scriptCall{
					args: s.command(o.script, redisKeys{node, node, node}, o.args...), parse: parseRepair,
					expires: s.now() + s.probeTimeout(),
				}
			}
		}
		return nil
	})
	_ = r.waitFor(ctx, s.probeTimeout()) // an order that was not carried out is given again at the next look
	votes := r.close(true, nil)
	s.ended(r, votes, endOf(nil, countKind(votes, yes) == len(orders)))
	return votes
}

// recordStatus stores what was seen and logs what changed.
func (s *Service) recordStatus(votes []vote) {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	unused := false
	defer func() { s.recovery.unused.Store(unused) }()
	defer s.logQuorumLocked()
	for i := range votes {
		was, is := s.recovery.status[i], s.status(i, &votes[i])
		if is.Since = was.Since; was.State != is.State {
			is.Since = time.Now()
		}
		unused = unused || is.State == NodeUnused
		s.recovery.status[i] = is
		s.nodes[i].meter.quarantine(&is)
		if was.State == is.State && was.Up == is.Up && (is.State != NodeRefusing || was.Brief() == is.Brief()) {
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
	st := NodeStatus{Address: n.server.String(), Up: v.kind != silent || v.code != 0, State: NodeDown, Err: v.err, Largest: v.fence}
	switch {
	case barred != nil:
		st.State, st.Err = NodeBarred, barred
	case v.refuses != nil:
		st.State, st.Err = NodeRefusing, n.name(v.refuses)
	case v.kind == yes:
		st.State = NodeVoting
	case v.code == unregistered && s.opts.OnDemand:
		st.State, st.Err = NodeUnused, nil
	case v.code == unregistered:
		st.State = NodeNew
	case v.code == quarantined:
		st.State, st.Left = NodeQuarantine, millis(v.wait)
	case v.code == floorless:
		st.State = NodeFloorless
	case v.code == otherSet:
		st.State = NodeMismatch
	case v.code == damaged:
		st.State = NodeBarred
	default:
		st.Err = n.name(orTimeout(v.err))
		if isRefusal(st.Err) {
			st.State, st.Up = NodeRefusing, true
		}
	}
	return st
}

// needsRepair reports whether a node abstains for something that recover may give it.
func needsRepair(votes []vote) bool {
	for _, v := range votes {
		if v.code == unregistered || v.code == floorless {
			return true
		}
	}
	return false
}

// requestProbe asks Run to look at the nodes now, on behalf of somebody who wants them to vote.
func (s *Service) requestProbe() {
	select {
	case s.probeNow <- struct{}{}:
	default:
	}
}
