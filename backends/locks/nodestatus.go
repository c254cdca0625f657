package locks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

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

// noteRefusal counts a reply in which the node refuses what scripts do. It is tried with
// every command of theirs until it takes them all: a write that changes nothing may
// be among those it takes.
func (n *node) noteRefusal(v *vote) {
	if v.refuses != nil || isRefusal(reason(v.err)) {
		n.refusals.Add(1)
	}
}

// clearRefusals ends the doubt there was when the node was asked for v, unless it has refused
// something since, in v too.
func (n *node) clearRefusals(doubts int64, v *vote) {
	if v.kind == yes {
		n.refusals.CompareAndSwap(doubts, 0)
	}
}

// addRefusals makes votes on the state of nodes tell which of them refused an order.
func addRefusals(votes, ordered []vote) {
	for i := range votes {
		if votes[i].code != 0 && isRefusal(ordered[i].err) {
			votes[i].refuses = ordered[i].err
		}
	}
}

// lastStatus is what was last seen of a node, as far as a look at it tells.
func (s *Service) lastStatus(i int) NodeStatus {
	s.recovery.mu.Lock()
	defer s.recovery.mu.Unlock()
	return s.recovery.status[i]
}

// logQuorumLocked logs that fewer nodes vote than must agree, and that enough do again,
// each once. The caller has recovery.mu.
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
