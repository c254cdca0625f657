package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// A NodeState is what a lock node may do.
type NodeState string

// The states of a lock node.
const (
	NodeUnknown    NodeState = "unknown"          // it was not probed yet; in a NodeView, it did not answer this time
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

// A NodeStatus is what the last probe told of a lock node.
type NodeStatus struct {
	Address string
	Chosen  bool // by sentinels
	Up      bool // it answered
	State   NodeState
	Left    time.Duration // of a quarantine
	Since   time.Time     // when State was first seen; zero before the first probe
	Err     error         // why it does not vote; nil if it is Ready
	RunID   string        // empty while unknown
	Largest int64         // largest fence it stored, if it votes
	Took    time.Duration // by its last answer; 0: there was none
	Queued  int           // calls that wait to be sent to it
}

// Ready reports whether the node votes, or would when it is asked to; the other states are faults.
func (n *NodeStatus) Ready() bool { return n.State == NodeVoting || n.State == NodeUnused }

// A RefusalError is the error reply of a node that was reached and did not do what it
// was asked: its code, as in "OOM", or the whole text where it has none of its own.
type RefusalError struct{ Text string }

func (e *RefusalError) Error() string { return e.Text }

func isRefusal(err error) bool {
	var r *RefusalError
	return errors.As(err, &r)
}

// Brief is the state, and behind it in brackets why the node is down or refuses:
// "refuses (OOM)". What is before " (" is one of the NodeStates.
func (n *NodeStatus) Brief() string { return brief(n.State, n.Err) }

// Standing is Brief with since when the node is down or refuses.
func (n *NodeStatus) Standing() string { return standing(n.State, n.Err, n.Since) }

// Standing is that of the node, as in NodeStatus.
func (n *NodeView) Standing() string { return standing(n.State, n.Err, n.Since) }

func brief(state NodeState, err error) string {
	if why := WhySilent(err); why != "" && (state == NodeDown || state == NodeRefusing) {
		return fmt.Sprintf("%s (%s)", state, why)
	}
	return string(state)
}

func standing(state NodeState, err error, since time.Time) string {
	if (state != NodeDown && state != NodeRefusing) || since.IsZero() {
		return brief(state, err)
	}
	return brief(state, err) + " since " + since.UTC().Format(time.RFC3339)
}

// noteRefusal counts a reply in which the node refuses what scripts do. It is probed with every command of
// theirs until it takes them all: a write that changes nothing may be among those it takes.
func (n *node) noteRefusal(v *vote) {
	if v.refuses != nil || isRefusal(reason(v.err)) {
		n.refusals.Add(1)
	}
}

// clearRefusals forgets the refusals that there were when the node was probed, unless it has refused something
// since, in v too.
func (n *node) clearRefusals(doubts int64, v *vote) {
	if v.kind == yes {
		n.refusals.CompareAndSwap(doubts, 0)
	}
}

// addRefusals adds to the votes of a probe which nodes refused a repair.
func addRefusals(votes, ordered []vote) {
	for i := range votes {
		if votes[i].code != 0 && isRefusal(ordered[i].err) {
			votes[i].refuses = ordered[i].err
		}
	}
}

// lastStatus is what the last probe told of a node.
func (s *Service) lastStatus(i int) NodeStatus {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	return s.recovery.status[i]
}

// logQuorumLocked logs that fewer nodes vote than must agree, and that enough do again, each once. The caller
// holds recovery.mu.
func (s *Service) logQuorumLocked() {
	voting, others := 0, []string(nil)
	for i := range s.recovery.status {
		n := &s.recovery.status[i]
		if n.Ready() {
			voting++
		} else {
			others = append(others, n.Address+" "+n.Brief())
		}
	}
	lost := &s.recovery.lost
	if voting >= s.quorum == (*lost == 0) {
		return
	}
	attrs := []slog.Attr{slog.Int("voting", voting), slog.Int("needed", s.quorum)}
	if len(others) > 0 {
		attrs = append(attrs, slog.String("nodes", strings.Join(others, ", ")))
	}
	if *lost == 0 {
		*lost = max(s.now(), 1)
		s.opts.Log.LogAttrs(context.Background(), slog.LevelError, "lock quorum lost: no lock can be taken or renewed", attrs...)
		return
	}
	attrs = append(attrs, slog.Duration("lost_for", (s.now()-*lost).Round(time.Millisecond)))
	*lost = 0
	s.opts.Log.LogAttrs(context.Background(), slog.LevelInfo, "lock quorum is back", attrs...)
}

// recordStatus stores what a probe told and logs what changed.
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
