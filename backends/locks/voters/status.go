package voters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/backends/locks"
	"github.com/lockproxy/lockproxy/backends/locks/vote"
	"github.com/lockproxy/lockproxy/backends/loglimit"
)

func isRefusal(err error) bool {
	var r *locks.RefusalError
	return errors.As(err, &r)
}

// whySilent is why a node did not vote. If it has forgotten and, by the last probe, refuses writes, that is in the way of its return.
func (s *Set) whySilent(i int, v *vote.Vote) error {
	if seen := s.LastStatus(i); seen.State == locks.NodeRefusing && v.Forgot() {
		return s.Members[i].Name(fmt.Errorf("votes when it takes writes again: %s", locks.WhySilent(seen.Err)))
	}
	return s.Members[i].Name(OrTimeout(v.Err))
}

// noteRefusal counts a reply in which the node refuses a command of a script. From then on probes try every command
// of the scripts, until the node does them all: the one write that other probes try may be one that it does.
func (n *Node) noteRefusal(v *vote.Vote) {
	if v.Refuses != nil || isRefusal(reason(v.Err)) {
		n.refusals.Add(1)
	}
}

// clearRefusals forgets the refusals, counted when the node was probed, if the probe's vote v is a yes. If the node
// has refused something since, in v too, the count has changed and stays.
func (n *Node) clearRefusals(counted int64, v *vote.Vote) {
	if v.Kind == vote.Yes {
		n.refusals.CompareAndSwap(counted, 0)
	}
}

// addRefusals adds to the votes of a probe which nodes refused a repair.
func addRefusals(votes, repairs []vote.Vote) {
	for i := range votes {
		if votes[i].Code != 0 && isRefusal(repairs[i].Err) {
			votes[i].Refuses = repairs[i].Err
		}
	}
}

// Nodes is what the last probe told of every node, in the order of Options.Nodes.
func (s *Set) Nodes() []locks.NodeStatus {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	out := append([]locks.NodeStatus(nil), s.recovery.status...)
	for i, n := range s.Members {
		n.mu.Lock()
		out[i].Address, out[i].RunID = n.addressLocked(), n.id.runID
		out[i].Chosen = n.tracker != nil
		out[i].Took, out[i].Queued, out[i].Timeout = n.took, len(n.queue)+len(n.retries), s.Opts.fixedTimeout()
		n.mu.Unlock()
		if out[i].State == "" {
			out[i].State = locks.NodeUnknown
		}
	}
	return out
}

// LastStatus is what the last probe told of a node.
func (s *Set) LastStatus(i int) locks.NodeStatus {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	return s.recovery.status[i]
}

// quorumLog is what the log told of the quorum.
type quorumLog struct {
	changes loglimit.Limit
	had     bool          // a quorum has voted since the start
	lost    time.Duration // since when fewer vote; 0: a quorum does
	lostFor time.Duration // how long that lasted when it was last over
}

// note notes at a time whether a quorum votes, and reports whether that has changed.
func (q *quorumLog) note(has bool, now time.Duration) (changed bool) {
	changed = has == (q.lost != 0)
	switch {
	case changed && has:
		q.lost, q.lostFor = 0, now-q.lost
	case changed:
		q.lost = max(now, 1)
	}
	return changed
}

// logQuorumLocked logs that fewer nodes vote than must agree, and that enough do again. Until enough have, after the
// start, nothing is lost. The caller holds recovery.mu.
func (s *Set) logQuorumLocked() {
	voting, others := 0, []string(nil)
	for i := range s.recovery.status {
		n := &s.recovery.status[i]
		if n.Ready() {
			voting++
		} else {
			others = append(others, n.Address+" "+n.Brief())
		}
	}
	q, has := &s.recovery.quorum, voting >= s.Quorum
	q.had = q.had || has
	leftOut, due := q.changes.State(q.note(has, s.Clock()), s.LogTime())
	if !due {
		return
	}
	attrs := []slog.Attr{slog.Int("voting", voting), slog.Int("needed", s.Quorum)}
	if len(others) > 0 {
		attrs = append(attrs, slog.String("nodes", strings.Join(others, ", ")))
	}
	level, text := slog.LevelError, "lock quorum lost: no lock can be taken or renewed"
	switch {
	case has:
		level, text = loglimit.Level(leftOut), "lock quorum is back"
		attrs = append(attrs, slog.Duration("lost_for", q.lostFor.Round(time.Millisecond)))
	case !q.had:
		level, text = slog.LevelWarn, "no lock quorum yet: no lock can be taken"
	}
	s.Opts.Log.LogAttrs(context.Background(), level, text, loglimit.With(attrs, leftOut)...)
}

// noteEmptied logs once that all nodes have lost their memory, those included that were enlisted since and wait. The caller has the turn.
func (s *Set) noteEmptied(votes []vote.Vote) {
	all := s.knowsRecords() && !slices.ContainsFunc(votes, func(v vote.Vote) bool { return !v.Forgot() })
	if all && !s.recovery.emptied {
		s.Opts.Log.Error("all lock nodes are empty: none votes before the leases that they may have granted are over, unless lockproxy init says that nobody counts on one")
	}
	s.recovery.emptied = all
}

// recordStatus stores what a probe told and logs what changed.
func (s *Set) recordStatus(votes []vote.Vote) {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	unused := false
	defer func() { s.recovery.unused.Store(unused) }()
	defer s.logQuorumLocked()
	s.noteForgottenLocked(votes)
	for i := range votes {
		was, is := s.recovery.status[i], s.Status(i, &votes[i])
		if is.Since = was.Since; was.State != is.State {
			is.Since = time.Now()
		}
		unused = unused || is.State == locks.NodeUnused
		s.recovery.status[i] = is
		s.Members[i].meter.quarantine(&is)
		changed := was.State != is.State || was.Up != is.Up || is.State == locks.NodeRefusing && was.Brief() != is.Brief()
		if leftOut, due := s.recovery.changes[i].State(changed, s.LogTime()); due {
			s.logStatus(i, &is, leftOut)
		}
	}
}

// logStatus logs the state of a node; leftOut changes before had no line.
func (s *Set) logStatus(i int, is *locks.NodeStatus, leftOut int) {
	level, attrs := loglimit.Level(leftOut), []slog.Attr{
		slog.String("node", s.Members[i].Server.String()), slog.String("state", string(is.State)),
	}
	if is.Err != nil {
		level, attrs = slog.LevelWarn, append(attrs, slog.String("reason", is.Err.Error()))
	}
	s.Opts.Log.LogAttrs(context.Background(), level, "lock node", loglimit.With(attrs, leftOut)...)
}

// justForgot is how long a node that was emptied takes to know, at most, whether it may be told what the others hold.
const justForgot = 5 * time.Second

// Status is what a vote tells of a node.
func (s *Set) Status(i int, v *vote.Vote) locks.NodeStatus {
	n := s.Members[i]
	n.mu.Lock()
	barred := n.barred
	n.mu.Unlock()
	st := locks.NodeStatus{Address: n.Server.String(), Up: v.Kind != vote.Silent || v.Code != 0, State: locks.NodeDown, Err: v.Err, Largest: v.Fence}
	switch {
	case barred != nil:
		st.State, st.Err = locks.NodeBarred, barred
	case v.Refuses != nil:
		st.State, st.Err = locks.NodeRefusing, n.Name(v.Refuses)
		if v.Code == vote.Quarantined { // which does not end before
			st.Left = vote.Millis(v.Wait)
		}
	case v.Kind == vote.Yes:
		st.State, st.Doubt = locks.NodeVoting, vote.Millis(v.Doubt)
	case v.Code == vote.NoRecord && s.Opts.OnDemand:
		st.State, st.Err = locks.NodeUnused, nil
	case v.Code == vote.NoRecord:
		st.State = locks.NodeNew
	case v.Code == vote.Quarantined:
		st.State, st.Left = locks.NodeQuarantine, vote.Millis(v.Wait)
		st.Copies = s.mayCopy(v) || s.hasOthers() && vote.Millis(v.MaxTTL-v.Wait) < justForgot
	case v.Code == vote.InDoubt: // about one name; what it says of the others is for the next probe
		st.State, st.Doubt = locks.NodeUnknown, vote.Millis(v.Wait)
	case v.Code == vote.Floorless:
		st.State = locks.NodeFloorless
	case v.Code == vote.OtherSet:
		st.State = locks.NodeMismatch
	case v.Code == vote.Damaged:
		st.State = locks.NodeBarred
	default:
		st.Err = n.Name(OrTimeout(v.Err))
		if isRefusal(st.Err) {
			st.State, st.Up = locks.NodeRefusing, true
		}
	}
	return st
}
