package locks

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/backends/metrics"
)

// A question is what a round asks: an index of questions.
type question uint8

const (
	askAcquire question = iota
	askSettle
	askRenew
	askNote
	askRelease
	askRead
	askList
	askState
	askRepair
)

var questions = [...]string{"acquire", "settle", "renew", "note", "release", "read", "list", "state", "order"}

// An end is what became of a round: an index of ends.
type end uint8

const (
	endGranted   end = iota // acquire: a quorum granted it
	endDone                 // a quorum did it, or answered
	endHeld                 // another owner has the name
	endLost                 // the owner has it no more
	endSplit                // a quorum voted, and nobody has a majority
	endRepeat               // it had been done before
	endConflict             // the nodes know of another renewal or hold
	endLate                 // granted, when the lease was over
	endUnsettled            // granted, but a quorum did not take the fence
	endNoQuorum             // too few voted
	endCanceled             // nobody waited for it any more
)

var ends = [...]string{"granted", "done", "held", "lost", "split", "repeat", "conflict", "late", "unsettled", "noquorum", "canceled"}

// endOfOutcome is the end of a round on an existing grant.
func endOfOutcome(err error, r outcome) end {
	if err != nil {
		return endCanceled
	}
	switch r {
	case applied:
		return endDone
	case lost:
		return endLost
	case otherOwner:
		return endHeld
	case conflict:
		return endConflict
	case released:
		return endRepeat
	}
	return endNoQuorum
}

// endOf is the end of a round that is done or has too few votes. err is that of waiting.
func endOf(err error, done bool) end {
	switch {
	case err != nil:
		return endCanceled
	case done:
		return endDone
	}
	return endNoQuorum
}

// A roundMeter counts the rounds that ask one question.
type roundMeter struct {
	ends [len(ends)]atomic.Int64
	took metrics.Histogram
}

// slowRound is how long a round that is logged takes: more than nodes have by default
// while a quorum has answered.
const slowRound = 100 * time.Millisecond

// ended counts a round, and logs it if it was slow. votes are those that closing it gave.
func (s *Service) ended(r *round, votes []vote, e end) {
	took := s.now() - r.began
	m := &s.counters.asked[r.question]
	m.ends[e].Add(1)
	m.took.Observe(took)
	if took >= slowRound && r.question < askList && e != endCanceled {
		s.opts.Log.LogAttrs(context.Background(), slog.LevelWarn, "lock round was slow",
			slog.String("question", questions[r.question]), slog.String("end", ends[e]), slog.Duration("took", took),
			slog.String("silent", s.silentNodes(votes)))
	}
}

// closed is ended for a round that is done when a quorum has answered, and returns its
// votes.
func (s *Service) closed(r *round, votes []vote, err error) []vote {
	s.ended(r, votes, endOf(err, len(votes)-countKind(votes, silent) >= s.quorum))
	return votes
}

// silentNodes is which nodes did not vote, and why.
func (s *Service) silentNodes(votes []vote) string {
	var all []string
	for i := range votes {
		if v := &votes[i]; v.kind == silent && !errors.Is(v.err, errNotAsked) {
			all = append(all, s.nodes[i].name(orTimeout(v.err)).Error())
		}
	}
	return strings.Join(all, ", ")
}

// What a node voted, or why it did not: indexes of replyLabels.
const (
	saidYes = iota
	saidNo
	saidTimeout
	saidConnection
	saidQuarantine
	saidUnregistered
	saidFloor
	saidList
	saidRefused
	saidBusy
	saidError
	saidUnwanted
	saidClosed
)

var replyLabels = [...]string{
	"yes", "no", "timeout", "connection", "quarantine", "unregistered", "floor", "list", "refused", "busy", "error", "unwanted", "closed",
}

// A nodeMeter is what is counted of one node.
type nodeMeter struct {
	votes                   [len(replyLabels)]atomic.Int64
	replies                 metrics.Histogram
	reconnects, quarantines atomic.Int64

	left time.Duration // of the quarantine that it was last seen in; 0: it has been seen out of it; guarded by recovery.mu
}

// quarantine counts one that has begun since the node was last seen. A node that was out
// of reach meanwhile is in the same one, unless more of it is left than was then.
func (m *nodeMeter) quarantine(seen *NodeStatus) {
	switch {
	case !seen.Up:
		return
	case seen.State != NodeQuarantine:
		m.left = 0
		return
	case m.left == 0 || seen.Left > m.left:
		m.quarantines.Add(1)
	}
	m.left = max(seen.Left, 1)
}

func (m *nodeMeter) vote(v *vote) { m.votes[replyLabel(v)].Add(1) }

// replyLabel sorts a vote.
func replyLabel(v *vote) int {
	var same *sameServerError
	switch {
	case v.kind == yes || v.kind == duplicate:
		return saidYes
	case v.kind != silent:
		return saidNo
	case v.code < 0:
		return [...]int{saidUnregistered, saidQuarantine, saidFloor, saidList}[-v.code-1]
	case errors.Is(v.err, errTimeout):
		return saidTimeout
	case errors.Is(v.err, errUnwanted):
		return saidUnwanted
	case errors.Is(v.err, errBusy):
		return saidBusy
	case errors.Is(v.err, ErrClosed):
		return saidClosed
	case errors.As(v.err, &same), errors.Is(v.err, errCluster), errors.Is(v.err, errReplica):
		return saidRefused
	case isConnection(v.err):
		return saidConnection
	}
	return saidError
}

// stats is what was counted of a node.
func (n *node) stats() (st NodeStats) {
	for i := range n.meter.votes {
		switch votes := n.meter.votes[i].Load(); i {
		case saidYes:
			st.Yes = votes
		case saidNo:
			st.No = votes
		case saidUnwanted: // the others had decided it
		default:
			st.None += votes
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	st.Paused = n.lastErr != nil && n.retryAt > n.svc.now()
	return st
}
